// SPDX-License-Identifier: Apache-2.0

//! Every item is in one message, under its resource and scope, and with its key.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;

use super::*;

fn resource(name: &str) -> Option<Resource> {
    let value = AnyValue {
        value: Some(Value::StringValue(name.to_owned())),
    };
    Some(Resource {
        attributes: vec![KeyValue {
            key: "service.name".to_owned(),
            value: Some(value),
            ..Default::default()
        }],
        ..Default::default()
    })
}

fn scope(name: &str) -> Option<InstrumentationScope> {
    Some(InstrumentationScope {
        name: name.to_owned(),
        ..Default::default()
    })
}

/// A span of a trace; the name is the number of the span.
fn span(trace: u8, number: usize) -> Span {
    Span {
        trace_id: if trace == 0 { Vec::new() } else { vec![trace; 16] },
        name: number.to_string(),
        ..Default::default()
    }
}

/// Two resources with two scopes each. Their spans belong to these traces in turn.
fn traces(of: &[u8]) -> Encoded {
    let mut numbers = 0..;
    let resource_spans = ["a", "b"].map(|service| ResourceSpans {
        resource: resource(service),
        schema_url: "schema".to_owned(),
        scope_spans: ["x", "y"]
            .map(|name| ScopeSpans {
                scope: scope(name),
                spans: of
                    .iter()
                    .map(|trace| span(*trace, numbers.next().unwrap_or(0)))
                    .collect(),
                ..Default::default()
            })
            .into(),
    });
    let request = ExportTraceServiceRequest {
        resource_spans: resource_spans.into(),
    };
    wire::check(Signal::Traces, request.encode_to_vec().into()).unwrap()
}

/// The service, the scope, the trace and the name of each span.
fn spans(encoded: &Encoded) -> Vec<(String, String, Vec<u8>, String)> {
    let request = ExportTraceServiceRequest::decode(encoded.joined()).unwrap();
    let mut spans = Vec::new();
    for resource in request.resource_spans {
        assert_eq!(resource.schema_url, "schema");
        let service = format!("{:?}", resource.resource.unwrap().attributes[0].value);
        for scope in resource.scope_spans {
            let name = scope.scope.unwrap().name;
            let each = scope.spans.into_iter();
            spans.extend(each.map(|span| (service.clone(), name.clone(), span.trace_id, span.name)));
        }
    }
    spans
}

#[test]
fn each_trace_is_a_message_with_its_id_as_key() {
    let whole = traces(&[1, 2, 1, 0]);
    let pieces = divide(KeyRule::Trace, whole.clone());
    let keys: Vec<_> = pieces.iter().map(|piece| piece.key.clone().unwrap()).collect();
    let one = Bytes::from_static(b"01010101010101010101010101010101");
    let two = Bytes::from_static(b"02020202020202020202020202020202");
    assert_eq!(keys, [one, two, Bytes::new()]);
    let mut together: Vec<_> = pieces.iter().flat_map(|piece| spans(&piece.encoded())).collect();
    for piece in &pieces {
        let encoded = piece.encoded();
        let first = spans(&encoded)[0].2.clone();
        assert!(spans(&encoded).iter().all(|span| span.2 == first));
        assert!(encoded.bytes() <= piece.bytes() && piece.bytes() <= encoded.bytes() + 400);
        assert_eq!(
            encoded.items(),
            wire::check(Signal::Traces, encoded.joined()).unwrap().items()
        );
    }
    let mut all = spans(&whole);
    all.sort();
    together.sort();
    assert_eq!(together, all);
}

#[test]
fn records_without_a_trace_have_no_key() {
    let record = |trace: Vec<u8>| LogRecord {
        trace_id: trace,
        ..Default::default()
    };
    let request = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            scope_logs: vec![ScopeLogs {
                log_records: vec![record(vec![0; 16]), record(vec![0xab; 16]), record(Vec::new())],
                ..Default::default()
            }],
            ..Default::default()
        }],
    };
    let whole = wire::check(Signal::Logs, request.encode_to_vec().into()).unwrap();
    let pieces = divide(KeyRule::TraceIfAny, whole);
    let seen: Vec<_> = pieces
        .iter()
        .map(|piece| (piece.key.clone(), piece.items()))
        .collect();
    assert_eq!(seen, [(None, 2), (Some(Bytes::from("ab".repeat(16))), 1)]);
}

#[test]
fn resources_with_equal_attributes_share_a_message() {
    let mut whole = traces(&[1]);
    let again = traces(&[2]);
    whole.parts.extend(again.parts);
    let pieces = divide(KeyRule::Resource, whole);
    let items: Vec<_> = pieces.iter().map(Piece::items).collect();
    assert_eq!(items, [4, 4]);
    let header = resource("a").unwrap().encode_to_vec();
    assert_eq!(
        pieces[0].key.as_deref(),
        Some(&map_hash::of_resource(&header)[..])
    );
}

#[test]
fn halves_have_all_items_and_the_key() {
    for rule in [KeyRule::None, KeyRule::Resource, KeyRule::Trace] {
        for piece in divide(rule, traces(&[1, 1, 1])) {
            let halves = piece.halves().unwrap();
            let together: Vec<_> = halves.iter().flat_map(|half| spans(&half.encoded())).collect();
            assert_eq!(together, spans(&piece.encoded()));
            assert!(halves.iter().all(|half| half.key == piece.key));
        }
    }
    assert!(
        divide(KeyRule::Trace, traces(&[1]))
            .pop()
            .unwrap()
            .halves()
            .unwrap()[0]
            .halves()
            .is_some()
    );
}

#[test]
fn resources_and_scopes_without_items_take_no_memory() {
    let whole = traces(&[]);
    let index = |encoded: &Encoded| {
        let pieces = divide(KeyRule::Trace, encoded.clone());
        pieces.into_iter().find_map(|piece| match piece.content {
            Content::Some(index, _) => Some((index.resources.len(), index.scopes.len())),
            Content::Whole(_) => None,
        })
    };
    assert_eq!(index(&whole), None);
    let mut bytes = whole.joined().repeat(100);
    bytes.extend_from_slice(&traces(&[1]).joined());
    let whole = wire::check(Signal::Traces, bytes.into()).unwrap();
    assert_eq!(index(&whole), Some((2, 4)));
}

#[test]
fn the_memory_of_a_division_counts_each_resource() {
    let whole = traces(&[]);
    let bytes = wire::check(Signal::Traces, whole.joined().repeat(100).into()).unwrap();
    let most = bytes.bytes() + 200 * ENTRY_BYTES;
    let export = ExportRequest::new(Batch::new(bytes));
    assert_eq!(room(KeyRule::Resource, &export), most);
    assert_eq!(room(KeyRule::None, &export), 0);
}
