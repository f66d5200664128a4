// SPDX-License-Identifier: Apache-2.0

//! `tidegate config`: the effective configuration without its secrets, and the schema.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use super::collector::valid_files;
use super::examples::examples;
use super::kit::gateway::tidegate;
use super::kit::{Script, plugins, testenv};

/// `tidegate config print` with the variables that the examples need.
fn print(file: &Path) -> Command {
    let mut command = tidegate();
    command
        .args(["config", "print", "--config"])
        .arg(file)
        .env("QUICKSTART_RINGS", "/tmp")
        .env("PLUGIN_DIR", plugins::examples());
    command
}

/// The exit code, standard output and standard error.
fn result(command: &mut Command) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn every_example_is_printed_and_its_print_gives_the_same_print() {
    let directory = TempDir::new().expect("a temporary directory");
    for example in examples() {
        for format in ["yaml", "json"] {
            let (code, first, said) = result(print(&example).args(["--format", format]));
            assert_eq!((code, said.as_str()), (Some(0), ""), "{}", example.display());
            let file = directory.path().join(format!("printed.{format}"));
            fs::write(&file, &first).expect("a file");
            let (_, second, _) = result(print(&file).args(["--format", format]));
            assert_eq!(first, second, "{}", example.display());
        }
    }
}

#[test]
fn a_print_shows_variables_and_no_secret_even_of_a_wrong_configuration() {
    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join("gateway.yaml");
    let write = |receiver: &str| {
        let text = format!(
            "extensions:
  basicauth: {{client_auth: {{username: shop, password: \"${{env:PASSWORD}}\"}}}}
receivers:
  {receiver}
exporters:
  otlphttp: {{endpoint: \"${{env:ENDPOINT}}\", auth: {{authenticator: basicauth}}, headers: {{authorization: hunter2}}}}
  otlphttp/b: {{endpoint: \"http://ada:hunter2@127.0.0.1:9\"}}
service:
  extensions: [basicauth]
  pipelines: {{logs: {{receivers: [nop], exporters: [otlphttp, otlphttp/b]}}}}
"
        );
        fs::write(&file, text).expect("a file");
    };
    let printed = || {
        let (code, text, said) = result(
            print(&file)
                .env("PASSWORD", "hunter2")
                .env("ENDPOINT", "http://127.0.0.1:9"),
        );
        assert!(
            !text.contains("hunter2") && !said.contains("hunter2"),
            "{text}{said}"
        );
        assert!(text.contains("endpoint: \"http://127.0.0.1:9\""), "{text}");
        assert!(text.contains("username: shop"), "{text}");
        assert!(text.contains("authorization: \"[REDACTED]\""), "{text}");
        (code, text, said)
    };
    write("nop:");
    let (code, _, said) = printed();
    assert_eq!((code, said.as_str()), (Some(0), ""));
    write("nop:\n    access:\n      my-tokens: [hunter2]\n      port: 1");
    let (code, text, said) = printed();
    assert_eq!(code, Some(1));
    assert!(said.contains("unknown key \"access\""), "{said}");
    assert!(text.contains("port: 1"), "{text}");
}

#[test]
fn a_file_that_is_not_yaml_is_not_printed() {
    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join("gateway.yaml");
    fs::write(&file, "receivers: [").expect("a file");
    let (code, text, said) = result(&mut print(&file));
    assert_eq!((code, text.as_str()), (Some(1), ""));
    assert!(said.contains("not valid YAML"), "{said}");
}

/// The errors of the schema itself under `schema`, and those of each file in it.
fn errors_by_schema(files: &[PathBuf]) -> Value {
    let (code, schema, said) = result(tidegate().args(["config", "schema"]));
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let script = Script::new("check_schema.py").env("PYTHONPATH", testenv("deploy-tools"));
    let answer = script.args(files).text_from(schema.as_bytes());
    let answer = answer.unwrap_or_else(|error| panic!("{error}"));
    serde_json::from_str(&answer).expect("a driver prints JSON")
}

#[test]
fn examples_and_valid_files_of_collectors_fit_the_schema() {
    let files = [examples(), valid_files()].concat();
    let errors = errors_by_schema(&files);
    let errors = errors.as_object().expect("errors by file");
    assert_eq!(errors.len(), files.len() + 1);
    for (file, errors) in errors {
        assert_eq!(errors.as_array().map(Vec::len), Some(0), "{file}: {errors:#}");
    }
}

#[test]
fn the_schema_refuses_what_the_gateway_refuses() {
    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join("gateway.yaml");
    let text = "receivers: {nosuch: {}, otlp/b: {protocols: {grpc: {queu: x}}}}
exporters: {otlphttp: {timeout: 5, compression: gzp, max_idle_conns: \"${env:N}\", sending_queue: }}
service: {pipelines: {logs: {receivers: [otlp/b], exporters: [nosuch]}}}
";
    fs::write(&file, text).expect("a file");
    let errors = errors_by_schema(std::slice::from_ref(&file));
    let errors = errors[file.to_str().expect("UTF-8")].as_array().cloned();
    let errors = errors.expect("errors of the file");
    let places: BTreeSet<_> = errors
        .iter()
        .filter_map(|error| error.as_str()?.split_once(": "))
        .map(|(place, _)| place)
        .collect();
    let expected = [
        "$.exporters.otlphttp.compression",
        "$.exporters.otlphttp.timeout",
        "$.receivers",
        "$.receivers['otlp/b'].protocols.grpc",
        "$.service.pipelines.logs.exporters[0]",
    ];
    assert_eq!(Vec::from_iter(places), expected, "{errors:#?}");
}
