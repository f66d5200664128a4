// SPDX-License-Identifier: Apache-2.0

//! Readers of expositions accept the pages that the `prometheus` exporter makes of any OTLP metrics.
//!
//! More cases than the usual ones: see [`super::kit::cases`].

use super::kit::any_metrics::{any_request, bytes_of};
use super::kit::cases::{for_cases, some_cases};
use super::kit::exposer::{Exposer, Exposers};
use super::kit::pages::{Page, Pages};
use super::kit::prometheus::is_scraped;
use super::kit::script::Parser;
use super::kit::{Prometheus, Release, http, promtool_reads, wait_for};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// The formats that a scraper asks for, and the way that prometheus_client reads the answer.
const TEXTS: [(&str, &str); 6] = [
    ("text", ""),
    ("text", "text/plain;version=1.0.0;escaping=allow-utf-8"),
    ("text", "text/plain;version=1.0.0;escaping=values"),
    ("text", "text/plain;version=1.0.0;escaping=dots"),
    ("openmetrics", "application/openmetrics-text;version=1.0.0"),
    (
        "openmetrics",
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8",
    ),
];

const OPTIONS: &[&str] = &[
    "",
    "",
    "",
    "namespace: ns",
    "namespace: 'a.b'",
    "add_metric_suffixes: false",
    "translation_strategy: NoTranslation",
    "translation_strategy: NoUTF8EscapingWithSuffixes, namespace: 'a.b'",
    "translation_strategy: NoUTF8EscapingWithSuffixes, resource_constant_labels: {included: ['*']}",
    "send_timestamps: true",
    "resource_to_telemetry_conversion: {enabled: true}",
    "without_scope_info: true",
    "const_labels: {a: b, 'a.b': \"c\\n\\\"\"}",
    "const_labels: {job: x, otel_scope_name: y}",
    "without_scope_info: true, resource_to_telemetry_conversion: {enabled: true}, add_metric_suffixes: false",
];

/// The options of an exporter and what it gets, one request after the other.
#[derive(Clone, Debug)]
struct Case {
    options: &'static str,
    requests: Vec<ExportMetricsServiceRequest>,
}

fn any_case() -> impl Strategy<Value = Case> {
    let requests = prop_oneof![3 => vec(any_request(), 1), 1 => vec(any_request(), 2..4)];
    (select(OPTIONS), requests).prop_map(|(options, requests)| Case { options, requests })
}

