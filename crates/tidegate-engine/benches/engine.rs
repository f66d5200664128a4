// SPDX-License-Identifier: Apache-2.0

//! The cost of a NIXL event: folded into counters, gauges and histograms, and observed by composites. (`cargo xtask
//! bench engine` measures many series.)

#![allow(clippy::unwrap_used, reason = "a benchmark fails by a panic")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tidegate_engine::{
    AttributeFilter, Attributes, Composite, CompositeSet, Declaration, EventKind, Events, Function, Grouping,
    Instrument, Lease, Limits, OnStale, Pattern, Rule, Schema, Source, SourceId, Table, Values,
};

const NOW: u64 = 1_700_000_000_000_000_000;

/// Events a batch: what NIXL flushes at most.
const BATCH: usize = 4095;

const BOUNDS: [f64; 18] = [
    10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 2.5e4, 5e4, 1e5, 2.5e5, 5e5, 1e6, 5e6, 1e7,
];

fn rule(name: &str, output: &str, instrument: Instrument, by: &[&str]) -> Rule {
    Rule {
        output: Some(output.into()),
        instrument: Some(instrument),
        grouping: Grouping::by(by.iter().copied()),
        bounds: Some(Arc::from(BOUNDS)),
        ..Rule::new(Pattern::parse(name).unwrap())
    }
}

fn kind(name: String) -> EventKind {
    EventKind {
        name: name.into(),
        description: "".into(),
        unit: "".into(),
        instrument: Instrument::Counter,
        attributes: Attributes::default(),
    }
}

fn source(number: usize) -> Arc<Source> {
    Arc::new(Source {
        id: SourceId::next(),
        resource: Arc::default(),
        scope: Arc::default(),
        attributes: [
            ("agent_name", format!("agent_{number}")),
            ("hostname", "vm".to_owned()),
        ]
        .into_iter()
        .collect(),
        lease: Arc::new(Lease::new(Duration::from_hours(1), NOW)),
    })
}

/// A small generator of numbers, so that every run sees the same.
fn scatter(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}

fn batch(source: &Arc<Source>, schema: &Arc<Schema>, kinds: impl Iterator<Item = u16>, seed: u64) -> Events {
    let mut next = scatter(seed);
    let kinds: Vec<u16> = kinds.take(BATCH).collect();
    Events {
        source: source.clone(),
        schema: schema.clone(),
        values: Values::U64(kinds.iter().map(|_| next() % 100_000).collect()),
        kinds,
        times: None,
        weights: None,
        observed: NOW,
    }
}

/// Eight NIXL agents: of each transfer its bytes, its count and two times, by agent and by node, with histograms.
fn nixl(c: &mut Criterion) {
    let names = [
        "tx_bytes",
        "rx_bytes",
        "tx_requests",
        "rx_requests",
        "registered",
        "deregistered",
        "xfer_time",
        "post_time",
    ];
    let schema = Arc::new(Schema {
        kinds: names.iter().map(|name| kind((*name).to_owned())).collect(),
    });
    let mut rules = vec![
        rule("*", "total", Instrument::Counter, &["agent_name", "hostname"]),
        rule("*", "node", Instrument::Counter, &["hostname"]),
        rule("*", "last", Instrument::Gauge, &["agent_name", "hostname"]),
    ];
    rules.push(rule(
        "*_time",
        "us",
        Instrument::Histogram,
        &["agent_name", "hostname"],
    ));
    let table = Table::new("bench", rules, Limits::default());
    let sources: Vec<_> = (0..8).map(source).collect();
    let of_transfer = [7u16, 6, 0, 2].into_iter().cycle();
    let batches: Vec<Events> = sources
        .iter()
        .enumerate()
        .map(|(n, source)| batch(source, &schema, of_transfer.clone(), n as u64))
        .collect();
    let mut group = c.benchmark_group("events");
    group.throughput(Throughput::Elements((8 * BATCH) as u64));
    group.bench_function("8 sources into counters, gauges, histograms", |b| {
        b.iter(|| {
            for events in &batches {
                black_box(table.absorb(events));
            }
            table.read(NOW, &mut |reading| _ = black_box(reading));
        });
    });
    let set = CompositeSet::new((0..4).map(|_| Arc::new(Composite::new(declaration()))).collect());
    group.bench_function("8 sources past four composites", |b| {
        b.iter(|| batches.iter().for_each(|events| set.observe_events(events)));
    });
    group.finish();
}

fn declaration() -> Declaration {
    Declaration {
        name: "avg".into(),
        description: "".into(),
        metric: Pattern::parse("xfer_time").unwrap(),
        attributes: AttributeFilter::default(),
        expression: None,
        function: Function::Avg,
        quantiles: Arc::default(),
        on_stale: OnStale::Error,
        window: Duration::from_secs(10),
        grouping: Grouping::by(["agent_name"]),
        max_groups: 1000,
        across: None,
        lease: Some(Duration::from_secs(90)),
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    targets = nixl
}
criterion_main!(benches);
