// SPDX-License-Identifier: Apache-2.0

//! The state of one output series: its value, and the data that keeps it right.

use std::sync::Arc;

use crate::fold::Folded;
use crate::rule::{DEFAULT_BOUNDS, GaugePolicy, Op, Rule};
use crate::stream_tracker::{Change, LastValue, Moments, PointSample};
use crate::{Data, Exemplar, ExponentialHistogram, Histogram, Number, UnixNanos, Value};

/// Exemplars kept a series: the newest ones.
const MAX_EXEMPLARS: usize = 8;

/// Value and times of a series.
#[derive(Clone, Debug)]
pub(crate) struct SeriesState {
    pub(crate) start: UnixNanos,
    /// The time of the value; 0: there is nothing to show.
    pub(crate) time: UnixNanos,
    pub(crate) value: Value,
    rare: Option<Box<Rare>>,
}

/// State that few series need.
#[derive(Clone, Debug, Default)]
struct Rare {
    exemplars: Vec<Exemplar>,
    members: Vec<Option<Number>>,
    policy: GaugePolicy,
    stale: bool,
}

/// The shown value may be this much newer than an arriving one, in nanoseconds (1 s): sources take turns.
const AHEAD_NS: u64 = 1_000_000_000;

impl SeriesState {
    /// An empty state for `data`.
    pub(crate) fn new(data: Data, rule: &Rule, start: UnixNanos, now: UnixNanos) -> Self {
        let rare = (data == Data::Gauge && rule.gauge != GaugePolicy::Last).then(|| {
            let policy = rule.gauge;
            Box::new(Rare {
                policy,
                ..Rare::default()
            })
        });
        Self {
            start: if start == 0 { now } else { start },
            time: 0,
            value: zero(data, rule),
            rare,
        }
    }

    /// Whether there is anything to show.
    pub(crate) fn is_shown(&self) -> bool {
        self.time != 0
    }

    /// Shows the 0 it starts with.
    pub(crate) fn show_zero(&mut self, now: UnixNanos) {
        self.touch(now);
    }

    /// The bounds of a histogram for observations; those of the SDKs if nothing else set any.
    pub(crate) fn bounds(&mut self) -> Option<Arc<[f64]>> {
        let Value::Histogram(histogram) = &mut self.value else {
            return None;
        };
        if histogram.counts.is_empty() {
            **histogram = Histogram::empty(Arc::from(DEFAULT_BOUNDS));
        }
        Some(histogram.bounds.clone())
    }

    /// The bytes that it has allocated, estimated.
    pub(crate) fn bytes(&self) -> usize {
        const MEMBER: usize = size_of::<Option<Number>>();
        let rare = self.rare.as_ref().map_or(0, |rare| {
            let exemplars = rare.exemplars.iter().map(Exemplar::bytes).sum::<usize>();
            size_of::<Rare>() + exemplars + rare.members.len() * MEMBER
        });
        self.value.bytes() + rare
    }

    pub(crate) fn exemplars(&self) -> &[Exemplar] {
        self.rare.as_ref().map_or(&[], |rare| &rare.exemplars)
    }

    /// Adds to a sum.
    pub(crate) fn add(&mut self, number: Number, time: UnixNanos) {
        let sum = self.value.number().unwrap_or(Number::ZERO);
        self.value = sum.plus(number).into();
        self.touch(time);
    }

    /// Replaces the value unless it is newer.
    fn replace(&mut self, number: Number, time: UnixNanos) {
        if time >= self.time {
            self.value = number.into();
            self.time = time;
        }
    }

    fn touch(&mut self, time: UnixNanos) {
        self.time = self.time.max(time);
    }

    /// Applies the change of a point. `false`: the change is of a kind that can't be added here.
    pub(crate) fn apply(
        &mut self,
        op: Op,
        member: u32,
        change: &Change<'_>,
        sample: &PointSample<'_>,
    ) -> bool {
        let time = sample.time;
        match (op, change) {
            (Op::Add | Op::UpDown, Change::Number(number)) => self.add(*number, time),
            (Op::Last, Change::Number(number)) => self.replace(*number, time),
            (Op::Member, Change::Number(number)) => self.set_member(member, Some(*number), time),
            (Op::Observe, Change::Number(number)) => self.observe(number.as_f64(), time),
            (Op::Merge, Change::Histogram(increase)) => self.merge_explicit(increase, time),
            (Op::Merge, Change::Exponential(increase)) => self.merge_exponential(increase, time),
            (Op::Merge, Change::Summary(increase)) => self.merge_summary(increase, time),
            _ => return false,
        }
        self.add_exemplars(sample.exemplars);
        true
    }

