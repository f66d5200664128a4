// SPDX-License-Identifier: Apache-2.0

//! OTLP to an exposition, scraped back to OTLP: nothing changes on the way any more once it has been an exposition.

use super::kit::any_metrics::{UNITS, any_request, bytes_of};
use super::kit::cases::for_cases;
use super::kit::exposer::Exposers;
use super::kit::fixture::every_kind;
use super::kit::http::Response;
use super::kit::reader::Reader;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{self as otlp, Metric};
use proptest::sample::select;
use prost::Message;
use std::cell::Cell;
use tidegate::batch::{Signal, convert, wire};
use tidegate::prom::scrape::Failure;
use tidegate_engine::{Data, Exemplar, ExponentialHistogram, Point, Value};
use tidegate_requests::{counter, request};

const PROTOBUF: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;escaping=allow-utf-8";

const FORMATS: &[&str] = &[
    "",
    "text/plain;version=1.0.0;escaping=allow-utf-8",
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8",
    PROTOBUF,
];

const STRATEGIES: &[&str] = &[
    "UnderscoreEscapingWithSuffixes",
    "UnderscoreEscapingWithoutSuffixes",
    "NoUTF8EscapingWithSuffixes",
    "NoTranslation",
];

/// Some time in 2023.
const NOW: u64 = 1_700_000_000_000_000_000;

#[test]
fn what_was_scraped_is_exposed_as_it_was() {
    let exposers = Exposers::default();
    let (samples, unusable, refused) = (Cell::new(0), Cell::new(0), Cell::new(0));
    // Arbitrary labels are together sometimes longer than a scraped series may be.
    let read = |page: &Response| match Reader::new(NOW).read(page) {
        Ok(read) => Ok(Some(read)),
        Err(Failure::TextLimit) => {
            refused.set(refused.get() + 1);
            Ok(None)
        }
        Err(failure) => Err(failure.to_string()),
    };
    let strategy = (any_request(), select(STRATEGIES), select(FORMATS));
    for_cases(500, &strategy, |(request, strategy, format)| {
        let exposer = |strategy: &str| {
            exposers.start(&format!(
                "enable_open_metrics: true, translation_strategy: {strategy}"
            ))
        };
        let first = exposer(strategy);
        first.push(bytes_of(&sayable(request)));
        let page = first.scrape(format);
        let Some((points, counts)) = read(&page)? else {
            return Ok(());
        };
        samples.set(samples.get() + counts.samples);
        // Its names are translated already, and stay, although translating twice does not always give the same.
        let second = exposer(strategy);
        second.push_points(&points);
        let page_again = second.scrape(format);
        let Some((again, _)) = read(&page_again)? else {
            return Ok(());
        };
        unusable.set(unusable.get() + counts.unusable);
        let lost =
            counts.samples - counts.kept + counts.duplicates + counts.out_of_order + counts.out_of_bounds;
        if shown(&points) != shown(&again) || lost > 0 {
            let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
            return Err(format!(
                "{counts:?}\n--- was\n{}\n--- is\n{}\n--- was\n{}\n--- is\n{}",
                text(&page.body),
                text(&page_again.body),
                shown(&points).join("\n"),
                shown(&again).join("\n"),
            ));
        }
        Ok(())
    });
    let (samples, unusable, refused) = (samples.get(), unusable.get(), refused.get());
    println!("{samples} samples, {unusable} histograms and summaries of OpenMetrics without a count");
    println!("{refused} pages with a series of too much text");
    assert!(refused < 20, "nearly every page is read");
    assert!(unusable * 20 < samples, "nearly everything comes back");
    assert!(samples > 500, "most pages show something");
}

