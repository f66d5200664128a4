// SPDX-License-Identifier: Apache-2.0

//! Pages of all formats, right and wrong, scraped by real Prometheus servers: what they store of a page, or that they
//! refuse it, is what the parser says of it.
//!
//! The pages are a list (`tests/data/exposition`) and as many more as a mutator makes of it; protobuf pages are made
//! here. Where a release differs on purpose or by its age, the list says so, and that it still differs is checked.

use std::collections::BTreeMap;

use tidegate_exposition::{Counts, Event, Format, Labels, MetricType, Options, Parser, Problem, parse_float};

use super::kit::pages::{Page, Pages};
use super::kit::prometheus::is_scraped;
use super::kit::{Prometheus, Release, SOON, cases, wait_for};

mod families;
mod mutate;
mod up;

const TEXT: &str = include_str!("../data/exposition/text.txt");
const OPEN_METRICS: &str = include_str!("../data/exposition/openmetrics.txt");

/// A page, and which release takes it for something else.
#[derive(Clone, Debug)]
struct Case {
    format: Format,
    page: Vec<u8>,
    differs: Option<Release>,
}

/// Labels of a series.
type Series = BTreeMap<String, String>;

/// The values of a series with their times, where the page says when.
type TimedValues = BTreeMap<Series, Vec<(Option<i64>, f64)>>;

/// The cases of a list, with the time filled in.
fn listed(format: Format, list: &str, now: i64) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut differs = None;
    for line in list.lines() {
        if let Some(remark) = line.strip_prefix(";; ") {
            differs = remark.starts_with("2.42: ").then_some(Release::Stable);
            differs = differs.or(remark.starts_with("3: ").then_some(Release::Newest));
            continue;
        }
        cases.push(Case {
            format,
            page: page(line, now),
            differs: differs.take(),
        });
    }
    cases
}

/// The bytes that a line of a list stands for.
fn page(line: &str, now: i64) -> Vec<u8> {
    let mut page = Vec::new();
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '␤' => page.push(b'\n'),
            '␉' => page.push(b'\t'),
            '␍' => page.push(b'\r'),
            '␀' => page.push(0),
            '⟨' => {
                let (name, behind) = rest.split_once('⟩').expect("a closing bracket");
                rest = behind;
                match name {
                    "ms" => page.extend(now.to_string().bytes()),
                    "s" => page.extend((now / 1000).to_string().bytes()),
                    byte => page.push(u8::from_str_radix(byte, 16).expect("two digits")),
                }
            }
            c => page.extend(c.to_string().bytes()),
        }
    }
    page
}

/// The result of our parser and the rules of a scrape for a page; `None` if the page fails.
fn ours(case: &Case) -> Option<TimedValues> {
    /// Times that a server stores, in milliseconds around now.
    const OLDEST: i64 = 30 * 60_000;
    const NEWEST: i64 = 10 * 60_000;
    let mut said = TimedValues::new();
    let mut labels = Labels::default();
    let mut kind = MetricType::Unknown;
    if case.page.is_empty() {
        // Without a byte there is nothing that could be missing at the end.
        return Some(said);
    }
    let mut parser = Parser::new(case.format, &case.page, Options::default());
    loop {
        match parser.next(b"").ok()? {
            None => {
                said.retain(|_, values| !values.is_empty());
                return Some(said);
            }
            Some(Event::Type { kind: now, .. }) => kind = now,
            Some(Event::Sample(sample)) => {
                sample.series.labels(&mut labels).ok()?;
                let mut series = Series::new();
                // A label that is empty once does not count, even if it also has a value.
                let empty: Vec<&str> = labels
                    .iter()
                    .filter(|label| label.1.is_empty())
                    .map(|label| label.0)
                    .collect();
                for (name, value) in labels.iter().filter(|(name, _)| !empty.contains(name)) {
                    let value = bound(kind, name, value);
                    if series.insert(name.to_owned(), value).is_some() {
                        return None;
                    }
                }
                let values = said.entry(series).or_default();
                let is_stored = |time: i64| (now() - OLDEST..=now() + NEWEST).contains(&time);
                if !sample.timestamp.is_none_or(is_stored) {
                    continue;
                }
                // Of two samples of one time the first counts, and none counts that is before another one. One without
                // a time is of the time of the scrape.
                let order = |time: Option<i64>| time.unwrap_or(i64::MAX);
                let last = values.last().map(|(time, _)| order(*time));
                if last.is_none_or(|last| last < order(sample.timestamp)) {
                    values.push((sample.timestamp, sample.value));
                }
            }
            Some(Event::Histogram(histogram)) => {
                histogram.series.labels(&mut labels).ok()?;
                let series = labels
                    .iter()
                    .map(|(name, value)| (name.to_owned(), value.to_owned()));
                let value = match histogram.value.counts {
                    Counts::Integer => histogram.value.count as f64,
                    Counts::Float => histogram.value.count_float,
                };
                let values = said.entry(series.collect()).or_default();
                if values.is_empty() {
                    values.push((histogram.timestamp, value));
                }
            }
            Some(Event::Help { .. } | Event::Unit { .. }) => {}
        }
    }
}

