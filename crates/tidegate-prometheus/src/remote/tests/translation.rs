// SPDX-License-Identifier: Apache-2.0

//! Which series points become (rules N, L, R, P).

use proptest::prelude::*;
use tidegate_engine::{AttributeValue, Exemplar, ExponentialHistogram, Histogram, Quantile, Summary};

use super::super::stale;
use super::wire::explicit;
use super::*;
use crate::{Naming, Strategy as Names};
use tidegate_pipeline::component::Reason;

fn histogram(bounds: &[f64], counts: &[u64]) -> Value {
    Value::Histogram(Box::new(Histogram {
        count: counts.iter().sum(),
        sum: Some(7.5),
        bounds: bounds.into(),
        counts: counts.to_vec(),
        ..Histogram::default()
    }))
}

#[test]
fn numbers_are_one_series_each_with_their_type() {
    let (gauge, counter) = (
        stream("a.b", Data::Gauge, &[("x.y", "1")]),
        stream("c", COUNTER, &[]),
    );
    let points = vec![
        point(&gauge, 1000, Value::Double(0.5)),
        point(&counter, 1001, Value::Int(3)),
    ];
    let translation = translator().translate(&[batch(points)]);
    for version in [Version::One, Version::Two] {
        let request = request(version, &translation);
        assert_eq!(request.samples("a_b{x_y=\"1\"}"), [(1000, 0.5)]);
        assert_eq!(request.samples("c_total{}"), [(1001, 3.0)]);
    }
    let one = request(Version::One, &translation);
    let said = ("gauge", "what it is".to_owned(), String::new());
    assert_eq!(one.metadata["a_b"], said);
    assert_eq!(one.metadata["c_total"].0, "counter");
    let two = request(Version::Two, &translation);
    assert_eq!(two.series[0].metadata, Some(said));
    assert_eq!(two.series[0].samples[0].2, 0, "a gauge has no start");
    assert_eq!(two.series[1].samples[0].2, 500);
}

#[test]
fn a_histogram_is_its_running_totals() {
    let stream = stream("h", HISTOGRAM, &[("le", "own")]);
    let sent = sent(
        &translator(),
        vec![point(&stream, 1000, histogram(&[0.5, 1e6], &[1, 2, 3]))],
    );
    let bucket = |le: &str| format!("h_bucket{{exported_le=\"own\",le={le:?}}}");
    assert_eq!(sent.samples(&bucket("0.5")), [(1000, 1.0)]);
    assert_eq!(sent.samples(&bucket("1000000")), [(1000, 3.0)]);
    assert_eq!(sent.samples(&bucket("+Inf")), [(1000, 6.0)]);
    assert_eq!(sent.samples("h_sum{exported_le=\"own\"}"), [(1000, 7.5)]);
    assert_eq!(sent.samples("h_count{exported_le=\"own\"}"), [(1000, 6.0)]);
    assert_eq!(sent.series.len(), 5);
}

#[test]
fn histograms_are_sent_as_native_ones_where_that_is_set() {
    let exponential = ExponentialHistogram {
        count: 3,
        sum: Some(1.0),
        zero_count: 3,
        ..ExponentialHistogram::default()
    };
    let streams = [stream("e", EXPONENTIAL, &[]), stream("h", HISTOGRAM, &[])];
    let translator = Translator::new(Settings {
        custom_buckets: true,
        ..Settings::default()
    });
    let points = vec![
        point(
            &streams[0],
            1000,
            Value::ExponentialHistogram(Box::new(exponential.clone())),
        ),
        point(&streams[1], 1000, histogram(&[1.0], &[4, 5])),
    ];
    let mut sent = sent(&translator, points);
    assert_eq!(sent.names(), ["e{}", "h{}"]);
    let native = &sent.series[0].histograms[0];
    assert_eq!(
        (native.timestamp, native.start_timestamp, native.zero_threshold),
        (1000, 500, 1e-128)
    );
    let Ok((Value::Histogram(read), _)) = sent.series[1].histograms[0].read() else {
        panic!("custom buckets")
    };
    assert_eq!(
        (read.count, &*read.bounds, &*read.counts),
        (9, &[1.0][..], &[4, 5][..])
    );
    let no_sum = ExponentialHistogram {
        sum: None,
        ..exponential
    };
    let refused = translator.translate(&[batch(vec![point(
        &streams[0],
        2000,
        Value::ExponentialHistogram(Box::new(no_sum)),
    )])]);
    assert_eq!(
        (refused.dropped[0].0, refused.groups.len()),
        (Reason::Unsupported, 0)
    );
}

