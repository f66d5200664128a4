// SPDX-License-Identifier: Apache-2.0

//! The counts of exporters, compared with the data that the peer received, and their messages about a peer in trouble.

use super::kit::go_sink::Counts;
use super::kit::http_peer::Reply;
use super::kit::points::points;
use super::kit::{Gateway, GoSink, HttpPeer, Ledgers, OtlpSink, SOON, Trouble, free_port, http, wait_until};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use tonic::Code;

/// `compression` of `otlp` and the `grpc-encoding` that the peer sees.
const CODINGS: [(&str, &str); 4] = [
    ("none", ""),
    ("gzip", "gzip"),
    ("zstd", "zstd"),
    ("snappy", "snappy"),
];

const POINTS: u64 = 7;
const RECORDS: u64 = 3;

/// A request of `points` points.
fn metrics(points: u64) -> String {
    let point = |n: u64| format!(r#"{{"timeUnixNano":"{}","asInt":"{n}"}}"#, n + 1);
    let points: Vec<String> = (0..points).map(point).collect();
    format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"g","gauge":{{"dataPoints":[{}]}}}}]}}]}}]}}"#,
        points.join(",")
    )
}

fn logs(records: u64) -> String {
    let records = vec![r#"{"timeUnixNano":"1"}"#; records as usize].join(",");
    format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{records}]}}]}}]}}"#)
}

fn post(port: u16, path: &str, body: &str) -> u16 {
    let answer = http::post(port, path, "application/json", body.as_bytes());
    answer.expect("an answer").status
}

/// A gateway that sends everything to a Go server in each coding, by `otlp` and by `loadbalancing`.
struct ToGo {
    gateway: Gateway,
    port: u16,
    /// With the name of the exporter that sends there, and the encoding that it uses.
    sinks: Vec<(String, &'static str, GoSink)>,
}

impl ToGo {
    fn start(queue: &str) -> Self {
        let port = free_port();
        let (mut sinks, mut exporters) = (Vec::new(), String::new());
        let common = format!("sending_queue: {{{queue}}}, retry_on_failure: {{initial_interval: 50ms}}");
        for (compression, encoding) in CODINGS {
            let sink = GoSink::start();
            let (name, to) = (format!("otlp/{compression}"), sink.port());
            exporters += &format!(
                "  {name}: {{endpoint: \"127.0.0.1:{to}\", tls: {{insecure: true}}, compression: {compression}, {common}}}\n"
            );
            sinks.push((name, encoding, sink));
        }
        let sink = GoSink::start();
        exporters += &format!(
            "  loadbalancing: {{resolver: {{static: {{hostnames: [\"127.0.0.1:{}\"]}}}}, protocol: {{otlp: {{tls: {{insecure: true}}, {common}}}}}}}\n",
            sink.port()
        );
        sinks.push(("loadbalancing".to_owned(), "gzip", sink));
        let names = sinks
            .iter()
            .map(|(name, ..)| &**name)
            .collect::<Vec<_>>()
            .join(", ");
        let gateway = Gateway::start(&format!(
            "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\"}}}}}}}}
exporters:
{exporters}service:
  pipelines:
    metrics: {{receivers: [otlp], exporters: [{names}]}}
    logs: {{receivers: [otlp], exporters: [{names}]}}
"
        ));
        Self { gateway, port, sinks }
    }

    /// The gateway's counts of items that one exporter sent and failed to send.
    fn sent(&self, exporter: &str) -> (u64, u64) {
        let label = format!("exporter=\"{exporter}\"");
        let of = |what: &str| {
            let items = |signal| {
                self.gateway
                    .own_metric(&format!("otelcol_exporter_{what}_{signal}"), &[&label])
            };
            (items("metric_points") + items("log_records")) as u64
        };
        (of("sent"), of("send_failed"))
    }

    fn of(&self, metric: &str, exporter: &str) -> u64 {
        let component = format!("component=\"exporters::{exporter}\"");
        self.gateway.own_metric(metric, &[&component]) as u64
    }

