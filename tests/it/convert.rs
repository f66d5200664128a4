// SPDX-License-Identifier: Apache-2.0

//! `tidegate config convert` and `config fmt`: `validate` accepts each converted file, and all losses are named.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use super::collector::valid_files;
use super::examples::examples;
use super::kit::command::{Finished, finished, validate};
use super::kit::gateway::tidegate;
use super::kit::process::Process;
use super::kit::{Gateway, SOON, free_port, http, wait_until};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/config")
        .join(name)
}

fn convert(file: &Path, arguments: &[&str]) -> Finished {
    let mut command = tidegate();
    finished(command.args(["config", "convert"]).arg(file).args(arguments))
}

/// `validate` in the directory of the original file accepts a converted text.
fn is_valid(text: &str, original: &Path) {
    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join("converted.yaml");
    fs::write(&file, text).expect("a file");
    let mut command = validate(original.parent().expect("a directory"), &file);
    command
        .env_remove("TIDEGATE_TEST_UNSET")
        .env("DATADOG_OTLP_ENDPOINT", "https://otlp.example.com")
        .env("DD_API_KEY", "key")
        .env("GPU_HOST", "localhost")
        .env("GRAFANA_TOKEN", "token")
        .env("MIMIR_URL", "https://mimir.example.com/api/v1/push");
    let validated = finished(&mut command);
    let name = original.display();
    assert_eq!(validated.code, Some(0), "{name}\n{text}\n{}", validated.errors);
}

fn has_all(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn valid_files_of_collectors_stay_valid() {
    let files = valid_files();
    assert!(files.len() >= 8, "{files:?}");
    for file in files {
        let converted = convert(&file, &["--from", "collector"]);
        assert_eq!(
            converted.code,
            Some(0),
            "{}: {}",
            file.display(),
            converted.errors
        );
        is_valid(&converted.output, &file);
    }
}

#[test]
fn files_of_collectors_with_other_components_become_valid() {
    for name in [
        "agent_in_kubernetes.yaml",
        "chart_gateway.yaml",
        "filter_ottl.yaml",
        "middlewares.yaml",
    ] {
        let file = data("collector").join(name);
        let converted = convert(&file, &[]);
        assert_eq!(converted.code, Some(0), "{name}: {}", converted.errors);
        assert!(!converted.errors.contains("left out: 0"), "{}", converted.errors);
        is_valid(&converted.output, &file);
    }
}

#[test]
fn a_collector_s_file_loses_only_what_standard_error_names() {
    let file = data("convert/otelcol.yaml");
    let mut command = tidegate();
    command.args(["config", "convert"]).arg(&file);
    let converted = finished(command.env("DD_API_KEY", "from-the-environment"));
    assert_eq!(converted.code, Some(0), "{}", converted.errors);
    is_valid(&converted.output, &file);
    has_all(
        &converted.output,
        &[
            "endpoint: \"${env:MY_POD_IP:-127.0.0.1}:4317\"",
            "replacement: \"$$1\"",
            "otlphttp/datadog:",
            "api_key: \"${env:DD_API_KEY}\"",
            "endpoint: \"${env:DATADOG_OTLP_ENDPOINT}\"",
            "password: \"${env:GRAFANA_TOKEN}\"",
        ],
    );
    let all = format!("{}{}", converted.output, converted.errors);
    assert!(!all.contains("from-the-environment"), "{all}");
    has_all(
        &converted.errors,
        &[
            "otelcol.yaml:24: receivers::hostmetrics: not in tidegate: run an exporter",
            "processors::resourcedetection: not in tidegate: set the attributes",
            "exporters::datadog: converted to `otlphttp/datadog` with `vendor: datadog`: set the variable DATADOG_OTLP_ENDPOINT",
            "exporters::datadog::api::site: converted: ",
            "exporters::prometheusremotewrite::no_such_option: unknown key",
            "exporters::awss3: not in tidegate: send OTLP to a Collector",
            "connectors::spanmetrics: not in tidegate: ",
            "extensions::opamp: not in tidegate: ",
            "service::pipelines::logs: left out: no exporter is left",
        ],
    );
    let last = converted.errors.lines().last().expect("a last line");
    assert_eq!(
        last,
        "converted: 2 pipelines, 2 receivers, 3 processors, 3 exporters, 2 extensions; with a change: 2; left out: 7"
    );
    assert!(
        converted.errors.contains("note: commands such as `tidegate top`"),
        "{}",
        converted.errors
    );
    assert_eq!(converted.errors.lines().count(), 11, "{}", converted.errors);
    assert_eq!(convert(&file, &["--strict"]).code, Some(1));
}

#[test]
fn a_converted_file_with_admin_answers_top_tap_and_query() {
    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join("otelcol.yaml");
    let (receiver, page, admin) = (free_port(), free_port(), free_port());
    let original = format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receiver}\"}}}}}}}}
exporters: {{prometheus: {{endpoint: \"127.0.0.1:{page}\"}}}}
extensions: {{health_check: {{endpoint: \"${{env:HEALTH_ENDPOINT}}\"}}}}
service:
  extensions: [health_check]
  pipelines: {{metrics: {{receivers: [otlp], exporters: [prometheus]}}}}
"
    );
    fs::write(&file, original).expect("a file");
    let converted = convert(&file, &["--with-admin"]);
    assert_eq!(converted.code, Some(0), "{}", converted.errors);
    assert!(converted.errors.contains("`tap: true`"), "{}", converted.errors);
    let again = directory.path().join("gateway.yaml");
    fs::write(&again, &converted.output).expect("a file");
    let again = convert(&again, &["--with-admin"]);
    assert_eq!(again.output, converted.output, "it has the extension");

    let endpoint = format!("127.0.0.1:{admin}");
    let gateway = Gateway::start(&converted.output.replace("127.0.0.1:8080", &endpoint));
    let command = |arguments: &[&str]| {
        let mut command = tidegate();
        command.args(arguments).args(["--endpoint", &endpoint]);
        command
    };
    let top = finished(&mut command(&["top", "--once", "--interval", "100ms"]));
    has_all(&top.output, &["receiver otlp", "exporter prometheus"]);
    let mut tap = Process::start("tidegate tap", &mut command(&["tap", "otlp", "--limit", "1"]));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let points = format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[
        {{"name":"load","gauge":{{"dataPoints":[{{"asInt":"7","timeUnixNano":"{}"}}]}}}}]}}]}}]}}"#,
        now.as_nanos()
    );
    wait_until(SOON, "the tap has an item", || {
        let sent = http::post(receiver, "/v1/metrics", "application/json", points.as_bytes());
        sent.is_ok_and(|answer| answer.status == 200) && tap.status().is_some()
    });
    assert!(tap.wait(SOON).success(), "{}", tap.stderr.text());
    assert_eq!(tap.stdout.text().trim_end(), "load{} 7");
    wait_until(SOON, "the query has an answer", || {
        let query = finished(&mut command(&["query", "load", "--fail-empty"]));
        query.code == Some(0) && query.output.contains('7')
    });
    gateway.stop();
}

