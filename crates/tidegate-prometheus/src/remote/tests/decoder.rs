// SPDX-License-Identifier: Apache-2.0

//! Which points requests become (rules I), and that what we write is what we read.

mod memory;

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_engine::{AttributeValue, Exemplar, Quantile, Summary};

use super::super::decoder::{DecodedRequest, RemoteWriteDecoder};
use super::super::series::{Exemplar as Example, Family, Identity, Kind, Sample, Series};
use super::super::stale;
use super::wire::{explicit, exponential, referring, trimmed};
use super::*;
use crate::model::{MAX_LABELS, MAX_TEXT_BYTES};
use tidegate_pipeline::component::Reason;

/// A series as a sender might write it.
fn series(labels: &[(&str, &str)], kind: Kind, samples: &[(i64, f64)]) -> Series {
    let name = labels
        .iter()
        .find(|(name, _)| *name == "__name__")
        .map_or("", |(_, value)| value);
    let family = Family {
        name: name.into(),
        kind,
        help: "help".into(),
        unit: "seconds".into(),
    };
    let labels = labels
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()));
    let mut series = Series::new(Arc::new(Identity::new(labels)), Arc::new(family));
    let samples = samples.iter().map(|(time, value)| Sample {
        time: *time,
        start: 5,
        value: *value,
        point: 0,
    });
    series.samples = samples.collect();
    series
}

fn decoded(decoder: &RemoteWriteDecoder, version: Version, series: &[Series]) -> DecodedRequest {
    let request = write::encode(version, series.iter(), version == Version::One);
    decoder.decode(version, &request).expect("a request")
}

const TWO: Version = Version::Two;

#[test]
fn types_become_kinds_of_data_and_names_stay() {
    let gauge = Data::Gauge;
    let may_fall = Data::Sum {
        monotonic: false,
        temporality: CUMULATIVE,
    };
    let table = [
        ("a_seconds_total", Kind::Counter, COUNTER),
        ("b", Kind::Gauge, gauge),
        ("c", Kind::Unknown, gauge),
        ("d_info", Kind::Info, may_fall),
        ("e", Kind::StateSet, may_fall),
        ("h_bucket", Kind::Histogram, COUNTER),
        ("h_sum", Kind::Histogram, COUNTER),
        ("h_count", Kind::Histogram, COUNTER),
        ("s", Kind::Summary, gauge),
        ("s_count", Kind::Summary, COUNTER),
        ("g_bucket", Kind::GaugeHistogram, gauge),
    ];
    for version in [Version::One, TWO] {
        let decoder = RemoteWriteDecoder::default();
        let all: Vec<_> = table
            .iter()
            .map(|(name, kind, _)| series(&[("__name__", name)], *kind, &[(7, 1.5)]))
            .collect();
        let decoded = decoded(&decoder, version, &all);
        assert_eq!(
            (decoded.points.len(), decoded.samples, decoded.dropped.len()),
            (table.len(), table.len(), 0)
        );
        for (point, (name, kind, data)) in decoded.points.iter().zip(table) {
            let metric = &point.series.metric;
            assert_eq!((&*metric.name, metric.data), (name, data));
            assert_eq!((&*metric.unit, &*metric.description), ("s", "help"));
            assert_eq!(
                metric.metadata.get("prometheus.type").unwrap().as_str(),
                Some(kind.name())
            );
            assert_eq!((point.time, &point.value), (7 * MS, &Value::Double(1.5)));
            assert_eq!(point.start, if version == TWO { 5 * MS } else { 0 });
        }
    }
}

