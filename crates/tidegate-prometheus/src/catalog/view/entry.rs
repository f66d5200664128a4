// SPDX-License-Identifier: Apache-2.0

//! A series of a table, with its numbers and native histograms. Each of them is a Prometheus series.

use std::borrow::Cow;
use std::hash::Hash;
use std::sync::Arc;

use tidegate_engine::{
    AttributeFilter, Data, Key as Whose, KeyHasher, Pattern, Reading, Series, SlotId, Table, UnixNanos,
};
use tidegate_exposition::MetricType;
use tidegate_promql::{FloatHistogram, History, Labels, Millis, NAME, SampleValue, SeriesId};

use super::super::{Senders, Times};
use super::interner::StringInterner;
use super::shared::SharedState;
use crate::Style;
use crate::flat::{Flat, SUFFIXES, identity, values};
use crate::number::push_f64;

/// The position of a series: its source, and its place there.
pub(super) type Key = (u32, u32);

/// A series of a table or a composite.
pub(super) struct SeriesEntry {
    pub(super) series: Arc<Series>,
    /// The place in the table. Composites have none.
    pub(super) place: Option<SlotId>,
    /// The metric's name; `None`: it can't be expressed.
    pub(super) name: Option<Arc<str>>,
    /// Whether its past is kept.
    is_kept: bool,
    /// The times of its latest value.
    pub(super) times: Times,
    /// Whether it is seen: no other series has one of its names and labels.
    pub(super) is_shown: bool,
    pub(super) numbers: Vec<Number>,
}

/// One number of a series, or its native histogram.
pub(super) struct Number {
    pub(super) suffix: &'static str,
    more: Option<(&'static str, f64)>,
    pub(super) labels: Labels,
    pub(super) past: Past,
    /// Whether it is a native histogram.
    pub(super) is_native: bool,
    pub(super) now: (Millis, SampleValue),
}

/// Whether a number has a past.
#[derive(Clone, Copy)]
pub(super) enum Past {
    /// It has no sample yet.
    Young,
    Kept(SeriesId),
    /// There was no memory for it at its arrival.
    Refused,
    /// No rule asks for it.
    Unwanted,
}

/// A rule of series whose past is kept.
pub struct HistoryRule {
    /// The pattern of metric names.
    pub name: Pattern,
    /// Attributes that they must have.
    pub attributes: AttributeFilter,
}

impl HistoryRule {
    fn matches(&self, series: &Series) -> bool {
        let sets = [&series.attributes, &series.resource.attributes];
        self.name.matches(&series.metric.name) && self.attributes.matches(&sets)
    }
}

/// A pass over some series.
#[derive(Clone, Copy)]
pub(super) struct ViewPass<'a> {
    /// The style of the source's names.
    pub(super) style: &'a Style,
    pub(super) senders: &'a Senders,
    /// The table of the series; `None`: it has gone, or they are not in a table.
    pub(super) table: Option<&'a Table>,
    pub(super) now: UnixNanos,
    /// The rules for the series whose past is kept; empty: all series.
    pub(super) rules: &'a [HistoryRule],
    pub(super) time: Millis,
    /// Whether what it sees becomes part of the past.
    pub(super) records: bool,
}

impl<'a> ViewPass<'a> {
    /// The same pass over series in another style.
    pub(super) fn of<'b>(self, style: &'b Style) -> ViewPass<'b>
    where
        'a: 'b,
    {
        ViewPass { style, ..self }
    }

    /// The same pass over series of a table, in another style.
    pub(super) fn of_table<'b>(self, style: &'b Style, table: &'b Table) -> ViewPass<'b>
    where
        'a: 'b,
    {
        ViewPass {
            style,
            table: Some(table),
            ..self
        }
    }
}

impl SeriesEntry {
    pub(super) fn new(
        series: &Arc<Series>,
        place: Option<SlotId>,
        pass: ViewPass<'_>,
        interner: &mut StringInterner,
    ) -> Self {
        let mut rules = pass.rules.iter();
        Self {
            is_kept: pass.rules.is_empty() || rules.any(|rule| rule.matches(series)),
            series: series.clone(),
            place,
            name: identity(series, pass.style).map(|(name, _)| interner.intern(&name)),
            times: Times::default(),
            is_shown: false,
            numbers: Vec::new(),
        }
    }

    /// One of the gateway's own, of this name.
    pub(super) fn of_target(series: Arc<Series>, name: Arc<str>, pass: ViewPass<'_>) -> Self {
        let mut rules = pass.rules.iter();
        Self {
            is_kept: pass.rules.is_empty() || rules.any(|rule| rule.matches(&series)),
            series,
            place: None,
            name: Some(name),
            times: Times::default(),
            is_shown: false,
            numbers: Vec::new(),
        }
    }

