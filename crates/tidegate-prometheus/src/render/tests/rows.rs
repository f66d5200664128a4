// SPDX-License-Identifier: Apache-2.0

//! The rules of the translation as they are numbered in the specification's checklist, one test a rule.

mod deltas;
mod openmetrics;

use super::*;

/// A point of a series, the rest of which is empty.
fn point(name: &str, unit: &str, data: Data, value: Value) -> Point {
    Point {
        series: series(name, unit, data, &[], &[("a", "b")]),
        start: 0,
        time: NOW,
        value,
        exemplars: Vec::new(),
    }
}

fn with_type(mut point: Point, of_type: &str) -> Point {
    let series = Arc::make_mut(&mut point.series);
    Arc::make_mut(&mut series.metric).metadata = [("prometheus.type", of_type)].into_iter().collect();
    point
}

fn shown_in(style: Style, format: Format, points: &[Point]) -> String {
    let tables = [table("test")];
    for point in points {
        tables[0].observe(point, NOW);
    }
    text(&mut Renderer::new(format, style), &tables)
}

/// The lines of a page without HELP.
fn shown(format: Format, points: &[Point]) -> Vec<String> {
    let page = shown_in(Style::default(), format, points);
    let lines = page.lines().filter(|line| !line.starts_with("# HELP "));
    lines.map(str::to_owned).collect()
}

fn in_both(points: &[Point]) -> [Vec<String>; 2] {
    [shown(Format::Text, points), shown(Format::OpenMetrics, points)]
}

fn histogram(bounds: &[f64], counts: &[u64], sum: Option<f64>) -> Value {
    Value::Histogram(Box::new(Histogram {
        count: counts.iter().sum(),
        sum,
        min: None,
        max: None,
        bounds: bounds.into(),
        counts: counts.into(),
    }))
}

#[test]
fn type_and_help_are_always_told_and_unit_where_the_name_ends_with_it() {
    let points = [
        point("io", "By", COUNTER, Value::Int(1)),
        point("odd", "By/s", Data::Gauge, Value::Int(1)),
    ];
    let page = shown_in(Style::default(), Format::OpenMetrics, &points);
    let comments: Vec<_> = page.lines().filter(|line| line.starts_with("# ")).collect();
    assert_eq!(
        comments,
        [
            "# HELP io_bytes What it is",
            "# TYPE io_bytes counter",
            "# UNIT io_bytes bytes",
            "# HELP odd_bytes_per_second What it is",
            "# TYPE odd_bytes_per_second gauge",
            "# UNIT odd_bytes_per_second bytes_per_second",
            "# EOF",
        ]
    );
    let style = Style {
        naming: Naming {
            strategy: Translation::Nothing,
            ..Naming::default()
        },
        ..Style::default()
    };
    let page = shown_in(style, Format::OpenMetrics, &points);
    assert!(!page.contains("# UNIT"), "no name ends with it: {page}");
    assert!(
        !shown(Format::Text, &points)
            .iter()
            .any(|line| line.contains("UNIT"))
    );
}

#[test]
fn metrics_from_prometheus_have_the_type_they_had_there() {
    let unknown = with_type(point("x", "", Data::Gauge, Value::Int(1)), "unknown");
    let [text, openmetrics] = in_both(std::slice::from_ref(&unknown));
    assert_eq!(text, ["# TYPE x untyped", "x{a=\"b\"} 1"]);
    assert_eq!(openmetrics, ["# TYPE x unknown", "x{a=\"b\"} 1", "# EOF"]);

    let sum = Data::Sum {
        monotonic: false,
        temporality: Temporality::Cumulative,
    };
    let info = with_type(point("build_info", "", sum, Value::Int(1)), "info");
    let [text, openmetrics] = in_both(std::slice::from_ref(&info));
    assert_eq!(text, ["# TYPE build_info gauge", "build_info{a=\"b\"} 1"]);
    assert_eq!(
        openmetrics,
        ["# TYPE build info", "build_info{a=\"b\"} 1", "# EOF"]
    );

    let state = |value| {
        let mut state = with_type(point("a", "", sum, Value::Int(value)), "stateset");
        Arc::make_mut(&mut state.series).attributes = [("a", "on")].into_iter().collect();
        state
    };
    let [text, openmetrics] = in_both(&[state(1)]);
    assert_eq!(text, ["# TYPE a gauge", "a{a=\"on\"} 1"]);
    assert_eq!(openmetrics, ["# TYPE a stateset", "a{a=\"on\"} 1", "# EOF"]);
    assert_eq!(
        shown(Format::OpenMetrics, &[state(2)]),
        ["# EOF"],
        "it is on or off"
    );
}

