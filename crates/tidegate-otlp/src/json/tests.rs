// SPDX-License-Identifier: Apache-2.0

//! OTLP/JSON: the rules of the specification one by one, and round trips against prost's trees.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint, metric, number_data_point};
use proptest::prelude::*;
use prost::Message;
use serde_json::{Value, json};

use super::{to_json, to_protobuf};
use crate::{Encoded, Signal};

fn metrics(json: &Value) -> Result<ExportMetricsServiceRequest, String> {
    let wire =
        to_protobuf(Signal::Metrics, json.to_string().as_bytes()).map_err(|error| error.to_string())?;
    Ok(ExportMetricsServiceRequest::decode(wire).expect("what we write is protobuf"))
}

/// A request with one gauge point of these fields.
fn with_point(point: Value) -> Value {
    json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "m", "gauge": {"dataPoints": [point]}}]}]}]})
}

fn point(fields: Value) -> Result<NumberDataPoint, String> {
    let mut request = metrics(&with_point(fields))?;
    let metric: Metric = request
        .resource_metrics
        .remove(0)
        .scope_metrics
        .remove(0)
        .metrics
        .remove(0);
    match metric.data {
        Some(metric::Data::Gauge(mut gauge)) => Ok(gauge.data_points.remove(0)),
        other => panic!("a gauge expected: {other:?}"),
    }
}

fn double(value: Value) -> Result<f64, String> {
    match point(json!({"asDouble": value}))?.value {
        Some(number_data_point::Value::AsDouble(number)) => Ok(number),
        other => panic!("a double expected: {other:?}"),
    }
}

#[test]
fn ids_are_hexadecimal_of_any_case_and_right_length() {
    let span = |id: &str| {
        let json = json!({"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": id}]}]}]});
        let wire = to_protobuf(Signal::Traces, json.to_string().as_bytes())?;
        let request = ExportTraceServiceRequest::decode(wire).expect("protobuf");
        Ok::<_, super::JsonError>(request.resource_spans[0].scope_spans[0].spans[0].trace_id.clone())
    };
    let id = "5B8EFFF798038103d269b633813fc60c";
    assert_eq!(span(id).unwrap()[..3], [0x5b, 0x8e, 0xff]);
    assert_eq!(span("").unwrap(), Vec::<u8>::new());
    for wrong in [
        "5b",
        "zz8efff798038103d269b633813fc60c",
        "+b8efff798038103d269b633813fc60c",
    ] {
        let error = span(wrong).unwrap_err();
        assert_eq!(
            error.path, "resourceSpans[0].scopeSpans[0].spans[0].traceId",
            "{error}"
        );
    }
}

#[test]
fn enums_are_numbers() {
    let sum = |temporality: Value| {
        let sum = json!({"dataPoints": [], "aggregationTemporality": temporality, "isMonotonic": true});
        metrics(&json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "m", "sum": sum}]}]}]}))
    };
    let request = sum(json!(2)).unwrap();
    let Some(metric::Data::Sum(found)) = &request.resource_metrics[0].scope_metrics[0].metrics[0].data else {
        panic!("a sum expected");
    };
    assert_eq!((found.aggregation_temporality, found.is_monotonic), (2, true));
    let error = sum(json!("AGGREGATION_TEMPORALITY_CUMULATIVE")).unwrap_err();
    assert!(
        error.contains("resourceMetrics[0].scopeMetrics[0].metrics[0].sum.aggregationTemporality"),
        "{error}"
    );
}

#[test]
fn unknown_fields_and_snake_case_names_are_ignored() {
    let found =
        point(json!({"asInt": "7", "as_double": 1.5, "time_unix_nano": "5", "new": {"a": [1]}})).unwrap();
    assert_eq!(found.value, Some(number_data_point::Value::AsInt(7)));
    assert_eq!(found.time_unix_nano, 0);
}

#[test]
fn whole_numbers_are_strings_or_numbers_in_range() {
    for seven in [json!("7"), json!(7), json!(7.0)] {
        assert_eq!(point(json!({"timeUnixNano": seven})).unwrap().time_unix_nano, 7);
    }
    let largest = u64::MAX.to_string();
    assert_eq!(
        point(json!({"timeUnixNano": largest})).unwrap().time_unix_nano,
        u64::MAX
    );
    for wrong in [
        json!("xyz"),
        json!("-1"),
        json!(-1),
        json!(1.5),
        json!("18446744073709551616"),
        json!(true),
    ] {
        assert!(point(json!({"timeUnixNano": wrong})).is_err(), "{wrong}");
    }
    assert!(point(json!({"asInt": "xyz"})).is_err());
}

#[test]
fn doubles_are_numbers_digits_or_one_of_three_words() {
    assert_eq!(double(json!(1.5)), Ok(1.5));
    assert_eq!(double(json!("1.5")), Ok(1.5));
    assert_eq!(double(json!(2)), Ok(2.0));
    assert!(double(json!("NaN")).unwrap().is_nan());
    assert_eq!(double(json!("Infinity")), Ok(f64::INFINITY));
    assert_eq!(double(json!("-Infinity")), Ok(f64::NEG_INFINITY));
    for wrong in [json!("inf"), json!("nan"), json!("1e999"), json!(""), json!({})] {
        assert!(double(wrong.clone()).is_err(), "{wrong}");
    }
}

#[test]
fn null_is_as_good_as_absent() {
    let found = point(json!({"attributes": null, "asInt": "1", "exemplars": null})).unwrap();
    assert_eq!(
        (found.attributes.len(), found.value),
        (0, Some(number_data_point::Value::AsInt(1)))
    );
}

