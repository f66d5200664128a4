// SPDX-License-Identifier: Apache-2.0

//! Points that go to OTLP and back are equal to the originals.

use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::KeyValueList;
use proptest::prelude::*;
use prost::Message;
use tidegate_engine::{
    AttributeValue, Attributes, Buckets, Data, EventKind, Events, Exemplar, ExponentialHistogram, Histogram,
    Instrument, Lease, Metric, Point, Quantile, Resource, Schema, Scope, Series, Source, SourceId, Summary,
    Temporality, Value, Values,
};

use super::{attributes_from_proto, attributes_to_proto, encode_points, events_to_points, points};

fn attributes() -> impl Strategy<Value = Attributes> {
    let leaf = prop_oneof![
        Just(AttributeValue::Empty),
        prop_oneof!["[a-c]{0,2}", ".{0,2}", "a{120,130}"].prop_map(AttributeValue::from),
        any::<i64>().prop_map(AttributeValue::from),
        any::<bool>().prop_map(AttributeValue::from),
        (-1e9..1e9).prop_map(AttributeValue::from),
        prop::collection::vec(any::<u8>(), 0..3).prop_map(|bytes| AttributeValue::Bytes(bytes.into())),
    ];
    let value = leaf.prop_recursive(2, 6, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..3);
        let map = prop::collection::vec(("[a-c]{0,2}", inner), 0..3);
        prop_oneof![
            list.prop_map(|values| AttributeValue::Array(values.into_iter().collect())),
            map.prop_map(|pairs| AttributeValue::Map(pairs.into_iter().collect())),
        ]
    });
    prop::collection::vec(("[a-c]{0,2}", value), 0..3).prop_map(|pairs| pairs.into_iter().collect())
}

fn temporality() -> impl Strategy<Value = Temporality> {
    prop_oneof![Just(Temporality::Delta), Just(Temporality::Cumulative)]
}

fn value() -> impl Strategy<Value = (Data, Value)> {
    let counts = || prop::collection::vec(any::<u64>(), 0..4);
    prop_oneof![
        any::<i64>().prop_map(|n| (Data::Gauge, Value::Int(n))),
        (-1e9..1e9, temporality(), any::<bool>()).prop_map(|(n, temporality, monotonic)| (
            Data::Sum {
                monotonic,
                temporality
            },
            Value::Double(n)
        )),
        temporality().prop_map(|temporality| (Data::Histogram { temporality }, Value::NoRecordedValue)),
        (any::<u64>(), counts(), temporality()).prop_map(|(count, counts, temporality)| {
            let bounds = Arc::from([1.0, 2.5]);
            let histogram = Histogram {
                count,
                sum: Some(1.5),
                min: None,
                max: Some(2.0),
                bounds,
                counts,
            };
            (
                Data::Histogram { temporality },
                Value::Histogram(Box::new(histogram)),
            )
        }),
        (any::<u64>(), -10i32..10, counts(), temporality()).prop_map(
            |(count, scale, counts, temporality)| {
                let positive = Buckets { offset: -3, counts };
                let histogram = ExponentialHistogram {
                    count,
                    scale,
                    positive,
                    ..Default::default()
                };
                (
                    Data::ExponentialHistogram { temporality },
                    Value::ExponentialHistogram(Box::new(histogram)),
                )
            }
        ),
        any::<u64>().prop_map(|count| {
            let quantiles = vec![Quantile {
                quantile: 0.5,
                value: 3.0,
            }];
            (
                Data::Summary,
                Value::Summary(Box::new(Summary {
                    count,
                    sum: 4.5,
                    quantiles,
                })),
            )
        }),
    ]
}

fn point() -> impl Strategy<Value = Point> {
    (
        attributes(),
        attributes(),
        "[ab]",
        value(),
        any::<u64>(),
        any::<u64>(),
    )
        .prop_map(|(resource, attributes, name, (data, value), start, time)| {
            let with_exemplars = !matches!(data, Data::Summary);
            let exemplar = Exemplar {
                time,
                value: 7i64.into(),
                trace_id: vec![1; 16],
                ..Default::default()
            };
            let series = Series {
                resource: Arc::new(Resource {
                    attributes: resource,
                    schema_url: "s".into(),
                }),
                scope: Arc::new(Scope {
                    name: "scope".into(),
                    version: "1".into(),
                    ..Default::default()
                }),
                metric: Arc::new(Metric {
                    name: name.into(),
                    description: "d".into(),
                    unit: "By".into(),
                    data,
                    metadata: Attributes::default(),
                }),
                attributes,
            };
            let exemplars = if with_exemplars {
                vec![exemplar]
            } else {
                Vec::new()
            };
            Point {
                series: Arc::new(series),
                start,
                time,
                value,
                exemplars,
            }
        })
}

