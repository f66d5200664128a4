// SPDX-License-Identifier: Apache-2.0

//! Plugins that the gateway refuses at its start.

use super::super::kit::gateway::tidegate;
use super::*;
use std::process::Command;

/// The messages of `run` and of `validate` about a plugin that they refuse.
fn refused(plugin: &Path, pipeline: &str, options: &str) -> (String, String) {
    let yaml = format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:{}'}}}}}}}}
exporters: {{plugin: {{{options}}}}}
service: {{pipelines: {{{pipeline}: {{receivers: [otlp], exporters: [plugin]}}}}}}\n",
        free_port()
    );
    let gateway = Gateway::launch(&yaml, |_| {});
    let (code, ran) = gateway.wait(SOON);
    assert_eq!(code, Some(1), "{ran}");
    let path = plugin.join("config.yaml");
    fs::write(&path, yaml).expect("a file");
    let validated = Command::output(tidegate().arg("validate").arg("--config").arg(path)).expect("it starts");
    (ran, String::from_utf8_lossy(&validated.stderr).into_owned())
}

#[test]
fn errors_of_refused_plugins_name_the_expected_and_the_found_value() {
    let directory = TempDir::new().expect("a temporary directory");
    let plugin =
        |name: &str, defines: &[&str]| plugins::odd(&directory.path().join(plugins::file(name)), defines);
    plugin("odd", &[]);
    plugin("future", &["-DNAME=\"future\"", "-DABI=2"]);
    plugin("other", &[]);
    plugin("entryless", &["-DNO_ENTRY"]);
    plugin("metrics_only", &["-DNAME=\"metrics_only\"", "-DTAKES=1"]);
    fs::write(directory.path().join(plugins::file("text")), "no ELF").expect("a file");
    // Whether `validate` knows is last: it does not run code of the plugin.
    let table = [
        (
            "metrics",
            "name: future",
            "expected plugin ABI version 1, found version 2",
            false,
        ),
        (
            "metrics",
            "name: other",
            "expected the plugin `other`, found the plugin `odd`",
            false,
        ),
        (
            "metrics",
            "name: odd, version: '2'",
            "expected version ^2 of the plugin `odd`, found version 1.2.3",
            false,
        ),
        (
            "metrics",
            "name: odd, config: refuse",
            "`odd` 1.2.3 refuses its configuration: no such table: t1",
            false,
        ),
        (
            "metrics",
            "name: odd, config: hang-create, timeout: 100ms",
            "not created within 100ms",
            false,
        ),
        (
            "traces",
            "name: metrics_only",
            "takes no traces, and a traces pipeline sends here",
            false,
        ),
        (
            "metrics",
            "name: entryless",
            "exports `tidegate_exporter_plugin`",
            true,
        ),
        ("metrics", "name: text", "expected a shared object (ELF)", true),
        (
            "metrics",
            "name: nowhere",
            "there is no plugin `nowhere`: looked for",
            true,
        ),
        (
            "metrics",
            "name: odd, version: two",
            "is not a range of versions",
            true,
        ),
    ];
    for (pipeline, options, expected, is_known_before) in table {
        for isolation in ["none", "process"] {
            let options = format!(
                "{options}, directories: ['{}'], isolation: {isolation}",
                directory.path().display()
            );
            let (ran, validated) = refused(directory.path(), pipeline, &options);
            assert!(ran.contains(expected), "{options}: {ran}");
            assert_eq!(
                validated.contains(expected),
                is_known_before,
                "{options}: {validated}"
            );
        }
    }
}

#[test]
fn a_path_needs_no_name_and_a_crash_at_the_start_is_told() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = directory.path().join("mine.so");
    plugins::odd(&path, &[]);
    let options = |does: &str| format!("path: '{}', isolation: process, config: {does}", path.display());
    let (ran, validated) = refused(directory.path(), "logs", &options("crash-create"));
    assert!(
        ran.contains("ended while the plugin was created") && ran.contains("SIGSEGV"),
        "{ran}"
    );
    assert_eq!(validated, "");
}

#[test]
fn a_plugin_that_others_could_replace_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join(plugins::file("odd"));
    plugins::odd(&file, &[]);
    let configuration = directory.path().join("gateway.yaml");
    fs::write(
        &configuration,
        config(free_port(), directory.path(), &[("odd", "fine")]),
    )
    .expect("a file");
    let validate = || {
        let done = tidegate()
            .arg("validate")
            .arg("--config")
            .arg(&configuration)
            .output();
        let done = done.expect("it runs");
        (
            done.status.success(),
            String::from_utf8_lossy(&done.stderr).into_owned(),
        )
    };
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    assert_eq!(validate(), (true, String::new()));
    mode(&file, 0o757);
    let (is_valid, said) = validate();
    assert!(
        !is_valid && said.contains("chmod o-w") && said.contains(".so"),
        "{said}"
    );
    mode(&file, 0o755);
    mode(directory.path(), 0o777);
    let (is_valid, said) = validate();
    assert!(
        !is_valid && said.contains("every user may write to it (mode 777)"),
        "{said}"
    );
    mode(directory.path(), 0o700);
    // A folder further up.
    let above = TempDir::new().expect("a temporary directory");
    let folder = above.path().join("plugins");
    fs::create_dir(&folder).expect("a folder");
    let nested = folder.join(plugins::file("odd"));
    plugins::odd(&nested, &[]);
    let text = config(free_port(), &folder, &[("odd", "fine")]);
    fs::write(&configuration, text).expect("a file");
    assert_eq!(validate(), (true, String::new()));
    mode(above.path(), 0o777);
    let (is_valid, said) = validate();
    let cure = format!("chmod o-w {}", above.path().display());
    assert!(!is_valid && said.contains(&cure), "{said}");
    mode(above.path(), 0o1777);
    assert_eq!(validate(), (true, String::new()));
    let text = config(free_port(), directory.path(), &[("odd", "fine")]);
    fs::write(&configuration, text).expect("a file");
    // Only root can give a file away.
    if std::os::unix::fs::chown(&file, Some(12345), None).is_ok() {
        let (is_valid, said) = validate();
        assert!(
            !is_valid && said.contains("its owner is the user 12345"),
            "{said}"
        );
    }
}
