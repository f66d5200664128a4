// SPDX-License-Identifier: Apache-2.0

//! The parts that only OpenMetrics has: exemplars and times of creation.

use tidegate_engine::{AttributeValue, Exemplar};

use super::*;

const IDS: &str = "span_id=\"cdcdcdcdcdcdcdcd\",trace_id=\"abababababababababababababababab\"";

fn exemplar(value: f64, time: u64, attributes: &[(&str, &str)]) -> Exemplar {
    Exemplar {
        filtered_attributes: attributes.iter().copied().collect(),
        time: time * 1_000_000_000,
        value: AttributeValue::Double(value),
        trace_id: vec![0xab; 16],
        span_id: vec![0xcd; 8],
    }
}

#[test]
fn openmetrics_tells_when_a_counter_began() {
    let mut counter = point("x", "", COUNTER, Value::Int(1));
    counter.start = 1_700_000_000_123_456_789;
    let mut gauge = point("y", "", Data::Gauge, Value::Int(1));
    gauge.start = counter.start;
    let mut distribution = point("z", "", HISTOGRAM, histogram(&[], &[1], Some(1.0)));
    distribution.start = 1_700_000_000_000_000_000;
    let points = [counter, gauge, distribution];
    let created = |lines: Vec<String>| -> Vec<String> {
        lines
            .into_iter()
            .filter(|line| line.contains("_created"))
            .collect()
    };
    let [text, openmetrics] = in_both(&points).map(created);
    assert_eq!(text, Vec::<String>::new());
    assert_eq!(
        openmetrics,
        [
            "x_created{a=\"b\"} 1700000000.123",
            "z_created{a=\"b\"} 1700000000"
        ]
    );
    let style = Style {
        created: false,
        ..Style::default()
    };
    assert!(!shown_in(style, Format::OpenMetrics, &points).contains("_created"));
}

#[test]
fn exemplars_are_on_counters_and_buckets_and_the_latest_counts() {
    let old_and_new = vec![
        exemplar(0.5, 1, &[]),
        exemplar(0.75, 2, &[("k", "v")]),
        exemplar(3.0, 1, &[]),
    ];
    let with = |mut point: Point| {
        point.exemplars = old_and_new.clone();
        point
    };
    let points = [
        with(point("c", "", COUNTER, Value::Int(4))),
        with(point(
            "d",
            "",
            HISTOGRAM,
            histogram(&[1.0, 2.0], &[2, 0, 1], Some(4.0)),
        )),
        with(point("g", "", Data::Gauge, Value::Int(4))),
        with(point("s", "", Data::Summary, Value::Summary(Box::default()))),
    ];
    let [text, openmetrics] = in_both(&points);
    assert!(!text.iter().any(|line| line.contains(" # {")), "{text:?}");
    let carrying: Vec<_> = openmetrics.iter().filter(|line| line.contains(" # {")).collect();
    assert_eq!(
        carrying,
        [
            &format!("c_total{{a=\"b\"}} 4 # {{{IDS},k=\"v\"}} 0.75 2"),
            &format!("d_bucket{{a=\"b\",le=\"1.0\"}} 2 # {{{IDS},k=\"v\"}} 0.75 2"),
            &format!("d_bucket{{a=\"b\",le=\"+Inf\"}} 3 # {{{IDS}}} 3 1"),
        ]
    );
}

#[test]
fn an_exemplar_has_room_for_128_characters_and_its_ids_win() {
    // The ids take 7 + 16 and 8 + 32 characters: 65 are left.
    let fits = "\u{e9}".repeat(64);
    let exemplars = [
        exemplar(1.0, 1, &[("k", &fits), ("trace_id", "mine")]),
        exemplar(1.0, 1, &[("k", &format!("{fits}x")), ("l", "short")]),
        exemplar(1.0, 1, &[("k", "a \" quote")]),
    ];
    let labels = exemplars.map(|exemplar| {
        let mut counter = point("c", "", COUNTER, Value::Int(4));
        counter.exemplars = vec![exemplar];
        let line = shown(Format::OpenMetrics, &[counter])[1].clone();
        line.split_once(" # {")
            .unwrap()
            .1
            .split_once("} ")
            .unwrap()
            .0
            .to_owned()
    });
    assert_eq!(
        labels,
        [
            format!("{IDS},k=\"{fits}\""),
            format!("{IDS},l=\"short\""),
            IDS.to_owned()
        ]
    );
}

#[test]
fn points_that_openmetrics_can_not_express_are_omitted_and_reported() {
    let points = [
        point(
            "sums",
            "",
            HISTOGRAM,
            histogram(&[-1.0, 1.0], &[1, 1, 1], Some(2.0)),
        ),
        point("falls", "", HISTOGRAM, histogram(&[1.0], &[1, 1], Some(-2.0))),
        point("without", "", HISTOGRAM, histogram(&[1.0], &[1, 1], None)),
        with_type(point("five_info", "", Data::Gauge, Value::Int(5)), "info"),
        with_type(point("no_label", "", Data::Gauge, Value::Int(1)), "stateset"),
    ];
    let tables = [table("test")];
    points.iter().for_each(|point| _ = tables[0].observe(point, NOW));
    let mut openmetrics = renderer(Format::OpenMetrics);
    let page = text(&mut openmetrics, &tables);
    assert!(!page.contains("_sum") && !page.contains("_count"), "{page}");
    assert_eq!(page.matches("_bucket").count(), 7, "{page}");
    assert!(!page.contains("five") && !page.contains("no_label"), "{page}");
    let omitted = openmetrics.conflicts();
    let told: Vec<_> = omitted
        .iter()
        .map(|conflict| (&*conflict.metric, &*conflict.why))
        .collect();
    assert_eq!(
        told,
        [
            ("five_info", "OpenMetrics has no info of this value"),
            ("no_label", "OpenMetrics has no stateset of this value"),
        ]
    );
    let mut plain = renderer(Format::Text);
    let page = text(&mut plain, &tables);
    assert!(page.contains("falls_sum{a=\"b\"} -2\n") && page.contains("without_count{a=\"b\"} 2\n"));
    assert!(
        page.contains("five_info{a=\"b\"} 5\n") && plain.conflicts().is_empty(),
        "{page}"
    );
}

#[test]
fn a_counter_of_openmetrics_is_never_below_zero_and_always_a_number() {
    let style = Style::default();
    let metric = point("x", "", COUNTER, Value::Int(1)).series.metric.clone();
    let family = family::PageFamily::new("x", kind::Type::Counter, "test".into(), metric);
    for (format, values) in [
        (Format::OpenMetrics, [true, false, false]),
        (Format::Text, [true; 3]),
    ] {
        let mut encoder = TextEncoder::new(Vec::new(), format, &style);
        let said = [0.0, -1.0, f64::NAN]
            .map(|value| encoder.number(&family, b"", Number::Double(value), ValueTimes::default()));
        assert_eq!(said, values, "{format:?}");
    }
}
