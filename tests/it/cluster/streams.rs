// SPDX-License-Identifier: Apache-2.0

//! Cumulative senders that change their gateways.

use crate::cluster::replicas;
use crate::kit::{Gateway, SOON, free_port, http, wait_until};

/// A report of a sender that counts `hits`: its instance, its start and its total.
pub(super) fn report_hits(receiver: u16, instance: &str, start: u64, hits: u64) {
    let point = format!(
        r#"{{"startTimeUnixNano":"{start}","timeUnixNano":"{}","asInt":"{hits}"}}"#,
        start + hits
    );
    let metric = format!(
        r#"{{"name":"hits","sum":{{"isMonotonic":true,"aggregationTemporality":2,"dataPoints":[{point}]}}}}"#
    );
    let resource = format!(
        r#"{{"attributes":[{{"key":"service.instance.id","value":{{"stringValue":"{instance}"}}}}]}}"#
    );
    let body = format!(
        r#"{{"resourceMetrics":[{{"resource":{resource},"scopeMetrics":[{{"metrics":[{metric}]}}]}}]}}"#
    );
    let answer = http::post(receiver, "/v1/metrics", "application/json", body.as_bytes());
    assert_eq!(answer.expect("an answer").status, 200);
}

/// The starts of senders: nanoseconds of 2026.
const STARTS: [u64; 3] = [
    1_790_000_000_000_000_000,
    1_790_000_001_000_000_000,
    1_790_000_002_000_000_000,
];

#[test]
fn a_sender_that_changes_its_exporter_counts_once_with_streams_only() {
    for (streams, total) in [("true", 157), ("false", 257)] {
        let [one, other, page] = [free_port(), free_port(), free_port()];
        let gateway = Gateway::start(&format!(
            "extensions:
  cluster: {{name: test, engine: {{local: {{}}}}}}
receivers:
  otlp/a: {{protocols: {{http: {{endpoint: \"127.0.0.1:{one}\"}}}}}}
  otlp/b: {{protocols: {{http: {{endpoint: \"127.0.0.1:{other}\"}}}}}}
  partials: {{cluster: cluster}}
processors:
  aggregate: {{rules: [{{match: {{name: hits}}, by: []}}]}}
exporters:
  partials/a: {{cluster: cluster, producer: a, streams: {streams}}}
  partials/b: {{cluster: cluster, producer: b, streams: {streams}}}
  prometheus: {{endpoint: \"127.0.0.1:{page}\"}}
service:
  extensions: [health_check, cluster]
  pipelines:
    metrics/a: {{receivers: [otlp/a], exporters: [partials/a]}}
    metrics/b: {{receivers: [otlp/b], exporters: [partials/b]}}
    metrics/show: {{receivers: [partials], processors: [aggregate], exporters: [prometheus]}}
"
        ));
        report_hits(one, "x", STARTS[0], 100);
        report_hits(other, "y", STARTS[1], 7);
        report_hits(other, "x", STARTS[0], 150);
        wait_until(SOON, "the page shows the sum of both senders", || {
            let page = http::get(page, "/metrics").expect("it answers");
            page.text().contains(&format!("\nhits_total {total}\n"))
        });
        gateway.stop();
    }
}

/// A gateway behind a load balancer, and the port of its receiver.
pub(super) fn stream_gateway([one, other]: [u16; 2], producer: &str) -> (Gateway, u16) {
    let receiver = free_port();
    let gateway = Gateway::start(&format!(
        "extensions:
  cluster:
    name: test
    engine: {{direct: {{replicas: [\"127.0.0.1:{one}\", \"127.0.0.1:{other}\"], token: secret}}}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receiver}\"}}}}}}
exporters:
  partials: {{cluster: cluster, producer: {producer}, streams: true}}
service:
  extensions: [health_check, cluster]
  pipelines:
    metrics: {{receivers: [otlp], exporters: [partials]}}
"
    ));
    (gateway, receiver)
}

#[test]
fn totals_stay_right_while_senders_change_gateways_that_come_and_go() {
    let replicas = replicas();
    let peers = replicas[0].peers;
    let [first, second] = [0, 1].map(|index| replicas[index].start(peers[index]));
    let wait_for = |total: f64| {
        for replica in &replicas {
            replica.api.wait_for_value("sum(hits_total)", total);
        }
    };
    let (a, at_a) = stream_gateway(peers, "a");
    let (b, at_b) = stream_gateway(peers, "b");
    report_hits(at_a, "x", STARTS[0], 100);
    wait_for(100.0);
    report_hits(at_b, "y", STARTS[1], 7);
    report_hits(at_b, "x", STARTS[0], 150);
    wait_for(157.0);
    // It moves back, and what the other gateway says again is older.
    report_hits(at_a, "x", STARTS[0], 160);
    wait_for(167.0);
    b.kill();
    let (b, at_b) = stream_gateway(peers, "b");
    report_hits(at_b, "y", STARTS[1], 9);
    wait_for(169.0);
    a.stop();
    report_hits(at_b, "x", STARTS[0], 161);
    // The sender restarts.
    report_hits(at_b, "x", STARTS[2], 5);
    wait_for(175.0);
    assert_eq!(b.own_metric("tidegate_partials_refused_series_total", &[]), 0.0);
    // A replica that has not seen any of it.
    first.kill();
    let again = replicas[0].start(peers[0]);
    wait_for(175.0);
    b.stop();
    again.stop();
    second.stop();
}
