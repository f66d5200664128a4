//! Which series a selection finds and where they are, and what makes all of them so many.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use tidegate_engine::query::{Labels, NAME, Selection};
use tidegate_engine::{Count, Data, Place, Seen, Series, Table, UnixNanos};

use super::View;
use super::entry::{Entry, Number};
use super::state::State;
use crate::prom::render::TARGET_INFO;

/// A series that queries see, as its table or composite has it.
pub struct Found {
    /// Its labels, with the name of its metric: a histogram is one series here.
    pub labels: Labels,
    /// The series.
    pub series: Arc<Series>,
    /// Where it is; `None`: it is a composite's, or `target_info`.
    pub table: Option<Arc<Table>>,
    /// When its source was last heard of.
    pub seen: UnixNanos,
    /// Whether that is not too long ago.
    pub is_alive: bool,
    /// Whether it is `target_info`, which describes its resource.
    pub is_target: bool,
    /// Whether another series of the same name and labels is seen in its place.
    pub is_hidden: bool,
}

/// What the series are made of that queries see. Each list has the largest first.
#[derive(Default)]
pub struct Census {
    /// Series: a histogram has one a bucket, and two.
    pub series: usize,
    /// Different pairs of label and value.
    pub pairs: usize,
    /// Names of metrics, by series.
    pub metrics: Vec<Count>,
    /// Labels, by different values.
    pub labels: Vec<Count>,
    /// Labels with a value, by series that have them: `label=value`.
    pub values: Vec<Count>,
}

type Counts<K> = HashMap<K, usize, RandomState>;

impl View {
    /// At most `most` series that one of these selections accepts, by a name of their numbers or by that of their metric.
    pub fn found(&self, now: UnixNanos, selections: &[Selection], most: usize) -> Vec<Found> {
        self.refresh(now, selections);
        let (mut found, places) = {
            let mut state = self.state();
            selections.iter().for_each(|selection| state.prepare(selection));
            listed(&state, selections, most)
        };
        let tables = self.tables();
        for (found, place) in found.iter_mut().zip(places) {
            let is_it = |table: &&Arc<Table>| place.is_some_and(|place| holds(table, place, &found.series));
            found.table = tables.iter().find(is_it).cloned();
            let (heard, lease) = self.senders.heard(&found.series.resource);
            found.seen = found.seen.max(heard);
            found.is_alive = now.saturating_sub(found.seen) <= lease;
        }
        found
    }

    /// What the series are made of, with the `top` largest of everything. Reads and counts all series.
    pub fn census(&self, now: UnixNanos, top: usize) -> Census {
        self.refresh(now, &[Selection::everything()]);
        let state = self.state();
        let mut series = 0;
        let (mut metrics, mut pairs) = (Counts::<&str>::default(), Counts::<(&str, &str)>::default());
        let shown = state.entries().filter(|entry| entry.is_shown);
        for number in shown.flat_map(|entry| &entry.numbers) {
            series += 1;
            *metrics.entry(number.labels.get(NAME)).or_default() += 1;
            for (label, value) in number.labels.iter() {
                *pairs.entry((label, value)).or_default() += 1;
            }
        }
        let mut labels = Counts::<&str>::default();
        for (label, _) in pairs.keys() {
            *labels.entry(label).or_default() += 1;
        }
        Census {
            series,
            pairs: pairs.len(),
            metrics: largest(metrics, top, |name| (*name).to_owned()),
            labels: largest(labels, top, |name| (*name).to_owned()),
            values: largest(pairs, top, |(label, value)| format!("{label}={value}")),
        }
    }
}

/// Series that selections accept, each once, and where their tables have them.
fn listed(state: &State, selections: &[Selection], most: usize) -> (Vec<Found>, Vec<Option<Place>>) {
    let mut known = HashSet::new();
    let all = selections.iter().flat_map(|selection| accepted(state, selection));
    let all = all.filter(|(entry, _)| known.insert(Arc::as_ptr(&entry.series)));
    let found = all.take(most).map(|(entry, number)| {
        let found = Found {
            labels: of_metric(entry, number),
            series: entry.series.clone(),
            table: None,
            seen: entry.times.seen,
            is_alive: true,
            is_target: entry.is_target(),
            is_hidden: !entry.is_shown,
        };
        (found, entry.place)
    });
    found.unzip()
}

/// Series that a selection accepts, each with the first of its numbers that it accepts; with the first of all, where the
/// selection asks for the metric itself.
fn accepted<'a>(state: &'a State, selection: &'a Selection) -> impl Iterator<Item = (&'a Entry, &'a Number)> {
    let entries: Box<dyn Iterator<Item = &Entry>> = match selection.name() {
        None => Box::new(state.entries()),
        Some(name) => Box::new(state.asked(name, selection)),
    };
    entries.filter_map(|entry| {
        let mut numbers = entry.numbers.iter();
        let asked = numbers.find(|number| selection.accepts(&number.labels));
        let is_of_metric = |number: &&Number| selection.accepts(&of_metric(entry, number));
        let number = asked.or_else(|| entry.numbers.first().filter(is_of_metric));
        Some((entry, number?))
    })
}

impl Entry {
    /// Whether it describes a resource: neither a table nor a composite has it.
    fn is_target(&self) -> bool {
        let series = &self.series;
        self.place.is_none() && *series.metric.name == *TARGET_INFO && !series.resource.attributes.is_empty()
    }
}

/// The labels that the numbers of a series have in common.
fn of_metric(entry: &Entry, number: &Number) -> Labels {
    let of_number = match entry.series.metric.data {
        Data::Gauge | Data::Sum { .. } => return number.labels.clone(),
        Data::Histogram { .. } | Data::ExponentialHistogram { .. } => "le",
        Data::Summary => "quantile",
    };
    let name = entry.name.as_deref().unwrap_or_default();
    let common = number.labels.filter(|label| label != of_number);
    common.with(NAME, name)
}

/// Whether a table has a series at a place.
pub(super) fn holds(table: &Table, place: Place, series: &Arc<Series>) -> bool {
    match table.looker().at(place) {
        Seen::Shown(reading) => Arc::ptr_eq(reading.series, series),
        Seen::Hidden(known) => Arc::ptr_eq(known, series),
        Seen::Gone => false,
    }
}

fn largest<K: Ord>(counts: Counts<K>, top: usize, name: impl Fn(&K) -> String) -> Vec<Count> {
    let mut counts: Vec<(K, usize)> = counts.into_iter().collect();
    counts.sort_unstable_by(|(a, many), (b, more)| more.cmp(many).then_with(|| a.cmp(b)));
    counts.truncate(top);
    let named = counts.iter().map(|(key, count)| Count {
        name: name(key),
        count: *count,
    });
    named.collect()
}