#[test]
fn stale_markers_scopes_and_resources_are_taken() {
    let decoder = RemoteWriteDecoder::default();
    let who = [("job", "ns/svc"), ("instance", "i:1")];
    let own = [
        ("__name__", "g"),
        ("otel_scope_name", "lib"),
        ("otel_scope_x", "y"),
        ("a", "b"),
        who[0],
        who[1],
    ];
    let before = decoded(
        &decoder,
        TWO,
        &[series(&own, Kind::Gauge, &[(7, stale()), (8, 1.0)])],
    );
    assert_eq!(before.points[0].value, Value::NoRecordedValue);
    let stream = &before.points[1].series;
    let resource = [
        ("service.namespace", "ns"),
        ("service.name", "svc"),
        ("service.instance.id", "i:1"),
    ];
    assert_eq!(stream.resource.attributes, resource.into_iter().collect());
    assert_eq!((&*stream.scope.name, stream.scope.attributes.len()), ("lib", 1));
    assert_eq!(stream.attributes, [("a", "b")].into_iter().collect());
    let info = [("__name__", "target_info"), ("version", "1"), who[0], who[1]];
    let told = decoded(
        &decoder,
        TWO,
        &[
            series(&info, Kind::Gauge, &[(9, 1.0)]),
            series(&own, Kind::Gauge, &[(9, 1.0)]),
        ],
    );
    let [former, now] = told.points.as_slice() else {
        panic!("the metadata of the resource is not a point: {:?}", told.points);
    };
    assert_eq!(told.samples, 2);
    // It ends under the resource that it had, just before it goes on.
    assert_eq!(
        (&former.value, former.time + 1),
        (&Value::NoRecordedValue, now.time)
    );
    assert_eq!(former.series.resource.attributes.get("version"), None);
    let attributes = &now.series.resource.attributes;
    assert_eq!(attributes.get("version").unwrap().as_str(), Some("1"));
    let others = decoded(
        &decoder,
        TWO,
        &[series(&[("__name__", "g")], Kind::Gauge, &[(9, 1.0)])],
    );
    assert!(others.points[0].series.resource.attributes.is_empty());
}

#[test]
fn exemplars_find_their_series_even_when_they_come_by_themselves() {
    let example = |time| Example {
        time,
        value: 2.5,
        labels: vec![
            ("trace_id".into(), "0102030405060708090a0b0c0d0e0f10".into()),
            ("user".into(), "7".into()),
        ],
    };
    let decoder = RemoteWriteDecoder::default();
    let name = [("__name__", "x_total")];
    let mut with = series(&name, Kind::Counter, &[(7, 1.0)]);
    with.exemplars.push(example(6));
    let mut alone = series(&name, Kind::Counter, &[]);
    alone.exemplars.push(example(5));
    let mut nobodys = series(&[("__name__", "y_total")], Kind::Counter, &[]);
    nobodys.exemplars.push(example(5));
    let decoded = decoded(&decoder, TWO, &[with, alone, nobodys]);
    assert_eq!(
        (decoded.points.len(), decoded.exemplars, decoded.lost_exemplars),
        (1, 2, 1)
    );
    let expected = |time| Exemplar {
        time,
        value: AttributeValue::Double(2.5),
        trace_id: (1..=16).collect(),
        filtered_attributes: [("user", "7")].into_iter().collect(),
        ..Exemplar::default()
    };
    assert_eq!(decoded.points[0].exemplars, [expected(6 * MS), expected(5 * MS)]);
}

#[test]
fn what_is_wrong_with_a_series_costs_that_series() {
    let decoder = RemoteWriteDecoder::default();
    let decoded = decoded(
        &decoder,
        TWO,
        &[
            series(&[("a", "b")], Kind::Gauge, &[(7, 1.0)]),
            series(
                &[("__name__", "x"), ("a", "1"), ("a", "2")],
                Kind::Gauge,
                &[(7, 1.0)],
            ),
            series(
                &[("__name__", "x")],
                Kind::Gauge,
                &[(-7, 1.0), (0, 1.0), (7, 1.0)],
            ),
        ],
    );
    assert_eq!((decoded.points.len(), decoded.samples), (1, 1));
    assert_eq!(decoded.dropped.len(), 1);
    assert_eq!((decoded.dropped[0].0, decoded.dropped[0].1), (Reason::Invalid, 4));
}

/// Names of as many labels as a series may have, and these besides.
fn labelled(own: &[(&str, &str)], count: usize) -> Series {
    let names: Vec<String> = (0..count).map(|number| format!("n{number:05}")).collect();
    let labels = names.iter().map(|name| (name.as_str(), "v"));
    let labels: Vec<_> = own.iter().copied().chain(labels).collect();
    series(&labels, Kind::Gauge, &[(7, 1.0), (8, 1.0)])
}

