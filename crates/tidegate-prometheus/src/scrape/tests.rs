// SPDX-License-Identifier: Apache-2.0

//! Pages and what becomes of them.

use std::sync::Arc;

use tidegate_engine::{Attributes, Data, Point, Scope, Temporality, Value};
use tidegate_exposition::Format;

use super::*;
use crate::model::{INSTANCE, JOB, LabelSet, NAME};

mod limits;
mod properties;
mod protobuf;

/// A target `i` of job `j` whose own labels win; it drops metrics whose names begin with `drop`.
struct Plain;

impl Target for Plain {
    fn relabel(&mut self, labels: &mut LabelSet) -> bool {
        labels.set(JOB, "j");
        labels.set(INSTANCE, "i");
        !labels.get(NAME).starts_with("drop")
    }

    fn resource(&self, job: &str, instance: &str) -> Attributes {
        [("service.name", job), ("service.instance.id", instance)]
            .into_iter()
            .collect()
    }
}

/// As [`Plain`], but labels of the page win.
struct Honest;

impl Target for Honest {
    fn relabel(&mut self, labels: &mut LabelSet) -> bool {
        labels.set_default(JOB, "j");
        labels.set_default(INSTANCE, "i");
        true
    }

    fn resource(&self, job: &str, instance: &str) -> Attributes {
        Plain.resource(job, instance)
    }
}

fn settings() -> Settings {
    Settings {
        scope: Arc::new(Scope {
            name: "ours".into(),
            ..Scope::default()
        }),
        ..Settings::default()
    }
}

fn decoder() -> ScrapeDecoder {
    ScrapeDecoder::new(settings(), Box::new(Plain))
}

/// Milliseconds of the first scrape.
const START: u64 = 1_700_000_000_000;

fn at(scrape: u64) -> u64 {
    (START + scrape * 1000) * model::NANOS_PER_MILLI
}

fn take(decoder: &mut ScrapeDecoder, format: Format, page: &str, scrape: u64) -> (Vec<Point>, Counts) {
    let mut points = Vec::new();
    let counts = decoder.page(format, page.as_bytes(), at(scrape), &mut points);
    (points, counts.expect("a sound page"))
}

fn text(decoder: &mut ScrapeDecoder, page: &str, scrape: u64) -> Vec<Point> {
    take(decoder, Format::Text, page, scrape).0
}

/// `name{attributes} value`, for points whose resource and scope are the usual ones.
fn show(points: &[Point]) -> Vec<String> {
    let value = |value: &Value| match value {
        Value::Double(number) => number.to_string(),
        Value::NoRecordedValue => "ended".to_owned(),
        Value::Histogram(histogram) => format!(
            "{:?} {:?} sum {:?} count {}",
            histogram.bounds, histogram.counts, histogram.sum, histogram.count
        ),
        other => format!("{other:?}"),
    };
    points
        .iter()
        .map(|point| {
            let series = &point.series;
            format!(
                "{}{{{}}} {}",
                series.metric.name,
                series.attributes,
                value(&point.value)
            )
        })
        .collect()
}

#[test]
fn a_page_becomes_points_in_its_order() {
    let mut decoder = decoder();
    let page = "# HELP b_total what\n# TYPE b_total counter\nb_total{x=\"1\"} 1\nb_total{x=\"2\"} 2\n\
                # TYPE a gauge\na 3\ndropped 4\nunknown 5\n";
    let (points, counts) = take(&mut decoder, Format::Text, page, 0);
    assert_eq!(
        show(&points),
        ["b_total{x=1} 1", "b_total{x=2} 2", "a{} 3", "unknown{} 5"]
    );
    assert_eq!(
        counts,
        Counts {
            samples: 5,
            kept: 4,
            series_added: 4,
            stored: 4,
            ..Counts::default()
        }
    );
    let series = &points[0].series;
    assert_eq!(&*series.metric.description, "what");
    assert_eq!(
        series.metric.data,
        Data::Sum {
            monotonic: true,
            temporality: Temporality::Cumulative
        }
    );
    assert_eq!(series.metric.metadata.to_string(), "prometheus.type=counter");
    assert_eq!(
        series.resource.attributes.to_string(),
        "service.instance.id=i,service.name=j"
    );
    assert_eq!(&*series.scope.name, "ours");
    assert_eq!((points[0].time, points[0].start), (at(0), 0));
    assert_eq!(
        points[3].series.metric.metadata.to_string(),
        "prometheus.type=unknown"
    );
    let (again, counts) = take(&mut decoder, Format::Text, page, 1);
    assert_eq!(show(&again), show(&points));
    assert!(
        points
            .iter()
            .zip(&again)
            .all(|(a, b)| Arc::ptr_eq(&a.series, &b.series))
    );
    assert_eq!((counts.samples, counts.kept, counts.series_added), (5, 4, 0));
}

