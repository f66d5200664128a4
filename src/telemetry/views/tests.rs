// SPDX-License-Identifier: Apache-2.0

//! The metrics that views select, and the effect of each view.

use super::*;
use crate::config::parse_text;

fn views(text: &str) -> (Option<Vec<View>>, String) {
    let mut cx = Problems::default();
    let node = parse_text("a.yaml", text, &mut cx).unwrap();
    let views = Vec::<View>::decode(&node, &mut cx);
    (views, cx.to_string())
}

#[test]
fn views_select_by_name_kind_unit_and_scope() {
    let (selected, said) = views(
        "[{selector: {meter_name: go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp},
           stream: {aggregation: {drop: {}}}},
          {selector: {instrument_name: 'otelcol_processor_batch_*', instrument_type: histogram, unit: By},
           stream: {aggregation: {drop: }}},
          {selector: {instrument_name: otelcol_exporter_queue_size}, stream: {attribute_keys: {excluded: [data_type]}}},
          {selector: {meter_name: tidegate, instrument_name: tidegate_held_items}, stream: {attribute_keys: [component]}}]",
    );
    assert_eq!(said, "");
    let views = Views::new(&selected.unwrap());
    for (name, dropped) in [
        ("http.server.request.duration", true),
        ("rpc.server.call.duration", false),
        ("otelcol_processor_batch_batch_send_size_bytes", true),
        ("otelcol_processor_batch_batch_send_size", false),
        ("otelcol_exporter_queue_size", false),
    ] {
        assert_eq!(views.drops(name), dropped, "{name}");
    }
    let key = |name: &'static str, labels: &[(&'static str, &'static str)]| Key::from_parts(name, labels);
    let both = [("exporter", "a"), ("data_type", "logs")];
    assert_eq!(
        views.reduced(&key("otelcol_exporter_queue_size", &both)),
        Some(key("otelcol_exporter_queue_size", &both[..1]))
    );
    assert_eq!(
        views.reduced(&key("otelcol_exporter_queue_capacity", &both)),
        None
    );
    assert_eq!(
        views.reduced(&key("otelcol_exporter_queue_size", &both[..1])),
        None
    );
    let both = [("component", "a"), ("signal", "logs")];
    assert_eq!(
        views.reduced(&key("tidegate_held_items", &both)),
        Some(key("tidegate_held_items", &both[..1]))
    );
}

#[test]
fn options_without_effect_give_a_warning() {
    for (text, expected) in [
        (
            "[{selector: {instrument_name: nothing_like_it}}]",
            "selects none of tidegate's metrics",
        ),
        (
            "[{selector: {unit: s}, stream: {name: other}}]",
            "stream::name: has no effect",
        ),
        (
            "[{selector: {unit: s}, stream: {aggregation: {explicit_bucket_histogram: {boundaries: [1]}}}}]",
            "explicit_bucket_histogram: has no effect",
        ),
        (
            "[{selector: {unit: s}, stream: {aggregation: {base2_exponential_bucket_histogram: {max_size: 9}}}}]",
            "base2_exponential_bucket_histogram: has no effect",
        ),
        (
            "[{selector: {unit: s}, stream: {aggregation: {last_value: {}}}}]",
            "last_value: has no effect",
        ),
        (
            "[{selector: {unit: s}, stream: {aggregation_cardinality_limit: 9}}]",
            "aggregation_cardinality_limit: has no effect",
        ),
        (
            "[{selector: {unit: s, meter_version: '1'}}]",
            "meter_version: has no effect",
        ),
        (
            "[{selector: {unit: s, meter_schema_url: 'https://a.example'}}]",
            "meter_schema_url: has no effect",
        ),
    ] {
        let (selected, said) = views(text);
        assert!(
            selected.is_some() && said.matches("warning").count() == 1,
            "{said}"
        );
        assert!(said.contains(expected), "{said}");
    }
    let (_, said) = views("[{selector: {unit: s}, stream: {aggregation: {drop: {x: 1}}}}]");
    assert!(said.contains("error"), "{said}");
}

#[test]
fn gauges_without_a_value_are_not_in_a_sum_and_not_a_series() {
    let view = "[{selector: {instrument_name: tidegate_held_items}, stream: {attribute_keys: [signal]}}]";
    let (recorder, page) = crate::telemetry::testing::recorder(view);
    let shown = || page.series("tidegate_held_items");
    let logs = |value| vec![("signal=\"logs\"".to_owned(), value)];
    metrics::with_local_recorder(&recorder, || {
        let held = |component: &'static str| metrics::gauge!("tidegate_held_items", "component" => component, "signal" => "logs");
        let (a, b) = (held("a"), held("b"));
        assert_eq!(shown(), logs(0.0));
        a.set(3.0);
        b.set(4.0);
        assert_eq!(shown(), logs(7.0));
        a.set(NO_VALUE);
        assert_eq!(shown(), logs(4.0));
        b.set(f64::INFINITY);
        assert_eq!(shown(), []);
        b.increment(2.0);
        a.set(1.0);
        assert_eq!(shown(), logs(3.0));
        metrics::gauge!("tidegate_history_bytes").set(NO_VALUE);
        assert_eq!(page.series("tidegate_history_bytes"), []);
    });
}
