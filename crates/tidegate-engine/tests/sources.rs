// SPDX-License-Identifier: Apache-2.0

//! A thousand realistic sources: they restart, some under new names, and their clocks are wrong. Their points arrive
//! late, in another order and sometimes twice. Every counter must equal their true count, and the state must not grow.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{
    Attributes, Data, Grouping, Histogram, Limits, Metric, Outcome, Pattern, Point, Resource, Rule, Scope,
    Series, Table, Temporality, Value,
};

const SECOND: u64 = 1_000_000_000;
const BEGIN: u64 = 1_700_000_000 * SECOND;
const SOURCES: usize = 1000;
const ZONES: usize = 10;
/// Restarts a minute and source, and how many of them are under a new name.
const RESTARTS: f64 = 0.10;
const RENAMED: f64 = 0.3;
const SKEW: u64 = 2 * SECOND;
const TWICE: f64 = 0.05;
/// The most that a point may be late.
const DELAY: u64 = 3 * SECOND;
const BOUNDS: [f64; 3] = [1.0, 5.0, 20.0];

/// A small generator of numbers, printed by its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn is_one_in(&mut self, share: f64) -> bool {
        (self.below(1_000_000) as f64) < share * 1e6
    }
}

/// The true counts of a zone.
#[derive(Clone, Debug, Default, PartialEq)]
struct Counted {
    total: i64,
    delta: i64,
    waits: Vec<u64>,
}

/// A process that counts.
struct Source {
    zone: usize,
    series: [Arc<Series>; 3],
    /// The offset of its clock in this run, plus `SKEW`.
    ahead: u64,
    /// The same of the clock by which it tells deltas: overlapping ones are refused, so this one is never set back.
    steady: u64,
    start: u64,
    said: u64,
    total: i64,
    waits: Histogram,
}

fn series(name: &str, data: Data, pod: usize, zone: usize) -> Arc<Series> {
    let metric = Metric {
        name: name.into(),
        description: "".into(),
        unit: "".into(),
        data,
        metadata: Attributes::default(),
    };
    Arc::new(Series {
        resource: Arc::new(Resource {
            attributes: [("pod", format!("pod-{pod}"))].into_iter().collect(),
            schema_url: "".into(),
        }),
        scope: Arc::new(Scope::default()),
        metric: Arc::new(metric),
        attributes: [("zone", format!("zone-{zone}"))].into_iter().collect(),
    })
}

impl Source {
    fn new(pod: usize, now: u64, random: &mut Random) -> Self {
        let sum = |temporality| Data::Sum {
            monotonic: true,
            temporality,
        };
        let waits = Data::Histogram {
            temporality: Temporality::Cumulative,
        };
        let zone = pod % ZONES;
        let mut source = Self {
            zone,
            series: [
                series("total", sum(Temporality::Cumulative), pod, zone),
                series("delta", sum(Temporality::Delta), pod, zone),
                series("wait", waits, pod, zone),
            ],
            ahead: 0,
            steady: random.below(2 * SKEW),
            start: 0,
            said: 0,
            total: 0,
            waits: Histogram::empty(BOUNDS.into()),
        };
        source.restart(now, random);
        source
    }

    fn restart(&mut self, now: u64, random: &mut Random) {
        self.ahead = random.below(2 * SKEW);
        self.start = now + self.ahead - SKEW;
        self.said = now + self.steady - SKEW;
        self.total = 0;
        self.waits = Histogram::empty(BOUNDS.into());
    }

    /// Counts a little, and says so.
    fn report(&mut self, now: u64, random: &mut Random, counted: &mut Counted) -> [Point; 3] {
        let (time, until) = (now + self.ahead - SKEW, now + self.steady - SKEW);
        let (more, delta, wait) = (
            random.below(50) as i64,
            random.below(50) as i64,
            random.below(30) as f64,
        );
        self.total += more;
        self.waits.observe(wait, 1);
        counted.total += more;
        counted.delta += delta;
        counted.waits.resize(BOUNDS.len() + 1, 0);
        counted.waits[BOUNDS.partition_point(|bound| *bound < wait)] += 1;
        let values = [
            (self.start, time, Value::Int(self.total)),
            (self.said, until, Value::Int(delta)),
            (self.start, time, Value::Histogram(Box::new(self.waits.clone()))),
        ];
        self.said = until;
        let mut of = self.series.iter();
        values.map(|(start, time, value)| Point {
            series: of.next().expect("one a value").clone(),
            start,
            time,
            value,
            exemplars: Vec::new(),
        })
    }
}

