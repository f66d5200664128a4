// SPDX-License-Identifier: Apache-2.0

//! Points by their keys, held against points that are decoded.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::metrics::v1::{self as otlp, metric, number_data_point};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use tidegate_requests::attribute;

use super::*;

fn number(user: &str, value: Option<number_data_point::Value>) -> otlp::NumberDataPoint {
    otlp::NumberDataPoint {
        attributes: vec![attribute("user", user), attribute("zone", "z")],
        start_time_unix_nano: 5,
        time_unix_nano: 9,
        value,
        ..Default::default()
    }
}

fn metric(name: &str, data: metric::Data) -> otlp::Metric {
    otlp::Metric {
        name: name.to_owned(),
        unit: "By".to_owned(),
        data: Some(data),
        ..Default::default()
    }
}

/// Every kind of point, under two resources.
fn request() -> Encoded {
    let int = |value| Some(number_data_point::Value::AsInt(value));
    let mut exemplified = number("e", int(7));
    exemplified.exemplars = vec![otlp::Exemplar {
        trace_id: vec![1; 16],
        ..Default::default()
    }];
    let mut ended = number("f", int(7));
    ended.flags = 1;
    let double = number("d", Some(number_data_point::Value::AsDouble(-0.5)));
    let points = vec![
        number("a", int(-3)),
        double,
        number("n", None),
        exemplified,
        ended,
    ];
    let sum = otlp::Sum {
        data_points: points.clone(),
        aggregation_temporality: 2,
        is_monotonic: true,
    };
    let histogram = otlp::HistogramDataPoint {
        attributes: vec![attribute("user", "h")],
        count: 3,
        bucket_counts: vec![1, 2],
        explicit_bounds: vec![1.5],
        ..Default::default()
    };
    let histograms = otlp::Histogram {
        data_points: vec![histogram],
        aggregation_temporality: 1,
    };
    let metrics = vec![
        metric("sum", metric::Data::Sum(sum)),
        metric("gauge", metric::Data::Gauge(otlp::Gauge { data_points: points })),
        metric("histogram", metric::Data::Histogram(histograms)),
        metric(
            "summary",
            metric::Data::Summary(otlp::Summary {
                data_points: vec![Default::default()],
            }),
        ),
    ];
    let of = |pod: &str| otlp::ResourceMetrics {
        resource: Some(Resource {
            attributes: vec![attribute("pod", pod)],
            ..Default::default()
        }),
        scope_metrics: vec![otlp::ScopeMetrics {
            scope: Some(InstrumentationScope {
                name: "lib".to_owned(),
                ..Default::default()
            }),
            metrics: metrics.clone(),
            schema_url: "s".to_owned(),
        }],
        schema_url: "r".to_owned(),
    };
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![of("1"), of("2")],
    };
    Encoded::one(Signal::Metrics, request.encode_to_vec().into(), 24)
}

/// Collects what it sees; takes points out of metrics with a given name.
#[derive(Default)]
struct Collect {
    unwanted: &'static str,
    taken: &'static str,
    keys: Vec<Key>,
    points: Vec<Point>,
}

impl PointVisitor for Collect {
    fn wants(&mut self, name: &str) -> bool {
        name != self.unwanted
    }

    fn point(&mut self, point: &WirePoint<'_>) -> bool {
        self.keys.push(point.key);
        self.points.push(Point {
            series: (point.series)().unwrap(),
            start: point.sample.start,
            time: point.sample.time,
            value: point.sample.value.clone(),
            exemplars: point.sample.exemplars.to_vec(),
        });
        point.name != self.taken
    }
}

#[test]
fn points_are_those_that_decoding_gives_and_each_series_has_its_own_key() {
    let request = request();
    let mut collect = Collect::default();
    let same = visit(&request, &mut collect).unwrap();
    assert_eq!(same.parts[0].bytes, request.parts[0].bytes);
    assert_eq!(collect.points, convert::points(&request).unwrap());
    let mut keys = collect.keys.clone();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 24);
    let mut again = Collect::default();
    visit(&request, &mut again).unwrap();
    assert_eq!(again.keys, collect.keys);
}

#[test]
fn what_is_taken_goes_and_the_rest_stays_encoded() {
    let request = request();
    let mut collect = Collect {
        unwanted: "gauge",
        taken: "sum",
        ..Collect::default()
    };
    let rest = visit(&request, &mut collect).unwrap();
    assert_eq!((rest.items(), collect.points.len()), (14, 14));
    let names: Vec<_> = convert::points(&rest)
        .unwrap()
        .iter()
        .map(|point| point.series.metric.name.to_string())
        .collect();
    assert!(!names.iter().any(|name| name == "sum") && names.len() == 14);
}

#[test]
fn a_metric_whose_name_is_no_utf8_is_shown_as_it_reads() {
    let request = ExportMetricsServiceRequest::decode(request().parts[0].bytes.clone()).unwrap();
    let mut bytes = request.encode_to_vec();
    let at = bytes.windows(5).position(|window| window == b"gauge").unwrap();
    bytes[at] = 0xff;
    let mut collect = Collect {
        taken: "\u{fffd}auge",
        ..Collect::default()
    };
    let rest = visit(&Encoded::one(Signal::Metrics, bytes.into(), 24), &mut collect).unwrap();
    assert_eq!((rest.items(), collect.points.len()), (19, 24));
}

#[test]
fn points_of_data_in_pieces_are_those_that_decoding_gives() {
    let point = |user| number(user, Some(number_data_point::Value::AsInt(1)));
    let sum = |data_points, temporality| otlp::Sum {
        data_points,
        aggregation_temporality: temporality,
        is_monotonic: false,
    };
    let (mut metric, mut scope, mut around, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    push_message(&mut metric, 1, b"m");
    push_message(&mut metric, 7, &sum(vec![point("gone")], 1).encode_to_vec());
    push_message(
        &mut metric,
        5,
        &otlp::Gauge {
            data_points: vec![point("gone too")],
        }
        .encode_to_vec(),
    );
    push_message(&mut metric, 7, &sum(vec![point("a")], 0).encode_to_vec());
    push_message(&mut metric, 7, &sum(vec![point("b")], 2).encode_to_vec());
    push_message(&mut scope, 2, &metric);
    push_message(&mut around, 2, &scope);
    push_message(&mut bytes, 1, &around);
    let request = crate::wire::check(Signal::Metrics, bytes.into()).unwrap();
    let mut collect = Collect::default();
    visit(&request, &mut collect).unwrap();
    assert_eq!((request.items(), collect.points.len()), (2, 2));
    assert_eq!(collect.points, convert::points(&request).unwrap());
}