    /// The value of a label that its numbers have in common; empty: there is none.
    pub(super) fn value(&self, label: &str, style: &Style) -> Cow<'_, str> {
        if let Some(number) = self.numbers.first() {
            return number.labels.get(label).into();
        }
        let pairs = identity(&self.series, style).map(|(_, pairs)| pairs);
        let own = pairs.into_iter().flatten().find(|(name, _)| name == label);
        own.map_or(Cow::Borrowed(""), |(_, value)| value.into())
    }

    /// Whether it is of a kind that has numbers of this name.
    pub(super) fn may_be(&self, name: &str) -> bool {
        let stem = self.name.as_ref().and_then(|stem| name.strip_prefix(&**stem));
        stem.is_some_and(|suffix| match self.series.metric.data {
            Data::Gauge | Data::Sum { .. } => suffix.is_empty(),
            Data::Histogram { .. } => !suffix.is_empty(),
            Data::ExponentialHistogram { .. } => true,
            Data::Summary => suffix != "_bucket",
        })
    }

    /// Takes up what the series is now.
    pub(super) fn observe(
        &mut self,
        key: Key,
        reading: &Reading<'_>,
        pass: ViewPass<'_>,
        shared: &mut SharedState,
    ) {
        if self.name.is_none() {
            return;
        }
        let Some(times) = Times::of(reading) else {
            return self.end(key, pass, shared);
        };
        self.times = times;
        let (series, known, is_kept) = (&self.series, &mut self.numbers, self.is_kept);
        let mut named = None;
        let mut at = 0;
        let capacity = known.capacity();
        values(reading, &mut |suffix, more, value| {
            let now = (pass.time, sample(value));
            let is_native = matches!(value, Flat::Native(_));
            let is_same = |number: &Number| {
                number.suffix == suffix && number.more == more && number.is_native == is_native
            };
            if !known.get(at).is_some_and(is_same) {
                // The buckets differ from the previous ones, so the later parts differ too.
                known
                    .drain(at.min(known.len())..)
                    .for_each(|old| shared.forget(old));
                let Some(identity) = named.get_or_insert_with(|| identity(series, pass.style)) else {
                    return;
                };
                known.push(Number {
                    suffix,
                    more,
                    labels: labels(identity, suffix, more, &mut shared.interner),
                    past: if is_kept { Past::Young } else { Past::Unwanted },
                    is_native,
                    now: now.clone(),
                });
            }
            if let Some(number) = known.get_mut(at) {
                number.now = now;
            }
            at += 1;
        });
        if known.capacity() > capacity {
            known.shrink_to_fit();
        }
        self.claim(key, shared);
        if pass.records && self.is_shown {
            let mut numbers = self.numbers.iter_mut();
            values(reading, &mut |_, _, value| {
                let number = numbers.next().into_iter();
                number.for_each(|number| number.record(value, &mut shared.history));
            });
        }
    }

    /// Claims its names, if no other series has one of them.
    pub(super) fn claim(&mut self, key: Key, shared: &mut SharedState) {
        if self.is_shown || self.numbers.is_empty() {
            return;
        }
        match shared.blocker(self, key) {
            Some(_) => shared.claims.push(key),
            None => {
                shared.leave(self, key);
                self.take(key, shared);
            }
        }
    }

    /// Takes its names, which no other series has.
    fn take(&mut self, key: Key, shared: &mut SharedState) {
        self.is_shown = true;
        shared.owners.extend(self.names().map(|name| (name, key)));
        shared.contested.remove(&key);
    }

    /// The labels that its numbers have in common.
    fn pairs(&self) -> Whose {
        let Some(first) = self.numbers.first() else {
            return Whose::of_value(&());
        };
        common(&first.labels, first.more.map(|(label, _)| label))
    }

    /// Every name that it may use, with its labels.
    pub(super) fn names(&self) -> impl Iterator<Item = Whose> + '_ {
        let pairs = self.pairs();
        let suffixes: &[&str] = match self.series.metric.data {
            Data::Gauge | Data::Sum { .. } => &[""],
            Data::Histogram { .. } => &SUFFIXES[1..],
            Data::ExponentialHistogram { .. } => &SUFFIXES,
            Data::Summary => &["", "_sum", "_count"],
        };
        let names = suffixes.iter().filter_map(|suffix| {
            let name = self.name.as_ref()?;
            Some(format!("{name}{suffix}"))
        });
        names.map(move |name| owned(pairs, &name))
    }

    /// The key of the contest for a place: name, labels and type.
    pub(super) fn identity(&self) -> Whose {
        let of_type = MetricType::of(self.series.metric.data).name();
        Whose::of_value(&(self.pairs(), &self.name, of_type))
    }

    /// Takes up that a series is there whose one number is 1, under these labels.
    pub(super) fn observe_info(
        &mut self,
        key: Key,
        labels: &Labels,
        pass: ViewPass<'_>,
        shared: &mut SharedState,
    ) {
        if self.numbers.first().is_none_or(|number| number.labels != *labels) {
            self.end(key, pass, shared);
            self.numbers.reserve_exact(1);
            self.numbers.push(Number {
                suffix: "",
                more: None,
                labels: labels.clone(),
                past: if self.is_kept { Past::Young } else { Past::Unwanted },
                is_native: false,
                now: (pass.time, SampleValue::Float(1.0)),
            });
        }
        self.claim(key, shared);
        for number in &mut self.numbers {
            number.now.0 = pass.time;
            if pass.records && self.is_shown {
                number.record(Flat::Number(1.0), &mut shared.history);
            }
        }
    }

    /// Gives its names, and the past of its numbers, to a series of the same identity.
    pub(super) fn hand_over(
        &mut self,
        other: &mut Self,
        (from, to): (Key, Key),
        now: Millis,
        shared: &mut SharedState,
    ) {
        self.is_shown = false;
        // It may have had more names than the other one claims.
        shared.release(self.names(), from);
        for (at, old) in self.numbers.iter_mut().enumerate() {
            let is_heir = |number: &Number| number.labels == old.labels;
            let at = if other.numbers.get(at).is_some_and(is_heir) {
                Some(at)
            } else {
                other.numbers.iter().position(is_heir)
            };
            let heir = at.and_then(|at| other.numbers.get_mut(at));
            old.hand_over(heir, now, shared);
        }
        match shared.blocker(other, to) {
            None => other.take(to, shared),
            Some(_) => shared.claims.push(to),
        }
    }

    /// The series has no value any more.
    pub(super) fn end(&mut self, key: Key, pass: ViewPass<'_>, shared: &mut SharedState) {
        if self.numbers.is_empty() {
            return;
        }
        if std::mem::take(&mut self.is_shown) {
            shared.release(self.names(), key);
            self.note_end(pass, shared);
        }
        shared.leave(self, key);
        shared.contested.remove(&key);
        for number in self.numbers.drain(..) {
            shared.bury(number.labels, number.past, pass.time);
        }
    }
}