    /// Everything has come to its end, and both ends say the same of it.
    fn agrees(&mut self, items: u64, rejected: u64) {
        self.gateway.wait_for_idle();
        let mut sinks = std::mem::take(&mut self.sinks);
        for (exporter, encoding, sink) in &mut sinks {
            let counts = sink.counts();
            assert_eq!(counts.items, items, "{exporter}: what the peer received");
            assert_eq!(
                self.sent(exporter),
                (items - rejected, rejected),
                "{exporter}: what we count"
            );
            assert_eq!(
                self.of("tidegate_dropped_items_total", exporter),
                rejected,
                "{exporter}"
            );
            let expected = [((*encoding).to_owned(), counts.requests)].into();
            assert_eq!(counts.encodings, expected, "{exporter}");
        }
        self.sinks = sinks;
    }
}

#[test]
fn counters_equal_what_a_go_server_received_in_every_coding() {
    const REQUESTS: u64 = 5;
    for queue in ["", "wait_for_result: true"] {
        let mut hop = ToGo::start(queue);
        for _ in 0..REQUESTS {
            assert_eq!(post(hop.port, "/v1/metrics", &metrics(POINTS)), 200, "{queue}");
            assert_eq!(post(hop.port, "/v1/logs", &logs(RECORDS)), 200, "{queue}");
        }
        let all = REQUESTS * (POINTS + RECORDS);
        hop.agrees(all, 0);
        for (_, _, sink) in &mut hop.sinks {
            sink.reject(2);
        }
        assert_eq!(post(hop.port, "/v1/metrics", &metrics(POINTS)), 200, "{queue}");
        hop.agrees(all + POINTS, 2);
        hop.gateway.stop();
    }
}

#[test]
fn own_metrics_reach_a_go_server_compressed() {
    let mut sink = GoSink::start();
    let gateway = Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{}\"}}}}}}}}
exporters: {{debug: }}
service:
  telemetry:
    metrics:
      readers:
        - periodic:
            interval: 100
            exporter: {{otlp: {{protocol: grpc, endpoint: \"http://127.0.0.1:{}\", compression: gzip}}}}
  pipelines: {{metrics: {{receivers: [otlp], exporters: [debug]}}}}
",
        free_port(),
        sink.port()
    ));
    let enough = |counts: &Counts| counts.requests >= 3 && counts.items > 0;
    wait_until(SOON, "several pushes", || enough(&sink.counts()));
    let log = gateway.stop();
    assert!(!log.contains("push"), "{log}");
    let counts = sink.counts();
    assert_eq!(counts.encodings, [("gzip".to_owned(), counts.requests)].into());
}

/// A gateway with one exporter, whose sink and queue are as the test wants them, and its ports: of the receiver and of `admin`.
fn with_exporter(kind: &str, options: &str, storage: &std::path::Path) -> (Gateway, u16, u16) {
    let (port, admin) = (free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\"}}}}}}}}
extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\"}}, file_storage: {{directory: \"{}\"}}}}
exporters: {{{kind}: {{{options}}}}}
service:
  extensions: [health_check, admin, file_storage]
  pipelines: {{metrics: {{receivers: [otlp], exporters: [{kind}]}}}}
",
        storage.display()
    ));
    (gateway, port, admin)
}

fn troubles(gateway: &Gateway) -> serde_json::Value {
    gateway.health().expect("an answer").json()["troubles"].clone()
}

/// The API and the metrics say that the exporter dropped one of two requests, and delivered the other.
fn one_of_two_requests_was_rejected(gateway: &Gateway, admin: u16, exporter: &str) {
    let ledgers = Ledgers::at_rest(gateway, admin);
    let accepted = [("accepted", 2 * POINTS)];
    assert_eq!(ledgers.of("receivers::otlp", "metrics"), accepted);
    let counts = ledgers.of(&format!("exporters::{exporter}"), "metrics");
    let expected = [("dropped rejected", POINTS), ("in", 2 * POINTS), ("out", POINTS)];
    assert_eq!(counts, expected, "{exporter}");
}

#[test]
fn denied_access_is_in_the_log_health_and_a_gauge_until_a_success() {
    let directory = tempfile::tempdir().expect("a directory");
    for kind in ["otlp", "otlphttp"] {
        let sink = OtlpSink::start();
        sink.trouble([Trouble::Refuse(Code::Unauthenticated, 401)]);
        let options = format!("endpoint: \"{}\"", sink.endpoint());
        let (gateway, port, admin) = with_exporter(kind, &options, directory.path());
        let component = format!("component=\"exporters::{kind}\"");
        let denied = || gateway.own_metric("tidegate_exporter_failing", &[&component, "reason=\"denied\""]);
        assert_eq!(post(port, "/v1/metrics", &metrics(POINTS)), 200);
        wait_until(SOON, "the gauge shows it", || denied() == 1.0);
        let trouble = troubles(&gateway)[format!("exporters::{kind}")].to_string();
        let begin = format!("\"access to {}", sink.endpoint());
        assert!(trouble.starts_with(&begin), "{trouble}");
        assert_eq!(post(port, "/v1/metrics", &metrics(POINTS)), 200);
        wait_until(SOON, "it is over", || denied() == 0.0);
        assert!(troubles(&gateway).is_null());
        one_of_two_requests_was_rejected(&gateway, admin, kind);
        assert_eq!(sink.attempts(), 2, "a denial is final");
        assert_eq!(sink.points().len() as u64, POINTS);
        let log = gateway.stop();
        let error = log.lines().find(|line| line.contains("ERROR")).expect("an error");
        let (status, statuses) = match kind {
            "otlp" => ("Unauthenticated", "[UNAUTHENTICATED, PERMISSION_DENIED]"),
            _ => ("401", "[401, 403]"),
        };
        let kept = format!(
            "this data is dropped. To keep it, set `retry_on_failure: {{retry_on_status: {statuses}}}`"
        );
        for part in ["access denied", &kept, &sink.endpoint(), status] {
            assert!(error.contains(part), "{error}");
        }
    }
}

/// A request of `count` gauges of now.
///
/// Each call has a later time in milliseconds, since a remote write has one point of a series and millisecond.
fn gauges(count: u64) -> String {
    static LAST_MS: AtomicU64 = AtomicU64::new(0);
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as u64;
    let later = |last: u64| Some(now.max(last + 1));
    let last = LAST_MS.fetch_update(SeqCst, SeqCst, later).expect("always some");
    let now = u128::from(now.max(last + 1)) * 1_000_000;
    let gauge = |n| {
        format!(r#"{{"name":"g{n}","gauge":{{"dataPoints":[{{"timeUnixNano":"{now}","asInt":"{n}"}}]}}}}"#)
    };
    let gauges: Vec<String> = (0..count).map(gauge).collect();
    format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{}]}}]}}]}}"#,
        gauges.join(",")
    )
}

