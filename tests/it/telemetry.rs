// SPDX-License-Identifier: Apache-2.0

//! The gateway's own telemetry: served, pushed, and spans of what takes long.

use super::kit::{
    Authority, Gateway, OtlpSink, SOON, Trouble, free_port, http, promtool_check, wait_for, wait_until,
};
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// A log record, as JSON.
const LOGS: &[u8] = br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"x"}}]}]}]}"#;

/// Takes logs by HTTP, delivers them to `data`, and pushes its own metrics and spans by `push`.
fn config(receiver: u16, data: &str, push: &str, slow_batch: &str) -> String {
    let endpoint = |signal: &str| match push.split_once(' ') {
        Some(("http/protobuf", base)) => {
            format!("{{protocol: http/protobuf, endpoint: \"{base}/v1/{signal}\", headers: {{tenant: us}}}}")
        }
        Some((_, base)) => {
            format!("{{endpoint: \"{base}\", compression: gzip, headers: [{{name: tenant, value: us}}]}}")
        }
        None => panic!("protocol and URL: {push}"),
    };
    format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receiver}\"}}}}}}}}
exporters: {{otlp: {{endpoint: \"{data}\", retry_on_failure: {{initial_interval: 20ms, max_interval: 20ms}}}}}}
service:
  telemetry:
    resource: {{service.name: gate, rack: r7}}
    metrics: {{readers: [{{periodic: {{interval: 50, exporter: {{otlp: {}}}}}}}]}}
    traces: {{slow_batch: {slow_batch}, processors: [{{batch: {{schedule_delay: 20, exporter: {{otlp: {}}}}}}}]}}
  pipelines: {{logs: {{receivers: [otlp], exporters: [otlp]}}}}
",
        endpoint("metrics"),
        endpoint("traces"),
    )
}

fn send_logs(receiver: u16) {
    let answer = http::post(receiver, "/v1/logs", "application/json", LOGS).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn the_log_of_a_start_lists_pipelines_addresses_and_paths_by_level() {
    let (receiver, directory) = (free_port(), tempfile::tempdir().expect("a temporary directory"));
    let [cells, state] = ["cells", "state"].map(|name| directory.path().join(name));
    for path in [&cells, &state] {
        std::fs::create_dir(path).expect("a directory");
    }
    let address = format!("127.0.0.1:{receiver}");
    let [cells, state] = [cells, state].map(|path| path.display().to_string());
    let output = directory.path().join("out.json").display().to_string();
    // The message of each line, and a field that it must have.
    let all = [
        ("listening for OTLP over HTTP", format!("endpoint={address}")),
        ("serving", "component=extensions::health_check".to_owned()),
        ("pipeline", "receivers=otlp, shm".to_owned()),
        ("pipeline", "exporters=file".to_owned()),
        ("extensions", "file_storage".to_owned()),
        ("writing the file", format!("path={output}")),
        ("keeping data", format!("directory={state}")),
        ("reading cells", format!("directory={cells}")),
    ];
    for (logs, arguments, expected) in [
        ("{level: info}", &[][..], &all[..]),
        (
            "{level: warn, levels: {\"receivers::otlp\": info}}",
            &[][..],
            &all[..1],
        ),
        ("{level: warn}", &["-v"][..], &all[..]),
        ("{level: debug}", &["-q"][..], &[][..]),
    ] {
        let config = format!(
            "extensions: {{file_storage: {{directory: \"{state}\"}}}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"{address}\"}}}}}}
  shm: {{directories: [\"{cells}\"]}}
exporters: {{file: {{path: \"{output}\"}}}}
service:
  extensions: [health_check, file_storage]
  telemetry: {{logs: {logs}}}
  pipelines: {{metrics: {{receivers: [otlp, shm], exporters: [file]}}}}
"
        );
        let gateway = Gateway::start_with(&config, |command| {
            command.args(arguments);
        });
        let count_of = |log: &str, (message, field): &(&str, String)| {
            let has_both = |line: &&str| line.contains(&format!(" {message} ")) && line.contains(field);
            log.lines().filter(has_both).count()
        };
        // A thread lists the directories of cells, so its line may come after the start.
        wait_until(SOON, "all expected lines", || {
            let log = gateway.stderr().text();
            expected.iter().all(|line| count_of(&log, line) > 0)
        });
        let log = gateway.stop();
        for line in &all {
            assert_eq!(
                count_of(&log, line),
                usize::from(expected.contains(line)),
                "{logs} {arguments:?}: {line:?} in {log}"
            );
        }
    }
}

#[test]
fn one_of_two_exporters_of_a_type_has_a_log_level_of_its_own() {
    for (levels, vendor, other) in [
        ("", false, false),
        ("\"exporters::otlphttp/vendor\": debug", true, false),
        ("\"exporters::otlphttp/other\": debug", false, true),
    ] {
        let (receiver, vendor_port) = (free_port(), free_port());
        let config = format!(
            "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receiver}\"}}}}}}}}
exporters:
  otlphttp/vendor: {{endpoint: \"http://127.0.0.1:{vendor_port}\"}}
  otlphttp/other: {{endpoint: \"http://127.0.0.1:{vendor_port}\"}}
service:
  telemetry: {{logs: {{level: warn, levels: {{{levels}}}}}}}
  pipelines: {{logs: {{receivers: [otlp], exporters: [otlphttp/vendor, otlphttp/other]}}}}
"
        );
        let log = Gateway::start(&config).stop();
        for (component, is_logged) in [
            ("exporters::otlphttp/vendor", vendor),
            ("exporters::otlphttp/other", other),
            ("receivers::otlp", false),
        ] {
            let line = format!("starting component={component}");
            assert_eq!(log.contains(&line), is_logged, "{levels}: {line}: {log}");
        }
    }
}

#[test]
fn a_failed_handshake_has_the_log_level_of_its_receiver() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [certificate, key] = ["own.pem", "own.key"].map(|name| directory.path().join(name));
    Authority::new().write_signed(&certificate, &key);
    let tls = format!(
        "{{cert_file: {}, key_file: {}}}",
        certificate.display(),
        key.display()
    );
    let (quiet, verbose) = (free_port(), free_port());
    let receiver = |port| format!("{{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\", tls: {tls}}}}}}}");
    let gateway = Gateway::start(&format!(
        "receivers: {{otlp/quiet: {}, otlp/verbose: {}}}
exporters: {{nop: }}
service:
  telemetry: {{logs: {{level: warn, levels: {{\"receivers::otlp/verbose\": debug}}}}}}
  pipelines: {{logs: {{receivers: [otlp/quiet, otlp/verbose], exporters: [nop]}}}}
",
        receiver(quiet),
        receiver(verbose)
    ));
    for port in [quiet, verbose] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream
            .write_all(b"GET / HTTP/1.1\r\n\r\n")
            .expect("a request without TLS");
        // Until the gateway ends the connection. A reset is as good.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let log = gateway.stop();
    let failed: Vec<_> = log
        .lines()
        .filter(|line| line.contains("TLS handshake failed"))
        .collect();
    assert_eq!(failed.len(), 1, "{log}");
    assert!(failed[0].contains("receivers::otlp/verbose"), "{log}");
}

#[test]
fn lines_of_a_thread_have_the_log_level_of_its_receiver() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [quiet, verbose] = ["quiet", "verbose"].map(|name| directory.path().join(name));
    for path in [&quiet, &verbose] {
        std::fs::create_dir(path).expect("a directory");
    }
    let gateway = Gateway::start(&format!(
        "receivers: {{shm/quiet: {{directories: [{}]}}, shm/verbose: {{directories: [{}]}}}}
exporters: {{nop: }}
service:
  telemetry: {{logs: {{level: warn, levels: {{\"receivers::shm/verbose\": info}}}}}}
  pipelines: {{metrics: {{receivers: [shm/quiet, shm/verbose], exporters: [nop]}}}}
",
        quiet.display(),
        verbose.display()
    ));
    // Then both threads have listed their directory: a line of the quiet one would be in the log.
    for receiver in ["shm/quiet", "shm/verbose"] {
        let label = format!("receiver=\"{receiver}\"");
        wait_until(SOON, &format!("{receiver} reads its directory"), || {
            gateway.own_metric("tidegate_shm_directories", &[&label]) == 1.0
        });
    }
    let log = gateway.stop();
    let lines: Vec<_> = log
        .lines()
        .filter(|line| line.contains("reading cells"))
        .collect();
    assert_eq!(lines.len(), 1, "{log}");
    let directory = format!("directory={}", verbose.display());
    assert!(
        lines[0].contains("receiver=\"shm/verbose\"") && lines[0].ends_with(&directory),
        "{log}"
    );
    assert!(!log.contains("shm/quiet"), "{log}");
}

fn spans(sink: &OtlpSink) -> Vec<Span> {
    let resources = sink
        .traces()
        .into_iter()
        .flat_map(|request| request.resource_spans);
    let scopes = resources.flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

fn metrics_and_spans_arrive(protocol: &str) {
    let (data, own) = (OtlpSink::start(), OtlpSink::start());
    let receiver = free_port();
    let push = format!("{protocol} {}", own.endpoint());
    let gateway = Gateway::start(&config(receiver, &data.endpoint(), &push, "0s"));
    send_logs(receiver);
    own.wait_until("the accepted record is pushed", |own| {
        let accepted = own.points_of("otelcol_receiver_accepted_log_records");
        accepted.iter().any(|point| {
            point.number() == 1.0
                && point.attribute("receiver") == "otlp"
                && point.attribute("transport") == "http"
        })
    });
    own.wait_until("the delivered record is pushed", |own| {
        let sent = own.points_of("otelcol_exporter_sent_log_records");
        sent.iter().any(|point| point.number() == 1.0)
    });
    for point in own.points_of("otelcol_receiver_accepted_log_records") {
        assert_eq!(point.resource["service.name"], "gate");
        assert_eq!(point.resource["rack"], "r7");
        assert!(point.resource.contains_key("service.instance.id"));
    }
    own.wait_until("both stages have spans", |own| {
        ["push", "deliver", "attempt"]
            .iter()
            .all(|name| spans(own).iter().any(|span| span.name == *name))
    });
    let spans = spans(&own);
    let named = |name: &str| spans.iter().find(|span| span.name == name).expect("it was there");
    let (deliver, attempt) = (named("deliver"), named("attempt"));
    assert_eq!(attempt.parent_span_id, deliver.span_id);
    assert_eq!(attempt.trace_id, deliver.trace_id);
    assert!(deliver.start_time_unix_nano <= attempt.start_time_unix_nano);
    assert!(attempt.start_time_unix_nano < attempt.end_time_unix_nano);
    assert!(own.headers().iter().all(|headers| headers["tenant"] == "us"));
    gateway.stop();
}

#[test]
fn own_metrics_and_slow_batches_are_pushed_by_grpc() {
    metrics_and_spans_arrive("grpc");
}

#[test]
fn own_metrics_and_slow_batches_are_pushed_by_http() {
    metrics_and_spans_arrive("http/protobuf");
}

#[test]
fn only_slow_batches_have_spans_and_failures_are_marked() {
    let (data, own) = (OtlpSink::start(), OtlpSink::start());
    let receiver = free_port();
    let push = format!("grpc {}", own.endpoint());
    let gateway = Gateway::start(&config(receiver, &data.endpoint(), &push, "60s"));
    send_logs(receiver);
    own.wait_until("the delivered record is pushed", |own| {
        let sent = own.points_of("otelcol_exporter_sent_log_records");
        sent.iter().any(|point| point.number() == 1.0)
    });
    gateway.stop();
    assert!(spans(&own).is_empty(), "nothing took a minute");

    let receiver = free_port();
    let gateway = Gateway::start(&config(receiver, "127.0.0.1:1", &push, "0s"));
    send_logs(receiver);
    own.wait_until("a failed attempt has a span", |own| {
        spans(own).iter().any(|span| {
            let status = span.status.clone().unwrap_or_default();
            span.name == "attempt" && status.code == StatusCode::Error as i32 && !status.message.is_empty()
        })
    });
    drop(gateway);
}

#[test]
fn a_peer_that_is_down_neither_delays_the_stop_nor_goes_unmentioned() {
    let data = OtlpSink::start();
    let receiver = free_port();
    let push = format!("grpc http://127.0.0.1:{}", free_port());
    let mut gateway = Gateway::start(&config(receiver, &data.endpoint(), &push, "0s"));
    send_logs(receiver);
    gateway.wait_for_log("own metrics could not be pushed");
    gateway.wait_for_log("spans of slow batches could not be pushed");
    gateway.stop();

    // One that does not answer. A push to it would end after a minute.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    silent.set_nonblocking(true).expect("a socket option");
    let receiver = free_port();
    let push = format!("grpc http://{}", silent.local_addr().expect("an address"));
    let yaml = config(receiver, &data.endpoint(), &push, "0s");
    let yaml = yaml.replace("interval: 50,", "interval: 50, timeout: 60000,");
    assert!(yaml.contains("timeout: 60000"), "{yaml}");
    let gateway = Gateway::start(&yaml);
    let _held = wait_for(SOON, "a push begins", || silent.accept().ok());
    let stopping = Instant::now();
    gateway.stop();
    assert!(
        stopping.elapsed() < Duration::from_secs(30),
        "it took {:?}",
        stopping.elapsed()
    );
}

/// A gateway that takes logs by HTTP and keeps none, with these options of its own telemetry.
fn measured(receiver: u16, telemetry: &str) -> Gateway {
    Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receiver}\"}}}}}}}}
processors: {{filter: {{logs: {{exclude: {{match_type: strict, bodies: [x]}}}}}}}}
exporters: {{debug: {{}}}}
service:
  telemetry: {telemetry}
  pipelines: {{logs: {{receivers: [otlp], processors: [filter], exporters: [debug]}}}}
"
    ))
}

fn page(port: u16) -> String {
    http::get(port, "/metrics").expect("a page").text()
}

#[test]
fn every_reader_serves_its_own_spelling_and_promtool_is_content() {
    let (receiver, short, long) = (free_port(), free_port(), free_port());
    let pull = |port: u16, more: &str| {
        format!("{{pull: {{exporter: {{prometheus: {{host: 127.0.0.1, port: {port}{more}}}}}}}}}")
    };
    let suffixes = ", without_units: false, without_type_suffix: false, without_scope_info: false, \
                    with_resource_constant_labels: {included: [service.*], excluded: [service.instance.id]}";
    let readers = [pull(short, ""), pull(long, suffixes)].join(", ");
    let gateway = measured(
        receiver,
        &format!(
            "{{metrics: {{readers: [{readers}]}}, resource: {{attributes: [{{name: service.name, value: gate}}]}}}}"
        ),
    );
    send_logs(receiver);
    let packed =
        http::request("GET", short, "/metrics", &[("accept-encoding", "gzip")], &[]).expect("a page");
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let mut unpacked = String::new();
    let mut decoder = flate2::read::GzDecoder::new(&*packed.body);
    std::io::Read::read_to_string(&mut decoder, &mut unpacked).expect("gzip");
    let names = |page: &str| -> BTreeSet<String> {
        let types = page.lines().filter(|line| line.starts_with("# TYPE "));
        types.map(str::to_owned).collect()
    };
    let (short, long) = (page(short), page(long));
    assert_eq!(names(&unpacked), names(&short));
    let labels = "{receiver=\"otlp\",transport=\"http\"} 1";
    assert!(
        short.contains(&format!("otelcol_receiver_accepted_log_records{labels}\n")),
        "{short}"
    );
    assert!(
        short.contains("otelcol_processor_filter_logs_filtered{filter=\"filter\"} 1\n"),
        "{short}"
    );
    let line = long
        .lines()
        .find(|line| line.starts_with("otelcol_receiver_accepted_log_records_total{"))
        .expect("the same under the other name");
    for part in [
        "otel_scope_name=\"tidegate\"",
        "service_name=\"gate\"",
        "receiver=\"otlp\"",
        "} 1",
    ] {
        assert!(line.contains(part), "{line}");
    }
    assert!(!line.contains("service_instance_id"), "{line}");
    assert_eq!(promtool_check(&long), Ok(()));
    let problems = promtool_check(&short).expect_err("the Collector's counters have no suffix");
    for problem in problems.lines() {
        assert!(
            problem.starts_with("otelcol_")
                && problem.ends_with("counter metrics should have \"_total\" suffix"),
            "{problem}"
        );
    }
    gateway.stop();
}

#[test]
fn requests_under_way_and_their_sizes_are_counted() {
    let (data, receiver) = (OtlpSink::start(), free_port());
    // Long enough for a busy machine to look meanwhile.
    data.trouble([Trouble::Delay(Duration::from_secs(8))]);
    let gateway = Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receiver}\"}}}}}}}}
exporters: {{otlp: {{endpoint: \"{}\", tls: {{insecure: true}}, timeout: 1m}}}}
service:
  telemetry: {{metrics: {{level: detailed}}}}
  pipelines: {{logs: {{receivers: [otlp], exporters: [otlp]}}}}
",
        data.endpoint()
    ));
    send_logs(receiver);
    let in_flight = || gateway.own_metric("otelcol_exporter_in_flight_requests", &["exporter=\"otlp\""]);
    wait_until(SOON, "a request under way", || in_flight() == 1.0);
    wait_until(SOON, "its answer", || in_flight() == 0.0);
    assert_eq!(data.logs().len(), 1);
    let sizes =
        |part: &str| gateway.own_metric(&format!("otelcol_exporter_queue_batch_send_size_{part}"), &[]);
    assert_eq!([sizes("count"), sizes("sum")], [1.0, 1.0]);
    gateway.stop();
}

#[test]
fn levels_choose_what_exists() {
    let receiver = free_port();
    let families = |level: &str| {
        let gateway = measured(receiver, &format!("{{metrics: {{level: {level}}}}}"));
        send_logs(receiver);
        let page = gateway.own_metrics();
        let families = page.lines().filter(|line| line.starts_with("# TYPE")).count();
        let shows = |name: &str| page.lines().any(|line| line.starts_with(&format!("{name}{{")));
        let shown = [
            "otelcol_receiver_accepted_log_records",
            "tidegate_dropped_items_total",
            "tidegate_held_items",
        ];
        let shown = shown.map(shows);
        gateway.stop();
        (families, shown)
    };
    let (basic, normal) = (families("basic"), families("normal"));
    assert_eq!(basic.1, [true, true, false]);
    assert_eq!(normal.1, [true; 3]);
    assert!(basic.0 < normal.0, "{} {}", basic.0, normal.0);
}

#[test]
fn nothing_is_served_at_level_none_and_null_takes_an_attribute_away() {
    let receiver = free_port();
    let gateway = measured(receiver, "{metrics: {level: none}}");
    let refused = http::get(gateway.telemetry_port(), "/metrics").expect_err("nothing listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    gateway.stop();
    let gateway = measured(receiver, "{resource: {service.instance.id: null, rack: r7}}");
    let page = gateway.own_metrics();
    let target = page
        .lines()
        .find(|line| line.starts_with("target_info{"))
        .expect("it is there");
    assert!(
        target.contains("rack=\"r7\"") && !target.contains("instance"),
        "{target}"
    );
    gateway.stop();
}

#[test]
fn a_push_can_be_of_increments_and_logs_are_pushed_too() {
    let own = OtlpSink::start();
    let receiver = free_port();
    let endpoint = format!("127.0.0.1:{}", own.port());
    let gateway = measured(
        receiver,
        &format!(
            "{{metrics: {{readers: [{{periodic: {{interval: 50, timeout: 5000, exporter: {{otlp_grpc: \
             {{endpoint: '{endpoint}', insecure: true, temporality_preference: delta, headers_list: 'tenant=us'}}}}}}}}]}},
             logs: {{processors: [{{simple: {{exporter: {{otlp: {{protocol: grpc/protobuf, endpoint: '{endpoint}', insecure: true}}}}}}}}]}}}}"
        ),
    );
    for _ in 0..3 {
        send_logs(receiver);
    }
    let accepted = |own: &OtlpSink| -> Vec<f64> {
        let points = own.points_of("otelcol_receiver_accepted_log_records");
        points.iter().map(super::kit::points::Point::number).collect()
    };
    own.wait_until("three records", |own| accepted(own).iter().sum::<f64>() == 3.0);
    let before = accepted(&own).len();
    own.wait_until("more pushes", |own| own.attempts() > before + 4);
    assert_eq!(accepted(&own).iter().sum::<f64>(), 3.0, "increments, not totals");
    let point = &own.points_of("otelcol_receiver_accepted_log_records")[0];
    assert_eq!(point.unit, "{record}");
    assert!(
        own.headers()
            .iter()
            .any(|headers| headers.get("tenant").is_some_and(|value| value == "us"))
    );
    own.wait_until("what was logged at the start", |own| {
        let requests = own.logs();
        let resources = requests.iter().flat_map(|request| &request.resource_logs);
        let scopes = resources.flat_map(|resource| &resource.scope_logs);
        let mut records = scopes.flat_map(|scope| &scope.log_records);
        records.any(|record| format!("{:?}", record.body).contains("everything is ready"))
    });
    gateway.stop();
}