#[test]
fn a_series_with_too_much_text_or_too_many_labels_is_cut_out() {
    let name = ("__name__", "x");
    let long = "y".repeat(MAX_TEXT_BYTES);
    let half = &long[..MAX_TEXT_BYTES / 2];
    let mut with_help = series(&[("__name__", "h"), ("a", half)], Kind::Gauge, &[(7, 1.0)]);
    Arc::get_mut(&mut with_help.family).unwrap().help = half.into();
    let mut with_exemplar = series(&[("__name__", "e")], Kind::Counter, &[(7, 1.0)]);
    with_exemplar.exemplars.push(Example {
        time: 6,
        value: 2.5,
        labels: vec![("user".into(), long.clone())],
    });
    let all = [
        labelled(&[name], MAX_LABELS),
        series(&[name, ("a", &long)], Kind::Gauge, &[(7, 1.0)]),
        with_exemplar,
        labelled(&[("__name__", "y")], MAX_LABELS - 1),
        series(&[("__name__", "z"), ("a", half)], Kind::Gauge, &[(7, 1.0)]),
    ];
    for version in [Version::One, TWO] {
        let decoder = RemoteWriteDecoder::default();
        let decoded = decoded(&decoder, version, &all);
        let names = decoded
            .points
            .iter()
            .map(|point| point.series.metric.name.to_string());
        assert_eq!(names.collect::<Vec<_>>(), ["y", "y", "z"], "{version:?}");
        let [(reason, samples, why)] = decoded.dropped.as_slice() else {
            panic!("{:?}", decoded.dropped);
        };
        assert_eq!((*reason, *samples, decoded.lost_exemplars), (Reason::Limit, 4, 1));
        assert_eq!(why, "`x`: a series has at most 1024 labels and 64 KiB of text");
        assert_eq!(decoded.samples, 3);
    }
    // The help of 2.0 is a symbol that a series refers to.
    let decoded = decoded(&RemoteWriteDecoder::default(), TWO, &[with_help]);
    assert_eq!((decoded.points.len(), decoded.dropped.len()), (0, 1));
}

#[test]
fn symbols_that_are_referred_to_again_and_again_are_not_copied() {
    const LABELS: usize = 49_000;
    let big = "y".repeat(16 << 20);
    let names = (0..LABELS).map(|number| format!("n{number}"));
    let symbols: Vec<String> = [String::new(), big].into_iter().chain(names).collect();
    let labels = (2..LABELS as u64 + 2).flat_map(|name| [name, 1]).collect();
    let decoded = RemoteWriteDecoder::default().decode(TWO, &referring(&symbols, &[labels]));
    let decoded = decoded.unwrap();
    assert_eq!((decoded.points.len(), decoded.dropped.len()), (0, 1));
    assert_eq!((decoded.dropped[0].0, decoded.dropped[0].1), (Reason::Limit, 1));
}

fn any_value() -> impl Strategy<Value = (Data, Value)> {
    let quantiles = prop::collection::btree_map(0..100u32, any::<f64>(), 0..4);
    let summary = (0..1000u64, -1e9..1e9f64, quantiles).prop_map(|(count, sum, quantiles)| {
        let quantiles = quantiles.into_iter().map(|(at, value)| Quantile {
            quantile: f64::from(at) / 100.0,
            value,
        });
        Value::Summary(Box::new(Summary {
            count,
            sum,
            quantiles: quantiles.collect(),
        }))
    });
    let value = prop_oneof![
        any::<f64>().prop_map(|value| (Data::Gauge, Value::Double(value))),
        (0..1i64 << 50).prop_map(|value| (COUNTER, Value::Int(value))),
        exponential().prop_map(|value| (EXPONENTIAL, Value::ExponentialHistogram(Box::new(value)))),
        explicit().prop_map(|value| (HISTOGRAM, Value::Histogram(Box::new(value)))),
        summary.prop_map(|value| (Data::Summary, value)),
    ];
    (value, prop::bool::weighted(0.1)).prop_map(|((data, value), ends)| {
        if ends {
            (data, Value::NoRecordedValue)
        } else {
            (data, value)
        }
    })
}

/// The key of a point: name, attributes, time.
type By = (String, String, u64);

/// A value in a form in which NaNs are equal.
fn shown(value: &Value) -> String {
    format!("{value:?}")
}

