// SPDX-License-Identifier: Apache-2.0

//! The aggregation engine by itself: what an event and a point of a known series cost, what a series and a sample of the
//! past take; and, of a gateway that holds many series, how long a query takes.

mod beside;
mod queries;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use tidegate_engine::{
    AttributeFilter, Attributes, Composite, CompositeSet, Data, Declaration, EventKind, Events, Function,
    Grouping, Instrument, Key, Lease, Limits, Metric, OnStale, Pattern, PointSample, Rule, Schema, Series,
    Source, SourceId, Table, Temporality, Value, Values,
};
use tidegate_promql::{History, HistoryLimits};

use self::queries::queries;
use crate::BenchError;
use crate::report::{Budget, Row};
use crate::selection;
use crate::stats::Samples;

pub(super) const NOW: u64 = 1_700_000_000_000_000_000;
/// Events a batch: what NIXL flushes at most.
const BATCH: usize = 4095;
/// Kinds of one source.
const KINDS: usize = 50_000;
const RUNS: usize = 21;
/// Series, and the budgets of dense events and of points by identity, in ns; not of all there is one.
const SIZES: [(usize, f64, Option<f64>); 3] = [
    (1_000, 8.0, None),
    (100_000, 12.0, Some(60.0)),
    (1_000_000, 25.0, None),
];
const BYTES_A_SERIES: f64 = 400.0;
const BYTES_A_SAMPLE: f64 = 4.0;
const READ_BUDGET_US: f64 = 200.0;
const EVENTS: &str = "events";

/// The job that measures queries beside Prometheus.
const BESIDE: &str = "beside";

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, BenchError> {
    let asked = selection::get();
    if let Some(unknown) = asked.jobs("engine").find(|job| *job != BESIDE) {
        return Err(format!("no job `{unknown}`; there is: {BESIDE}").into());
    }
    let mut rows = match asked.jobs("engine").next() {
        None => by_itself(binary)?,
        Some(_) => Vec::new(),
    };
    let beside = beside::run(binary)?.into_iter();
    rows.extend(beside.map(|row| row.of(BESIDE)));
    Ok(rows)
}

fn by_itself(binary: &Path) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for (series, dense_budget, identity_budget) in SIZES {
        let times = dense(series, RUNS);
        rows.push(
            Row::median(format!("event, dense, {series} series"), times.event, "ns")
                .budget(Budget::AtMost(dense_budget)),
        );
        let (times, _) = by_identity(series, RUNS, Order::Same);
        let row = Row::median(format!("point by identity, {series} series"), times, "ns");
        rows.push(match identity_budget {
            Some(budget) => row.budget(Budget::AtMost(budget)),
            None => row,
        });
        let (times, _) = by_identity(series, RUNS, Order::Other);
        let name = format!("point by identity, {series} series, each time in another order");
        rows.push(Row::median(name, times, "ns"));
    }
    let reads = composite_reads();
    rows.push(Row::value(
        "reading a composite of 100 groups: p50",
        reads.median(),
        "µs",
    ));
    rows.push(
        Row::value(
            "reading a composite of 100 groups: p99",
            reads.quantile(0.99),
            "µs",
        )
        .budget(Budget::AtMost(READ_BUDGET_US)),
    );
    for kind in [EVENTS, "points"] {
        let name = format!("counter series of {kind}, of 1000000");
        rows.push(Row::value(name, bytes_of(kind)?, "B").budget(Budget::AtMost(BYTES_A_SERIES)));
    }
    rows.push(
        Row::value("sample of a counter's past", sample_bytes(), "B").budget(Budget::AtMost(BYTES_A_SAMPLE)),
    );
    for (series, ..) in SIZES {
        rows.extend(queries(binary, series)?);
    }
    Ok(rows)
}