/// Denies with an answer that is longer than what is shown of it.
fn denying(status: &'static str) -> HttpPeer {
    HttpPeer::answering(Reply {
        status,
        body: format!("who are you? {}", "x".repeat(2000)),
        ..Reply::default()
    })
}

#[test]
fn denied_remote_writes_say_where_and_why_and_are_not_tried_again() {
    const COMPONENT: &str = "component=\"exporters::prometheusremotewrite\"";
    let directory = tempfile::tempdir().expect("a directory");
    for (status, code) in [("401 Unauthorized", "401"), ("403 Forbidden", "403")] {
        let peer = denying(status);
        let url = format!("http://127.0.0.1:{}/api/v1/write", peer.port());
        let options = format!(
            "endpoint: \"{url}\", max_batch_request_parallelism: 1, retry_on_failure: {{initial_interval: 20ms}}"
        );
        let (gateway, port, admin) = with_exporter("prometheusremotewrite", &options, directory.path());
        let denied = || gateway.own_metric("tidegate_exporter_failing", &[COMPONENT, "reason=\"denied\""]);
        let rejected = || {
            gateway.own_metric(
                "tidegate_dropped_items_total",
                &[COMPONENT, "reason=\"rejected\""],
            )
        };
        assert_eq!(post(port, "/v1/metrics", &gauges(POINTS)), 200);
        wait_until(SOON, "the points are dropped", || rejected() as u64 == POINTS);
        assert_eq!(denied(), 1.0);
        let trouble = troubles(&gateway)["exporters::prometheusremotewrite"].to_string();
        assert!(trouble.contains(&url) && trouble.contains(code), "{trouble}");
        assert_eq!(peer.seen().len(), 1, "a denial is final");

        peer.answer(Reply::default());
        assert_eq!(post(port, "/v1/metrics", &gauges(POINTS)), 200);
        wait_until(SOON, "it is over", || denied() == 0.0);
        assert!(troubles(&gateway).is_null());
        one_of_two_requests_was_rejected(&gateway, admin, "prometheusremotewrite");
        assert_eq!(peer.seen().len(), 2);
        let log = gateway.stop();
        let error = log.lines().find(|line| line.contains("ERROR")).expect("an error");
        for part in ["access denied", &*url, code, "who are you? xxx"] {
            assert!(error.contains(part), "{error}");
        }
        let shown = error.matches('x').count();
        assert!((400..520).contains(&shown), "{shown} of 2000");
    }
}

