// SPDX-License-Identifier: Apache-2.0

//! Limits between which the gateway takes only some of its data, and shares of senders.

use super::*;

/// Logs fill the memory of a queue up to the soft limit. Then a queue takes no more and a table takes no new series, but
/// points of the series that it knows still arrive, as their senders, the page and the gateway's own counters say.
#[test]
fn between_the_limits_known_series_arrive_and_nothing_else_does() {
    let (otlp, page) = (free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "
receivers: {{otlp: {{protocols: {{http: {{endpoint: 127.0.0.1:{otlp}}}}}}}}}
processors:
  memory_limiter: {{check_interval: 1s, limit_mib: 600, spike_limit_mib: 400}}
  aggregate: {{max_bytes: 1GiB, rules: [{{match: {{name: \"*\"}}}}]}}
exporters:
  prometheus: {{endpoint: 127.0.0.1:{page}}}
  otlphttp: {{endpoint: \"http://127.0.0.1:{}\", sending_queue: {{sizer: bytes, queue_size: 1000000000}}}}
service:
  pipelines:
    metrics: {{receivers: [otlp], processors: [memory_limiter, aggregate], exporters: [prometheus]}}
    logs: {{receivers: [otlp], processors: [memory_limiter], exporters: [otlphttp]}}
",
        free_port()
    ));
    let push_with = |ballast: String, name: &str, value: i64| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let point = NumberDataPoint {
            time_unix_nano: now.as_nanos() as u64,
            attributes: vec![attribute("ballast", ballast)],
            ..int(value)
        };
        let body = request(Vec::new(), "", [gauge(name, [point])]).encode_to_vec();
        http::post(otlp, "/v1/metrics", "application/x-protobuf", &body).expect("an answer")
    };
    let push = |name: &str, value: i64| push_with(String::new(), name, value);
    assert_eq!((push("known", 1).status, push("known", 1).body.len()), (200, 0));
    let logs = logs_of(2_000_000);
    let log = || http::post(otlp, "/v1/logs", "application/x-protobuf", &logs).expect("an answer");
    // Memory that the allocator gives back is room again, so two refusals may not follow each other.
    let (mut accepted, mut refused) = (0, 0);
    while refused < 2 && accepted < 300 {
        let answer = log();
        match answer.status {
            200 => accepted += 1,
            status => {
                assert_eq!((status, answer.header("retry-after").is_some()), (503, true));
                refused += 1;
            }
        }
    }
    assert!((20..300).contains(&accepted), "{accepted}");
    // A table grows beyond the limit as far as it takes to see that.
    let mut series = 0;
    wait_until(SOON, "the table takes in no new series", || {
        series += 1;
        let answer = push_with(format!("{series}{}", "x".repeat(60_000)), "unknown", 1);
        assert_eq!(answer.status, 200);
        !answer.body.is_empty()
    });
    assert_eq!((push("known", 2).status, push("known", 2).body.len()), (200, 0));
    let text = http::get(page, "/metrics").expect("a page").text();
    assert!(text.lines().any(|line| line == "known 2"), "{text}");
    assert_eq!(gateway.health().expect("an answer").status, 200);
    wait_until(SOON, "both refused requests are counted", || {
        refused_logs(&gateway) == 2
    });
    let taken = gateway.own_metric("otelcol_receiver_accepted_log_records", &[]) as usize;
    assert_eq!(taken, accepted);
    assert!(gateway.memory_mib("VmHWM") < 600);
    gateway.kill();
}

/// Two authenticated senders: one fills its share of the memory, and the gateway serves the other throughout.
#[test]
fn who_fills_the_memory_is_refused_before_who_takes_little() {
    const LITTLE: usize = 100;
    let otlp = free_port();
    let gateway = Gateway::start(&format!(
        "
extensions: {{basicauth: {{htpasswd: {{inline: \"greedy:one\\nmodest:two\"}}}}}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: 127.0.0.1:{otlp}, auth: {{authenticator: basicauth}}}}}}}}
processors: {{memory_limiter: {{check_interval: 1s, limit_mib: 600, spike_limit_mib: 400}}}}
exporters:
  otlphttp: {{endpoint: \"http://127.0.0.1:{}\", sending_queue: {{sizer: bytes, queue_size: 1000000000}}}}
service:
  extensions: [health_check, basicauth]
  pipelines: {{logs: {{receivers: [otlp], processors: [memory_limiter], exporters: [otlphttp]}}}}
",
        free_port()
    ));
    let post_as = |credentials: &str, body: &[u8]| {
        let headers = [
            ("content-type", "application/x-protobuf"),
            ("authorization", credentials),
        ];
        http::request("POST", otlp, "/v1/logs", &headers, body).expect("an answer")
    };
    let large = logs_of(2_000_000);
    let (mut taken, mut refused) = (0, 0);
    let mut fill = || {
        // Memory that the allocator gives back is room again.
        loop {
            let answer = post_as("Basic Z3JlZWR5Om9uZQ==", &large);
            match answer.status {
                200 => taken += 1,
                status => {
                    assert_eq!((status, answer.header("retry-after").is_some()), (503, true));
                    refused += 1;
                    break;
                }
            }
            assert!(taken < 300, "it is never refused");
        }
    };
    let small = logs_of(20_000);
    for sent in 0..LITTLE {
        if sent % 10 == 0 {
            fill();
        }
        assert_eq!(post_as("Basic bW9kZXN0OnR3bw==", &small).status, 200, "{sent}");
    }
    assert!(taken > 20, "{taken}");
    let accepted = gateway.own_metric("otelcol_receiver_accepted_log_records", &[]) as usize;
    assert_eq!(accepted, taken + LITTLE);
    assert_eq!(refused_logs(&gateway), refused);
    gateway.kill();
}

/// A request of one log record with `bytes` bytes.
fn logs_of(bytes: usize) -> Vec<u8> {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
    let record = LogRecord {
        attributes: vec![attribute("ballast", "x".repeat(bytes))],
        ..LogRecord::default()
    };
    let scope_logs = vec![ScopeLogs {
        log_records: vec![record],
        ..ScopeLogs::default()
    }];
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            scope_logs,
            ..ResourceLogs::default()
        }],
    }
    .encode_to_vec()
}