#[test]
fn errors_say_what_was_expected_and_where() {
    let error = metrics(&with_point(json!({"attributes": {}}))).unwrap_err();
    let path = "resourceMetrics[0].scopeMetrics[0].metrics[0].gauge.dataPoints[0].attributes";
    assert_eq!(error, format!("expected an array, found an object at `{path}`"));
    assert!(
        to_protobuf(Signal::Logs, b"[]")
            .unwrap_err()
            .to_string()
            .contains("expected an object")
    );
    assert!(to_protobuf(Signal::Logs, b"{").is_err());
}

#[test]
fn everything_of_a_log_record_survives_both_ways() {
    let json = json!({"resourceLogs": [{"resource": {"attributes": [{"key": "k", "value": {"arrayValue": {"values": [
        {"intValue": "-5"}, {"doubleValue": 0.25}, {"boolValue": false}, {"bytesValue": "AQID"},
        {"kvlistValue": {"values": [{"key": "x", "value": {"stringValue": ""}}]}}, {}]}}}]},
        "scopeLogs": [{"scope": {"name": "s"}, "logRecords": [{"timeUnixNano": "1", "observedTimeUnixNano": "2",
        "severityNumber": 9, "severityText": "INFO", "body": {"stringValue": "line\n\"two\""}, "flags": 1,
        "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "eventName": "e"}]}]}]});
    let wire = to_protobuf(Signal::Logs, json.to_string().as_bytes()).unwrap();
    let tree = ExportLogsServiceRequest::decode(wire.clone()).unwrap();
    assert_eq!(tree.resource_logs[0].scope_logs[0].log_records[0].flags, 1);
    let back = to_json(&Encoded::one(Signal::Logs, wire, 1)).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&back).unwrap(), json);
}

fn number() -> impl Strategy<Value = Option<number_data_point::Value>> {
    prop_oneof![
        Just(None),
        any::<i64>().prop_map(|n| Some(number_data_point::Value::AsInt(n))),
        // NaN is not equal to itself; it has its own test.
        any::<f64>()
            .prop_filter("not NaN", |n| !n.is_nan())
            .prop_map(|n| Some(number_data_point::Value::AsDouble(n))),
    ]
}

proptest! {
    #[test]
    fn any_points_survive_the_way_to_json_and_back(
        all in prop::collection::vec((number(), any::<u64>(), any::<u32>()), 0..5), name in "\\PC*"
    ) {
        let data_points: Vec<_> = all
            .into_iter()
            .map(|(value, time_unix_nano, flags)| NumberDataPoint { value, time_unix_nano, flags, ..Default::default() })
            .collect();
        let gauge = opentelemetry_proto::tonic::metrics::v1::Gauge { data_points };
        let metric = Metric { name, data: Some(metric::Data::Gauge(gauge)), ..Default::default() };
        let scope = opentelemetry_proto::tonic::metrics::v1::ScopeMetrics { metrics: vec![metric], ..Default::default() };
        let resource = opentelemetry_proto::tonic::metrics::v1::ResourceMetrics { scope_metrics: vec![scope], ..Default::default() };
        let request = ExportMetricsServiceRequest { resource_metrics: vec![resource] };
        let encoded = Encoded::one(Signal::Metrics, request.encode_to_vec().into(), 0);
        let json = to_json(&encoded).unwrap();
        let back = ExportMetricsServiceRequest::decode(to_protobuf(Signal::Metrics, json.as_bytes()).unwrap()).unwrap();
        prop_assert_eq!(back, request);
    }

    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..100), signal in 0usize..3) {
        let signal = Signal::ALL[signal];
        let _ = to_protobuf(signal, &bytes);
        let _ = to_json(&Encoded::one(signal, bytes.into(), 0));
    }
}

#[test]
fn room_is_asked_for_before_bytes_grow() {
    use super::{Unread, to_protobuf_within};
    // Two bytes of text become eight.
    let bounds = vec!["1"; 100_000].join(",");
    let json = format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"m","histogram":{{"dataPoints":[{{"explicitBounds":[{bounds}]}}]}}}}]}}]}}]}}"#
    );
    let mut asked = 0;
    let wire = to_protobuf_within(Signal::Metrics, json.as_bytes(), &mut |bytes| {
        asked += bytes;
        true
    });
    let wire = wire.unwrap();
    assert!(
        wire.len() >= 800_000 && wire.len() <= asked,
        "{} of {asked}",
        wire.len()
    );
    assert_eq!(wire, to_protobuf(Signal::Metrics, json.as_bytes()).unwrap());

    let mut left = 500_000_usize;
    let refused = to_protobuf_within(Signal::Metrics, json.as_bytes(), &mut |bytes| {
        let has_room = bytes <= left;
        left -= bytes.min(left);
        has_room
    });
    assert!(
        matches!(refused, Err(Unread::NoRoom(bytes)) if bytes > 0),
        "{refused:?}"
    );
    // A text of its own is room too, and so is one with escapes, which is put together elsewhere.
    let text = "y".repeat(100_000);
    for text in [text.clone(), format!("{text}\\n")] {
        let json = format!(r#"{{"resourceLogs":[{{"schemaUrl":"{text}"}}]}}"#);
        let refused = to_protobuf_within(Signal::Logs, json.as_bytes(), &mut |bytes| bytes <= 90_000);
        assert!(matches!(refused, Err(Unread::NoRoom(_))), "{refused:?}");
    }
}