const HISTOGRAM: &str = "# TYPE h histogram\nh_bucket{x=\"y\",le=\"1\"} 2\nh_bucket{x=\"y\",le=\"2.5\"} 5\n\
                         h_bucket{x=\"y\",le=\"+Inf\"} 6\nh_sum{x=\"y\"} 7.5\nh_count{x=\"y\"} 6\n";

#[test]
fn lines_of_a_histogram_are_one_point() {
    let mut decoder = decoder();
    for scrape in 0..3 {
        let points = text(&mut decoder, HISTOGRAM, scrape);
        assert_eq!(
            show(&points),
            ["h{x=y} [1.0, 2.5] [2, 3, 1] sum Some(7.5) count 6"]
        );
    }
    // Another bound, and none of the old ones.
    let other = HISTOGRAM
        .replace("le=\"1\"", "le=\"2\"")
        .replace("le=\"2.5\"", "le=\"-1\"");
    let other = other.replace("} 5", "} 1");
    let points = text(&mut decoder, &other, 3);
    assert_eq!(
        show(&points),
        ["h{x=y} [-1.0, 2.0] [1, 1, 4] sum Some(7.5) count 6"]
    );
    assert_eq!(show(&text(&mut decoder, HISTOGRAM, 4)).len(), 1);
}

#[test]
fn a_histogram_without_count_takes_its_last_bucket_and_needs_no_sum() {
    let mut decoder = decoder();
    let uncounted = HISTOGRAM.replace("h_count{x=\"y\"} 6\n", "");
    let (points, counts) = take(&mut decoder, Format::Text, &uncounted, 0);
    assert_eq!(
        show(&points),
        ["h{x=y} [1.0, 2.5] [2, 3, 1] sum Some(7.5) count 6"]
    );
    assert_eq!(counts.unusable, 0);
    // The page does not give the count.
    let endless = uncounted.replace("h_bucket{x=\"y\",le=\"+Inf\"} 6\n", "");
    let (points, counts) = take(&mut decoder, Format::Text, &endless, 1);
    assert_eq!(
        (show(&points), counts.unusable),
        (vec!["h{x=y} ended".to_owned()], 1)
    );
    let points = text(&mut decoder, &HISTOGRAM.replace("h_sum{x=\"y\"} 7.5\n", ""), 2);
    assert_eq!(show(&points), ["h{x=y} [1.0, 2.5] [2, 3, 1] sum None count 6"]);
}

#[test]
fn lines_of_a_summary_are_one_point() {
    let page = "# TYPE s summary\ns{quantile=\"0.9\"} 3\ns{quantile=\"0.5\"} 2\ns_count 4\n";
    let points = text(&mut decoder(), page, 0);
    let Value::Summary(summary) = &points[0].value else {
        panic!("{points:?}");
    };
    let quantiles: Vec<_> = summary.quantiles.iter().map(|q| (q.quantile, q.value)).collect();
    assert_eq!(
        (summary.count, summary.sum, quantiles),
        (4, 0.0, vec![(0.5, 2.0), (0.9, 3.0)])
    );
}

