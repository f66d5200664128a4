//! Checking and counting, held against prost's trees.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList, any_value};
use opentelemetry_proto::tonic::{logs::v1 as logs, metrics::v1 as metrics, trace::v1 as trace};
use proptest::prelude::*;
use prost::Message;

use tidegate_requests::attribute;

use super::edit::push_message;
use super::{CheckError, Checked, MAX_ELEMENTS, check, text, walk};
use crate::{Encoded, Signal, convert, schema};

mod heavy;

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

/// A request of gauges whose points have so many attributes each.
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

struct Look;
impl walk::Visitor for Look {}

/// What is checked can be decoded, and everybody finds as many items in it.
fn agrees_with_prost(signal: Signal, bytes: &[u8]) -> Result<(), TestCaseError> {
    match check(signal, Bytes::copy_from_slice(bytes)) {
        Ok(encoded) => {
            let items = encoded.items();
            prop_assert_eq!(Some(items), prost_items(signal, bytes));
            prop_assert_eq!(items, walk::edit(&encoded, &mut Look).unwrap().items());
            if signal == Signal::Metrics {
                prop_assert_eq!(items, convert::points(&encoded).unwrap().len());
            }
        }
        Err(error) => {
            let stricter = ["an unknown wire type", "messages nested too deeply"].contains(&error.problem);
            prop_assert!(stricter || prost_items(signal, bytes).is_none(), "{error}");
        }
    }
    Ok(())
}

fn any_value() -> impl Strategy<Value = AnyValue> {
    let leaf = prop_oneof![
        "[a-c]{0,3}".prop_map(any_value::Value::StringValue),
        any::<i64>().prop_map(any_value::Value::IntValue),
        any::<bool>().prop_map(any_value::Value::BoolValue),
        Just(any_value::Value::BytesValue(vec![0xff, 0])),
    ];
    let leaf = leaf.prop_map(|value| AnyValue { value: Some(value) });
    leaf.prop_recursive(3, 8, 2, |inner| {
        prop::collection::vec(inner, 0..3).prop_map(|values| {
            let pairs = values.iter().map(|value| pair("k", value.clone())).collect();
            let value = match values.len() {
                1 => any_value::Value::KvlistValue(KeyValueList { values: pairs }),
                _ => any_value::Value::ArrayValue(ArrayValue { values }),
            };
            AnyValue { value: Some(value) }
        })
    })
}

fn pair(key: &str, value: AnyValue) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(value),
        ..Default::default()
    }
}

fn attributes() -> impl Strategy<Value = Vec<KeyValue>> {
    prop::collection::vec(any_value().prop_map(|value| pair("key", value)), 0..3)
}

