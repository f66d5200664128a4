//! Files in the shapes that users of the Collector have: what `validate` says of each, and that they run.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;

use super::kit::gateway::tidegate;
use super::kit::process::Process;
use super::kit::{SOON, free_port};

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/config/collector")
}

/// The exit code and everything that `validate` says.
fn verdict(name: &str) -> String {
    let output = tidegate()
        .current_dir(corpus())
        .env_remove("TIDEGATE_TEST_UNSET")
        .args(["validate", "--config", name])
        .output()
        .expect("it starts");
    let code = output.status.code().expect("it ends by itself");
    format!("exit {code}\n{}", String::from_utf8_lossy(&output.stderr))
}

/// Each `*.yaml` has its verdict beside it, in `*.txt`; `UPDATE_GOLDEN=1` writes them.
#[test]
fn validate_says_of_each_file_what_is_wrong_and_what_has_no_effect() {
    let mut wrong = String::new();
    let mut files = 0;
    for entry in fs::read_dir(corpus()).expect("the corpus is there") {
        let path = entry.expect("it can be listed").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        files += 1;
        let name = path.file_name().expect("a file").to_string_lossy();
        let (verdict, golden) = (verdict(&name), path.with_extension("txt"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &verdict).expect("a writable checkout");
        }
        if fs::read_to_string(&golden).is_ok_and(|expected| expected == verdict) {
            continue;
        }
        wrong += &format!("--- {name} now gives\n{verdict}\n");
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(files >= 12, "{files} files");
}

/// As the Collector's chart and operator start an image: no subcommand, options after `=`.
fn run(file: &str, sets: &[String]) {
    let mut command = tidegate();
    command
        .current_dir(corpus())
        .arg(format!("--config={file}"))
        .arg("--feature-gates=-component.UseLocalHostAsDefaultHost,+other");
    for set in sets {
        command.arg(format!("--set={set}"));
    }
    let telemetry = free_port();
    command.arg(format!(
        "--set=service.telemetry.metrics.readers=[{{pull: {{exporter: {{prometheus: {{host: 127.0.0.1, port: {telemetry}}}}}}}}}]"
    ));
    let mut process = Process::start(file, &mut command);
    let ready = process.stderr.clone();
    process.wait_until("everything is ready", || {
        ready.find("everything is ready").is_some()
    });
    let said = process.stderr.text();
    assert!(said.contains("no feature gates"), "{said}");
    process.signal(Signal::TERM);
    let status = process.wait(SOON);
    assert!(status.success(), "{file}: {status}");
}

#[test]
fn the_binary_runs_as_the_chart_and_the_operator_start_it() {
    let port = || free_port();
    let otlp = |protocol: &str| {
        format!(
            "receivers.otlp.protocols.{protocol}.endpoint=127.0.0.1:{}",
            port()
        )
    };
    let both = [otlp("grpc"), otlp("http")];
    let health = format!("extensions.health_check.endpoint=127.0.0.1:{}", port());
    run(
        "chart_gateway_otlp.yaml",
        &[&both[..], std::slice::from_ref(&health)].concat(),
    );
    let both = [otlp("grpc"), otlp("http")];
    run("operator.yaml", &both);
    let both = [otlp("grpc"), otlp("http")];
    let health = format!("extensions.health_check.endpoint=127.0.0.1:{}", port());
    run("old_names.yaml", &[&both[..], &[health]].concat());
}