    /// Shows a point as it is.
    pub(crate) fn keep(&mut self, sample: &PointSample<'_>) {
        self.value.clone_from(sample.value);
        (self.start, self.time) = (sample.start, sample.time);
        if !sample.exemplars.is_empty() || self.rare.is_some() {
            let rare = self.rare.get_or_insert_default();
            rare.exemplars.clear();
            rare.exemplars
                .extend(sample.exemplars.iter().take(MAX_EXEMPLARS).cloned());
        }
    }

    /// Adds the increase of one of several processes that report the series; `false`: it is of another kind.
    pub(crate) fn keep_adding(&mut self, change: &Change<'_>, sample: &PointSample<'_>) -> bool {
        let Some(mut total) = LastValue::of(&self.value) else {
            return false;
        };
        let Some(value) = total.add(change) else {
            return false;
        };
        self.value = value;
        self.time = self.time.max(sample.time);
        if sample.start != 0 {
            self.start = self.start.min(sample.start);
        }
        self.add_exemplars(sample.exemplars);
        true
    }

    fn add_exemplars(&mut self, new: &[Exemplar]) {
        if new.is_empty() {
            return;
        }
        let exemplars = &mut self.rare.get_or_insert_default().exemplars;
        exemplars.extend(new.iter().cloned());
        let surplus = exemplars.len().saturating_sub(MAX_EXEMPLARS);
        exemplars.drain(..surplus);
    }

    fn observe(&mut self, value: f64, time: UnixNanos) {
        if let Value::Histogram(histogram) = &mut self.value {
            histogram.observe(value, 1);
            self.touch(time);
        }
    }

    fn merge_explicit(&mut self, increase: &Histogram, time: UnixNanos) {
        let Value::Histogram(histogram) = &mut self.value else {
            return;
        };
        if histogram.counts.is_empty() {
            **histogram = Histogram::empty(increase.bounds.clone());
        }
        histogram.merge(increase);
        self.touch(time);
    }

    fn merge_exponential(&mut self, increase: &ExponentialHistogram, time: UnixNanos) {
        match &mut self.value {
            Value::ExponentialHistogram(histogram) if self.time != 0 => histogram.merge(increase),
            Value::ExponentialHistogram(histogram) => {
                histogram.scale = increase.scale;
                histogram.merge(increase);
            }
            Value::Histogram(histogram) => increase.merge_into(histogram),
            _ => return,
        }
        self.touch(time);
    }

    fn merge_summary(&mut self, increase: &Moments, time: UnixNanos) {
        if let Value::Summary(summary) = &mut self.value {
            summary.count = summary.count.saturating_add(increase.count);
            summary.sum += increase.sum;
            self.touch(time);
        }
    }

    /// Adds the folded statistics of a batch of events. `buckets`: its observations by this series' bounds. `arrived`:
    /// its arrival by the wall clock.
    pub(crate) fn apply_folded(
        &mut self,
        op: Op,
        member: u32,
        folded: &Folded,
        buckets: &[u64],
        arrived: UnixNanos,
    ) {
        if self.time > arrived.saturating_add(AHEAD_NS) {
            // The shown time came from a clock that is ahead or has been set back since: this value is newer.
            self.time = folded.time;
        }
        match op {
            Op::Add | Op::UpDown => self.add(folded.sum, folded.time),
            Op::Last => self.replace(folded.last, folded.time),
            Op::Member => self.set_member(member, Some(folded.last), folded.time),
            Op::Observe | Op::Merge => self.add_buckets(folded, buckets),
            Op::Keep => {}
        }
    }