/// A metric in pieces: data of one kind after another, as no SDK writes it and protobuf allows.
fn metric() -> impl Strategy<Value = Vec<u8>> {
    let number = attributes().prop_map(|attributes| metrics::NumberDataPoint {
        attributes,
        time_unix_nano: 7,
        value: Some(metrics::number_data_point::Value::AsInt(-1)),
        ..Default::default()
    });
    let histogram = attributes().prop_map(|attributes| metrics::HistogramDataPoint {
        attributes,
        bucket_counts: vec![1, 2],
        explicit_bounds: vec![0.5],
        sum: Some(3.0),
        ..Default::default()
    });
    let exponential = attributes().prop_map(|attributes| metrics::ExponentialHistogramDataPoint {
        attributes,
        scale: -2,
        positive: Some(metrics::exponential_histogram_data_point::Buckets {
            offset: -300,
            bucket_counts: vec![1, 500],
        }),
        ..Default::default()
    });
    let piece = prop_oneof![
        (
            (5u32..=7).prop_filter("data", |number| *number != 6),
            prop::collection::vec(number, 0..3)
        )
            .prop_map(|(number, data_points)| (number, metrics::Gauge { data_points }.encode_to_vec())),
        prop::collection::vec(histogram, 0..3).prop_map(|data_points| {
            let of = metrics::Histogram {
                data_points,
                aggregation_temporality: 1,
            };
            (9, of.encode_to_vec())
        }),
        prop::collection::vec(exponential, 0..2).prop_map(|data_points| {
            let of = metrics::ExponentialHistogram {
                data_points,
                aggregation_temporality: 2,
            };
            (10, of.encode_to_vec())
        }),
        Just((1, b"name".to_vec())),
        Just((1, b"na\xffme".to_vec())),
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| {
        let mut metric = Vec::new();
        for (number, piece) in pieces {
            push_message(&mut metric, number, &piece);
        }
        metric
    })
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

fn request_bytes() -> impl Strategy<Value = (Signal, Vec<u8>)> {
    let span = attributes().prop_map(|attributes| {
        let span = trace::Span {
            trace_id: vec![1; 16],
            name: "n".into(),
            status: Some(trace::Status::default()),
            events: vec![trace::span::Event {
                attributes: attributes.clone(),
                ..Default::default()
            }],
            attributes,
            ..Default::default()
        };
        span.encode_to_vec()
    });
    let record = any_value().prop_map(|body| {
        let record = logs::LogRecord {
            body: Some(body),
            severity_number: 9,
            flags: 1,
            ..Default::default()
        };
        record.encode_to_vec()
    });
    prop_oneof![
        2 => (prop::collection::vec(metric(), 0..4), attributes())
            .prop_map(|(all, of)| (Signal::Metrics, request_of(all, of))),
        1 => (prop::collection::vec(span, 0..3), attributes())
            .prop_map(|(all, of)| (Signal::Traces, request_of(all, of))),
        1 => (prop::collection::vec(record, 0..3), attributes())
            .prop_map(|(all, of)| (Signal::Logs, request_of(all, of))),
    ]
}

/// Some bytes changed, taken out or put in.
fn damaged(mut bytes: Vec<u8>, damages: &[(prop::sample::Index, u8, u8)]) -> Vec<u8> {
    for (place, how, byte) in damages {
        if bytes.is_empty() {
            return bytes;
        }
        let at = place.index(bytes.len());
        match how % 4 {
            0 => bytes[at] = *byte,
            1 => bytes[at] ^= 1 << (byte % 8),
            2 => bytes.insert(at, *byte),
            _ => drop(bytes.remove(at)),
        }
    }
    bytes
}

fn damages() -> impl Strategy<Value = Vec<(prop::sample::Index, u8, u8)>> {
    prop::collection::vec(any::<(prop::sample::Index, u8, u8)>(), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn requests_that_protobuf_allows_are_taken_and_counted_alike((signal, bytes) in request_bytes()) {
        prop_assert!(check(signal, bytes.clone().into()).is_ok());
        agrees_with_prost(signal, &bytes)?;
    }

    #[test]
    fn damaged_requests_are_taken_only_when_prost_takes_them((signal, bytes) in request_bytes(), damages in damages()) {
        agrees_with_prost(signal, &damaged(bytes, &damages))?;
    }

    #[test]
    fn any_bytes_are_judged_as_prost_judges_them(bytes in prop::collection::vec(any::<u8>(), 0..64), signal in 0usize..3) {
        agrees_with_prost(Signal::ALL[signal], &bytes)?;
    }
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

/// A request with one gauge of one point, named and labelled with what is no UTF-8.
fn not_utf8() -> Encoded {
    let text = |bytes: &[u8]| {
        let mut value = Vec::new();
        push_message(&mut value, 1, bytes);
        value
    };
    let mut label = text(b"cut\xe2\x82");
    push_message(&mut label, 2, &text(b"\xffvalue"));
    let (mut point, mut gauge, mut metric) = (Vec::new(), Vec::new(), text(b"na\xffme"));
    push_message(&mut point, 7, &label);
    push_message(&mut gauge, 1, &point);
    push_message(&mut metric, 5, &gauge);
    check(Signal::Metrics, request_of(vec![metric], Vec::new()).into()).unwrap()
}

#[test]
fn text_that_is_no_utf8_costs_nothing_and_reads_with_replacement_characters() {
    let point = convert::points(&not_utf8()).unwrap().remove(0);
    assert_eq!(&*point.series.metric.name, "na\u{fffd}me");
    assert_eq!(
        point.series.attributes,
        [("cut\u{fffd}", "\u{fffd}value")].into_iter().collect()
    );
}

#[test]
fn text_that_is_no_utf8_passes_untouched_where_nobody_decodes() {
    let before = not_utf8();
    let after = walk::edit(&before, &mut Look).unwrap();
    assert_eq!(after.parts[0].bytes, before.parts[0].bytes);
}

#[test]
fn attributes_on_the_wire_read_as_decoded_ones_where_they_are_no_utf8() {
    struct Labels(Vec<(String, Option<tidegate_engine::AttributeValue>)>);
    impl walk::Visitor for Labels {
        fn item(&mut self, item: &walk::Item<'_>, editor: &mut super::edit::Editor<'_>) -> bool {
            use super::attributes::{AttributeSet, WireAttributes};
            let set = WireAttributes::read(item.message, item.kind.attributes_field(), editor);
            self.0 = set
                .keys()
                .into_iter()
                .map(|key| (key.clone(), set.get(&key)))
                .collect();
            true
        }
    }
    let mut labels = Labels(Vec::new());
    walk::edit(&not_utf8(), &mut labels).unwrap();
    assert_eq!(
        labels.0,
        [("cut\u{fffd}".to_owned(), Some("\u{fffd}value".into()))]
    );
}