/// A label's value, a bound as a number: releases spell these in more than one way.
fn bound(kind: MetricType, name: &str, value: &str) -> String {
    let is_bound = matches!(
        (kind, name),
        (MetricType::Summary, "quantile") | (MetricType::Histogram, "le")
    );
    match parse_float(value.as_bytes()).filter(|_| is_bound || name == "le" || name == "quantile") {
        Some(number) => format!("{number:?}"),
        None => value.to_owned(),
    }
}

/// The samples that a server has stored of each target; `None` if its scrape failed.
fn theirs(release: Release, cases: &[Case]) -> Vec<Option<TimedValues>> {
    let pages = Pages::start();
    for (at, case) in cases.iter().enumerate() {
        let content_type = match case.format {
            Format::Text => "text/plain; version=0.0.4",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0",
            Format::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        };
        let page = Page {
            content_type: content_type.to_owned(),
            body: case.page.clone(),
        };
        pages.show(&format!("/{at}"), page);
    }
    let targets: String = (0..cases.len())
        .map(|at| {
            let port = pages.port();
            format!("      - {{targets: ['127.0.0.1:{port}'], labels: {{__metrics_path__: /{at}, case: '{at}'}}}}\n")
        })
        .collect();
    let native = release.native_histograms();
    let config = format!(
        "global: {{scrape_interval: 5s, scrape_timeout: 5s}}\nscrape_configs:\n  - {{job_name: pages, {native}\
         static_configs: [\n{}]}}\n",
        targets.replace("      - ", "      ").replace('\n', ",\n")
    );
    let prometheus = Prometheus::start_release(release, &config);
    let targets = wait_for(SOON, "every target is scraped", || {
        let targets = prometheus.targets().as_array()?.clone();
        (targets.len() == cases.len() && targets.iter().all(is_scraped)).then_some(targets)
    });
    let mut said: Vec<Option<TimedValues>> = vec![None; cases.len()];
    let case_of = |labels: &serde_json::Value| {
        labels["case"]
            .as_str()
            .and_then(|case| case.parse::<usize>().ok())
    };
    for target in &targets {
        if target["health"] == "up" {
            said[case_of(&target["labels"]).expect("a case")] = Some(TimedValues::new());
        }
    }
    for series in prometheus.samples("{job=\"pages\"}", "1h") {
        let labels = series["metric"].as_object().expect("labels");
        let own = labels
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default()));
        let reports = ["up", "scrape_", "__name__"];
        let name = series["metric"]["__name__"].as_str().unwrap_or_default();
        if name == reports[0] || name.starts_with(reports[1]) {
            continue;
        }
        let own = own.filter(|(name, _)| !["job", "instance", "case"].contains(&name.as_str()));
        let own: Series = own
            .map(|(name, value)| {
                let value = bound(MetricType::Histogram, &name, value);
                (name, value)
            })
            .collect();
        let at = case_of(&series["metric"]).expect("a case");
        let said = said[at].get_or_insert_default();
        let mut values = Vec::new();
        for value in series["values"].as_array().into_iter().flatten() {
            values.push((
                value[0].as_f64(),
                value[1].as_str().and_then(|value| value.parse().ok()),
            ));
        }
        for value in series["histograms"].as_array().into_iter().flatten() {
            let count = value[1]["count"].as_str().and_then(|value| value.parse().ok());
            values.push((value[0].as_f64(), count));
        }
        let values = values.into_iter().map(|(time, value)| {
            let millis = (time.expect("a time") * 1000.0).round() as i64;
            (Some(millis), value.expect("a number"))
        });
        said.entry(own).or_default().extend(values);
    }
    said
}

