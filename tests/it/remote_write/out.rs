// SPDX-License-Identifier: Apache-2.0

//! The writes of the exporter, compared with the answers of Prometheus and VictoriaMetrics.

use super::{Otlp, every_kind, nanos, no_recorded_values, now_ms};
use crate::kit::query_api::QueryApi;
use crate::kit::{Gateway, Prometheus, Release, SOON, VictoriaMetrics, wait_until};
use serde_json::json;
use tempfile::TempDir;

const ONE: &str = "prometheus.WriteRequest";
const TWO: &str = "io.prometheus.write.v2.Request";

/// A gateway that writes to the server at this port.
fn gateway(otlp: &Otlp, server: u16, more: &str) -> Gateway {
    Gateway::start(&config(otlp, server, more))
}

fn config(otlp: &Otlp, server: u16, more: &str) -> String {
    format!(
        "receivers:
{}exporters:
  prometheusremotewrite:
    endpoint: \"http://127.0.0.1:{server}/api/v1/write\"
    external_labels: {{cluster: eu}}
    retry_on_failure: {{initial_interval: 50ms, max_interval: 200ms}}
    {more}
service:
  pipelines:
    metrics: {{receivers: [otlp], exporters: [prometheusremotewrite]}}
",
        otlp.receiver()
    )
}

/// The labels of every series.
const WHO: &str =
    "cluster=\"eu\",job=\"ns/svc\",instance=\"i-1\",otel_scope_name=\"lib\",otel_scope_version=\"1\"";

/// Numbers that every server must have for [`every_kind`].
fn holds_numbers(server: &QueryApi) {
    let table = [
        (format!("rw_temperature_celsius{{room_name=\"a\",{WHO}}}"), -3.5),
        (format!("rw_requests_total{{{WHO}}}"), 1027.0),
        (format!("rw_queue{{{WHO}}}"), -4.0),
        (format!("rw_latency_seconds_bucket{{le=\"0.5\",{WHO}}}"), 1.0),
        (format!("rw_latency_seconds_bucket{{le=\"1\",{WHO}}}"), 3.0),
        (format!("rw_latency_seconds_bucket{{le=\"+Inf\",{WHO}}}"), 6.0),
        (format!("rw_latency_seconds_sum{{{WHO}}}"), 7.5),
        (format!("rw_latency_seconds_count{{{WHO}}}"), 6.0),
        (format!("rw_pause{{quantile=\"0.5\",{WHO}}}"), 0.25),
        (format!("rw_pause{{quantile=\"0.99\",{WHO}}}"), 2.0),
        (format!("rw_pause_sum{{{WHO}}}"), 17.5),
        (format!("rw_pause_count{{{WHO}}}"), 30.0),
        (
            "target_info{cluster=\"eu\",job=\"ns/svc\",instance=\"i-1\",zone=\"z\"}".to_owned(),
            1.0,
        ),
        ("count({__name__=~\"rw_.+\"})".to_owned(), 13.0),
    ];
    for (expression, value) in table {
        server.wait_for_value(&expression, value);
    }
}

#[test]
fn prometheus_holds_what_is_written_in_both_versions_and_its_end() {
    for (release, message) in [
        (Release::Stable, ONE),
        (Release::Newest, ONE),
        (Release::Newest, TWO),
        (Release::Stable, "auto"),
    ] {
        let server = Prometheus::start_release(release, "{}");
        let otlp = Otlp::new();
        let gateway = gateway(&otlp, server.port(), &format!("protobuf_message: {message}"));
        let time = now_ms() - 5_000;
        otlp.push(&every_kind(time));
        holds_numbers(&server);
        server.wait_for_value("histogram_count(rw_size_bytes)", 10.0);
        server.wait_for_value("histogram_sum(rw_size_bytes)", 100.0);
        // Three observations in the topmost bucket, which ends at 2^(2/4).
        let top = server
            .value("histogram_quantile(1, rw_size_bytes)")
            .expect("a value");
        assert!((top - 2f64.sqrt()).abs() < 1e-9, "{top}");
        let exemplars = server.exemplars("rw_requests_total");
        let exemplar = &exemplars[0]["exemplars"][0];
        assert_eq!(
            exemplar["labels"],
            json!({"trace_id": "0102030405060708090a0b0c0d0e0f10", "user_id": "7"}),
            "{release:?} {message}"
        );
        assert_eq!(exemplar["value"], "0.75");
        assert_eq!(
            server.exemplars("rw_latency_seconds_bucket")[0]["seriesLabels"]["le"],
            "1"
        );
        otlp.push(&no_recorded_values(time + 1_000));
        wait_until(SOON, "every series has ended", || {
            server.query_json("{__name__=~\"rw_.+\"}").is_empty()
        });
        assert_eq!(server.value("count(target_info)"), Some(1.0));
        gateway.stop();
    }
}