#[test]
fn open_metrics_has_units_start_times_and_exemplars() {
    let page = "# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total 1 # \
                {trace_id=\"0af7651916cd43dd8448eb211c80319c\",x=\"y\"} 0.5 1700000000.5\na_seconds_created 1600000000\n\
                # TYPE i info\ni_info{a=\"b\"} 1\n# TYPE g gaugehistogram\ng_bucket{le=\"+Inf\"} 1\n# EOF\n";
    let (points, counts) = take(&mut decoder(), Format::OpenMetrics, page, 0);
    assert_eq!(show(&points), ["a_seconds_total{} 1", "i_info{a=b} 1"]);
    assert_eq!(
        counts.unusable, 1,
        "gauge histograms are nothing that OpenTelemetry has"
    );
    let point = &points[0];
    assert_eq!(&*point.series.metric.unit, "s");
    assert_eq!(point.start, 1_600_000_000_000_000_000);
    let exemplar = &point.exemplars[0];
    assert_eq!(exemplar.time, 1_700_000_000_500_000_000);
    assert_eq!(exemplar.trace_id.len(), 16);
    assert_eq!(exemplar.filtered_attributes.to_string(), "x=y");
    let info = Data::Sum {
        monotonic: false,
        temporality: Temporality::Cumulative,
    };
    assert_eq!(points[1].series.metric.data, info);
}

#[test]
fn what_is_gone_ends_once() {
    let mut decoder = decoder();
    text(&mut decoder, "a 1\nb 2\nc 3 1700000000000\n", 0);
    let points = text(&mut decoder, "a 1\n", 1);
    assert_eq!(show(&points), ["b{} ended", "a{} 1"], "c has its own times");
    assert_eq!(points[0].time, at(1));
    assert_eq!(show(&text(&mut decoder, "a 1\n", 2)), ["a{} 1"]);
    assert_eq!(show(&text(&mut decoder, "", 3)), ["a{} ended"]);
    assert_eq!(show(&text(&mut decoder, "", 4)), [""; 0]);
    assert_eq!(show(&text(&mut decoder, "a 1\nb 2\n", 5)), ["a{} 1", "b{} 2"]);
    let mut points = Vec::new();
    decoder.end(at(6), &mut points);
    assert_eq!(show(&points), ["a{} ended", "b{} ended"]);
    decoder.end(at(7), &mut points);
    assert_eq!(points.len(), 2);
}

#[test]
fn series_with_times_end_where_that_is_wanted() {
    let settings = Settings {
        track_timestamps_staleness: true,
        ..settings()
    };
    let mut decoder = ScrapeDecoder::new(settings, Box::new(Plain));
    text(&mut decoder, "c 3 1700000000000\n", 0);
    assert_eq!(show(&text(&mut decoder, "", 1)), ["c{} ended"]);
}

#[test]
fn a_page_that_fails_leaves_nothing_and_ends_everything() {
    let mut decoder = decoder();
    text(&mut decoder, "a 1\n", 0);
    let mut points = Vec::new();
    let failed = decoder
        .page(Format::Text, b"a 2\nb 3\nc x\n", at(1), &mut points)
        .unwrap_err();
    assert_eq!(
        failed.to_string(),
        "line 3, column 3: expected a number after the series"
    );
    assert_eq!((failed.counts.samples, points.len()), (2, 0));
    decoder.end(at(1), &mut points);
    assert_eq!(show(&points), ["a{} ended"]);
    assert_eq!(show(&text(&mut decoder, "a 1\nb 1\n", 2)), ["a{} 1", "b{} 1"]);
}

