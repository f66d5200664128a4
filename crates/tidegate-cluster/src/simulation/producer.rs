// SPDX-License-Identifier: Apache-2.0

//! A simulated producer: one process with a table of five series.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{Data, Histogram, MergeMode, Point, Temporality, UnixNanos, Value};

use crate::testing::{self, ClientId};
use crate::{PageSender, ProducerName, SenderConfig, SentItem};

/// The names of the series: senders report a total to any producer, and the last one is a level.
pub(super) const SERIES: [&str; 5] = ["whole", "double", "histogram", "stream", "level"];

pub(super) const STREAM: usize = 3;

pub(super) const LEVEL: usize = 4;

/// The totals of a series that all producers have said.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ModelTotal {
    pub(super) start: UnixNanos,
    /// Observed amounts, in quarters. Of the stream, the largest total of each start.
    pub(super) observed: Vec<u32>,
}

/// A process that reports the stream. It counts on, whatever becomes of its reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamSender {
    /// Its place among all lives of senders.
    pub(super) life: usize,
    pub(super) start: UnixNanos,
    pub(super) total: u32,
}

/// The model: what a perfect reader shows of the totals.
pub(super) type Model = BTreeMap<usize, ModelTotal>;

/// How the process goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Lives,
    /// It observes nothing more, and is killed when the store has all it said.
    Dies,
    /// It says goodbye and ends.
    Stops,
}

#[derive(Debug)]
struct Source {
    start: UnixNanos,
    observed: Vec<u32>,
    /// The number of observations in the model.
    counted: usize,
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) client: ClientId,
    pub(super) producer: usize,
    pub(super) sender: PageSender,
    pub(super) fate: Fate,
    /// The difference of its clock from the true time.
    skew: i64,
    sources: BTreeMap<usize, Source>,
    pub(super) level: Option<i64>,
    next_update: UnixNanos,
    starts: u64,
    /// Reports of the stream since the last update.
    reports: Vec<StreamSender>,
    /// Whether the sender has been given all that was observed.
    is_passed_on: bool,
}

impl Process {
    pub(super) fn new(client: ClientId, producer: usize, skew: i64, nonce: u32) -> Self {
        let name = ProducerName::new(&format!("node {producer}")).unwrap();
        let sender = PageSender::new(SenderConfig {
            partitions: super::PARTITIONS,
            interval: Duration::from_secs(1),
            refresh: Duration::from_secs(4),
            nonce,
            ..testing::sender_config(super::CLUSTER, name)
        });
        Self {
            client,
            producer,
            sender,
            fate: Fate::Lives,
            skew,
            sources: BTreeMap::new(),
            level: None,
            next_update: 0,
            starts: 0,
            reports: Vec::new(),
            is_passed_on: true,
        }
    }

    /// The time by the clock of the process.
    pub(super) fn clock(&self, now: UnixNanos) -> UnixNanos {
        now.saturating_add_signed(self.skew)
    }

    /// Observes a quarter of `amount`, or sets the level.
    pub(super) fn observe(&mut self, series: usize, amount: u32, now: UnixNanos) {
        if self.fate != Fate::Lives {
            return;
        }
        self.is_passed_on = false;
        if series == LEVEL {
            self.level = Some(i64::from(amount));
            return;
        }
        // No two starts are equal.
        self.starts += 1;
        let start = self.clock(now) + self.starts;
        let source = self.sources.entry(series).or_insert(Source {
            start,
            observed: Vec::new(),
            counted: 0,
        });
        source.observed.push(amount);
    }

    /// Takes a report of the stream.
    pub(super) fn take_report(&mut self, report: StreamSender) {
        if self.fate == Fate::Lives {
            self.reports.push(report);
            self.is_passed_on = false;
        }
    }

    /// The series expires in the table. The sender gets what it does not have first.
    pub(super) fn expire(&mut self, series: usize, now: UnixNanos, model: &mut Model) {
        self.update(now, model);
        if series == LEVEL {
            self.level = None;
        } else {
            self.sources.remove(&series);
        }
        self.is_passed_on = false;
    }

    /// Gives the table to the sender, if it is time.
    pub(super) fn update_if_due(&mut self, now: UnixNanos, model: &mut Model) {
        if now >= self.next_update || (self.fate != Fate::Lives && !self.is_passed_on) {
            self.next_update = now + super::SECOND;
            self.update(now, model);
        }
    }

    fn update(&mut self, now: UnixNanos, model: &mut Model) {
        let clock = self.clock(now);
        let mut items = Vec::new();
        for (series, source) in &mut self.sources {
            items.push(item(
                *series,
                source.start,
                clock,
                value(*series, &source.observed),
            ));
            let total = model.entry(*series).or_insert(ModelTotal {
                start: source.start,
                observed: Vec::new(),
            });
            total.start = total.start.min(source.start);
            total.observed.extend(source.observed.iter().skip(source.counted));
            source.counted = source.observed.len();
        }
        for StreamSender { life, start, total } in self.reports.drain(..) {
            items.push(stream_item(start, clock, total));
            let all = model.entry(STREAM).or_insert(ModelTotal {
                start,
                observed: Vec::new(),
            });
            all.start = all.start.min(start);
            all.observed.resize(all.observed.len().max(life + 1), 0);
            all.observed[life] = all.observed[life].max(total);
        }
        if let Some(level) = self.level {
            items.push(item(LEVEL, 0, clock, Value::Int(level)));
        }
        self.sender.update(items, clock);
        self.is_passed_on = true;
    }

    /// Whether it may be killed: the store has all that it said.
    pub(super) fn is_settled(&self) -> bool {
        self.is_passed_on && self.sender.is_settled()
    }
}

pub(super) fn value(series: usize, observed: &[u32]) -> Value {
    let quarters = |amount: &u32| f64::from(*amount) * 0.25;
    match series {
        0 | STREAM => Value::Int(observed.iter().map(|amount| i64::from(*amount)).sum()),
        1 => Value::Double(observed.iter().map(quarters).sum()),
        _ => {
            let mut histogram = Histogram::empty([1.0, 2.0].into());
            observed
                .iter()
                .for_each(|amount| histogram.observe(quarters(amount), 1));
            Value::Histogram(Box::new(histogram))
        }
    }
}

fn item(series: usize, start: UnixNanos, time: UnixNanos, value: Value) -> SentItem {
    let temporality = Temporality::Cumulative;
    let monotonic = series != LEVEL;
    let data = match value {
        Value::Histogram(_) => Data::Histogram { temporality },
        _ => Data::Sum {
            monotonic,
            temporality,
        },
    };
    let mode = if monotonic {
        MergeMode::Add
    } else {
        MergeMode::Level
    };
    SentItem::Value(mode, point(series, data, (start, time), value))
}

fn stream_item(start: UnixNanos, time: UnixNanos, total: u32) -> SentItem {
    let value = Value::Int(i64::from(total));
    SentItem::Stream(point(STREAM, testing::COUNTER, (start, time), value))
}

fn point(series: usize, data: Data, (start, time): (UnixNanos, UnixNanos), value: Value) -> Point {
    Point {
        series: Arc::new(testing::series(SERIES[series], data)),
        start,
        time,
        value,
        exemplars: Vec::new(),
    }
}
