// SPDX-License-Identifier: Apache-2.0

//! The gateway's own metrics after traffic of known size: the page and the push say the same, and what the peer got.

use super::kit::points::Value;
use super::kit::{Gateway, OtlpSink, SOON, Trouble, free_port, http, promtool_check, wait_until};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use prost::Message;
use std::collections::BTreeSet;
use std::time::Duration;

/// A request of `records` log records.
fn logs(records: u64) -> Vec<u8> {
    let log_records = (1..=records).map(|time_unix_nano| LogRecord {
        time_unix_nano,
        ..Default::default()
    });
    let scope_logs = vec![ScopeLogs {
        log_records: log_records.collect(),
        ..Default::default()
    }];
    let request = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            scope_logs,
            ..Default::default()
        }],
    };
    request.encode_to_vec()
}

/// Sends a request; its length.
fn send(port: u16, records: u64, tenant: &str) -> usize {
    let body = logs(records);
    let headers = [("Content-Type", "application/x-protobuf"), ("x-tenant", tenant)];
    let answer = http::request("POST", port, "/v1/logs", &headers, &body).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    body.len()
}

/// The sum of the series of a page whose line contains all of `labels`.
fn value(page: &str, name: &str, labels: &[&str]) -> f64 {
    let of_name = page.lines().filter(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(['{', ' ']))
    });
    let lines = of_name.filter(|line| labels.iter().all(|label| line.contains(label)));
    lines
        .map(|line| {
            line.rsplit(' ')
                .next()
                .expect("a word")
                .parse::<f64>()
                .expect("a number")
        })
        .sum()
}

fn page(port: u16) -> String {
    http::get(port, "/metrics").expect("a page").text()
}

/// Count and sum of a histogram on a page.
fn measured(page: &str, name: &str, labels: &[&str]) -> (f64, f64) {
    let of = |part: &str| value(page, &format!("{name}_{part}"), labels);
    (of("count"), of("sum"))
}

/// Takes logs by HTTP, batches them, delivers to `data`, shows its own metrics on `own` and pushes them to `push`.
fn config(receiver: u16, batch: &str, exporter: &str, own: u16, push: u16) -> String {
    format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receiver}\", include_metadata: true}}}}}}}}