#[test]
fn denied_remote_writes_are_kept_and_probed_where_that_is_wanted() {
    let (directory, peer) = (
        tempfile::tempdir().expect("a directory"),
        denying("403 Forbidden"),
    );
    let options = format!(
        "endpoint: \"http://127.0.0.1:{}/api/v1/write\", max_batch_request_parallelism: 1, \
         retry_on_failure: {{initial_interval: 100ms, \
         randomization_factor: 0, multiplier: 2, max_interval: 400ms, retry_on_status: [401, 403]}}",
        peer.port()
    );
    let (gateway, port, admin) = with_exporter("prometheusremotewrite", &options, directory.path());
    for _ in 0..3 {
        assert_eq!(post(port, "/v1/metrics", &gauges(POINTS)), 200);
    }
    wait_until(SOON, "probes", || peer.seen().len() >= 5);
    let denied = || gateway.own_metric("tidegate_exporter_failing", &["reason=\"denied\""]);
    let sent = || gateway.own_metric("otelcol_exporter_sent_metric_points", &[]) as u64;
    let dropped = || gateway.own_metric("tidegate_dropped_items_total", &["component=\"exporters"]);
    assert_eq!((denied(), sent(), dropped()), (1.0, 0, 0.0));
    let times: Vec<_> = peer.seen().iter().map(|seen| seen.at).collect();
    for (gap, least_ms) in times.windows(2).zip([100, 200, 400, 400]) {
        let gap = gap[1] - gap[0];
        assert!(gap.as_millis() >= least_ms - 10, "{gap:?}, not {least_ms} ms");
    }
    peer.answer(Reply::default());
    wait_until(SOON, "all is delivered", || sent() == 3 * POINTS);
    assert_eq!((denied(), dropped()), (0.0, 0.0));
    let ledgers = Ledgers::at_rest(&gateway, admin);
    assert_eq!(
        ledgers.of("exporters::prometheusremotewrite", "metrics"),
        [("in", 3 * POINTS), ("out", 3 * POINTS)]
    );
    let log = gateway.stop();
    let retried = "access denied: check the credentials; the exporter will retry";
    assert_eq!(log.matches(retried).count(), 1, "{log}");
    assert_eq!(log.matches("access denied").count(), 1, "{log}");
}