#[test]
fn a_sum_that_may_fall_is_a_gauge() {
    let data = Data::Sum {
        monotonic: false,
        temporality: Temporality::Cumulative,
    };
    let lines = shown(Format::Text, &[point("x", "1", data, Value::Int(-1))]);
    assert_eq!(lines, ["# TYPE x gauge", "x{a=\"b\"} -1"]);
}

#[test]
fn minimum_and_maximum_are_not_told() {
    let mut value = histogram(&[1.0], &[1, 2], Some(5.0));
    if let Value::Histogram(histogram) = &mut value {
        (histogram.min, histogram.max) = (Some(0.25), Some(4.75));
    }
    let lines = shown(Format::Text, &[point("d", "", HISTOGRAM, value)]);
    assert_eq!(
        lines,
        [
            "# TYPE d histogram",
            "d_bucket{a=\"b\",le=\"1\"} 1",
            "d_bucket{a=\"b\",le=\"+Inf\"} 3",
            "d_sum{a=\"b\"} 5",
            "d_count{a=\"b\"} 3",
        ]
    );
}

#[test]
fn an_exponential_histogram_is_a_classic_one_in_text() {
    let value = Value::ExponentialHistogram(Box::new(ExponentialHistogram {
        count: 6,
        sum: Some(9.0),
        scale: 0,
        zero_count: 1,
        positive: Buckets {
            offset: 0,
            counts: vec![2, 0, 3],
        },
        ..ExponentialHistogram::default()
    }));
    let data = Data::ExponentialHistogram {
        temporality: Temporality::Cumulative,
    };
    let lines = shown(Format::OpenMetrics, &[point("d", "", data, value)]);
    assert_eq!(
        lines[1..7],
        [
            "d_bucket{a=\"b\",le=\"0.0\"} 1",
            "d_bucket{a=\"b\",le=\"2.0\"} 3",
            "d_bucket{a=\"b\",le=\"4.0\"} 3",
            "d_bucket{a=\"b\",le=\"8.0\"} 6",
            "d_bucket{a=\"b\",le=\"+Inf\"} 6",
            "d_sum{a=\"b\"} 9",
        ]
    );
}

#[test]
fn a_series_without_a_recorded_value_is_not_shown() {
    let mut ended = point("x", "", Data::Gauge, Value::NoRecordedValue);
    ended.time += 1;
    let points = [point("x", "", Data::Gauge, Value::Int(1)), ended];
    assert_eq!(in_both(&points), [vec![], vec!["# EOF".to_owned()]]);
}

#[test]
fn times_are_written_only_where_that_is_wanted() {
    let points = [point("x", "", COUNTER, Value::Int(1))];
    assert_eq!(shown(Format::Text, &points)[1], "x_total{a=\"b\"} 1");
    let style = Style {
        timestamps: true,
        ..Style::default()
    };
    let page = shown_in(style.clone(), Format::Text, &points);
    assert!(page.ends_with("x_total{a=\"b\"} 1 1500\n"), "{page}");
    let page = shown_in(style, Format::OpenMetrics, &points);
    assert!(page.contains("x_total{a=\"b\"} 1 1.500\n"), "{page}");
}

#[test]
fn quantiles_ascend_and_come_once() {
    let quantile = |quantile, value| Quantile { quantile, value };
    let value = Value::Summary(Box::new(Summary {
        count: 3,
        sum: 6.0,
        quantiles: vec![
            quantile(0.99, 3.0),
            quantile(0.5, 2.0),
            quantile(0.5, 7.0),
            quantile(1.5, 1.0),
            quantile(f64::NAN, 1.0),
        ],
    }));
    let [text, openmetrics] = in_both(&[point("s", "", Data::Summary, value)]);
    let samples = [
        "s{a=\"b\",quantile=\"0.5\"} 2",
        "s{a=\"b\",quantile=\"0.99\"} 3",
        "s_sum{a=\"b\"} 6",
        "s_count{a=\"b\"} 3",
    ];
    assert_eq!(text[1..], samples);
    assert_eq!(openmetrics[1..5], samples);
}

#[test]
fn one_help_a_family_and_a_metric_of_another_type_is_omitted_whole() {
    let mut other_help = point("x", "", Data::Gauge, Value::Int(2));
    let series = Arc::make_mut(&mut other_help.series);
    series.attributes = [("a", "c")].into_iter().collect();
    Arc::make_mut(&mut series.metric).description = "Something else".into();
    let points = [point("x", "", Data::Gauge, Value::Int(1)), other_help];
    let page = shown_in(Style::default(), Format::Text, &points);
    assert_eq!(page.matches("# HELP").count(), 1, "{page}");
    assert_eq!(page.matches("\nx{").count(), 2, "{page}");

    let tables = [table("one"), table("two")];
    tables[0].observe(&point("x_total", "", Data::Gauge, Value::Int(1)), NOW);
    tables[1].observe(&point("x", "", COUNTER, Value::Int(1)), NOW);
    let mut renderer = renderer(Format::Text);
    assert_eq!(text(&mut renderer, &tables).matches("\nx_total{").count(), 1);
    let [conflict] = &renderer.conflicts()[..] else {
        panic!("{:?}", renderer.conflicts())
    };
    assert_eq!(
        (&*conflict.metric, &*conflict.owner, conflict.series),
        ("x", "two", 1)
    );
    assert_eq!(conflict.why, "the name `x_total` is a gauge of one already");
}