#[test]
fn deltas_and_what_has_no_time_are_dropped_and_counted() {
    let delta = Data::Sum {
        monotonic: true,
        temporality: Temporality::Delta,
    };
    let unsaid = Data::Histogram {
        temporality: Temporality::Unspecified,
    };
    let points = vec![
        point(&stream("a", delta, &[]), 1, Value::Int(1)),
        point(&stream("b", unsaid, &[]), 1, histogram(&[], &[1])),
        point(&stream("c", Data::Gauge, &[]), 0, Value::Int(1)),
        point(&stream("___", Data::Gauge, &[]), 1, Value::Int(1)),
        point(&stream("d", Data::Gauge, &[]), 1, Value::Int(1)),
    ];
    let translation = translator().translate(&[batch(points)]);
    let dropped: Vec<_> = translation
        .dropped
        .iter()
        .map(|(reason, items, _)| (*reason, *items))
        .collect();
    assert_eq!(dropped, [(Reason::Unsupported, 1), (Reason::Invalid, 3)]);
    assert_eq!(request(Version::One, &translation).names(), ["d{}"]);
    let falling = Data::Sum {
        monotonic: false,
        temporality: Temporality::Delta,
    };
    let points = vec![point(&stream("f", falling, &[]), 1, Value::Int(-1))];
    let translation = translator().translate(&[batch(points)]);
    let (reason, items, why) = &translation.dropped[0];
    assert_eq!((*reason, *items), (Reason::Unsupported, 1));
    assert!(why.contains("put an `aggregate` processor before"), "{why}");
}

/// Resources that differ only in parts that are not labels become one series.
#[test]
fn runs_of_one_series_that_alternate_are_told_once() {
    let of = |pid: &'static str| Stream {
        resource: Arc::new(Resource {
            attributes: [("service.name", "a"), ("process.pid", pid)]
                .into_iter()
                .collect(),
            schema_url: "".into(),
        }),
        ..stream("c", COUNTER, &[])
    };
    let translator = translator();
    let said = |pid, start: u64, time| {
        let word = Point {
            start: start * 1_000_000,
            ..point(&of(pid), time, Value::Int(1))
        };
        translator.translate(&[batch(vec![word])]).colliding.len()
    };
    assert_eq!(said("1", 10, 1000), 0);
    assert_eq!(said("2", 20, 1001), 0, "a restart");
    assert_eq!(said("1", 10, 1001), 0, "what came late");
    assert_eq!(said("1", 10, 1002), 1);
    assert_eq!(said("2", 20, 1003) + said("1", 10, 1004), 0, "it is known");
}