/// The values that a point is expected to come back as.
fn expected(number: usize, point: &Point) -> Vec<(By, String, Data)> {
    let by = |suffix: &str, more: Option<(&str, String)>| {
        let pairs = point
            .series
            .attributes
            .iter()
            .map(|(key, value)| (key.to_owned(), value.as_str().unwrap().to_owned()));
        let mut pairs: Vec<_> = pairs
            .chain(more.map(|(name, value)| (name.to_owned(), value)))
            .collect();
        pairs.sort();
        (format!("m{number}{suffix}"), format!("{pairs:?}"), point.time)
    };
    let double = |value: f64| shown(&Value::Double(value));
    let data = point.series.metric.data;
    match &point.value {
        Value::Int(number) => vec![(by("_total", None), double(*number as f64), data)],
        Value::Histogram(_) => vec![(by("", None), shown(&point.value), data)],
        Value::ExponentialHistogram(histogram) => {
            let histogram = Value::ExponentialHistogram(Box::new(trimmed((**histogram).clone())));
            vec![(by("", None), shown(&histogram), data)]
        }
        Value::Summary(summary) => {
            let quantiles = summary.quantiles.iter();
            let quantiles = quantiles.map(|at| {
                (
                    by("", Some(("quantile", at.quantile.to_string()))),
                    double(at.value),
                    Data::Gauge,
                )
            });
            let totals = [("_sum", summary.sum), ("_count", summary.count as f64)];
            let totals = totals.map(|(suffix, value)| (by(suffix, None), double(value), COUNTER));
            quantiles.chain(totals).collect()
        }
        Value::NoRecordedValue => match data {
            Data::Summary => ["_sum", "_count"]
                .map(|suffix| (by(suffix, None), shown(&point.value), COUNTER))
                .into(),
            COUNTER => vec![(by("_total", None), shown(&point.value), data)],
            _ => vec![(by("", None), shown(&point.value), data)],
        },
        value => vec![(by("", None), shown(value), data)],
    }
}

proptest! {
    /// OTLP to remote write 2.0 and back: values, times, starts, resources and scopes are what they were.
    #[test]
    fn what_we_write_is_what_we_read(
        values in prop::collection::vec((any_value(), "[a-z]{0,3}", 1..1000u64), 1..12),
        scope in "[a-z]{0,3}",
    ) {
        let resource = [("service.name", "svc"), ("service.instance.id", "i"), ("host_name", "h")];
        let resource = Arc::new(Resource { attributes: resource.into_iter().collect(), schema_url: "".into() });
        let scope = Arc::new(Scope { name: scope.as_str().into(), ..Scope::default() });
        let points: Vec<Point> = values.into_iter().enumerate().map(|(number, ((data, value), label, time))| {
            let attributes: &[(&str, &str)] = if label.is_empty() { &[] } else { &[("label", &label)] };
            let stream = Stream {
                resource: resource.clone(),
                scope: scope.clone(),
                ..stream(&format!("m{number}"), data, attributes)
            };
            Point { start: 500_000, ..point(&stream, time, value) }
        }).collect();
        let translator = Translator::new(Settings { target_info: true, custom_buckets: true, ..Settings::default() });
        let translation = translator.translate(&[batch(points.clone())]);
        prop_assert_eq!(&translation.dropped, &[]);
        let series = translation.groups.iter().flat_map(|group| &group.series);
        let decoded = RemoteWriteDecoder::default().decode(TWO, &write::encode(TWO, series, false)).unwrap();
        prop_assert_eq!(&decoded.dropped, &[]);
        let mut came = BTreeMap::new();
        for point in &decoded.points {
            let stream = &point.series;
            prop_assert_eq!(&stream.resource.attributes, &resource.attributes);
            prop_assert_eq!(&stream.scope, &scope);
            prop_assert_eq!(point.start, 0, "half a millisecond is none");
            let pairs = stream.attributes.iter().map(|(key, value)| (key.to_owned(), value.as_str().unwrap().to_owned()));
            let by = (stream.metric.name.to_string(), format!("{:?}", pairs.collect::<Vec<_>>()), point.time);
            let twice = came.insert(by, (shown(&point.value), stream.metric.data));
            prop_assert!(twice.is_none());
        }
        let mut went = BTreeMap::new();
        for (number, point) in points.iter().enumerate() {
            went.extend(expected(number, point).into_iter().map(|(by, value, data)| (by, (value, data))));
        }
        prop_assert_eq!(came, went);
    }
}

#[test]
fn a_sample_from_the_future_is_counted_and_hides_no_collision() {
    let now = i64::try_from(tidegate_pipeline::component::wall_now() / MS).unwrap();
    let hits = |start: i64, time: i64| {
        let mut hits = series(&[("__name__", "hits_total")], Kind::Counter, &[(time, 1.0)]);
        hits.samples[0].start = start;
        hits
    };
    let decoder = RemoteWriteDecoder::default();
    let all = [
        hits(5, now - 3_000),
        hits(9, now + 86_400_000),
        hits(9, now - 2_000),
        hits(5, now - 1_000),
    ];
    let decoded = decoded(&decoder, TWO, &all);
    assert_eq!((decoded.points.len(), decoded.samples), (3, 3));
    let dropped = decoded
        .dropped
        .iter()
        .map(|(reason, samples, _)| (*reason, *samples));
    assert_eq!(dropped.collect::<Vec<_>>(), [(Reason::Future, 1)]);
    assert_eq!(decoded.colliding.len(), 1);
}