/// The memory of a series, in a process that did nothing else, with enough series that the allocator's own room does
/// not matter.
fn bytes_of(kind: &str) -> Result<f64, BenchError> {
    const SERIES: &str = "1000000";
    let output = Command::new(std::env::current_exe()?)
        .args(["-", "series", kind, SERIES])
        .output()?;
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// Prints what a series takes in this process; see [`bytes_of`].
pub(crate) fn print_bytes(kind: &str, series: usize) {
    let bytes = match kind {
        EVENTS => dense(series, 1).bytes,
        _ => by_identity(series, 1, Order::Same).1,
    };
    println!("{bytes}");
}

/// Resident memory, once what was freed has been given back: the allocator keeps it for a second, and looks for it when
/// a thread ends.
pub(crate) fn settled_bytes() -> f64 {
    std::thread::sleep(Duration::from_millis(1500));
    let ending = std::thread::spawn(|| drop(std::hint::black_box(Box::new(0_u8))));
    // It can't panic.
    let _ = ending.join();
    resident_bytes()
}

pub(super) fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or(f64::NAN) * rustix::param::page_size() as f64
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

fn table(rule: Rule) -> Table {
    let limits = Limits {
        series: usize::MAX,
        streams: usize::MAX,
        ..Limits::default()
    };
    Table::new("bench", vec![rule], limits)
}

/// The costs of counters that events feed. Their sources and kinds are known.
pub(super) struct Dense {
    /// Times of an event.
    pub(super) event: Samples,
    /// Times of an event that is a bare addition: no table could do with less than a word a counter.
    pub(super) bare: Samples,
    /// Bytes of a series.
    bytes: f64,
}

/// Events of kinds in random order, each batch from one source; in turns with the bare additions.
pub(super) fn dense(series: usize, runs: usize) -> Dense {
    let of_source = series.min(KINDS);
    let kind = |number: usize| EventKind {
        name: format!("m{number}").into(),
        description: "".into(),
        unit: "".into(),
        instrument: Instrument::Counter,
        attributes: Attributes::default(),
    };
    let schema = Arc::new(Schema {
        kinds: (0..of_source).map(kind).collect(),
    });
    let table = table(Rule {
        grouping: Grouping::by(["agent_name"]),
        ..Rule::new(Pattern::Glob("*".into()))
    });
    let sources: Vec<Arc<Source>> = (0..series / of_source)
        .map(|number| {
            Arc::new(Source {
                id: SourceId::next(),
                resource: Arc::default(),
                scope: Arc::default(),
                attributes: [("agent_name", format!("agent_{number}"))].into_iter().collect(),
                lease: Arc::new(Lease::new(Duration::from_secs(3600), NOW)),
            })
        })
        .collect();
    let batch = |source: &Arc<Source>, kinds: Vec<u16>, seed: u64| {
        let mut next = scatter(seed);
        Events {
            source: source.clone(),
            schema: schema.clone(),
            values: Values::U64(kinds.iter().map(|_| next() % 100_000).collect()),
            kinds,
            times: None,
            weights: None,
            observed: NOW,
        }
    };
    let before = resident_bytes();
    for source in &sources {
        let all = (0..of_source as u16).collect();
        table.absorb(&batch(source, all, 1));
    }
    let mut shown = 0;
    table.read(NOW, &mut |_| shown += 1);
    assert_eq!(shown, series, "every series is there");
    let bytes = (settled_bytes() - before) / series as f64;
    let mut batches = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        for seed in 0..4 {
            let mut next = scatter(seed + 100 * number as u64);
            let kinds = (0..BATCH).map(|_| (next() % of_source as u64) as u16);
            batches.push((number, batch(source, kinds.collect(), seed)));
        }
    }
    let events = (batches.len() * BATCH) as f64;
    // Many short rounds of few series, so that a round is long enough to be timed.
    let rounds = (2_000_000.0 / events).ceil() as usize;
    let timed = |act: &mut dyn FnMut(usize, &Events)| {
        let begun = Instant::now();
        for _ in 0..rounds {
            batches.iter().for_each(|(source, events)| act(*source, events));
        }
        begun.elapsed().as_secs_f64() * 1e9 / (events * rounds as f64)
    };
    let mut sums = vec![vec![0; of_source]; sources.len()];
    let times = (0..runs).map(|_| {
        let event = timed(&mut |_, events| {
            std::hint::black_box(table.absorb(events));
        });
        (event, timed(&mut |source, events| add(&mut sums[source], events)))
    });
    let (event, bare): (Vec<f64>, Vec<f64>) = times.unzip();
    Dense {
        event: Samples::new(event),
        bare: Samples::new(bare),
        bytes,
    }
}

/// The least that there is to do of events of counters.
fn add(sums: &mut [u64], events: &Events) {
    if let Values::U64(values) = &events.values {
        for (kind, value) in events.kinds.iter().zip(values) {
            if let Some(sum) = sums.get_mut(usize::from(*kind)) {
                *sum = sum.wrapping_add(*value);
            }
        }
    }
    std::hint::black_box(sums);
}

/// In which order points come.
#[derive(PartialEq)]
enum Order {
    /// The same order each time: exporters do so that keep their streams in a list.
    Same,
    /// Another order each time: exporters do so that keep their streams in a table which shuffles.
    Other,
}

