// SPDX-License-Identifier: Apache-2.0

//! Checking and counting, held against prost's trees.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::{logs::v1 as logs, metrics::v1 as metrics, trace::v1 as trace};
use prost::Message;

use tidegate_requests::attribute;

use super::edit::push_message;
use super::{CheckError, Checked, MAX_ELEMENTS, check, text, walk};
use crate::{Signal, schema};

mod heavy;
mod random;
mod utf8;

/// With the usual number of elements.
fn weigh(signal: Signal, bytes: Bytes, has_room: impl FnMut(usize) -> bool) -> Result<Checked, CheckError> {
    super::weigh(signal, bytes, MAX_ELEMENTS, has_room)
}

fn gauge(points: usize) -> metrics::Metric {
    let point = metrics::NumberDataPoint {
        time_unix_nano: 7,
        ..Default::default()
    };
    let gauge = metrics::Gauge {
        data_points: vec![point; points],
    };
    metrics::Metric {
        name: "m".into(),
        data: Some(metrics::metric::Data::Gauge(gauge)),
        ..Default::default()
    }
}

fn request(points: &[usize]) -> ExportMetricsServiceRequest {
    let scope = metrics::ScopeMetrics {
        metrics: points.iter().map(|n| gauge(*n)).collect(),
        ..Default::default()
    };
    let resource = metrics::ResourceMetrics {
        scope_metrics: vec![scope.clone(), scope],
        ..Default::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![resource],
    }
}

/// A request of gauges whose points have these numbers of attributes.
fn with_attributes(numbers: &[usize], attribute: &KeyValue) -> ExportMetricsServiceRequest {
    let points = numbers.iter().map(|number| metrics::NumberDataPoint {
        attributes: vec![attribute.clone(); *number],
        time_unix_nano: 7,
        ..Default::default()
    });
    tidegate_requests::request(Vec::new(), "", [tidegate_requests::gauge("m", points)])
}

#[test]
fn a_point_with_too_many_attributes_is_cut_out_and_the_others_stay() {
    let whole = attribute("k", "v");
    // Seen field by field: the attribute, and its value.
    let number = KeyValue {
        value: Some(AnyValue {
            value: Some(any_value::Value::IntValue(1)),
        }),
        ..whole.clone()
    };
    // A point is an element itself.
    let table = [
        (KeyValue::default(), MAX_ELEMENTS - 1),
        (whole, MAX_ELEMENTS - 1),
        (number, MAX_ELEMENTS / 2 - 1),
    ];
    for (attribute, most) in table {
        let sound = with_attributes(&[most, 2], &attribute).encode_to_vec();
        let checked = weigh(Signal::Metrics, sound.clone().into(), |_| true).unwrap();
        assert_eq!((checked.cut, checked.encoded.items()), (None, 2));
        assert_eq!(*checked.encoded.joined(), *sound);

        let absurd = with_attributes(&[1, most + 1, 2, 5 * most], &attribute).encode_to_vec();
        let checked = weigh(Signal::Metrics, absurd.clone().into(), |_| true).unwrap();
        assert_eq!((checked.cut, checked.encoded.items()), (Some(2), 2));
        let rest = with_attributes(&[1, 2], &attribute).encode_to_vec();
        assert_eq!(*checked.encoded.joined(), *rest);
        assert!(checked.weight < 100 * rest.len());
        assert!(check(Signal::Metrics, absurd.into()).is_err());

        let only = with_attributes(&[most + 1], &attribute).encode_to_vec();
        let checked = weigh(Signal::Metrics, only.into(), |_| true).unwrap();
        assert_eq!((checked.cut, checked.encoded.items()), (Some(1), 0));
    }
}

/// Nothing that costs a byte or two on the wire, and much when it is decoded, weighs nothing.
#[test]
fn what_is_small_on_the_wire_and_large_when_decoded_weighs_what_it_takes() {
    let weight = |number: u32, empty: &[u8], count: usize| {
        let point = empty.repeat(count);
        let mut data = Vec::new();
        push_message(&mut data, 1, &point);
        let mut metric = Vec::new();
        push_message(&mut metric, number, &data);
        let (mut scope, mut resource, mut request) = (Vec::new(), Vec::new(), Vec::new());
        push_message(&mut scope, 2, &metric);
        push_message(&mut resource, 2, &scope);
        push_message(&mut request, 1, &resource);
        weigh(Signal::Metrics, request.into(), |_| true).unwrap().weight
    };
    const COUNT: usize = 10_000;
    let exemplar = weight(5, b"\x2a\x00", COUNT);
    let attribute = weight(5, b"\x3a\x00", COUNT);
    let quantile = weight(11, b"\x32\x00", COUNT);
    assert!(
        [exemplar, attribute, quantile]
            .iter()
            .all(|weight| *weight > 128 * COUNT)
    );
    // Counts of buckets of one byte each become eight, twice.
    let mut buckets = vec![0x12, 0x90, 0x4e];
    buckets.extend([1; COUNT]);
    let mut positive = Vec::new();
    push_message(&mut positive, 8, &buckets);
    assert!(weight(10, &positive, 1) >= 16 * COUNT);
    // Points without content.
    let points = request(&[COUNT]).encode_to_vec();
    assert!(weigh(Signal::Metrics, points.into(), |_| true).unwrap().weight > 256 * COUNT);
}

