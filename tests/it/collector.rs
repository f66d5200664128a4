// SPDX-License-Identifier: Apache-2.0

//! Files in the shapes that users of the Collector have: what `validate` says of each, and that they run.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

use super::kit::gateway::tidegate;
use super::kit::process::Process;
use super::kit::{Gateway, OtlpSink, SOON, Trouble, free_port, http, wait_until};

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/config/collector")
}

/// The files of the corpus that are valid.
pub(crate) fn valid_files() -> Vec<PathBuf> {
    let entries = fs::read_dir(corpus()).expect("the corpus is there");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    let is_valid = |path: &PathBuf| {
        let golden = fs::read_to_string(path.with_extension("txt"));
        let is_yaml = path.extension().is_some_and(|extension| extension == "yaml");
        is_yaml && golden.is_ok_and(|golden| golden.starts_with("exit 0\n"))
    };
    paths.filter(is_valid).collect()
}

/// The exit code and everything that `validate` says.
fn validation(name: &str) -> String {
    let output = tidegate()
        .current_dir(corpus())
        .env_remove("TIDEGATE_TEST_UNSET")
        .args(["validate", "--config", name])
        .output()
        .expect("it starts");
    let code = output.status.code().expect("it ends by itself");
    format!("exit {code}\n{}", String::from_utf8_lossy(&output.stderr))
}

/// Each `*.yaml` has its validation beside it, in `*.txt`; `UPDATE_GOLDEN=1` writes them.
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
        let (validation, golden) = (validation(&name), path.with_extension("txt"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &validation).expect("a writable checkout");
        }
        if fs::read_to_string(&golden).is_ok_and(|expected| expected == validation) {
            continue;
        }
        wrong += &format!("--- {name} now gives\n{validation}\n");
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(files >= 14, "{files} files");
}

/// docs/collector.md says which values take the chart's file to one that runs.
#[test]
fn without_jaeger_and_zipkin_the_chart_s_configuration_is_valid() {
    let text = |name: &str| fs::read_to_string(corpus().join(name)).expect("a file");
    let (of_chart, expected) = (text("chart_gateway.yaml"), text("chart_gateway_otlp.yaml"));
    let mut is_null = false;
    let lines = of_chart.lines().filter(|line| {
        if !line.starts_with("   ") {
            is_null = ["  jaeger:", "  zipkin:"].contains(line);
        }
        !is_null && !line.starts_with('#')
    });
    let lines: Vec<_> = lines
        .map(|line| line.replace("[otlp, jaeger, zipkin]", "[otlp]"))
        .collect();
    let expected: Vec<_> = expected.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, expected);
    assert_eq!(validation("chart_gateway_otlp.yaml"), "exit 0\n");
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

const LOG: &[u8] = br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"severityText":"INFO"}]}]}]}"#;

/// Takes logs by HTTP; `rest` is the file behind the receivers.
fn gateway(port: u16, server: &str, rest: &str) -> Gateway {
    Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\", {server}}}}}}}}}\n{rest}"
    ))
}

fn post(port: u16, headers: &[(&str, &str)]) -> u16 {
    let headers = [&[("content-type", "application/json")], headers].concat();
    let answer = http::request("POST", port, "/v1/logs", &headers, LOG);
    answer.expect("an answer").status
}

#[test]
fn every_spelling_of_an_endpoint_reaches_the_peer() {
    let (sink, port) = (OtlpSink::start(), free_port());
    let to = sink.port();
    let spellings = [
        format!("localhost:{to}"),
        format!("dns:localhost:{to}"),
        format!("dns:///localhost:{to}"),
        format!("passthrough:///127.0.0.1:{to}"),
        format!("http://127.0.0.1:{to}/"),
    ];
    let exporter =
        |(n, endpoint)| format!("  otlp/{n}: {{endpoint: \"{endpoint}\", tls: {{insecure: true}}}}\n");
    let exporters: String = spellings.iter().enumerate().map(exporter).collect();
    let rest = format!(
        "exporters:\n{exporters}service: {{pipelines: {{logs: {{receivers: [otlp], exporters: [otlp/0, otlp/1, otlp/2, otlp/3, otlp/4]}}}}}}"
    );
    let gateway = gateway(port, "", &rest);
    assert_eq!(post(port, &[]), 200);
    sink.wait_until("each has sent it", |sink| sink.logs().len() == spellings.len());
    for n in 0..spellings.len() {
        let exporter = format!("exporter=\"otlp/{n}\"");
        let sent = || gateway.own_metric("otelcol_exporter_sent_log_records", &[&exporter]);
        wait_until(SOON, "each has booked it", || sent() == 1.0);
    }
    gateway.stop();
}

