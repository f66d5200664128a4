// SPDX-License-Identifier: Apache-2.0

//! Requests at random, sound and damaged: prost and the check agree on them.

use opentelemetry_proto::tonic::common::v1::{ArrayValue, KeyValueList};
use proptest::prelude::*;

use super::*;
use crate::convert;

/// Prost can decode a request that passes the check, and all readers find the same number of items in it.
fn agrees_with_prost(signal: Signal, bytes: &[u8]) -> Result<(), TestCaseError> {
    match check(signal, Bytes::copy_from_slice(bytes)) {
        Ok(encoded) => {
            let items = encoded.items();
            prop_assert_eq!(Some(items), prost_items(signal, bytes));
            prop_assert_eq!(items, walk::edit(&encoded, &mut NoOpVisitor).unwrap().items());
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