proptest! {
    #[test]
    fn an_encoded_set_is_what_prost_reads(set in attributes()) {
        let list = KeyValueList::decode(set.encoded()).unwrap();
        prop_assert_eq!(&list.values, &attributes_to_proto(&set));
        prop_assert_eq!(attributes_from_proto(&list.values), set);
    }

    #[test]
    fn points_survive_the_way_to_otlp_and_back(all in prop::collection::vec(point(), 0..12)) {
        let encoded = encode_points(&all);
        prop_assert_eq!(crate::wire::check(encoded.signal, encoded.parts[0].bytes.clone()).unwrap().items(), all.len());
        let mut back = points(&encoded).unwrap();
        // Points are grouped by what they share; within a metric their order stays.
        for expected in &all {
            let at = back.iter().position(|point| point == expected);
            prop_assert!(at.is_some(), "lost {expected:?}");
            back.remove(at.unwrap());
        }
        prop_assert!(back.is_empty());
    }
}

fn gauge_point(resource: &str, metric: &str, value: i64) -> Point {
    let series = Series {
        resource: Arc::new(Resource {
            attributes: [("r", resource)].into_iter().collect(),
            schema_url: "".into(),
        }),
        scope: Arc::default(),
        metric: Arc::new(Metric {
            name: metric.into(),
            description: "".into(),
            unit: "".into(),
            data: Data::Gauge,
            metadata: Attributes::default(),
        }),
        attributes: Attributes::default(),
    };
    Point {
        series: Arc::new(series),
        start: 0,
        time: 1,
        value: Value::Int(value),
        exemplars: Vec::new(),
    }
}

#[test]
fn points_far_apart_share_their_messages_in_the_order_of_first_appearance() {
    let order = [
        ("b", "x"),
        ("a", "x"),
        ("b", "y"),
        ("a", "x"),
        ("b", "x"),
        ("a", "y"),
    ];
    let all: Vec<Point> = (0i64..)
        .zip(order)
        .map(|(n, (r, m))| gauge_point(r, m, n))
        .collect();
    let values: Vec<Value> = points(&encode_points(&all))
        .unwrap()
        .into_iter()
        .map(|point| point.value)
        .collect();
    assert_eq!(values, [0, 4, 2, 1, 3, 5].map(Value::Int));
}

#[test]
fn a_hundred_thousand_metrics_and_resources_take_no_time_worth_mentioning() {
    let all: Vec<Point> = (0..100_000)
        .map(|n| gauge_point(&(n / 2).to_string(), &n.to_string(), n))
        .collect();
    let begun = std::time::Instant::now();
    assert_eq!(encode_points(&all).items(), all.len());
    // About a second without optimisation; comparing each with all before it took minutes.
    assert!(
        begun.elapsed() < std::time::Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn events_become_one_point_a_kind() {
    let kind = |name: &str, instrument| EventKind {
        name: name.into(),
        description: "".into(),
        unit: "".into(),
        instrument,
        attributes: [("k", name)].into_iter().collect(),
    };
    let events = Events {
        source: Arc::new(Source {
            id: SourceId::next(),
            resource: Arc::default(),
            scope: Arc::default(),
            attributes: [("agent", "a")].into_iter().collect(),
            lease: Arc::new(Lease::new(std::time::Duration::from_secs(1), 0)),
        }),
        schema: Arc::new(Schema {
            kinds: vec![
                kind("bytes", Instrument::Counter),
                kind("time", Instrument::Histogram),
                kind("level", Instrument::Gauge),
                kind("unused", Instrument::Counter),
            ],
        }),
        kinds: vec![0, 1, 0, 1, 2, 2],
        values: Values::U64(vec![10, 7, 5, 3, 1, 9]),
        times: None,
        weights: None,
        observed: 77,
    };
    let points = events_to_points(&events);
    let names: Vec<_> = points.iter().map(|point| &*point.series.metric.name).collect();
    assert_eq!(names, ["bytes", "time", "level"]);
    assert_eq!(points[0].value, Value::Int(15));
    assert_eq!(points[2].value, Value::Double(9.0));
    let Value::Histogram(time) = &points[1].value else {
        panic!("a histogram")
    };
    assert_eq!(
        (time.count, time.sum, time.min, time.max),
        (2, Some(10.0), Some(3.0), Some(7.0))
    );
    assert_eq!(
        points[0].series.attributes,
        [("agent", "a"), ("k", "bytes")].into_iter().collect()
    );
    assert_eq!(points[0].time, 77);
}
