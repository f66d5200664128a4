// SPDX-License-Identifier: Apache-2.0

use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::description::{GaugeMode, Kind};
use crate::span::SpanRef;
use crate::value::{
    Exemplar, ExponentialBuckets, ExponentialHistogram, FamilyValues, HistogramValue, SeriesValues, Value,
};

fn family(name: &str, unit: &str, kind: Kind, series: Vec<(&[(&str, &str)], Value)>) -> FamilyValues {
    let series = series.into_iter().map(|(labels, value)| SeriesValues {
        labels: labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
        value,
        exemplars: Vec::new(),
    });
    FamilyValues {
        name: name.into(),
        help: "A \"help\"\\\nof two lines".into(),
        unit: unit.into(),
        kind,
        series: series.collect(),
    }
}

fn latency() -> FamilyValues {
    let bounds: std::sync::Arc<[f64]> = [0.5, 1.0].into();
    let value = HistogramValue {
        bounds: bounds.clone(),
        counts: vec![1, 0, 2],
        sum: 7.25,
    };
    let mut family = family(
        "latency",
        "s",
        Kind::Histogram { bounds },
        vec![(&[("model", "a\"b\\c\nd")], Value::Histogram(value))],
    );
    family.series[0].exemplars.push(Exemplar {
        value: 0.25,
        span: SpanRef::new([0xab; 16], [0xcd; 8]).unwrap(),
        time: UNIX_EPOCH + Duration::from_millis(1_700_000_000_125),
    });
    family
}

#[test]
fn a_page_has_names_with_units_and_types_and_labels_escaped() {
    let families = [
        latency(),
        family(
            "requests",
            "{requests}",
            Kind::Counter,
            vec![(&[], Value::Counter(3))],
        ),
        family(
            "queue.depth",
            "",
            Kind::Gauge(GaugeMode::Sum),
            vec![(&[], Value::Gauge(f64::NAN))],
        ),
        family(
            "open",
            "1",
            Kind::UpDownCounter,
            vec![(&[], Value::UpDownCounter(-2))],
        ),
    ];
    let help = r#"A "help"\\\nof two lines"#;
    let labels = r#"model="a\"b\\c\nd""#;
    let expected = format!(
        r#"# HELP latency_seconds {help}
# TYPE latency_seconds histogram
latency_seconds_bucket{{{labels},le="0.5"}} 1
latency_seconds_bucket{{{labels},le="1"}} 1
latency_seconds_bucket{{{labels},le="+Inf"}} 3
latency_seconds_sum{{{labels}}} 7.25
latency_seconds_count{{{labels}}} 3
# HELP open {help}
# TYPE open gauge
open -2
# HELP queue_depth {help}
# TYPE queue_depth gauge
queue_depth NaN
# HELP requests_total {help}
# TYPE requests_total counter
requests_total 3
"#
    );
    assert_eq!(render(&families, Format::Prometheus), expected);
}

#[test]
fn openmetrics_has_units_exemplars_and_an_end() {
    let page = render(&[latency()], Format::OpenMetrics);
    let (trace, span) = ("ab".repeat(16), "cd".repeat(8));
    for line in [
        "# UNIT latency_seconds seconds\n".to_owned(),
        r#"# HELP latency_seconds A \"help\"\\\nof two lines"#.to_owned(),
        format!("le=\"0.5\"}} 1 # {{span_id=\"{span}\",trace_id=\"{trace}\"}} 0.25 1700000000.125\n"),
        "le=\"1.0\"} 1\n".to_owned(),
        "\n# EOF\n".to_owned(),
    ] {
        assert!(page.contains(&line), "{line} is not in\n{page}");
    }
    let counter = family("requests", "", Kind::Counter, vec![(&[], Value::Counter(3))]);
    let page = render(&[counter], Format::OpenMetrics);
    assert!(
        page.contains("# TYPE requests counter\nrequests_total 3\n"),
        "{page}"
    );
}

#[test]
fn an_exponential_histogram_has_the_bounds_that_it_fills() {
    let value = ExponentialHistogram {
        count: 15,
        sum: Some(1.0),
        scale: 1,
        zero_count: 1,
        // (1, 1.41], (1.41, 2], (2, 2.83]
        positive: ExponentialBuckets {
            offset: 0,
            counts: vec![2, 3, 4],
        },
        // [-4, -2.83)
        negative: ExponentialBuckets {
            offset: 3,
            counts: vec![5],
        },
        ..ExponentialHistogram::empty()
    };
    let kind = Kind::ExponentialHistogram { max_scale: 20 };
    let page = render(
        &[family("e", "", kind, vec![(&[], Value::Exponential(value))])],
        Format::Prometheus,
    );
    let buckets: Vec<&str> = page.lines().filter(|line| line.contains("le=")).collect();
    let expected = [
        format!("e_bucket{{le=\"-{}\"}} 5", 1.5f64.exp2()),
        "e_bucket{le=\"0\"} 6".to_owned(),
        format!("e_bucket{{le=\"{}\"}} 8", 0.5f64.exp2()),
        "e_bucket{le=\"2\"} 11".to_owned(),
        format!("e_bucket{{le=\"{}\"}} 15", 1.5f64.exp2()),
        "e_bucket{le=\"+Inf\"} 15".to_owned(),
    ];
    assert_eq!(buckets, expected);
}

#[test]
fn openmetrics_has_no_sum_of_values_below_zero() {
    let bounds: std::sync::Arc<[f64]> = [-1.0, 1.0].into();
    let value = HistogramValue {
        bounds: bounds.clone(),
        counts: vec![1, 0, 0],
        sum: -2.0,
    };
    let kind = Kind::Histogram { bounds };
    let families = [family("h", "", kind, vec![(&[], Value::Histogram(value))])];
    let openmetrics = render(&families, Format::OpenMetrics);
    let ends = "h_bucket{le=\"+Inf\"} 1\n";
    assert!(openmetrics.ends_with(&format!("{ends}# EOF\n")), "{openmetrics}");
    let text = render(&families, Format::Prometheus);
    assert!(text.ends_with(&format!("{ends}h_sum -2\nh_count 1\n")), "{text}");
}

#[test]
fn a_family_without_help_has_no_help_line() {
    let mut silent = family("a", "", Kind::Counter, vec![(&[("b", "c\0")], Value::Counter(3))]);
    silent.help.clear();
    let expected = "# TYPE a_total counter\na_total{b=\"c\u{fffd}\"} 3\n";
    assert_eq!(render(&[silent], Format::Prometheus), expected);
}

#[test]
fn a_name_is_on_a_page_once() {
    let gauge = |name| {
        family(
            name,
            "",
            Kind::Gauge(GaugeMode::Sum),
            vec![(&[], Value::Gauge(1.0))],
        )
    };
    let page = render(
        &[
            gauge("a.b"),
            gauge("a_b"),
            latency(),
            gauge("latency_seconds_sum"),
        ],
        Format::Prometheus,
    );
    assert_eq!(page.matches("# TYPE").count(), 2, "{page}");
}

#[test]
fn the_best_format_that_a_reader_takes() {
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
    for other in ["", "*/*", "text/plain", "application/openmetrics-text;q=0"] {
        assert_eq!(Format::accepted(other), Format::Prometheus, "{other}");
    }
}