#[test]
fn what_must_be_decoded_to_be_checked_asks_for_room() {
    let pieces = [request(&[1]).encode_to_vec(), Vec::new()].concat();
    let mut asked = 0;
    weigh(Signal::Metrics, pieces.into(), |weight| {
        asked = weight;
        true
    })
    .unwrap();
    assert_eq!(asked, 0, "it is not in pieces");
    // A resource in two pieces.
    let resource = [0x0a, 0x00, 0x0a, 0x00];
    let mut pieces = Vec::new();
    push_message(&mut pieces, 1, &resource);
    let refused = weigh(Signal::Metrics, pieces.clone().into(), |weight| {
        asked = weight;
        false
    });
    assert!(matches!(refused, Err(CheckError::NoRoom(weight)) if weight == asked && weight > 0));
    assert!(weigh(Signal::Metrics, pieces.into(), |_| true).is_ok());
}

#[test]
fn items_of_every_signal_are_counted() {
    let bytes = request(&[3, 0, 2]).encode_to_vec();
    assert_eq!(check(Signal::Metrics, bytes.into()).unwrap().items(), 10);

    let scope = trace::ScopeSpans {
        spans: vec![trace::Span::default(); 4],
        ..Default::default()
    };
    let spans = trace::ResourceSpans {
        scope_spans: vec![scope],
        ..Default::default()
    };
    let bytes = ExportTraceServiceRequest {
        resource_spans: vec![spans],
    }
    .encode_to_vec();
    assert_eq!(check(Signal::Traces, bytes.into()).unwrap().items(), 4);

    let scope = logs::ScopeLogs {
        log_records: vec![logs::LogRecord::default(); 5],
        ..Default::default()
    };
    let records = logs::ResourceLogs {
        scope_logs: vec![scope],
        ..Default::default()
    };
    let bytes = ExportLogsServiceRequest {
        resource_logs: vec![records],
    }
    .encode_to_vec();
    assert_eq!(check(Signal::Logs, bytes.into()).unwrap().items(), 5);
    assert_eq!(check(Signal::Logs, Bytes::new()).unwrap().items(), 0);
}

#[test]
fn errors_say_where() {
    let error = |bytes: &'static [u8]| {
        check(Signal::Metrics, Bytes::from_static(bytes))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(error(&[0x08, 1]), "not a message in `resourceMetrics`");
    assert_eq!(
        error(&[0x0a, 4, 0x12, 2, 0x12, 9]),
        "a value that ends beyond its message in `resourceMetrics.scopeMetrics`"
    );
    assert_eq!(error(&[0x0b]), "an unknown wire type in the request");
    // The name of a metric as a number.
    assert_eq!(
        error(&[0x0a, 6, 0x12, 4, 0x12, 2, 0x08, 1]),
        "a value of another type in `resourceMetrics.scopeMetrics.metrics.name`"
    );
}

#[test]
fn a_request_cut_off_anywhere_is_refused_or_shorter() {
    let whole = request(&[2, 1]).encode_to_vec();
    for end in 1..whole.len() {
        assert!(
            check(Signal::Metrics, Bytes::copy_from_slice(&whole[..end])).is_err(),
            "cut at {end}"
        );
    }
}

/// How many items prost finds, strings read lossily; `None` when it takes the bytes for no request.
fn prost_items(signal: Signal, bytes: &[u8]) -> Option<usize> {
    let schema = schema::request(signal);
    Some(match signal {
        Signal::Metrics => {
            let request = text::decode::<ExportMetricsServiceRequest>(schema, bytes).ok()?;
            let scopes = request.resource_metrics.iter().flat_map(|of| &of.scope_metrics);
            scopes.flat_map(|scope| &scope.metrics).map(points_in).sum()
        }
        Signal::Traces => {
            let request = text::decode::<ExportTraceServiceRequest>(schema, bytes).ok()?;
            let scopes = request.resource_spans.iter().flat_map(|of| &of.scope_spans);
            scopes.map(|scope| scope.spans.len()).sum()
        }
        Signal::Logs => {
            let request = text::decode::<ExportLogsServiceRequest>(schema, bytes).ok()?;
            let scopes = request.resource_logs.iter().flat_map(|of| &of.scope_logs);
            scopes.map(|scope| scope.log_records.len()).sum()
        }
    })
}

fn points_in(metric: &metrics::Metric) -> usize {
    match &metric.data {
        None => 0,
        Some(metrics::metric::Data::Gauge(of)) => of.data_points.len(),
        Some(metrics::metric::Data::Sum(of)) => of.data_points.len(),
        Some(metrics::metric::Data::Histogram(of)) => of.data_points.len(),
        Some(metrics::metric::Data::ExponentialHistogram(of)) => of.data_points.len(),
        Some(metrics::metric::Data::Summary(of)) => of.data_points.len(),
    }
}

struct NoOpVisitor;
impl walk::Visitor for NoOpVisitor {}