/// Starts the case's exporter, pushes its requests, and has `look` see it after each.
fn expose(
    exposers: &Exposers,
    case: &Case,
    mut look: impl FnMut(&Exposer<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let exposer = exposers.start(&format!("enable_open_metrics: true, {}", case.options));
    case.requests.iter().try_for_each(|request| {
        exposer.push(bytes_of(request));
        look(&exposer)
    })
}

#[test]
fn the_parsers_accept_every_exposition() {
    let (exposers, parser) = (Exposers::default(), RefCell::new(Parser::start()));
    let (pages, samples) = (Cell::new(0), Cell::new(0));
    let formats = || (0..TEXTS.len(), 1..TEXTS.len());
    for_cases(1_500, &(any_case(), formats()), |(case, (one, further))| {
        expose(&exposers, case, |exposer| {
            for (form, accept) in [TEXTS[*one], TEXTS[(one + further) % TEXTS.len()]] {
                let page = exposer.scrape(accept);
                let found = parser.borrow_mut().parse(form, &page.body);
                let found = found
                    .map_err(|why| format!("{accept}: {why}\n{}", String::from_utf8_lossy(&page.body)))?;
                let lines = page
                    .body
                    .split(|byte| *byte == b'\n')
                    .filter(|line| is_sample(line));
                let lines = lines.count() as u64;
                if found != lines {
                    let page = String::from_utf8_lossy(&page.body);
                    return Err(format!("{accept}: {found} samples, not {lines}\n{page}"));
                }
                pages.set(pages.get() + 1);
                samples.set(samples.get() + found);
            }
            Ok(())
        })
    });
    println!("{} pages with {} samples", pages.get(), samples.get());
    assert!(samples.get() > pages.get(), "most pages show something");
}

fn is_sample(line: &[u8]) -> bool {
    !line.is_empty() && !line.starts_with(b"#")
}

/// The formats that real servers scrape: a name for the path, the accepted type, and whether only the newest server
/// reads it.
const SERVED: [(&str, &str, bool); 6] = [
    ("text", "text/plain;version=0.0.4", false),
    ("openmetrics", "application/openmetrics-text;version=1.0.0", false),
    ("protobuf", PROTOBUF, false),
    ("text-utf8", "text/plain;version=1.0.0;escaping=allow-utf-8", true),
    (
        "openmetrics-utf8",
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8",
        true,
    ),
    (
        "protobuf-utf8",
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;escaping=allow-utf-8",
        true,
    ),
];

const PROTOBUF: &str =
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

/// A scrape of every page must begin within this time.
const SCRAPE_INTERVAL_S: usize = 5;

#[test]
fn real_servers_accept_every_exposition() {
    let (exposers, pages) = (Exposers::default(), Pages::start());
    let cases = some_cases(50, &any_case());
    for (number, case) in cases.iter().enumerate() {
        let exposer = exposers.start(&format!("enable_open_metrics: true, {}", case.options));
        case.requests
            .iter()
            .for_each(|request| exposer.push(bytes_of(request)));
        for (format, accept, _) in SERVED {
            pages.show(&format!("/{format}/{number}"), Page::from(exposer.scrape(accept)));
        }
    }
    std::thread::scope(|scope| {
        for release in Release::ALL {
            let (pages, cases) = (&pages, &cases);
            scope.spawn(move || the_server_accepts(release, pages, cases));
        }
    });
}

/// Has a server scrape each page once, and look what it says.
fn the_server_accepts(release: Release, pages: &Pages, cases: &[Case]) {
    let formats = SERVED
        .iter()
        .filter(|(_, _, newest)| release == Release::Newest || !newest);
    let paths: Vec<String> = formats
        .flat_map(|(format, _, _)| (0..cases.len()).map(move |number| format!("/{format}/{number}")))
        .collect();
    let server = Prometheus::start_release(release, &scrape_config(release, pages.port(), &paths));
    let deadline = Duration::from_secs(120 + paths.len() as u64 / 50);
    let targets = wait_for(deadline, "every page is scraped", || {
        let targets = server.targets().as_array().cloned().unwrap_or_default();
        let scraped = targets.iter().filter(|target| is_scraped(target)).count();
        (scraped == paths.len()).then_some(targets)
    });
    let refused = targets.iter().find(|target| target["health"] != "up");
    if let Some(target) = refused {
        let path = target["discoveredLabels"]["__metrics_path__"]
            .as_str()
            .expect("a path");
        let number: usize = path
            .rsplit('/')
            .next()
            .and_then(|number| number.parse().ok())
            .expect("a case");
        let page = http::get(pages.port(), path).expect("the page").body;
        panic!(
            "{release:?} refuses {path}: {}\n{}\n{:#?}",
            target["lastError"],
            String::from_utf8_lossy(&page),
            cases[number]
        );
    }
    let log = server.log();
    let page_of = |line: &str| Some(http::get(pages.port(), blamed(line)?).ok()?.body);
    let unforeseen = sample_errors(&log).into_iter().find(|line| {
        let is_of_exemplars = line.contains("out-of-order exemplars");
        !(is_of_exemplars && page_of(line).is_some_and(|page| has_nan_exemplar(&page)))
    });
    if let Some(line) = unforeseen {
        let page = page_of(line).unwrap_or_default();
        panic!("{release:?}:\n{line}\n{}", page.escape_ascii());
    }
    let samples = server.value("sum(scrape_samples_scraped)").unwrap_or_default();
    println!("{release:?}: {} pages with {samples} samples", paths.len());
    assert!(samples > paths.len() as f64, "most pages show something");
}

fn scrape_config(release: Release, port: u16, paths: &[String]) -> String {
    let target = |path: &String| {
        format!(
            "  - {{targets: ['127.0.0.1:{port}'], labels: {{__metrics_path__: '{path}', page: '{path}'}}}}\n"
        )
    };
    let interval = SCRAPE_INTERVAL_S.max(paths.len() / 100);
    format!(
        "global: {{{}scrape_interval: {interval}s, scrape_timeout: {interval}s}}
scrape_configs:
- job_name: cases
  # Times of some page would move the time from which the server's storage takes samples, for all pages.
  honor_timestamps: false
  static_configs:
{}",
        release.native_histograms(),
        paths.iter().map(target).collect::<String>()
    )
}

/// The messages of a server about single samples while the scrape itself succeeds. The source is responsible for times
/// that are too far away.
fn sample_errors(log: &str) -> Vec<&str> {
    let of_times = |line: &&str| {
        line.contains("too old or are too far into the future") || line.contains("out-of-order samples")
    };
    log.lines().filter(|line| !of_times(line)).collect()
}

/// The path of the page that a line of the log is about.
fn blamed(line: &str) -> Option<&str> {
    let (_, target) = line.split_once("target=http://")?;
    let path = &target[target.find('/')?..];
    path.split([' ', '"']).next()
}

/// Whether an exemplar is not a number: older servers, who find none equal to it, take it for another one of the same time
/// when they scrape the page again.
fn has_nan_exemplar(page: &[u8]) -> bool {
    let has = |part: &[u8]| page.windows(part.len()).any(|window| window == part);
    // Field 2 of an `Exemplar` message. The sign may be either.
    let messages = [0x7f, 0xff].map(|sign| [2 << 3 | 1, 0, 0, 0, 0, 0, 0, 0xf8, sign]);
    has(b"} NaN") || messages.iter().any(|message| has(message))
}

#[test]
fn promtool_reads_every_exposition() {
    let exposers = Exposers::default();
    let cases = some_cases(20, &any_case());
    for case in &cases[..cases.len().min(MAX_PROMTOOLS)] {
        let read = expose(&exposers, case, |exposer| {
            let page = exposer.scrape("text/plain;version=0.0.4");
            let text = String::from_utf8(page.body).map_err(|error| error.to_string())?;
            let read = |release| promtool_reads(release, &text);
            Release::ALL
                .into_iter()
                .try_for_each(read)
                .map_err(|why| format!("{why}\n{text}"))
        });
        read.unwrap_or_else(|why| panic!("{why}\n{case:#?}"));
    }
}

/// Each costs two processes: more than this tell nothing more.
const MAX_PROMTOOLS: usize = 1_000;