processors: {{batch: {{{batch}}}}}
exporters: {exporter}
service:
  telemetry:
    metrics:
      level: detailed
      readers:
        - pull: {{exporter: {{prometheus: {{host: 127.0.0.1, port: {own}}}}}}}
        - periodic: {{interval: 100, exporter: {{otlp: {{endpoint: \"http://127.0.0.1:{push}\"}}}}}}
  pipelines: {{logs: {{receivers: [otlp], processors: [batch], exporters: [otlp]}}}}
"
    )
}

#[test]
fn batch_sizes_are_equal_on_the_page_in_the_push_and_at_the_peer() {
    let (data, push) = (OtlpSink::start(), OtlpSink::start());
    let (receiver, own) = (free_port(), free_port());
    let exporter = format!(
        "{{otlp: {{endpoint: \"127.0.0.1:{}\", tls: {{insecure: true}}, compression: none}}}}",
        data.port()
    );
    let batch = "send_batch_size: 100, send_batch_max_size: 100, timeout: 5s";
    let gateway = Gateway::start(&config(receiver, batch, &exporter, own, push.port()));
    // 600 records fill six requests, and 10 wait for more that do not come.
    let mut sent_bytes: usize = (0..10).map(|_| send(receiver, 60, "a")).sum();
    data.wait_until("full requests", |data| data.logs().len() == 6);
    sent_bytes += send(receiver, 10, "a");
    data.wait_until("the rest", |data| data.logs().len() == 7);
    let received: usize = data.logs().iter().map(Message::encoded_len).sum();

    let batch = ["processor=\"batch\""];
    wait_until(SOON, "the last request is booked", || {
        let shown = page(own);
        value(&shown, "otelcol_exporter_sent_log_records", &[]) == 610.0
            && value(&shown, "otelcol_exporter_queue_size", &[]) == 0.0
    });
    let shown = page(own);
    let counts = [
        "batch_size_trigger_send",
        "timeout_trigger_send",
        "metadata_cardinality",
    ];
    let counts = counts.map(|what| value(&shown, &format!("otelcol_processor_batch_{what}"), &batch));
    assert_eq!(counts, [6.0, 1.0, 1.0], "{shown}");
    let exporter = ["exporter=\"otlp\""];
    let (sizes, bytes) = ((7.0, 610.0), (7.0, received as f64));
    for (name, of, expected) in [
        ("otelcol_processor_batch_batch_send_size", &batch, sizes),
        ("otelcol_processor_batch_batch_send_size_bytes", &batch, bytes),
        ("otelcol_exporter_queue_batch_send_size", &exporter, sizes),
        ("otelcol_exporter_queue_batch_send_size_bytes", &exporter, bytes),
    ] {
        assert_eq!(measured(&shown, name, of), expected, "{name}");
    }
    for (bound, expected) in [("10", 1.0), ("75", 1.0), ("100", 7.0)] {
        let le = format!("le=\"{bound}\"");
        let found = value(&shown, "otelcol_processor_batch_batch_send_size_bucket", &[&le]);
        assert_eq!(found, expected, "{bound}");
    }
    let of_logs = ["exporter=\"otlp\"", "data_type=\"logs\""];
    assert_eq!(value(&shown, "otelcol_exporter_queue_capacity", &of_logs), 1000.0);
    assert_eq!(value(&shown, "otelcol_exporter_queue_size", &of_logs), 0.0);
    let stage = ["processor=\"batch\"", "pipeline=\"logs\"", "otel_signal=\"logs\""];
    let (passes, seconds) = measured(&shown, "otelcol_processor_internal_duration", &stage);
    assert_eq!(passes, 11.0);
    assert!((0.0..10.0).contains(&seconds), "{seconds}");
    let port = format!("server_port=\"{receiver}\"");
    let served = [
        "server_address=\"127.0.0.1\"",
        &port,
        "http_response_status_code=\"200\"",
        "url_scheme=\"http\"",
    ];
    assert_eq!(measured(&shown, "http_server_request_duration", &served).0, 11.0);
    assert_eq!(
        measured(&shown, "http_server_request_body_size", &served),
        (11.0, sent_bytes as f64)
    );
    let port = format!("server_port=\"{}\"", data.port());
    let called = [
        "rpc_method=\"opentelemetry.proto.collector.logs.v1.LogsService/Export\"",
        "rpc_response_status_code=\"OK\"",
        "rpc_system_name=\"grpc\"",
        "server_address=\"127.0.0.1\"",
        &port,
    ];
    assert_eq!(measured(&shown, "rpc_client_call_duration", &called).0, 7.0);
    let to = ["exporter=\"otlp\"", "server_address=\"127.0.0.1\"", &port];
    assert_eq!(value(&shown, "otelcol_exporter_sent_log_records", &to), 610.0);
    let failed = "otelcol_exporter_send_failed_log_records{";
    let failed = shown.lines().find(|line| line.starts_with(failed));
    let failed = failed.expect("a series");
    assert!(to.iter().all(|label| failed.contains(label)), "{failed}");
    let process = |what: &str| value(&shown, &format!("otelcol_process_{what}"), &[]);
    let (heap, resident) = (process("runtime_heap_alloc_bytes"), process("memory_rss"));
    assert!(heap > 1e6 && heap < 20.0 * resident, "{heap} {resident}");
    let live = value(&shown, "tidegate_process_live_bytes", &[]);
    assert!(live > 1e6 && live < 2.0 * resident, "{live} {resident}");

    push.wait_until("the push has the same families", |push| {
        let pushed: BTreeSet<_> = push
            .points()
            .iter()
            .map(|point| point.name.replace('.', "_"))
            .collect();
        families(&page(own)).is_subset(&pushed)
    });
    push.wait_until("the push has the same numbers", |push| {
        let points = push.points_of("otelcol_processor_batch_batch_send_size");
        points.iter().any(|point| {
            let is = |count: u64, sum: Option<f64>| (count as f64, sum.unwrap_or_default()) == sizes;
            point.attribute("processor") == "batch"
                && matches!(point.value, Value::Histogram { count, sum, .. } if is(count, sum))
        })
    });
    let served = push.points_of("http.server.request.duration");
    let served = served.last().expect("it was there");
    assert_eq!(
        (served.attribute("server.port"), &*served.unit),
        (&*receiver.to_string(), "s")
    );
    gateway.stop();
}

/// Families of a page, but for `target_info`, which a push has as its resource.
fn families(page: &str) -> BTreeSet<String> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names = types
        .filter_map(|line| line.split(' ').next())
        .filter(|name| *name != "target_info");
    names.map(str::to_owned).collect()
}

#[test]
fn senders_are_counted_and_a_retry_is_not_another_request() {
    let (data, push) = (OtlpSink::start(), OtlpSink::start());
    let (receiver, own) = (free_port(), free_port());
    data.trouble([Trouble::UNAVAILABLE]);
    let exporter = format!(
        "{{otlphttp/otlp: {{endpoint: \"{}\", compression: gzip, retry_on_failure: {{initial_interval: 20ms}}}}}}",
        data.endpoint()
    );
    let batch = "send_batch_size: 1, timeout: 0s, metadata_keys: [x-tenant], metadata_cardinality_limit: 2";
    let config =
        config(receiver, batch, &exporter, own, push.port()).replace("[otlp]}}", "[otlphttp/otlp]}}");
    let gateway = Gateway::start(&config);
    for tenant in ["a", "b", "a"] {
        send(receiver, 5, tenant);
    }
    // The third sender is one too many: its data is not taken.
    let headers = [("Content-Type", "application/x-protobuf"), ("x-tenant", "c")];
    let answer = http::request("POST", receiver, "/v1/logs", &headers, &logs(5)).expect("an answer");
    assert!(
        answer.text().contains("metadata_cardinality_limit"),
        "{}",
        answer.text()
    );
    data.wait_until("all of two senders", |data| data.logs().len() == 3);
    wait_until(SOON, "all is booked", || {
        value(&page(own), "otelcol_exporter_sent_log_records", &[]) == 15.0
    });
    let shown = page(own);
    let batch = |what: &str| value(&shown, &format!("otelcol_processor_batch_{what}"), &[]);
    assert_eq!(batch("metadata_cardinality"), 2.0);
    assert_eq!(
        [batch("batch_size_trigger_send"), batch("timeout_trigger_send")],
        [3.0, 0.0]
    );
    assert_eq!(
        measured(&shown, "otelcol_exporter_queue_batch_send_size", &[]),
        (3.0, 15.0)
    );
    let port = format!("server_port=\"{}\"", data.port());
    let to = ["server_address=\"127.0.0.1\"", &port, "url_path=\"/v1/logs\""];
    assert_eq!(value(&shown, "otelcol_exporter_sent_log_records", &to), 15.0);
    let asked = |status: &str| {
        let status = format!("http_response_status_code=\"{status}\"");
        measured(&shown, "http_client_request_duration", &[&port, &status]).0
    };
    assert_eq!([asked("200"), asked("503")], [3.0, 1.0], "{shown}");
    let compressed = measured(&shown, "http_client_request_body_size", &[&port]).1;
    assert!(compressed > 0.0, "{shown}");
    for problem in promtool_check(&shown).err().unwrap_or_default().lines() {
        assert!(problem.contains("should have \"_total\" suffix"), "{problem}");
    }
    gateway.stop();
}

#[test]
fn a_queue_says_what_it_holds_of_each_signal() {
    let (data, receiver) = (OtlpSink::start(), free_port());
    // Long enough for a busy machine to look meanwhile.
    data.trouble([Trouble::Delay(Duration::from_secs(8))]);
    let gateway = Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receiver}\"}}}}}}}}
exporters:
  otlp:
    endpoint: \"{}\"
    timeout: 1m
    sending_queue: {{num_consumers: 1, queue_size: 10, sizer: items}}
service:
  pipelines:
    logs: {{receivers: [otlp], exporters: [otlp]}}
    traces: {{receivers: [otlp], exporters: [otlp]}}
",
        data.endpoint()
    ));
    send(receiver, 3, "a");
    let spans = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"s"},{"name":"t"}]}]}]}"#;
    let answer = http::post(receiver, "/v1/traces", "application/json", spans.as_bytes()).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let of = |what: &str, signal: &str| {
        let signal = format!("data_type=\"{signal}\"");
        gateway.own_metric(
            &format!("otelcol_exporter_{what}"),
            &["exporter=\"otlp\"", &signal],
        )
    };
    let all = |what: &str| ["logs", "traces", "metrics"].map(|signal| of(what, signal));
    wait_until(SOON, "one request under way, one waiting", || {
        all("queue_size") == [3.0, 2.0, 0.0]
    });
    assert_eq!(all("queue_capacity"), [8.0, 7.0, 0.0], "what the other leaves");
    assert_eq!(all("in_flight_requests"), [1.0, 0.0, 0.0]);
    wait_until(SOON, "it is empty", || all("queue_size") == [0.0; 3]);
    assert_eq!(all("queue_capacity"), [10.0, 10.0, 0.0]);
    wait_until(SOON, "all answers", || all("in_flight_requests") == [0.0; 3]);
    gateway.stop();
}

