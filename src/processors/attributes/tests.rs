// SPDX-License-Identifier: Apache-2.0

//! The same actions on attributes in every form, and only where they are wanted.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{metric, number_data_point};
use prost::Message;
use tidegate_engine::{Data, Instrument, Value};

use super::*;
use crate::batch::{Batch, Payload, Points};
use crate::component::testing::{Sink, settings};
use crate::processors::testing::{encoded, events, kind, point, processor_context};

const RULES: &str =
    "{actions: [{key: rack, value: r7, action: insert}], include: {match_type: strict, metric_names: [a]}}";

fn pass(yaml: &str, batch: Batch) -> Payload {
    let sink = Sink::new();
    let (cx, _, ledger) = processor_context("attributes", &sink);
    let edit = (FACTORY.build)(&settings::<AttributesConfig>(yaml), cx).unwrap();
    edit.push(batch).unwrap();
    assert_eq!(ledger.balance().dropped_total(), 0);
    sink.batches().remove(0).payload
}

/// Name and `rack` of every point of an encoded request.
fn racks(encoded: &crate::batch::Encoded) -> Vec<(String, bool)> {
    let request = ExportMetricsServiceRequest::decode(encoded.parts[0].bytes.clone()).unwrap();
    let scopes = request
        .resource_metrics
        .into_iter()
        .flat_map(|metrics| metrics.scope_metrics);
    let metrics = scopes.flat_map(|scope| scope.metrics);
    metrics
        .map(|of| {
            let Some(metric::Data::Gauge(gauge)) = of.data else {
                panic!("a gauge")
            };
            let point = &gauge.data_points[0];
            assert!(matches!(point.value, Some(number_data_point::Value::AsInt(_))));
            (of.name, point.attributes.iter().any(|pair| pair.key == "rack"))
        })
        .collect()
}

#[test]
fn selected_points_are_edited_on_the_wire() {
    let Payload::Encoded(edited) = pass(RULES, Batch::new(encoded(&[("a", 1), ("b", 2)]))) else {
        panic!("wire stays wire")
    };
    assert_eq!(racks(&edited), [("a".to_owned(), true), ("b".to_owned(), false)]);
}

#[test]
fn a_request_that_nothing_is_changed_in_is_not_copied() {
    let request = encoded(&[("b", 2)]);
    let before = request.parts[0].bytes.clone();
    let Payload::Encoded(after) = pass(RULES, Batch::new(request)) else {
        panic!("wire stays wire")
    };
    assert_eq!(after.parts[0].bytes.as_ptr(), before.as_ptr());
}

#[test]
fn events_that_nothing_is_changed_in_are_not_copied() {
    let batch = Batch::new(events(
        "agent",
        vec![kind("b", Instrument::Counter, &[])],
        &[(0, 1)],
    ));
    let Payload::Events(before) = batch.payload.clone() else {
        unreachable!()
    };
    let Payload::Events(after) = pass(RULES, batch) else {
        panic!("events stay events")
    };
    assert!(Arc::ptr_eq(&before, &after));
}

#[test]
fn decoded_points_and_kinds_of_events_are_edited_alike() {
    let gauge = |name| point(name, Data::Gauge, &[("x", "1")], Value::Int(1));
    let points = Points {
        points: vec![gauge("a"), gauge("b")].into(),
    };
    let Payload::Points(edited) = pass(RULES, Batch::new(points)) else {
        panic!("points stay points")
    };
    let racks: Vec<bool> = edited
        .points
        .iter()
        .map(|point| point.series.attributes.get("rack").is_some())
        .collect();
    assert_eq!(racks, [true, false]);

    let kinds = vec![
        kind("a", Instrument::Counter, &[]),
        kind("b", Instrument::Counter, &[]),
    ];
    let Payload::Events(edited) = pass(RULES, Batch::new(events("agent", kinds, &[(0, 1), (1, 1)]))) else {
        panic!("events stay events")
    };
    let of = |kind: usize| {
        edited
            .source
            .attributes
            .merge(&edited.schema.kinds[kind].attributes)
    };
    assert!(of(0).get("rack").is_some());
    assert!(of(1).get("rack").is_none());
    assert_eq!(
        of(1).get("agent_name"),
        of(0).get("agent_name"),
        "what was there stays"
    );
}