#[test]
fn numbers_read_back_equal() {
    for (value, expected) in [
        (0.1 + 0.2, "0.30000000000000004"),
        (f64::INFINITY, "+Inf"),
        (f64::NEG_INFINITY, "-Inf"),
        (f64::NAN, "NaN"),
        (1e300, "1e+300"),
    ] {
        let [text, openmetrics] = in_both(&[point("x", "", Data::Gauge, Value::Double(value))]);
        assert_eq!(text[1], format!("x{{a=\"b\"}} {expected}"));
        assert_eq!(openmetrics[1], text[1]);
    }
}

#[test]
fn names_of_any_characters_stand_in_quotes() {
    let style = Style {
        naming: Naming {
            strategy: Translation::Suffixes,
            escaping: crate::Escaping::AllowUtf8,
            ..Naming::default()
        },
        ..Style::default()
    };
    let labelled = |mut point: Point| {
        Arc::make_mut(&mut point.series).attributes = [("http.method", "GET")].into_iter().collect();
        point
    };
    let points = [
        labelled(point("foo.bar", "", COUNTER, Value::Int(1))),
        labelled(point("d.x", "", HISTOGRAM, histogram(&[1.0], &[1, 0], Some(1.0)))),
    ];
    let page = shown_in(style.clone(), Format::Text, &points);
    for line in [
        "# TYPE \"foo.bar_total\" counter",
        "{\"foo.bar_total\",\"http.method\"=\"GET\"} 1",
        "{\"d.x_bucket\",\"http.method\"=\"GET\",le=\"1\"} 1",
        "{\"d.x_count\",\"http.method\"=\"GET\"} 1",
    ] {
        assert!(page.lines().any(|other| other == line), "{line} in {page}");
    }
    let page = shown_in(style, Format::OpenMetrics, &points);
    assert!(
        page.contains("# TYPE \"foo.bar\" counter\n{\"foo.bar_total\","),
        "{page}"
    );
}

#[test]
fn a_family_is_never_without_a_name() {
    let style = |strategy| Style {
        naming: Naming {
            strategy,
            ..Naming::default()
        },
        ..Style::default()
    };
    let points = [
        point("_total", "", COUNTER, Value::Int(1)),
        with_type(point("_info", "", Data::Gauge, Value::Int(1)), "info"),
    ];
    for strategy in [
        Translation::UnderscoresAndSuffixes,
        Translation::Underscores,
        Translation::Suffixes,
        Translation::Nothing,
    ] {
        let page = shown_in(style(strategy), Format::OpenMetrics, &points);
        for line in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            assert!(!line.starts_with(' '), "{strategy:?}: {page}");
        }
    }
    let page = shown_in(
        style(Translation::Nothing),
        Format::OpenMetrics,
        &[point("plain", "", COUNTER, Value::Int(1))],
    );
    assert!(
        page.contains("# TYPE plain unknown\nplain{a=\"b\"} 1\n"),
        "a sample is called the same in every format: {page}"
    );
}

#[test]
fn one_target_info_a_target_that_shows_something() {
    let of = |job: &str, pod: &str, name: &str| {
        let resource = [("service.name", job), ("service.instance.id", "i"), ("pod", pod)];
        (series(name, "", Data::Gauge, &resource, &[]), Value::Int(1))
    };
    let tables = [table("test")];
    put(
        &tables[0],
        &[of("one", "p", "x"), of("one", "q", "y"), of("two", "p", "x")],
    );
    let mut renderer = renderer(Format::OpenMetrics);
    let page = text(&mut renderer, &tables);
    let end = page.split_once("# HELP target ").unwrap().1;
    assert_eq!(
        end,
        "Target metadata\n# TYPE target info\n\
         target_info{instance=\"i\",job=\"one\",pod=\"p\"} 1\n\
         target_info{instance=\"i\",job=\"two\",pod=\"p\"} 1\n# EOF\n"
    );
    put_at(
        &tables[0],
        &[(of("two", "p", "x").0, Value::NoRecordedValue)],
        NOW + 1,
    );
    let page = text(&mut renderer, &tables);
    assert!(!page.contains("job=\"two\""), "{page}");
}