impl Number {
    /// Gives its past to the number of another series; without one it ends here.
    fn hand_over(&mut self, heir: Option<&mut Self>, now: Millis, shared: &mut SharedState) {
        let young = match self.past {
            Past::Unwanted => Past::Unwanted,
            _ => Past::Young,
        };
        let past = std::mem::replace(&mut self.past, young);
        match heir {
            Some(heir) if self.is_native == heir.is_native && matches!(heir.past, Past::Young) => {
                heir.past = past;
            }
            _ => shared.bury(self.labels.clone(), past, now),
        }
    }

    fn record(&mut self, value: Flat<'_>, history: &mut History) {
        if matches!(self.past, Past::Young) {
            self.past = history.add().map_or(Past::Refused, Past::Kept);
        }
        if let Past::Kept(past) = self.past {
            match value {
                Flat::Number(value) => history.append(past, self.now.0, value),
                Flat::Native(histogram) => history.append_histogram(past, self.now.0, histogram),
            }
        }
    }
}

/// The key of labels without the name, and without the label that tells the numbers of a series apart.
pub(super) fn common(labels: &Labels, own: Option<&str>) -> Whose {
    let is_common = |label: &str| label != NAME && Some(label) != own;
    let mut hasher = KeyHasher::default();
    let common = labels.iter().filter(|(label, _)| is_common(label));
    common.for_each(|pair| pair.hash(&mut hasher));
    hasher.key()
}

/// The key by which a name with these labels has an owner.
pub(super) fn owned(pairs: Whose, name: &str) -> Whose {
    Whose::of_value(&(pairs, name))
}

fn sample(value: Flat<'_>) -> SampleValue {
    match value {
        Flat::Number(number) => SampleValue::Float(number),
        Flat::Native(histogram) => SampleValue::Histogram(Arc::new(FloatHistogram::from(histogram))),
    }
}

fn labels(
    identity: &(String, Vec<(String, String)>),
    suffix: &str,
    more: Option<(&'static str, f64)>,
    interner: &mut StringInterner,
) -> Labels {
    let (name, pairs) = identity;
    let bound = more.map(|(label, bound)| {
        let mut text = String::new();
        push_f64(&mut text, bound);
        (label, text)
    });
    let name = (NAME, format!("{name}{suffix}"));
    let own = pairs.iter().map(|(label, value)| (&**label, &**value));
    let more = bound
        .iter()
        .chain([&name])
        .map(|(label, value)| (*label, &**value));
    own.chain(more)
        .map(|(label, value)| (interner.intern(label), interner.intern(value)))
        .collect()
}