#[test]
fn every_kind_comes_back_as_it_was_sent() {
    let exposers = Exposers::default();
    let exposer = exposers.start("translation_strategy: NoTranslation");
    let request = every_kind().encode_to_vec();
    exposer.push(request.clone());
    let (points, counts) = Reader::new(NOW)
        .read(&exposer.scrape(PROTOBUF))
        .expect("a sound page");
    assert_eq!(counts.unusable + counts.duplicates, 0, "{counts:?}");
    let sent = wire::check(Signal::Metrics, request.into()).expect("it can be read");
    let sent = convert::points(&sent).expect("it can be read");
    assert_eq!(points.len(), sent.len());
    let resource = "host.name=worker,service.instance.id=i-1,service.name=prod/shop";
    let all_of_it = |point: &Point| point.series.resource.attributes.to_string() == resource;
    assert!(points.iter().all(all_of_it), "{:?}", points[0].series.resource);
    for (name, route) in [
        ("room.temperature", "a"),
        ("room.temperature", "b"),
        ("odd", "nan"),
        ("odd", "inf"),
        ("odd", "least"),
        ("requests", "/a"),
        ("sent", "/a"),
        ("queue", ""),
        ("latency", "/a"),
        ("size", "/a"),
        ("pause", "/a"),
    ] {
        let of = |points: &[Point]| -> Point {
            let is_it = |point: &&Point| {
                let found = point.series.attributes.get("http.route");
                &*point.series.metric.name == name
                    && found
                        .and_then(tidegate_engine::AttributeRef::as_str)
                        .unwrap_or_default()
                        == route
            };
            points
                .iter()
                .find(is_it)
                .unwrap_or_else(|| panic!("no {name}"))
                .clone()
        };
        assert_eq!(
            as_prometheus_stores(&of(&sent)),
            as_prometheus_stores(&of(&points)),
            "{name}"
        );
    }
}

#[test]
fn a_reset_and_an_end_come_back_too() {
    let exposers = Exposers::default();
    for format in &FORMATS[2..] {
        let exposer = exposers.start("enable_open_metrics: true, translation_strategy: NoTranslation");
        let mut reader = Reader::new(NOW);
        let mut scraped = |request: &ExportMetricsServiceRequest| {
            exposer.push(request.encode_to_vec());
            let (points, _) = reader.read(&exposer.scrape(format)).expect("a sound page");
            let is_it = |point: &Point| &*point.series.metric.name == "hits_total";
            points
                .into_iter()
                .find(is_it)
                .map(|point| (point.start, point.value))
        };
        let start = NOW - 60_000_000_000;
        assert_eq!(
            scraped(&hits(start, 1, Some(7))),
            Some((start, Value::Double(7.0))),
            "{format}"
        );
        assert_eq!(
            scraped(&hits(NOW, 2, Some(2))),
            Some((NOW, Value::Double(2.0))),
            "{format}: reset"
        );
        let end = scraped(&hits(NOW, 3, None));
        assert!(
            matches!(end, Some((_, Value::NoRecordedValue))),
            "{format}: {end:?}"
        );
        assert_eq!(scraped(&hits(NOW, 4, None)), None, "{format}: once");
    }
}

/// A counter since `start`, some seconds later than now; without a value it has ended.
fn hits(start: u64, seconds: u64, value: Option<i64>) -> ExportMetricsServiceRequest {
    let point = otlp::NumberDataPoint {
        start_time_unix_nano: start,
        time_unix_nano: NOW + seconds * 1_000_000_000,
        flags: u32::from(value.is_none()),
        value: value.map(otlp::number_data_point::Value::AsInt),
        ..otlp::NumberDataPoint::default()
    };
    request(Vec::new(), "", [counter("hits_total", [point])])
}

/// The parts that must be the same: all that Prometheus can store. It can't store the unit of a name without one, least
/// and greatest values, whole numbers, sums that may fall and nanoseconds; the time is that of the scrape.
fn as_prometheus_stores(point: &Point) -> String {
    let series = &point.series;
    let value = match &point.value {
        Value::Int(number) => Value::Double(*number as f64),
        Value::ExponentialHistogram(histogram) => {
            Value::ExponentialHistogram(Box::new(ExponentialHistogram {
                zero_threshold: histogram.zero_threshold.max(1e-128),
                ..(**histogram).clone()
            }))
        }
        other => other.clone(),
    };
    let data = match series.metric.data {
        Data::Sum { monotonic: false, .. } => Data::Gauge,
        data => data,
    };
    let millis = |nanos: u64| nanos / 1_000_000;
    let exemplars = point.exemplars.iter().map(|exemplar| Exemplar {
        time: millis(exemplar.time),
        ..exemplar.clone()
    });
    format!(
        "{} {:?} {data:?} {:?} {:?} {value:?} since {} {:?}",
        series.metric.name,
        series.metric.description,
        series.scope,
        series.attributes,
        millis(point.start),
        exemplars.collect::<Vec<_>>(),
    )
}