    fn add_buckets(&mut self, folded: &Folded, buckets: &[u64]) {
        let Value::Histogram(histogram) = &mut self.value else {
            return;
        };
        for (mine, new) in histogram.counts.iter_mut().zip(buckets) {
            *mine = mine.saturating_add(*new);
        }
        let count = buckets.iter().sum();
        let sum = folded.sum.as_f64();
        if count > 0 {
            histogram.add_moments(count, Some(sum), Some(folded.min), Some(folded.max));
        } else {
            histogram.sum = histogram.sum.map(|total| total + sum);
        }
        self.touch(folded.time);
    }

    /// A place for one more source's value.
    pub(crate) fn join(&mut self) -> u32 {
        let members = &mut self.rare.get_or_insert_default().members;
        let free = members.iter().position(Option::is_none);
        // A place that is taken but has no value yet must not be given away twice: mark it with NaN.
        let reserved = Some(Number::Double(f64::NAN));
        match free {
            Some(at) => {
                members[at] = reserved;
                at as u32
            }
            None => {
                members.push(reserved);
                members.len() as u32 - 1
            }
        }
    }

    fn set_member(&mut self, member: u32, number: Option<Number>, time: UnixNanos) {
        let Some(rare) = &mut self.rare else {
            return;
        };
        if let Some(mine) = rare.members.get_mut(member as usize) {
            *mine = number;
            rare.stale = true;
            self.touch(time);
        }
    }

    /// A source's value among those of the group.
    pub(crate) fn member(&self, member: u32) -> Option<Number> {
        *self.rare.as_ref()?.members.get(member as usize)?
    }

    /// Puts back a source's value after a restart.
    pub(crate) fn rejoin(&mut self, member: u32, number: Number) {
        self.set_member(member, Some(number), self.time);
    }

    /// Continues from the value of another process; `false`: it was made in another way.
    pub(crate) fn take_up(&mut self, time: UnixNanos, value: Value) -> bool {
        let fits = match (&self.value, &value) {
            (Value::Histogram(mine), Value::Histogram(other)) => {
                mine.counts.is_empty() || mine.bounds == other.bounds
            }
            (Value::Int(_), Value::Int(_) | Value::Double(_))
            | (Value::Summary(_), Value::Summary(_))
            | (Value::ExponentialHistogram(_), Value::ExponentialHistogram(_)) => true,
            _ => false,
        };
        if fits {
            (self.time, self.value) = (time, value);
            // A group shows the value of its members.
            if let Some(rare) = &mut self.rare {
                rare.stale = rare.policy != GaugePolicy::Last;
            }
        }
        fits
    }

    /// Takes a leaving source's value out of the group.
    pub(crate) fn leave(&mut self, member: u32) {
        let time = self.time;
        self.set_member(member, None, time);
    }

    /// Brings a combined value up to date; called before it is read.
    pub(crate) fn refresh(&mut self) {
        let Some(rare) = self.rare.as_mut().filter(|rare| rare.stale) else {
            return;
        };
        rare.stale = false;
        let values = rare.members.iter().flatten().copied();
        match combine(rare.policy, values.filter(|number| !number.as_f64().is_nan())) {
            Some(number) => self.value = number.into(),
            None => self.time = 0,
        }
    }
}

fn combine(policy: GaugePolicy, values: impl Iterator<Item = Number> + Clone) -> Option<Number> {
    let count = values.clone().count() as f64;
    let sum = values.clone().reduce(Number::plus);
    match policy {
        GaugePolicy::Min => values.reduce(|a, b| if b.less(a) { b } else { a }),
        GaugePolicy::Max => values.reduce(|a, b| if a.less(b) { b } else { a }),
        GaugePolicy::Sum => sum,
        GaugePolicy::Mean => sum.map(|sum| Number::Double(sum.as_f64() / count)),
        GaugePolicy::Last => None,
    }
}

fn zero(data: Data, rule: &Rule) -> Value {
    match data {
        Data::Gauge | Data::Sum { .. } => Value::Int(0),
        Data::Summary => Value::Summary(Box::default()),
        Data::Histogram { .. } => Value::Histogram(Box::new(match &rule.bounds {
            Some(bounds) => Histogram::empty(bounds.clone()),
            None => Histogram::default(),
        })),
        Data::ExponentialHistogram { .. } => {
            let sum = Some(0.0);
            Value::ExponentialHistogram(Box::new(ExponentialHistogram {
                sum,
                ..ExponentialHistogram::default()
            }))
        }
    }
}