#[test]
fn the_first_of_two_counts_unless_they_have_times() {
    let mut decoder = decoder();
    let (points, counts) = take(
        &mut decoder,
        Format::Text,
        "a 1\na 2\nb{x=\"1\",y=\"2\"} 1\nb{y=\"2\",x=\"1\"} 2\n",
        0,
    );
    assert_eq!(show(&points), ["a{} 1", "b{x=1,y=2} 1"]);
    assert_eq!(counts.duplicates, 2);
    let times = "a 1 1700000001000\na 2 1700000002000\na 3 1700000001500\na 4 1900000000000\na 5 -0\n";
    let (points, counts) = take(
        &mut decoder,
        Format::Text,
        &times.replace("a 5 -0\n", "a 5 0\n"),
        2,
    );
    assert_eq!(show(&points), ["b{x=1,y=2} ended", "a{} 1", "a{} 2"]);
    let times: Vec<u64> = points[1..].iter().map(|point| point.time).collect();
    assert_eq!(times, [at(1), at(2)]);
    assert_eq!(
        (counts.out_of_order, counts.out_of_bounds, counts.duplicates),
        (1, 2, 0)
    );
    // The same time again is neither a new sample nor an end.
    assert_eq!(show(&text(&mut decoder, "a 2 1700000002000\n", 3)), [""; 0]);
    assert_eq!(show(&text(&mut decoder, "a 2\n", 4)), ["a{} 2"]);
}

#[test]
fn a_label_that_is_empty_once_is_none() {
    let points = text(&mut decoder(), "a{b=\"\",c=\"d\",b=\"e\"} 1\n", 0);
    assert_eq!(show(&points), ["a{c=d} 1"]);
    let points = text(&mut decoder(), "a{\"\"=\"\"} 1\n", 0);
    assert_eq!(show(&points), ["a{} 1"]);
}

#[test]
fn times_may_be_ignored() {
    let settings = Settings {
        honor_timestamps: false,
        ..settings()
    };
    let mut decoder = ScrapeDecoder::new(settings, Box::new(Plain));
    assert_eq!(text(&mut decoder, "a 1 5\n", 0)[0].time, at(0));
}

#[test]
fn labels_name_resource_and_scope() {
    let mut decoder = ScrapeDecoder::new(settings(), Box::new(Honest));
    let page = "a{job=\"x\",otel_scope_name=\"s\",otel_scope_version=\"1\",otel_scope_z=\"2\",b=\"c\"} 1\na 2\n\
                # TYPE target_info gauge\ntarget_info{job=\"x\",region=\"r\"} 1\n";
    let points = text(&mut decoder, page, 0);
    assert_eq!(show(&points), ["a{b=c} 1", "a{} 2"]);
    let series = &points[0].series;
    assert_eq!(
        series.resource.attributes.to_string(),
        "region=r,service.instance.id=i,service.name=x"
    );
    assert_eq!((&*series.scope.name, &*series.scope.version), ("s", "1"));
    assert_eq!(series.scope.attributes.to_string(), "z=2");
    assert_eq!(
        points[1].series.resource.attributes.to_string(),
        "service.instance.id=i,service.name=j"
    );
    // Another resource is another series: the old one ends.
    let points = text(&mut decoder, &page.replace("region=\"r\"", "region=\"q\""), 1);
    assert_eq!(show(&points), ["a{b=c} ended", "a{b=c} 1", "a{} 2"]);
    let regions: Vec<_> = points
        .iter()
        .map(|point| point.series.resource.attributes.get("region"))
        .collect();
    assert_eq!(
        regions
            .iter()
            .map(|region| region.and_then(tidegate_engine::AttributeRef::as_str))
            .collect::<Vec<_>>(),
        [Some("r"), Some("q"), None]
    );
}

#[test]
fn a_type_that_changes_makes_other_series() {
    let mut decoder = decoder();
    text(&mut decoder, "# TYPE a gauge\na 1\n", 0);
    let points = text(&mut decoder, "# TYPE a counter\na 2\n", 1);
    assert_eq!(show(&points), ["a{} ended", "a{} 2"]);
    assert_eq!(
        points[1].series.metric.metadata.to_string(),
        "prometheus.type=counter"
    );
}

#[test]
fn of_many_lines_for_one_resource_the_first_counts() {
    let mut decoder = decoder();
    let lines: String = (0..1000)
        .map(|line| format!("target_info{{l{line}=\"v\"}} 1\n"))
        .collect();
    let points = text(&mut decoder, &format!("{lines}a 1\n"), 0);
    assert_eq!(
        points[0].series.resource.attributes.to_string(),
        "l0=v,service.instance.id=i,service.name=j"
    );
}