#[test]
fn queue_retries_and_timeout_of_loadbalancing_apply_to_every_endpoint() {
    for (options, trouble) in [
        ("retry_on_failure: {enabled: false}", Trouble::UNAVAILABLE),
        (
            // A request reaches the peer in this time, also on a busy machine.
            "retry_on_failure: {enabled: false}, timeout: 5s",
            Trouble::Delay(Duration::from_secs(20)),
        ),
    ] {
        let (sink, port) = (OtlpSink::start(), free_port());
        sink.trouble([trouble]);
        let rest = format!(
            "exporters:
  loadbalancing:
    sending_queue: {{queue_size: 7}}
    {}
    protocol: {{otlp: {{tls: {{insecure: true}}}}}}
    resolver: {{static: {{hostnames: [\"127.0.0.1:{}\"]}}}}
service: {{pipelines: {{logs: {{receivers: [otlp], exporters: [loadbalancing]}}}}}}",
            options.replace(", timeout", "\n    timeout"),
            sink.port()
        );
        let gateway = gateway(port, "", &rest);
        assert_eq!(post(port, &[]), 200);
        let dropped =
            || gateway.own_metric("tidegate_dropped_items_total", &["reason=\"retries_exhausted\""]);
        wait_until(SOON, "it is given up at once", || dropped() == 1.0);
        assert_eq!(sink.attempts(), 1);
        let capacity = gateway.own_metric("otelcol_exporter_queue_capacity", &["data_type=\"logs\""]);
        assert_eq!(capacity, 7.0);
        gateway.stop();
    }
}

#[test]
fn lines_of_htpasswd_s_let_in() {
    let port = free_port();
    let rest = "extensions: {basicauth: {htpasswd: {inline: \"eve:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\"}}}
exporters: {nop: }
service: {extensions: [health_check, basicauth], pipelines: {logs: {receivers: [otlp], exporters: [nop]}}}";
    let gateway = gateway(port, "auth: {authenticator: basicauth}", rest);
    // eve:secret, and eve:wrong.
    for (credentials, status) in [("ZXZlOnNlY3JldA==", 200), ("ZXZlOndyb25n", 401)] {
        let authorization = format!("Basic {credentials}");
        assert_eq!(
            post(port, &[("authorization", &authorization)]),
            status,
            "{credentials}"
        );
    }
    gateway.stop();
}

#[test]
fn memory_limiters_count_accepted_records_and_receivers_unread_requests() {
    for (limit_mib, status, counts) in [(4000, 200, [2.0, 0.0]), (1, 503, [0.0, 2.0])] {
        let port = free_port();
        let rest = format!(
            "processors: {{memory_limiter: {{check_interval: 1s, limit_mib: {limit_mib}, spike_limit_mib: 0}}}}
exporters: {{nop: }}
service: {{pipelines: {{logs: {{receivers: [otlp], processors: [memory_limiter], exporters: [nop]}}}}}}"
        );
        let gateway = gateway(port, "", &rest);
        assert_eq!([post(port, &[]), post(port, &[])], [status; 2]);
        let accepted = gateway.own_metric(
            "otelcol_processor_memory_limiter_accepted_log_records",
            &["processor=\"memory_limiter\""],
        );
        let refusals = gateway.own_metric("tidegate_otlp_memory_refusals_total", &["receiver=\"otlp\""]);
        assert_eq!([accepted, refusals], counts, "{limit_mib} MiB");
        gateway.stop();
    }
}