fn pair(key: &str, value: AnyValue) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(value),
        ..Default::default()
    }
}

/// A request with these messages in its scopes; their places are the same for every signal.
fn request_of(items: Vec<Vec<u8>>, in_resource: Vec<KeyValue>) -> Vec<u8> {
    let resource = opentelemetry_proto::tonic::resource::v1::Resource {
        attributes: in_resource,
        ..Default::default()
    };
    let (mut scope, mut around, mut request) = (Vec::new(), Vec::new(), Vec::new());
    for item in items {
        push_message(&mut scope, 2, &item);
    }
    push_message(&mut around, 1, &resource.encode_to_vec());
    push_message(&mut around, 2, &scope);
    push_message(&mut request, 1, &around);
    request
}

/// A request with one point of a histogram that has this as its bounds.
fn with_bounds(tag: u8, bounds: &[u8]) -> Vec<u8> {
    let (mut point, mut histogram, mut metric) = (vec![tag], Vec::new(), Vec::new());
    point.extend_from_slice(bounds);
    push_message(&mut histogram, 1, &point);
    push_message(&mut metric, 9, &histogram);
    request_of(vec![metric], Vec::new())
}

#[test]
fn numbers_that_may_be_repeated_are_packed_or_single_and_whole() {
    const PACKED: u8 = 7 << 3 | 2;
    const SINGLE: u8 = 7 << 3 | 1;
    let packed = |bytes: u8| [&[bytes][..], &vec![0; bytes.into()]].concat();
    for (tag, bounds) in [(PACKED, packed(16)), (PACKED, packed(0)), (SINGLE, vec![0; 8])] {
        let bytes = with_bounds(tag, &bounds);
        assert_eq!(check(Signal::Metrics, bytes.into()).unwrap().items(), 1);
    }
    let cut_off = packed(16)[..16].to_vec();
    for (tag, bounds) in [
        (PACKED, packed(7)),
        (PACKED, packed(12)),
        (PACKED, cut_off),
        (SINGLE, vec![0; 7]),
    ] {
        let bytes = with_bounds(tag, &bounds);
        assert_eq!(prost_items(Signal::Metrics, &bytes), None);
        let answer = check(Signal::Metrics, bytes.into());
        assert!(answer.is_err(), "{tag} {bounds:?}");
    }
}

/// A value that is an array of one.
fn in_array(value: &[u8]) -> Vec<u8> {
    let (mut array, mut outer) = (Vec::new(), Vec::new());
    push_message(&mut array, 1, value);
    push_message(&mut outer, 5, &array);
    outer
}

#[test]
fn messages_nest_as_deep_as_prost_follows() {
    // Written outwards by hand: prost itself can neither encode nor drop what is nested too deeply.
    let nested = |depth: usize| {
        let leaf = vec![0x18, 1];
        let body = (0..depth).fold(leaf, |inner, _| in_array(&inner));
        let mut record = Vec::new();
        push_message(&mut record, 5, &body);
        request_of(vec![record], Vec::new())
    };
    // Resource, scope, record and body, then two messages a level: 98 below the request, then 100.
    let (deepest, too_deep) = (nested(47), nested(48));
    assert_eq!(check(Signal::Logs, deepest.clone().into()).unwrap().items(), 1);
    assert_eq!(prost_items(Signal::Logs, &deepest), Some(1));
    let error = check(Signal::Logs, too_deep.into()).unwrap_err();
    assert_eq!(error.problem, "messages nested too deeply");
    assert!(check(Signal::Logs, nested(5000).into()).is_err());
}

#[test]
fn plain_attributes_nest_no_deeper_than_others() {
    let list_of = |attribute: &KeyValue| {
        let (mut list, mut value) = (Vec::new(), Vec::new());
        push_message(&mut list, 1, &attribute.encode_to_vec());
        push_message(&mut value, 6, &list);
        value
    };
    let in_attribute = |value: &[u8]| {
        let (mut attribute, mut list, mut outer) = (b"\x0a\x01k".to_vec(), Vec::new(), Vec::new());
        push_message(&mut attribute, 2, value);
        push_message(&mut list, 1, &attribute);
        push_message(&mut outer, 6, &list);
        outer
    };
    let taken = |innermost: &KeyValue, lists: usize| {
        let value = (0..lists).fold(list_of(innermost), |value, _| in_array(&value));
        [value.clone(), in_attribute(&value)].map(|value| {
            let mut record = Vec::new();
            push_message(&mut record, 5, &value);
            check(Signal::Logs, request_of(vec![record], Vec::new()).into()).is_ok()
        })
    };
    let seven = AnyValue {
        value: Some(any_value::Value::IntValue(7)),
    };
    let (plain, other) = (attribute("key", "value"), pair("key", seven));
    let of = |attribute: &KeyValue| -> Vec<_> { (35..55).map(|lists| taken(attribute, lists)).collect() };
    assert_eq!(of(&plain), of(&other));
    assert_eq!(of(&plain).first(), Some(&[true; 2]));
    assert_eq!(of(&plain).last(), Some(&[false; 2]));
}