#[test]
fn victoria_metrics_holds_what_is_written() {
    for message in [ONE, "auto"] {
        let server = VictoriaMetrics::start();
        let otlp = Otlp::new();
        let gateway = gateway(&otlp, server.port(), &format!("protobuf_message: {message}"));
        otlp.push(&every_kind(now_ms() - 5_000));
        holds_in_victoria_metrics(&server);
        assert_eq!(lost(&gateway), 0.0);
        gateway.stop();
    }
}

#[test]
fn a_server_that_does_not_know_2_0_is_not_taken_for_one_that_wrote_it() {
    let server = VictoriaMetrics::start();
    let otlp = Otlp::new();
    let gateway = gateway(&otlp, server.port(), &format!("protobuf_message: {TWO}"));
    otlp.push(&every_kind(now_ms() - 5_000));
    wait_until(SOON, "its fate is known", || {
        server.flush();
        lost(&gateway) > 0.0 || !server.export("rw_queue").is_empty()
    });
    match lost(&gateway) {
        // One that does has it all.
        0.0 => holds_in_victoria_metrics(&server),
        _ => {
            wait_until(SOON, "every point is counted", || lost(&gateway) == 6.0);
            assert!(server.export("{__name__=~\"rw_.+\"}").is_empty());
        }
    }
    gateway.stop();
}

fn lost(gateway: &Gateway) -> f64 {
    gateway.own_metric("tidegate_dropped_items_total", &["prometheusremotewrite"])
}

fn holds_in_victoria_metrics(server: &VictoriaMetrics) {
    let table = [
        ("rw_queue", -4.0),
        ("rw_requests_total", 1027.0),
        ("rw_latency_seconds_count", 6.0),
        ("rw_pause{quantile=\"0.5\"}", 0.25),
    ];
    for (selector, value) in table {
        wait_until(SOON, "it arrived", || {
            server.flush();
            !server.export(selector).is_empty()
        });
        let series = server.export(selector);
        assert_eq!(
            (series.len(), series[0]["values"][0].as_f64()),
            (1, Some(value)),
            "{selector}"
        );
        assert_eq!(series[0]["metric"]["job"], "ns/svc");
    }
}

/// Samples of 20 counters at this step.
fn counters(time: u64, step: u64) -> serde_json::Value {
    let point = |n: u64| {
        json!({"startTimeUnixNano": nanos(time - 1_000), "timeUnixNano": nanos(time + step), "asInt": (1000 * n + step).to_string(),
            "attributes": [{"key": "n", "value": {"intValue": n.to_string()}}]})
    };
    json!([{"name": "steps", "sum": {"isMonotonic": true, "aggregationTemporality": 2,
        "dataPoints": (0..20).map(point).collect::<Vec<_>>()}}])
}

#[test]
fn killed_servers_and_gateways_cost_no_sample_and_no_order() {
    for (release, message) in [(Release::Stable, ONE), (Release::Newest, TWO)] {
        let mut server = Prometheus::start_release(release, "{}");
        let storage = TempDir::new().expect("a directory");
        let otlp = Otlp::new();
        let more = format!(
            "protobuf_message: {message}
    sending_queue: {{num_consumers: 4, storage: file_storage}}
extensions: {{health_check: {{}}, file_storage: {{directory: {}}}}}",
            storage.path().display()
        );
        let config = config(&otlp, server.port(), &more).replace(
            "service:\n",
            "service:\n  extensions: [health_check, file_storage]\n",
        );
        let time = now_ms() - 60_000;
        let mut gateway = Gateway::start(&config);
        for step in 0..300 {
            otlp.push(&counters(time, step));
            match step {
                60 => server.kill(),
                // The contents of the queue are on disk, and go on when the next gateway starts.
                120 => {
                    gateway = {
                        gateway.kill();
                        Gateway::start(&config)
                    }
                }
                180 => server.start_again(),
                220 => {
                    gateway = {
                        gateway.stop();
                        Gateway::start(&config)
                    }
                }
                _ => {}
            }
        }
        wait_until(SOON, "everything has arrived", || {
            server.value("sum(count_over_time(steps_total[5m]))") == Some(6000.0)
        });
        for series in server.samples("steps_total", "5m") {
            let n: u64 = series["metric"]["n"]
                .as_str()
                .and_then(|n| n.parse().ok())
                .expect("a number");
            let came: Vec<String> = series["values"]
                .as_array()
                .expect("samples")
                .iter()
                .map(|sample| sample[1].as_str().expect("a value").to_owned())
                .collect();
            let went: Vec<String> = (0..300).map(|step| (1000 * n + step).to_string()).collect();
            assert_eq!(came, went);
        }
        gateway.stop();
    }
}