#[test]
fn prometheus_becomes_a_gateway_that_scrapes_and_writes() {
    let file = data("convert/prometheus.yml");
    let converted = convert(&file, &[]);
    assert_eq!(converted.code, Some(0), "{}", converted.errors);
    is_valid(&converted.output, &file);
    has_all(
        &converted.output,
        &[
            "replacement: \"$${1}\"",
            "prometheusremotewrite/mimir:",
            "timeout: \"20s\"",
            "authenticator: bearertokenauth/mimir",
            "token: s3cr3t-credentials",
            "rules/*.yml",
            "endpoint: \"http://alertmanager:9093\"",
            "disable_scope_info: true",
            "without_scope_info: true",
        ],
    );
    assert!(!converted.output.contains("consul"), "{}", converted.output);
    has_all(
        &converted.errors,
        &[
            "scrape_configs[1]::consul_sd_configs: ",
            "scrape_configs[1]: left out: no discovery of targets",
            "remote_write[0]::queue_config::max_shards: not in tidegate: use `sending_queue`",
        ],
    );
    assert!(!converted.errors.contains("s3cr3t"), "{}", converted.errors);
    // The rules need `admin` too.
    let with_admin = convert(&file, &["--with-admin"]);
    is_valid(&with_admin.output, &file);
    has_all(&with_admin.output, &["endpoint: \"127.0.0.1:8080\"", "tap: true"]);
    assert!(!with_admin.output.contains("retention"), "{}", with_admin.output);
    assert!(with_admin.errors.contains("`tap: true`"), "{}", with_admin.errors);
    assert!(!converted.output.contains("tap:"), "{}", converted.output);
}

