// SPDX-License-Identifier: Apache-2.0

//! `tidegate config`: the effective configuration without its secrets, and the schema. The forms of `tidegate validate`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::collector::valid_files;
use super::examples::examples;
use super::kit::command::{result, validate};
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

/// Editors show a title above the text of each option.
#[test]
fn the_schema_has_no_title() {
    let (_, schema, _) = result(tidegate().args(["config", "schema"]));
    let schema: Value = serde_json::from_str(&schema).expect("a schema");
    assert!(schema["description"].is_string() && schema["title"].is_null());
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

/// `tidegate validate` of a file in its directory, by its name.
fn validate_text(directory: &TempDir, text: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    fs::write(directory.path().join("gateway.yaml"), text).expect("a file");
    result(validate(directory.path(), Path::new("gateway.yaml")).args(arguments))
}

const VALID: &str = "extensions: {health_check: }
receivers: {nop: , nop/b: }
processors: {batch: }
exporters: {nop: }
service:
  extensions: [health_check]
  pipelines:
    logs: {receivers: [nop], processors: [batch], exporters: [nop]}
    traces: {receivers: [nop, nop/b], exporters: [nop]}
";

/// An error, a warning of the reader, and a warning without a position.
const WRONG: &str = "receivers: {nop: }
exporters: {nop: {queue: 1}}
service:
  telemetry: {logs: {development: true}}
  pipelines: {logs: {receivers: [nop], exporters: [nop]}}
";

#[test]
fn validate_counts_the_parts_of_a_valid_file() {
    let directory = TempDir::new().expect("a temporary directory");
    let (code, summary, said) = validate_text(&directory, VALID, &["--set", "service.drain_timeout=1s"]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert_eq!(
        summary,
        "gateway.yaml: valid: 2 pipelines, 2 receivers, 1 processor, 1 exporter, 1 extension\n"
    );
    let (code, summary, said) = validate_text(&directory, WRONG, &[]);
    assert_eq!((code, summary.as_str()), (Some(1), ""));
    assert!(said.contains("gateway.yaml:2:19: error: "), "{said}");
}

#[test]
fn validate_names_what_only_a_restart_can_change() {
    let directory = TempDir::new().expect("a temporary directory");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/cluster-replica.yaml");
    let (code, summary, said) = result(&mut validate(directory.path(), &example));
    assert_eq!(code, Some(0), "{said}");
    let parts = "extensions::admin, extensions::cluster, receivers::partials, service::telemetry";
    let end = format!("; changes of {parts} need a restart\n");
    assert!(summary.ends_with(&end), "{summary}");
}

#[test]
fn validate_gives_programs_one_object() {
    let directory = TempDir::new().expect("a temporary directory");
    let json = |text: &str, arguments: &[&str]| {
        let (code, json, said) =
            validate_text(&directory, text, &[&["--output", "json"], arguments].concat());
        assert_eq!(said, "");
        let json: Value = serde_json::from_str(&json).expect("JSON");
        (code, json)
    };
    let (code, valid) = json(VALID, &[]);
    assert_eq!(code, Some(0));
    let expected = serde_json::json!({"ok": true, "problems": [], "warnings": [], "omitted": 0});
    assert_eq!(valid, expected);
    let (code, wrong) = json(WRONG, &["--feature-gates", "a"]);
    assert_eq!((code, &wrong["ok"]), (Some(1), &Value::from(false)));
    let [problem] = wrong["problems"].as_array().expect("a list").as_slice() else {
        panic!("{wrong:#}")
    };
    assert_eq!(problem["file"], "gateway.yaml");
    assert_eq!(problem["line"], 2);
    assert_eq!(problem["column"], 19);
    assert_eq!(problem["path"], "exporters::nop::queue");
    assert_eq!(problem["message"], "unknown key \"queue\"");
    let [of_the_reader, of_an_argument] = wrong["warnings"].as_array().expect("a list").as_slice() else {
        panic!("{wrong:#}")
    };
    assert_eq!(of_the_reader["line"], 4);
    assert_eq!(of_an_argument["path"], "--feature-gates");
    assert_eq!(of_an_argument.get("file"), None);
}

#[test]
fn validate_annotates_files_in_workflows_of_github() {
    let directory = TempDir::new().expect("a temporary directory");
    let (code, lines, said) =
        validate_text(&directory, WRONG, &["--output", "github", "--feature-gates", "a"]);
    assert_eq!((code, said.as_str()), (Some(1), ""));
    let begins = [
        "::error file=gateway.yaml,line=2,col=19::exporters::nop::queue: unknown key \"queue\"",
        "::warning file=gateway.yaml,line=4,col=22::service::telemetry::logs::development: ",
        "::warning::--feature-gates: ",
    ];
    assert_eq!(lines.lines().count(), begins.len(), "{lines}");
    for (line, begin) in lines.lines().zip(begins) {
        assert!(line.starts_with(begin), "{line}");
    }
    let (code, lines, said) = validate_text(&directory, VALID, &["--output", "github"]);
    assert_eq!((code, lines.as_str(), said.as_str()), (Some(0), "", ""));
}

#[test]
fn a_secret_below_a_misspelt_key_is_not_printed() {
    let directory = TempDir::new().expect("a temporary directory");
    let text = VALID
        .replace(
            "extensions: {",
            "extensions: {bearertokenauth: {token: a, tokn: SEKRET}, ",
        )
        .replace(
            "exporters: {",
            "exporters: {otlphttp: {endpoint: \"http://a\", api_ky: {b: SEKRET}}, ",
        );
    let (code, summary, said) = validate_text(&directory, &text, &[]);
    assert_eq!(code, Some(1), "{summary}");
    assert!(
        said.contains("unknown key \"tokn\"") && said.contains("[REDACTED]"),
        "{said}"
    );
    assert!(!said.contains("SEKRET"), "{said}");
}