#[test]
fn no_recorded_value_ends_every_series_that_the_stream_had() {
    let streams = [
        stream("g", Data::Gauge, &[]),
        stream("h", HISTOGRAM, &[]),
        stream("e", EXPONENTIAL, &[]),
        stream("s", Data::Summary, &[]),
        stream("unseen", HISTOGRAM, &[]),
    ];
    let translator = translator();
    let summary = Summary {
        count: 1,
        sum: 2.0,
        quantiles: vec![Quantile {
            quantile: 0.5,
            value: 2.0,
        }],
    };
    let before = vec![
        point(&streams[0], 1000, Value::Int(1)),
        point(&streams[1], 1000, histogram(&[1.0], &[1, 1])),
        point(&streams[3], 1000, Value::Summary(Box::new(summary))),
    ];
    let mut expected: Vec<String> = sent(&translator, before)
        .names()
        .into_iter()
        .map(str::to_owned)
        .collect();
    expected.extend(
        [
            "e{}",
            "unseen_bucket{le=\"+Inf\"}",
            "unseen_sum{}",
            "unseen_count{}",
        ]
        .map(str::to_owned),
    );
    let ends = streams
        .iter()
        .map(|stream| point(stream, 2000, Value::NoRecordedValue));
    let ended = sent(&translator, ends.collect());
    let mut names: Vec<String> = ended.names().into_iter().map(str::to_owned).collect();
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
    for series in &ended.series {
        let is_stale = |value: f64| value.to_bits() == stale().to_bits();
        let numbers = series.samples.iter().map(|(_, value, _)| *value);
        let sums = series.histograms.iter().map(|native| native.sum);
        assert!(numbers.chain(sums).all(is_stale), "{series:?}");
    }
}

#[test]
fn exemplars_are_on_their_buckets_in_the_order_of_time() {
    let example = |value: f64, time_ms: u64, trace: u8| Exemplar {
        filtered_attributes: [("user.id", "7"), ("long", "x".repeat(128).as_str())]
            .into_iter()
            .collect(),
        time: time_ms * MS,
        value: AttributeValue::Double(value),
        trace_id: vec![trace; 16],
        span_id: Vec::new(),
    };
    let stream = stream("h", HISTOGRAM, &[]);
    let point = Point {
        exemplars: vec![example(5.0, 3, 1), example(0.5, 2, 2), example(7.0, 1, 3)],
        ..point(&stream, 1000, histogram(&[1.0], &[1, 2]))
    };
    let sent = sent(&translator(), vec![point]);
    let exemplars = |name: &str| {
        let series = sent.series.iter().find(|series| series.name == name).unwrap();
        series.exemplars.clone()
    };
    let trace = |id: &str| format!("{{trace_id={:?},user_id=\"7\"}}", id.repeat(16));
    assert_eq!(exemplars("h_bucket{le=\"1\"}"), [(trace("02"), 0.5, 2)]);
    assert_eq!(
        exemplars("h_bucket{le=\"+Inf\"}"),
        [(trace("03"), 7.0, 1), (trace("01"), 5.0, 3)],
        "in the order of their time"
    );
    assert_eq!(exemplars("h_count{}"), []);
}

#[test]
fn samples_are_in_order_and_of_two_at_one_time_the_later_one_stays() {
    let stream = stream("h", HISTOGRAM, &[]);
    let points = vec![
        point(&stream, 2000, histogram(&[1.0], &[2, 2])),
        point(&stream, 1000, histogram(&[1.0, 2.0], &[1, 0, 1])),
        point(&stream, 1000, histogram(&[1.0], &[5, 5])),
    ];
    let translation = translator().translate(&[batch(points)]);
    assert_eq!(
        (translation.dropped[0].0, translation.dropped[0].1),
        (Reason::Conflict, 1)
    );
    assert_eq!(translation.groups[0].points, 2);
    let request = request(Version::One, &translation);
    assert_eq!(request.samples("h_count{}"), [(1000, 10.0), (2000, 4.0)]);
    assert_eq!(
        request.samples("h_bucket{le=\"2\"}"),
        [],
        "a point goes as a whole"
    );
}

#[test]
fn external_labels_and_strategies() {
    let translator = Translator::new(Settings {
        naming: Naming {
            namespace: "ns".into(),
            strategy: Names::Nothing,
            ..Naming::default()
        },
        external: vec![("cluster".into(), "c".into()), ("own".into(), "external".into())],
        ..Settings::default()
    });
    let stream = stream("c.d", COUNTER, &[("own", "mine"), ("empty", "")]);
    let sent = sent(&translator, vec![point(&stream, 1, Value::Int(1))]);
    assert_eq!(sent.names().len(), 1);
    assert!(
        sent.names()[0].ends_with("{cluster=\"c\",own=\"mine\"}"),
        "{:?}",
        sent.names()
    );
}