/// Whether what a server has stored is what we say. It may have scraped the page more than once. `began`: the time before the
/// first scrape. A server drops a sample of its own time after one that is later, such as a mutated time.
fn agree(ours: Option<&TimedValues>, theirs: Option<&TimedValues>, began: i64) -> bool {
    let (Some(ours), Some(theirs)) = (ours, theirs) else {
        return ours.is_none() && theirs.is_none();
    };
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    ours.len() == theirs.len()
        && ours.iter().all(|(series, ours)| {
            let Some(theirs) = theirs.get(series) else {
                return false;
            };
            let stored = |time: i64, value: f64| {
                theirs
                    .iter()
                    .any(|(at, theirs)| *at == Some(time) && same(*theirs, value))
            };
            let (timed, untimed): (Vec<_>, Vec<_>) = ours.iter().partition(|(time, _)| time.is_some());
            let said = |at: Option<i64>| timed.iter().any(|(time, _)| *time == at);
            let is_dropped = timed.iter().any(|(time, _)| *time >= Some(began));
            let mut scraped = theirs.iter().filter(|(at, _)| !said(*at)).peekable();
            timed
                .iter()
                .all(|(time, value)| stored(time.unwrap_or_default(), *value))
                && (is_dropped || scraped.peek().is_some() != untimed.is_empty())
                && scraped.all(|(_, value)| untimed.iter().all(|(_, ours)| same(*ours, *value)))
        })
}

fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("a clock").as_millis() as i64
}

/// # Panics
/// With all cases that a release takes otherwise, and all that it should take otherwise and does not.
fn compare(release: Release, cases: &[Case]) {
    let began = now();
    let theirs = theirs(release, cases);
    let mut wrong = String::new();
    for (case, theirs) in cases.iter().zip(&theirs) {
        let ours = ours(case);
        if agree(ours.as_ref(), theirs.as_ref(), began) == (case.differs == Some(release)) {
            let page = String::from_utf8_lossy(&case.page);
            let listed = if case.differs == Some(release) {
                " (listed as a difference)"
            } else {
                ""
            };
            wrong += &format!(
                "{:?} {page:?}{listed}\n  ours   {ours:?}\n  theirs {theirs:?}\n",
                case.format
            );
        }
    }
    assert!(wrong.is_empty(), "{release:?}, {} pages:\n{wrong}", cases.len());
}

fn all_listed() -> Vec<Case> {
    let now = now();
    let mut cases = listed(Format::Text, TEXT, now);
    cases.extend(listed(Format::OpenMetrics, OPEN_METRICS, now));
    cases
}

#[test]
fn pages_are_worth_what_the_newest_prometheus_makes_of_them() {
    compare(Release::Newest, &all_listed());
}

#[test]
fn pages_are_worth_what_an_old_prometheus_makes_of_them() {
    compare(Release::Stable, &all_listed());
}

#[test]
fn protobuf_pages_are_worth_what_prometheus_makes_of_them() {
    compare(Release::Newest, &families::cases());
}

#[test]
fn mutated_pages_are_worth_what_prometheus_makes_of_them() {
    let listed = all_listed();
    let mut mutated = cases::some_cases(300, &mutate::of(listed));
    mutated.retain(|case| !ends_prometheus(case));
    compare(Release::Newest, &mutated);
}

/// A name without quotes in braces, where none should be, is what Prometheus 3.5 may end by.
fn ends_prometheus(case: &Case) -> bool {
    let mut parser = Parser::new(case.format, &case.page, Options::default());
    let mut labels = Labels::default();
    let outcome = loop {
        match parser.next(b"") {
            Ok(Some(Event::Sample(sample))) => match sample.series.labels(&mut labels) {
                Ok(()) => {}
                Err(error) => break Err(error),
            },
            Ok(Some(_)) => {}
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    outcome.is_err_and(|error| *error.problem() == Problem::ExpectedEqual)
}