#[test]
fn vmagent_s_file_and_urls_become_a_file_that_is_written() {
    let file = data("convert/vmagent.yml");
    let directory = TempDir::new().expect("a temporary directory");
    let output = directory.path().join("gateway.yaml");
    let output = output.to_str().expect("UTF-8");
    let url = "http://127.0.0.1:8428/api/v1/write";
    let converted = convert(&file, &["--remote-write-url", url, "--output", output]);
    assert_eq!(
        (converted.code, converted.output.as_str()),
        (Some(0), ""),
        "{}",
        converted.errors
    );
    let mode = fs::metadata(output).expect("the output").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it may have secrets");
    let text = fs::read_to_string(output).expect("the output");
    is_valid(&text, &file);
    has_all(&text, &["\"${env:GPU_HOST}:9400\"", url]);
    assert!(!text.contains("drop"), "a rule without its condition: {text}");
    let refused = convert(&file, &["--output", output]);
    assert_eq!((refused.code, refused.output.as_str()), (Some(1), ""));
    let expected = format!("{output} exists: remove it, or choose another name");
    assert!(refused.errors.contains(&expected), "{}", refused.errors);
    assert_eq!(fs::read_to_string(output).expect("the output"), text);
    // Nothing is lost by writing to a device.
    let device = convert(&file, &["--remote-write-url", url, "--output", "/dev/null"]);
    assert_eq!(device.code, Some(0), "{}", device.errors);
    has_all(
        &converted.errors,
        &["stream_parse: unknown key", "]::if: unknown key"],
    );
}

#[test]
fn a_file_that_can_not_be_converted_is_an_error() {
    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join("in.yaml");
    for (text, expected) in [
        ("receivers: [", "not valid YAML"),
        ("groups: []", "--from collector"),
        ("service: {pipelines: {}}", "nothing could be converted"),
        ("global: {}", "nothing could be converted"),
    ] {
        fs::write(&file, text).expect("a file");
        let converted = convert(&file, &[]);
        assert_eq!(
            (converted.code, converted.output.as_str()),
            (Some(1), ""),
            "{text}"
        );
        assert!(
            converted.errors.contains(expected),
            "{text}: {}",
            converted.errors
        );
    }
    let name = file.to_str().expect("UTF-8");
    let converted = convert(&file, &["--output", name]);
    assert_eq!(converted.code, Some(1));
    assert!(
        converted.errors.contains("choose another name"),
        "{}",
        converted.errors
    );
}

fn fmt(arguments: &[&str], file: &Path) -> Finished {
    let mut command = tidegate();
    finished(command.args(["config", "fmt"]).args(arguments).arg(file))
}

#[test]
fn every_example_has_the_canonical_layout() {
    let mut command = tidegate();
    let checked = finished(command.args(["config", "fmt", "--check"]).args(examples()));
    assert_eq!(
        (checked.code, checked.output.as_str(), checked.errors.as_str()),
        (Some(0), "", "")
    );
}

#[test]
fn files_are_checked_printed_and_written() {
    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join("gateway.yaml");
    let before = "# The gateway.\nservice:\n    pipelines: {}\n# In.\nreceivers:\n    nop:\n";
    let after = "# The gateway.\n\n# In.\nreceivers:\n  nop:\nservice:\n  pipelines: {}\n";
    fs::write(&file, before).expect("a file");
    let checked = fmt(&["--check"], &file);
    let name = format!("{}\n", file.display());
    assert_eq!((checked.code, checked.output), (Some(1), name));
    let printed = fmt(&[], &file);
    assert_eq!((printed.code, printed.output.as_str()), (Some(0), after));
    assert_eq!(fs::read_to_string(&file).expect("a file"), before);
    assert_eq!(fmt(&["--write"], &file).code, Some(0));
    assert_eq!(fs::read_to_string(&file).expect("a file"), after);
    assert_eq!(fmt(&["--check"], &file).code, Some(0));
    fs::write(&file, "a: [").expect("a file");
    let refused = fmt(&["--write"], &file);
    assert_eq!(refused.code, Some(1));
    assert!(refused.errors.contains("not valid YAML"), "{}", refused.errors);
}
