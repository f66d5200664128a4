// SPDX-License-Identifier: Apache-2.0

//! Recorded series at OTLP peers.

use super::*;
use crate::kit::OtlpSink;
use crate::kit::points::Point;

/// The recorded values of a zone that a peer has, in the order of their times.
fn recorded(sink: &OtlpSink, zone: &str) -> Vec<f64> {
    let mut points = sink.points_of("zone:depth:max");
    points.retain(|point| point.attribute("zone") == zone);
    points.sort_by_key(|point| point.time_ns);
    let twice = points.windows(2).find(|pair| pair[0].time_ns == pair[1].time_ns);
    assert!(twice.is_none(), "{twice:?}");
    points.iter().map(Point::number).collect()
}

#[test]
fn recorded_series_reach_otlp_peers_with_their_values() {
    let scene = Scene::new(&rules("1h"));
    let sinks = [OtlpSink::start(), OtlpSink::start()];
    let exporters = format!(
        "exporters:
  otlp: {{endpoint: \"127.0.0.1:{}\", tls: {{insecure: true}}, timeout: 1m}}
  otlphttp: {{endpoint: \"{}\", timeout: 1m}}
",
        sinks[0].port(),
        sinks[1].endpoint()
    );
    let config = scene.config().replace("exporters:\n", &exporters).replace(
        "[rules], exporters: [prometheus]",
        "[rules], exporters: [otlp, otlphttp]",
    );
    let gateway = Gateway::start(&config);
    scene.send("x", 7.0);
    scene.send("y", 2.5);
    for sink in &sinks {
        sink.wait_until("two evaluations of both zones", |sink| {
            ["x", "y"].iter().all(|zone| recorded(sink, zone).len() > 1)
        });
        for (zone, depth) in [("x", 7.0), ("y", 2.5)] {
            let values = recorded(sink, zone);
            assert!(values.iter().all(|value| *value == depth), "{zone}: {values:?}");
        }
    }
    scene.send("x", 9.0);
    for sink in &sinks {
        sink.wait_until("the new value", |sink| recorded(sink, "x").contains(&9.0));
        let mut values = recorded(sink, "x");
        values.dedup();
        assert_eq!(values, [7.0, 9.0]);
    }
    for metric in [
        "tidegate_rule_samples_dropped_total",
        "tidegate_dropped_items_total",
    ] {
        assert_eq!(gateway.own_metric(metric, &[]), 0.0, "{metric}");
    }
    gateway.stop();
}
