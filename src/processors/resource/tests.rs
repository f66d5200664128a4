// SPDX-License-Identifier: Apache-2.0

//! The same actions on resources in every form.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use tidegate_engine::{AttributeRef, Data, Instrument, Point, Value};

use super::*;
use crate::batch::{Batch, Payload, Points, convert, wire};
use crate::component::Reason;
use crate::component::testing::{Sink, settings};
use crate::processors::testing::{encoded, events, kind, point, processor_context};

const RULES: &str = "{attributes: [{key: rack, value: r7, action: insert}, {key: pod, action: delete}]}";

fn pass(yaml: &str, payload: impl Into<Payload>) -> Payload {
    let sink = Sink::new();
    let (cx, _, ledger) = processor_context("resource", &sink);
    let edit = (FACTORY.build)(&settings::<ResourceProcessorConfig>(yaml), cx).unwrap();
    edit.push(Batch::new(payload)).unwrap();
    assert_eq!(ledger.balance().dropped_total(), 0);
    sink.batches().remove(0).payload
}

fn in_pod(mut point: Point) -> Point {
    let series = Arc::make_mut(&mut point.series);
    let attributes = [("pod", "p1"), ("node", "n1")].into_iter().collect();
    series.resource = Arc::new(Resource {
        attributes,
        schema_url: "s".into(),
    });
    point
}

fn expected() -> Attributes {
    [("rack", "r7"), ("node", "n1")].into_iter().collect()
}

#[test]
fn points_are_edited_alike_on_the_wire_and_decoded() {
    let before = [
        in_pod(point(
            "a",
            Data::Gauge,
            &[("pod", "stays: it is the point's")],
            Value::Int(1),
        )),
        in_pod(point("b", Data::Gauge, &[], Value::Int(2))),
    ];
    let decoded = Points {
        points: before.to_vec().into(),
    };
    let Payload::Points(decoded) = pass(RULES, decoded) else {
        panic!("points stay points")
    };
    let Payload::Encoded(wire) = pass(RULES, convert::encode_points(&before)) else {
        panic!("wire stays wire")
    };
    let wire = convert::points(&wire).unwrap();
    assert_eq!(wire[..], decoded.points[..]);
    for (old, new) in before.iter().zip(&wire) {
        assert_eq!(new.series.resource.attributes, expected());
        assert_eq!(new.series.attributes, old.series.attributes);
        assert_eq!(&*new.series.resource.schema_url, "s");
    }
}

#[test]
fn a_request_without_a_resource_gets_one() {
    let Payload::Encoded(edited) = pass(RULES, encoded(&[("a", 1)])) else {
        panic!("wire stays wire")
    };
    let points = convert::points(&edited).unwrap();
    let rack = points[0].series.resource.attributes.get("rack");
    assert_eq!(rack, Some(AttributeRef::Str("r7")));
}

#[test]
fn spans_are_edited_too() {
    let spans = ResourceSpans {
        scope_spans: vec![ScopeSpans {
            spans: vec![Span::default(), Span::default()],
            ..Default::default()
        }],
        ..Default::default()
    };
    let request = ExportTraceServiceRequest {
        resource_spans: vec![spans],
    };
    let before = wire::check(Signal::Traces, request.encode_to_vec().into()).unwrap();
    let Payload::Encoded(edited) = pass(RULES, before) else {
        panic!("wire stays wire")
    };
    let request = ExportTraceServiceRequest::decode(edited.parts[0].bytes.clone()).unwrap();
    let resource = request.resource_spans[0].resource.as_ref().unwrap();
    assert_eq!((&*resource.attributes[0].key, edited.items()), ("rack", 2));
}

#[test]
fn events_get_a_new_source_once_and_only_where_something_changes() {
    let all = events("a", vec![kind("k", Instrument::Counter, &[])], &[(0, 1)]);
    let batch = Batch::new(all);
    let Payload::Events(before) = &batch.payload else {
        unreachable!()
    };
    let sink = Sink::new();
    let (cx, ..) = processor_context("resource", &sink);
    let edit = (FACTORY.build)(&settings::<ResourceProcessorConfig>(RULES), cx).unwrap();
    edit.push(batch.clone()).unwrap();
    edit.push(batch.clone()).unwrap();
    let sources: Vec<_> = sink
        .batches()
        .iter()
        .map(|batch| match &batch.payload {
            Payload::Events(events) => events.source.clone(),
            _ => panic!("events stay events"),
        })
        .collect();
    assert!(
        Arc::ptr_eq(&sources[0], &sources[1]),
        "one source stays one source"
    );
    let rack = sources[0].resource.attributes.get("rack");
    assert_eq!(rack, Some(AttributeRef::Str("r7")));

    let nothing = "{attributes: [{key: pod, action: delete}]}";
    let Payload::Events(after) = pass(nothing, batch.payload.clone()) else {
        panic!("events stay events")
    };
    assert!(Arc::ptr_eq(before, &after));
}

#[test]
fn bytes_that_can_not_be_walked_are_dropped_and_counted() {
    let sink = Sink::new();
    let (cx, _, ledger) = processor_context("resource", &sink);
    let edit = (FACTORY.build)(&settings::<ResourceProcessorConfig>(RULES), cx).unwrap();
    let broken = crate::batch::Encoded::one(Signal::Logs, [0x0a, 0xff].to_vec().into(), 3);
    edit.push(Batch::new(broken)).unwrap();
    assert_eq!(ledger.balance().dropped[Reason::Invalid as usize], 3);
    assert!(sink.batches().is_empty());
}