fn shown(table: &Table, now: u64) -> BTreeMap<String, Counted> {
    let mut all: BTreeMap<String, Counted> = BTreeMap::new();
    table.read(now, &mut |reading| {
        let counted = all.entry(reading.series.attributes.to_string()).or_default();
        match (&*reading.series.metric.name, reading.value) {
            ("total", Value::Int(total)) => counted.total = *total,
            ("delta", Value::Int(total)) => counted.delta = *total,
            ("wait", Value::Histogram(waits)) => counted.waits.clone_from(&waits.counts),
            other => panic!("{other:?}"),
        }
    });
    all
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<usize> = status.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * 4096
}

/// Sends this many points of the sources, one step a second.
fn run(points: usize, seed: u64) {
    println!("seed {seed}, {points} points");
    let mut random = Random(seed);
    let rule = Rule {
        grouping: Grouping::by(["zone"]),
        ..Rule::new(Pattern::Glob("*".into()))
    };
    let limits = Limits {
        // Little room, so that those that left are forgotten before the end.
        streams: 16_000,
        expiry: Duration::from_mins(1),
        lateness: Duration::from_secs(30),
        ..Limits::default()
    };
    let table = Table::new("test", vec![rule], limits);
    let mut names = SOURCES;
    let mut sources: Vec<Source> = (0..SOURCES)
        .map(|pod| Source::new(pod, BEGIN, &mut random))
        .collect();
    let mut counted = vec![Counted::default(); ZONES];
    let mut under_way: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
    let mut letters: BTreeMap<u64, Point> = BTreeMap::new();
    let (mut now, mut sent, mut number) = (BEGIN, 0, 0u64);
    let (mut memory, mut streams) = (Vec::new(), Vec::new());
    let mut last: BTreeMap<String, Counted> = BTreeMap::new();
    while sent < points {
        now += SECOND;
        for source in &mut sources {
            // A run shorter than the differences of clocks looks like the one before it.
            let is_settled = now + source.ahead - SKEW > source.start + 2 * SKEW + DELAY;
            if is_settled && random.is_one_in(RESTARTS / 60.0) {
                if random.is_one_in(RENAMED) {
                    *source = Source::new(names, now, &mut random);
                    names += 1;
                } else {
                    source.restart(now, &mut random);
                }
                continue;
            }
            for point in source.report(now, &mut random, &mut counted[source.zone]) {
                sent += 1;
                let copies = 1 + u64::from(random.is_one_in(TWICE));
                for _ in 0..copies {
                    number += 1;
                    under_way.push(Reverse((now + random.below(DELAY), number)));
                    letters.insert(number, point.clone());
                }
            }
        }
        while let Some(Reverse((_, number))) = under_way.peek().copied().filter(|Reverse((at, _))| *at <= now)
        {
            under_way.pop();
            let point = letters.remove(&number).expect("sent once");
            let outcome = table.observe(&point, now);
            assert!(!matches!(outcome, Outcome::Unmatched), "{point:?}");
        }
        table.expire(now);
        if (now - BEGIN).is_multiple_of(20 * SECOND) {
            let all = shown(&table, now);
            for (zone, before) in &last {
                let fell = all[zone].total < before.total || all[zone].delta < before.delta;
                assert!(!fell, "{zone}: {before:?} then {:?}", all[zone]);
            }
            last = all;
            memory.push(resident_bytes());
            streams.push(table.stats().streams);
        }
    }
    while let Some(Reverse((_, number))) = under_way.pop() {
        table.observe(&letters.remove(&number).expect("sent once"), now + DELAY);
    }
    let all = shown(&table, now);
    for (zone, expected) in counted.iter().enumerate() {
        assert_eq!(
            &all[&format!("zone=zone-{zone}")],
            expected,
            "zone {zone}, {:?}",
            table.stats()
        );
    }
    assert_eq!(all.len(), ZONES);
    println!("{names} names, {:?}", table.stats());
    let half = memory.len() / 2;
    let most = |list: &[usize]| list.iter().copied().max().unwrap_or(0);
    let (early, late) = (most(&memory[..half]), most(&memory[half..]));
    println!(
        "resident: {} KiB, then {} KiB; streams: {} then {}",
        early >> 10,
        late >> 10,
        most(&streams[..half]),
        most(&streams[half..])
    );
    if points >= 5_000_000 {
        assert!(late < early + (4 << 20), "memory grew from {early} to {late}");
    }
    // All sources leave, and are forgotten after a day.
    for step in 0..60 {
        table.expire(now + step * 1800 * SECOND);
    }
    let stats = table.stats();
    assert_eq!((stats.series, stats.streams, stats.bytes), (0, 0, 0), "{stats:?}");
}

#[test]
fn a_thousand_sources_come_to_what_they_have_counted() {
    run(300_000, 0x7e1e_9a7e);
}

#[test]
#[ignore = "ten million points: `cargo xtask soak` runs it"]
fn ten_million_points_leave_memory_as_it_was() {
    run(10_000_000, 0x0dd5_eed5);
}