#[test]
fn parts_of_classic_histograms_keep_their_names() {
    let mut stream = stream("h_bucket", COUNTER, &[("le", "0.5")]);
    stream.metric = Arc::new(Metric {
        metadata: [("prometheus.type", "histogram")].into_iter().collect(),
        ..(*stream.metric).clone()
    });
    let sent = sent(&translator(), vec![point(&stream, 1, Value::Double(2.0))]);
    assert_eq!(sent.names(), ["h_bucket{le=\"0.5\"}"]);
    assert_eq!(sent.series[0].metadata.as_ref().unwrap().0, "histogram");
}

fn any_point() -> impl Strategy<Value = Point> {
    let name = prop_oneof![
        Just("x"),
        Just("x_sum"),
        Just("x.count"),
        Just("x_bucket"),
        Just("x_sum_count"),
        Just("x_")
    ];
    let attributes = prop::collection::vec(
        (prop_oneof![Just("le"), Just("quantile"), Just("a")], "[01]?"),
        0..3,
    );
    let value = prop_oneof![
        any::<f64>().prop_map(|value| (Data::Gauge, Value::Double(value))),
        any::<i64>().prop_map(|value| (COUNTER, Value::Int(value))),
        explicit().prop_map(|value| (HISTOGRAM, Value::Histogram(Box::new(value)))),
        Just((Data::Summary, Value::NoRecordedValue)),
        Just((EXPONENTIAL, Value::NoRecordedValue)),
    ];
    (name, attributes, value, 1..4u64).prop_map(|(name, attributes, (data, value), time)| {
        let attributes: Vec<_> = attributes
            .iter()
            .map(|(key, value)| (*key, value.as_str()))
            .collect();
        point(&stream(name, data, &attributes), time, value)
    })
}

proptest! {
    /// However names collide: a series is in one group only, its samples rise in time, and every point is in the books.
    #[test]
    fn a_series_is_in_one_group_and_every_point_in_the_books(points in prop::collection::vec(any_point(), 1..40)) {
        let all = points.len();
        let translation = translator().translate(&[batch(points)]);
        let mut groups = std::collections::HashMap::new();
        for group in &translation.groups {
            for series in &group.series {
                let before = groups.insert(format!("{:?}", series.identity.labels()), group.hash);
                prop_assert_eq!(before, None, "{:?}", series.identity);
                prop_assert!(series.samples.is_sorted_by(|a, b| a.time < b.time));
                prop_assert!(series.histograms.is_sorted_by(|a, b| a.0.timestamp < b.0.timestamp));
            }
        }
        let dropped: usize = translation.dropped.iter().map(|(_, items, _)| items).sum();
        let sent: usize = translation.groups.iter().map(|group| group.points).sum();
        prop_assert_eq!(sent + dropped, all);
        for version in [Version::One, Version::Two] {
            let series = translation.groups.iter().flat_map(|group| &group.series);
            let estimated: usize = translation.groups.iter().map(super::super::series::Group::bytes).sum();
            prop_assert!(write::encode(version, series, true).len() <= estimated + 16);
            request(version, &translation);
        }
    }
}

#[test]
fn the_memory_limit_bounds_kept_series_of_histograms_with_many_buckets() {
    let memory = Arc::<tidegate_pipeline::component::Account>::default();
    memory.add_limit(tidegate_pipeline::component::Limit::of(8 << 20));
    let translator = Translator::new(Settings::default()).within(memory);
    let bounds: Vec<f64> = (0..100).map(f64::from).collect();
    let counts: Vec<u64> = vec![1; 101];
    let mut evicted = 0;
    for number in 0..100 {
        let stream = stream(&format!("h{number}"), HISTOGRAM, &[]);
        let points = vec![point(&stream, 1000, histogram(&bounds, &counts))];
        evicted += translator.translate(&[batch(points)]).evicted;
    }
    // Each has 103 series of half a kilobyte, and there is a megabyte for all.
    assert!((70..100).contains(&evicted), "{evicted}");
}
