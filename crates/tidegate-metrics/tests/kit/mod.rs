// SPDX-License-Identifier: Apache-2.0

//! A component that knows nothing of registries, and how to read a page back.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test uses a part of it"
)]

use std::collections::BTreeMap;

use tidegate_exposition::{Event, Format, Labels, Options, Parser};
use tidegate_metrics::{
    Counter, CounterFamily, FloatCounter, Gauge, Histogram, HistogramFamily, LabelSet, MetricSet,
    MetricsRegistry, UpDownCounter,
};

#[derive(LabelSet)]
pub struct Outcome {
    #[label(name = "code")]
    pub status: u16,
    pub method: &'static str,
}

/// One of each.
#[derive(MetricSet)]
#[metrics(prefix = "service", labels(model))]
pub struct Service {
    /// Requests processed.
    pub requests: Counter,
    /// Answers by outcome.
    #[metric(labels = Outcome)]
    pub answers: CounterFamily,
    /// Joules used.
    #[metric(name = "energy", unit = "J")]
    pub joules: FloatCounter,
    /// Connections
    /// that are open.
    pub open: UpDownCounter,
    /// Share of the cache in use.
    #[metric(unit = "1", mode = LiveMax)]
    pub cache: Gauge,
    /// Time to the first token.
    #[metric(unit = "s", buckets = [0.1, 0.5, 1.0], exemplars)]
    pub ttft: Histogram,
    /// Bytes of a transfer.
    #[metric(unit = "By", exponential, labels(direction))]
    pub transfers: HistogramFamily,
    #[metric(nested)]
    pub queue: Queue,
}

#[derive(MetricSet)]
#[metrics(prefix = "queue")]
pub struct Queue {
    /// How much waits.
    pub depth: Gauge,
}

/// The work of the component. All numbers are exact in binary, so they are equal in every format.
pub fn work(registry: &dyn MetricsRegistry) -> Service {
    let service = Service::register(registry, &[("model", "a \"model\"\\\n")]).unwrap();
    for at in 0..10u16 {
        service.requests.inc();
        let outcome = Outcome {
            status: if at < 7 { 200 } else { 503 },
            method: "GET",
        };
        service.answers.of(&outcome).inc();
        service.joules.add(0.25);
        service.open.inc();
        service.ttft.observe(f64::from(at) / 8.0);
        service.transfers.with(&["out"]).observe(f64::from(1 << at));
    }
    service.open.add(-4);
    service.cache.set(0.75);
    service.queue.depth.set(5.0);
    service.queue.depth.dec();
    service
}

pub const MODEL: &str = "a \"model\"\\\n";

/// A page: samples by name and labels.
pub fn samples(page: &str) -> BTreeMap<String, f64> {
    let format = if page.ends_with("# EOF\n") {
        Format::OpenMetrics
    } else {
        Format::Text
    };
    let mut parser = Parser::new(format, page.as_bytes(), Options::default());
    let mut labels = Labels::default();
    let mut all = BTreeMap::new();
    while let Some(event) = parser.next(b"").unwrap_or_else(|error| panic!("{error}\n{page}")) {
        if let Event::Sample(sample) = event {
            sample.series.labels(&mut labels).unwrap();
            let mut pairs: Vec<_> = labels.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
            let name = pairs.iter().position(|(key, _)| key == "__name__").unwrap();
            let name = pairs.remove(name).1;
            for (_, bound) in pairs.iter_mut().filter(|(key, _)| key == "le") {
                // OpenMetrics wants a point in it.
                *bound = bound.trim_end_matches(".0").to_owned();
            }
            pairs.sort();
            let shown: Vec<_> = pairs.iter().map(|(k, v)| format!("{k}={v:?}")).collect();
            let old = all.insert(format!("{name}{{{}}}", shown.join(",")), sample.value);
            assert_eq!(old, None, "{name} {pairs:?} is there twice\n{page}");
        }
    }
    all
}

/// The numbers on a registry's page after [`work`], other than the buckets of the exponential histogram.
pub fn expected() -> BTreeMap<String, f64> {
    let model = format!("model={MODEL:?}");
    let with = |before: &str, after: &str| {
        let mut all: Vec<&str> = [before, &model, after]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        all.sort_unstable();
        all.join(",")
    };
    let plain = [
        ("service_requests_total", 10.0),
        ("service_energy_joules_total", 2.5),
        ("service_open", 6.0),
        ("service_cache_ratio", 0.75),
        ("service_ttft_seconds_sum", 5.625),
        ("service_ttft_seconds_count", 10.0),
        ("service_queue_depth", 4.0),
    ];
    let mut all: BTreeMap<String, f64> = plain
        .iter()
        .map(|(name, value)| (format!("{name}{{{}}}", with("", "")), *value))
        .collect();
    for (code, value) in [("200", 7.0), ("503", 3.0)] {
        let code = format!("code={code:?}");
        let labels = format!("{code},method=\"GET\",{model}");
        all.insert(format!("service_answers_total{{{labels}}}"), value);
    }
    for (bound, value) in [("0.1", 1.0), ("0.5", 5.0), ("1", 9.0), ("+Inf", 10.0)] {
        let labels = with(&format!("le={bound:?}"), "");
        all.insert(format!("service_ttft_seconds_bucket{{{labels}}}"), value);
    }
    let out = with("direction=\"out\"", "");
    all.insert(format!("service_transfers_bytes_sum{{{out}}}"), 1023.0);
    all.insert(format!("service_transfers_bytes_count{{{out}}}"), 10.0);
    all
}

/// Checks a page against [`expected`].
pub fn check_page(page: &str) {
    let mut told = samples(page);
    let is_bucket = |name: &str| name.starts_with("service_transfers_bytes_bucket");
    // Values are powers of two, which are the bounds: each adds one.
    let bound = |bound: &str| {
        let wanted = format!("le={bound:?}");
        let found = told
            .iter()
            .find(|(name, _)| is_bucket(name) && name.contains(&wanted));
        found.map(|(_, value)| *value)
    };
    assert_eq!(bound("16"), Some(5.0), "{page}");
    assert_eq!(bound("+Inf"), Some(10.0), "{page}");
    told.retain(|name, _| !is_bucket(name));
    assert_eq!(told, expected(), "{page}");
}
