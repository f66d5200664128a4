// SPDX-License-Identifier: Apache-2.0

//! Processes that report one series side by side: writer and taker of remote write notice it by their start times.

use super::{Otlp, nanos, now_ms};
use crate::kit::points::{self, Point};
use crate::kit::{Gateway, OtlpSink, SOON, free_port, wait_until};
use serde_json::{Value, json};

/// A counter at `time`, of a process that began `began_s` seconds before `now`.
fn word(began_s: u64, now: u64, time: u64, value: u64) -> Value {
    json!([{"name": "rw.hits", "sum": {"isMonotonic": true, "aggregationTemporality": 2, "dataPoints": [{
        "startTimeUnixNano": nanos(now - began_s * 1_000), "timeUnixNano": nanos(time), "asInt": value.to_string(),
    }]}}])
}

/// Whether a point has a value. The point that ends a series has none, and its resource may be that of a later `target_info`.
fn has_value(point: &Point) -> bool {
    !matches!(point.value, points::Value::Sum { value, .. } if value.is_nan())
}

#[test]
fn starts_that_alternate_are_counted_and_named_by_writer_and_taker() {
    let (sink, port, otlp) = (OtlpSink::start(), free_port(), Otlp::new());
    let mut taker = Gateway::start(&format!(
        "receivers:
  prometheusremotewrite: {{endpoint: \"127.0.0.1:{port}\"}}
exporters:
  otlphttp: {{endpoint: \"{}\"}}
service: {{pipelines: {{metrics: {{receivers: [prometheusremotewrite], exporters: [otlphttp]}}}}}}
",
        sink.endpoint()
    ));
    let mut writer = Gateway::start(&format!(
        "receivers:
{}exporters:
  prometheusremotewrite:
    endpoint: \"http://127.0.0.1:{port}/api/v1/write\"
    protobuf_message: io.prometheus.write.v2.Request
service: {{pipelines: {{metrics: {{receivers: [otlp], exporters: [prometheusremotewrite]}}}}}}
",
        otlp.receiver()
    ));
    let now = now_ms();
    let colliding = |gateway: &Gateway, whose: &str| {
        gateway.own_metric(
            "tidegate_colliding_streams_total",
            &[whose, "reason=\"interleaved\""],
        )
    };
    let (writes, takes) = (
        "exporter=\"prometheusremotewrite\"",
        "receiver=\"prometheusremotewrite\"",
    );
    let arrived = |words: usize| {
        wait_until(SOON, "the taker has every word", || {
            let points = sink.points_of("rw_hits_total");
            points.iter().filter(|point| has_value(point)).count() == words
        });
    };
    // A restart is not a collision.
    otlp.push(&word(60, now, now - 5_000, 10));
    otlp.push(&word(30, now, now - 4_000, 1));
    otlp.push(&word(30, now, now - 3_000, 2));
    arrived(3);
    assert_eq!((colliding(&writer, writes), colliding(&taker, takes)), (0.0, 0.0));
    // The older one is still there.
    otlp.push(&word(60, now, now - 2_000, 11));
    otlp.push(&word(30, now, now - 1_000, 3));
    arrived(5);
    wait_until(SOON, "both count the collision", || {
        (colliding(&writer, writes), colliding(&taker, takes)) == (1.0, 1.0)
    });
    for gateway in [&mut writer, &mut taker] {
        let line = gateway.wait_for_log("several processes report the same series");
        assert!(
            line.contains("rw_hits_total") && line.contains("service.instance.id"),
            "{line}"
        );
    }
    writer.stop();
    taker.stop();
}