/// All that the points say, in an order of its own: the page's is that of its families' names.
fn shown(points: &[Point]) -> Vec<String> {
    let mut shown: Vec<String> = points.iter().map(|point| format!("{point:?}")).collect();
    shown.sort();
    shown
}

/// Without what an exposition can't say and its reader must fill in: blanks before a HELP text, which are what separates
/// it from the name; exemplars without a time, or with identifiers that are none; counts that no double holds. And without a second `target_info`.
fn sayable(request: &ExportMetricsServiceRequest) -> ExportMetricsServiceRequest {
    let mut request = request.clone();
    let scopes = request
        .resource_metrics
        .iter_mut()
        .flat_map(|resource| &mut resource.scope_metrics);
    for metric in scopes.flat_map(|scope| &mut scope.metrics) {
        metric.description = metric.description.trim_start_matches([' ', '\t']).to_owned();
        limit_counts(metric);
        metric.name = metric.name.replace("target", "t");
        // The word of an unknown unit may be read as another one, as "ratio" is as 1, which has no word.
        if metric.unit == "ratio" || !UNITS.contains(&metric.unit.as_str()) {
            metric.unit.clear();
        }
        for exemplar in exemplars(metric) {
            exemplar.time_unix_nano = exemplar.time_unix_nano.max(1_000_000);
            keep_valid(&mut exemplar.trace_id, 16);
            keep_valid(&mut exemplar.span_id, 8);
        }
    }
    request
}

fn keep_valid(id: &mut Vec<u8>, bytes: usize) {
    if id.len() != bytes || id.iter().all(|byte| *byte == 0) {
        id.clear();
    }
}

fn exemplars(metric: &mut Metric) -> Vec<&mut otlp::Exemplar> {
    match &mut metric.data {
        Some(otlp::metric::Data::Sum(sum)) => sum
            .data_points
            .iter_mut()
            .flat_map(|point| &mut point.exemplars)
            .collect(),
        Some(otlp::metric::Data::Histogram(histogram)) => histogram
            .data_points
            .iter_mut()
            .flat_map(|point| &mut point.exemplars)
            .collect(),
        Some(otlp::metric::Data::ExponentialHistogram(histogram)) => histogram
            .data_points
            .iter_mut()
            .flat_map(|point| &mut point.exemplars)
            .collect(),
        _ => Vec::new(),
    }
}

fn limit_counts(metric: &mut Metric) {
    /// The sum of some hundreds of them is a whole number as a double.
    const MOST: u64 = 1 << 40;
    let limit = |count: &mut u64| *count %= MOST;
    match &mut metric.data {
        Some(otlp::metric::Data::Histogram(histogram)) => {
            histogram.data_points.iter_mut().for_each(|point| {
                limit(&mut point.count);
                point.bucket_counts.iter_mut().for_each(limit);
            });
        }
        Some(otlp::metric::Data::ExponentialHistogram(histogram)) => {
            histogram.data_points.iter_mut().for_each(|point| {
                limit(&mut point.count);
                limit(&mut point.zero_count);
                let sides = [&mut point.positive, &mut point.negative].into_iter().flatten();
                sides.flat_map(|side| &mut side.bucket_counts).for_each(limit);
            });
        }
        Some(otlp::metric::Data::Summary(summary)) => summary
            .data_points
            .iter_mut()
            .for_each(|point| limit(&mut point.count)),
        _ => {}
    }
}