#[test]
fn a_queue_on_disk_counts_and_keeps_its_items_and_logs_their_end() {
    const REQUESTS: u64 = 6;
    let directory = tempfile::tempdir().expect("a directory");
    let to = free_port();
    // Memory holds two of them; the others are on disk alone.
    let options = format!(
        "endpoint: \"http://127.0.0.1:{to}\", retry_on_failure: {{initial_interval: 100ms}}, sending_queue: {{storage: file_storage, queue_size: 2}}"
    );
    let (gateway, port, admin) = with_exporter("otlphttp", &options, directory.path());
    for _ in 0..REQUESTS {
        assert_eq!(post(port, "/v1/metrics", &metrics(POINTS)), 200);
    }
    let all = REQUESTS * POINTS;
    let of = |metric: &str| gateway.own_metric(metric, &["component=\"exporters::otlphttp\""]) as u64;
    wait_until(SOON, "the backlog is what is held", || {
        of("tidegate_storage_backlog_items") == all
    });
    let ledgers = Ledgers::agreed(&gateway, admin);
    let counts = ledgers.of("exporters::otlphttp", "metrics");
    assert_eq!(counts, [("held", all), ("in", all)]);
    wait_until(SOON, "health names it", || !troubles(&gateway).is_null());
    let trouble = troubles(&gateway)["exporters::otlphttp"].to_string();
    assert!(
        trouble.contains(&format!("sending to http://127.0.0.1:{to}/ fails since")),
        "{trouble}"
    );
    let log = gateway.stop();
    let line = |part: &str| {
        let found = log.lines().find(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("{part}: {log}")).to_owned()
    };
    let retry = line("will retry");
    assert!(
        retry.contains("http://127.0.0.1") && retry.contains("ms "),
        "{retry}"
    );
    assert!(line("stopping: sending the queue").contains(&format!("items={all}")));
    assert!(line("kept on disk for the next run").contains(&format!("items={all}")));

    let sink = OtlpSink::start_on(to);
    let (mut gateway, _, admin) = with_exporter("otlphttp", &options, directory.path());
    let caught_up = gateway.wait_for_log("caught up");
    assert!(caught_up.contains(&format!("items={all}")), "{caught_up}");
    assert_eq!(sink.points().len() as u64, all);
    let sent = || gateway.own_metric("otelcol_exporter_sent_metric_points", &[]) as u64;
    wait_until(SOON, "all is sent", || sent() == all);
    let ledgers = Ledgers::at_rest(&gateway, admin);
    let counts = ledgers.of("exporters::otlphttp", "metrics");
    assert_eq!(counts, [("out", all), ("restored", all)]);
    assert_eq!(gateway.own_metric("tidegate_storage_backlog_items", &[]), 0.0);
    gateway.stop();
}

#[test]
fn the_first_point_of_a_stream_that_becomes_a_delta_is_not_sent() {
    let directory = tempfile::tempdir().expect("a directory");
    let sink = OtlpSink::start();
    let options = format!("endpoint: \"{}\", temporality: delta", sink.endpoint());
    let (gateway, port, admin) = with_exporter("otlphttp", &options, directory.path());
    let total = |n: u64| {
        format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"c","sum":{{"aggregationTemporality":2,"isMonotonic":true,"dataPoints":[{{"timeUnixNano":"{n}","asInt":"{n}"}}]}}}}]}}]}}]}}"#
        )
    };
    let sent = || gateway.own_metric("otelcol_exporter_sent_metric_points", &[]);
    let absorbed = || {
        let exporter = "component=\"exporters::otlphttp\"";
        gateway.own_metric("tidegate_component_items_total", &[exporter, "flow=\"absorbed\""])
    };
    assert_eq!(post(port, "/v1/metrics", &total(1)), 200);
    wait_until(SOON, "it sets the baseline", || absorbed() == 1.0);
    assert_eq!(sent(), 0.0);
    assert_eq!(post(port, "/v1/metrics", &total(2)), 200);
    wait_until(SOON, "the increase is sent", || sent() == 1.0);
    assert_eq!((sink.points().len(), absorbed()), (1, 1.0));
    let ledgers = Ledgers::at_rest(&gateway, admin);
    assert_eq!(
        ledgers.of("exporters::otlphttp", "metrics"),
        [("absorbed", 1), ("in", 2), ("out", 1)]
    );
    assert_eq!(ledgers.of("receivers::otlp", "metrics"), [("accepted", 2)]);
    gateway.stop();
}

#[test]
fn batches_are_filled_by_splitting_requests() {
    let (sink, port) = (OtlpSink::start(), free_port());
    let mut gateway = Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\"}}}}}}}}
processors: {{batch: {{send_batch_size: 100, send_batch_max_size: 100, timeout: 5s}}}}
exporters: {{otlphttp: {{endpoint: \"{}\", sending_queue: {{num_consumers: 1}}}}}}
service: {{pipelines: {{metrics: {{receivers: [otlp], processors: [batch], exporters: [otlphttp]}}}}}}
",
        sink.endpoint()
    ));
    for _ in 0..11 {
        assert_eq!(post(port, "/v1/metrics", &metrics(60)), 200);
    }
    let sizes = || -> Vec<usize> {
        let requests = sink.metrics();
        let points = requests
            .iter()
            .map(|request| points(std::slice::from_ref(request)).len());
        points.collect()
    };
    gateway.wait_until("everything arrives", || sizes().iter().sum::<usize>() == 660);
    assert_eq!(sizes(), [100, 100, 100, 100, 100, 100, 60]);
    gateway.stop();
}