#[test]
fn views_drop_metrics_and_add_up_what_they_leave_out() {
    let (push, a, b, own) = (OtlpSink::start(), free_port(), free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "receivers:
  otlp/a: {{protocols: {{http: {{endpoint: \"127.0.0.1:{a}\"}}}}}}
  otlp/b: {{protocols: {{http: {{endpoint: \"127.0.0.1:{b}\"}}}}}}
exporters: {{nop: }}
service:
  telemetry:
    metrics:
      level: detailed
      readers:
        - pull: {{exporter: {{prometheus: {{host: 127.0.0.1, port: {own}}}}}}}
        - periodic: {{interval: 100, exporter: {{otlp: {{endpoint: \"{}\"}}}}}}
      views:
        - {{selector: {{instrument_name: \"http.*\"}}, stream: {{aggregation: {{drop: {{}}}}}}}}
        - {{selector: {{instrument_name: otelcol_receiver_*}}, stream: {{attribute_keys: {{excluded: [receiver]}}}}}}
        - {{selector: {{instrument_name: tidegate_held_items}}, stream: {{attribute_keys: [signal]}}}}
        - {{selector: {{instrument_name: no_such_metric}}, stream: {{name: other}}}}
  pipelines: {{logs: {{receivers: [otlp/a, otlp/b], exporters: [nop]}}}}
",
        push.endpoint()
    ));
    for (port, records) in [(a, 3), (b, 4), (a, 5)] {
        send(port, records, "a");
    }
    let shown = page(own);
    let accepted = "otelcol_receiver_accepted_log_records{transport=\"http\"} 12\n";
    assert!(shown.contains(accepted), "{shown}");
    assert!(page(own).contains(accepted), "looking does not change it");
    assert!(!shown.contains("http_server_request"), "{shown}");
    assert!(
        shown.contains("tidegate_held_items{signal=\"logs\"} 0\n"),
        "{shown}"
    );
    push.wait_until("the push says the same", |push| {
        let points = push.points_of("otelcol_receiver_accepted_log_records");
        points
            .iter()
            .any(|point| point.number() == 12.0 && point.attribute("receiver").is_empty())
    });
    assert!(push.points().iter().all(|point| !point.name.starts_with("http.")));
    let log = gateway.stop();
    for part in [
        "selects none of tidegate's metrics",
        "views[3]::stream::name",
        "has no effect",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
}