/// Times of a point of a cumulative counter, whose key is known, and bytes of a series with its stream.
fn by_identity(series: usize, runs: usize, order: Order) -> (Samples, f64) {
    let metric = Arc::new(Metric {
        name: "requests".into(),
        description: "".into(),
        unit: "".into(),
        data: Data::Sum {
            monotonic: true,
            temporality: Temporality::Cumulative,
        },
        metadata: Attributes::default(),
    });
    let make = |number: usize| {
        let pairs = [
            ("pod", format!("pod-{number}")),
            ("zone", format!("zone-{}", number % 16)),
        ];
        Arc::new(Series {
            resource: Arc::default(),
            scope: Arc::default(),
            metric: metric.clone(),
            attributes: pairs.into_iter().collect(),
        })
    };
    let keys: Vec<Key> = (0..series).map(|number| Key::of_value(&number)).collect();
    let same: Vec<u32> = (0..series as u32).collect();
    let mut orders = vec![same.clone()];
    if order == Order::Other {
        orders.extend((1..4).map(|seed| {
            let mut shuffled = same.clone();
            shuffled.shuffle(&mut SmallRng::seed_from_u64(seed));
            shuffled
        }));
    }
    let table = table(Rule::new(Pattern::Glob("*".into())));
    let mut time = NOW;
    let mut orders = orders.iter().cycle();
    let mut round = || {
        time += 1;
        let value = Value::Int((time - NOW) as i64);
        let mut session = table.session(time);
        for number in orders.next().into_iter().flatten() {
            let number = *number as usize;
            let sample = PointSample {
                start: NOW,
                time,
                value: &value,
                exemplars: &[],
            };
            std::hint::black_box(session.observe_as(keys[number], sample, &mut || Some(make(number))));
        }
    };
    let before = resident_bytes();
    round();
    let bytes = (settled_bytes() - before) / series as f64;
    let rounds = 1_000_000usize.div_ceil(series);
    let times = (0..runs).map(|_| {
        let begun = Instant::now();
        (0..rounds).for_each(|_| round());
        begun.elapsed().as_secs_f64() * 1e9 / (series * rounds) as f64
    });
    (Samples::new(times), bytes)
}

/// Times of reading a composite of 100 groups with full windows.
fn composite_reads() -> Samples {
    let composite = Arc::new(Composite::new(Declaration {
        name: "depth".into(),
        description: "".into(),
        metric: Pattern::Exact("queue".into()),
        attributes: AttributeFilter::default(),
        expression: None,
        function: Function::Avg,
        quantiles: Arc::default(),
        on_stale: OnStale::Error,
        window: Duration::from_secs(10),
        grouping: Grouping::by(["model"]),
        max_groups: 1000,
        across: None,
        lease: Some(Duration::from_secs(3600)),
    }));
    let set = CompositeSet::new(vec![composite.clone()]);
    let kind = EventKind {
        name: "queue".into(),
        description: "".into(),
        unit: "".into(),
        instrument: Instrument::Gauge,
        attributes: Attributes::default(),
    };
    let schema = Arc::new(Schema { kinds: vec![kind] });
    for model in 0..100 {
        let source = Arc::new(Source {
            id: SourceId::next(),
            resource: Arc::default(),
            scope: Arc::default(),
            attributes: [("model", format!("model-{model}"))].into_iter().collect(),
            lease: Arc::new(Lease::new(Duration::from_secs(3600), NOW)),
        });
        for part in 0..100 {
            set.observe_events(&Events {
                source: source.clone(),
                schema: schema.clone(),
                kinds: vec![0],
                values: Values::U64(vec![part]),
                times: None,
                weights: None,
                observed: NOW + part * 100_000_000,
            });
        }
    }
    let times = (0..10_000).map(|_| {
        let begun = Instant::now();
        std::hint::black_box(composite.read(NOW + 9_950_000_000));
        begun.elapsed().as_secs_f64() * 1e6
    });
    Samples::new(times)
}

/// Bytes of a sample of a counter that grows as counters do, ten minutes of a thousand.
fn sample_bytes() -> f64 {
    let mut history = History::new(HistoryLimits {
        interval_ms: 1000,
        span_ms: 600_000,
        max_bytes: 256 << 20,
    });
    let mut next = scatter(3);
    let series: Vec<_> = (0..1000).filter_map(|_| history.add()).collect();
    let mut totals = vec![0u64; series.len()];
    for second in 0..600 {
        for (series, total) in series.iter().zip(&mut totals) {
            *total += next() % 5_000;
            history.append(*series, (NOW / 1_000_000) as i64 + second * 1000, *total as f64);
        }
    }
    history.bytes() as f64 / (600 * series.len()) as f64
}
