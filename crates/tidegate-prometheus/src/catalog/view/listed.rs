// SPDX-License-Identifier: Apache-2.0

//! Lists of the series of a selection and their places, and statistics of all series.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use foldhash::fast::RandomState;
use tidegate_engine::{Count, Data, LookupResult, Series, SlotId, Table, UnixNanos};
use tidegate_promql::{Labels, NAME, Patience, QueryError, Selection};

use super::entry::{Key, Number, SeriesEntry};
use super::state::ViewState;
use super::{SLICE, View, YIELD};
use crate::render::TARGET_INFO;

/// A series that queries see, as its table or composite has it.
pub struct Found {
    /// Its labels and metric name. A histogram is one series here.
    pub labels: Labels,
    /// The series.
    pub series: Arc<Series>,
    /// Its table; `None` for a composite or `target_info`.
    pub table: Option<Arc<Table>>,
    /// The last report of its source.
    pub seen: UnixNanos,
    /// Whether that is not too long ago.
    pub is_alive: bool,
    /// Whether it is `target_info`, which describes its resource.
    pub is_target: bool,
    /// Whether another series of the same name and labels is seen in its place.
    pub is_hidden: bool,
}

/// Cardinality statistics of the series that queries see. Each list has the largest first.
#[derive(Default)]
pub struct SeriesStats {
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

type SeriesCounts<K> = HashMap<K, usize, RandomState>;

/// By label: its values, by series.
type ValueCounts = HashMap<Arc<str>, SeriesCounts<Arc<str>>, RandomState>;

impl View {
    /// At most `most` series that one of these selections accepts, by the name of a number or of the metric.
    ///
    /// # Errors
    /// The reader no longer waits, its time is over, or memory is short.
    pub fn found(
        &self,
        now: UnixNanos,
        selections: &[Selection],
        most: usize,
        patience: &Patience,
    ) -> Result<Vec<Found>, QueryError> {
        self.refresh_for(now, selections, patience)?;
        let (mut found, places) = self.listed(selections, most, patience)?;
        let tables = self.tables();
        for (found, place) in found.iter_mut().zip(places) {
            let is_it = |table: &&Arc<Table>| place.is_some_and(|place| holds(table, place, &found.series));
            found.table = tables.iter().find(is_it).cloned();
            let last = self.senders.last_report(&found.series.resource);
            found.seen = found.seen.max(last.seen);
            found.is_alive = !last.is_dead() && now.saturating_sub(found.seen) <= last.lease;
        }
        Ok(found)
    }

    /// The series that the selections accept, each once, with their places in the tables.
    fn listed(
        &self,
        selections: &[Selection],
        most: usize,
        patience: &Patience,
    ) -> Result<(Vec<Found>, Vec<Option<SlotId>>), QueryError> {
        let mut known = HashSet::new();
        let (mut all, mut places) = (Vec::new(), Vec::new());
        for selection in selections {
            self.each(selection, patience, &mut |_, entry| {
                let Some(number) = accepted(entry, selection).filter(|_| all.len() < most) else {
                    return;
                };
                if !known.insert(Arc::as_ptr(&entry.series)) {
                    return;
                }
                all.push(Found {
                    labels: of_metric(entry, number),
                    series: entry.series.clone(),
                    table: None,
                    seen: entry.times.seen,
                    is_alive: true,
                    is_target: entry.is_target(),
                    is_hidden: !entry.is_shown,
                });
                places.push(entry.place);
            })?;
        }
        Ok((all, places))
    }

    /// Counts the series, with the `top` largest of everything; also of labels, if `counts_labels`. It reads all
    /// series in slices, so that queries continue meanwhile.
    ///
    /// # Errors
    /// The reader no longer waits, its time is over, or memory is short.
    pub fn series_stats(
        &self,
        now: UnixNanos,
        top: usize,
        counts_labels: bool,
        patience: &Patience,
    ) -> Result<SeriesStats, QueryError> {
        self.update_sources(now);
        // The first pass settles which of two equal series is seen.
        self.in_slices(now, &mut |_, _, _| patience.check().is_ok());
        let mut series = 0;
        let (mut metrics, mut labels) = (SeriesCounts::<Arc<str>>::default(), ValueCounts::default());
        self.in_slices(now, &mut |state, from, next| {
            let shown = state.between(from, next).filter(|entry| entry.is_shown);
            for number in shown.flat_map(|entry| &entry.numbers) {
                series += 1;
                for (label, value) in number.labels.iter() {
                    if **label == *NAME {
                        add(&mut metrics, value);
                    }
                    if !counts_labels {
                        continue;
                    }
                    match labels.get_mut(label) {
                        Some(values) => add(values, value),
                        None => add(labels.entry(label.clone()).or_default(), value),
                    }
                }
            }
            patience.check().is_ok()
        });
        patience.check()?;
        let pairs = labels.values().map(HashMap::len).sum();
        let by_label = labels.iter().map(|(label, values)| (label.clone(), values.len()));
        let by_label: SeriesCounts<Arc<str>> = by_label.collect();
        let by_value = labels.iter().flat_map(|(label, values)| {
            let values = values.iter();
            values.map(move |(value, count)| ((label.clone(), value.clone()), *count))
        });
        let by_value: SeriesCounts<(Arc<str>, Arc<str>)> = by_value.collect();
        Ok(SeriesStats {
            series,
            pairs,
            metrics: largest(metrics, top, std::string::ToString::to_string),
            labels: largest(by_label, top, std::string::ToString::to_string),
            values: largest(by_value, top, |(label, value)| format!("{label}={value}")),
        })
    }

    /// Reads all series in slices, and passes each slice to `each` with its bounds. Other readers get the state
    /// between slices. It ends when `each` returns false.
    pub(super) fn in_slices(
        &self,
        now: UnixNanos,
        each: &mut dyn FnMut(&ViewState, Key, Option<Key>) -> bool,
    ) {
        let pass = self.pass(now, false);
        let mut next = Some((0, 0));
        while let Some(from) = next {
            while self.waiting.load(Relaxed) > 0 {
                std::thread::sleep(YIELD);
            }
            let mut state = self.state();
            next = state.read_some(from, SLICE, now, pass).map(|(next, _)| next);
            if !each(&state, from, next) {
                return;
            }
        }
    }
}

fn add(counts: &mut SeriesCounts<Arc<str>>, key: &Arc<str>) {
    match counts.get_mut(key) {
        Some(count) => *count += 1,
        None => _ = counts.insert(key.clone(), 1),
    }
}

impl ViewState {
    /// The series of one source from a place on, to the next place or the end of the source.
    fn between(&self, (number, from): Key, next: Option<Key>) -> impl Iterator<Item = &SeriesEntry> {
        let source = self.sources.get(number as usize).and_then(Option::as_ref);
        let entries = source.map_or(&[][..], |source| &source.entries);
        let until = next.filter(|next| next.0 == number);
        let until = until.map_or(entries.len(), |(_, at)| at as usize);
        let part = entries.get(from as usize..until).unwrap_or_default();
        part.iter().flatten()
    }
}

/// The first number of a series that a selection accepts, or simply the first one if the selection names the
/// metric itself.
fn accepted<'a>(entry: &'a SeriesEntry, selection: &Selection) -> Option<&'a Number> {
    let mut numbers = entry.numbers.iter();
    let asked = numbers.find(|number| selection.accepts(&number.labels));
    let is_of_metric = |number: &&Number| selection.accepts(&of_metric(entry, number));
    asked.or_else(|| entry.numbers.first().filter(is_of_metric))
}

impl SeriesEntry {
    /// Whether it describes a resource: neither a table nor a composite has it.
    fn is_target(&self) -> bool {
        let series = &self.series;
        self.place.is_none() && *series.metric.name == *TARGET_INFO && !series.resource.attributes.is_empty()
    }
}

/// The labels that the numbers of a series have in common.
fn of_metric(entry: &SeriesEntry, number: &Number) -> Labels {
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
pub(super) fn holds(table: &Table, place: SlotId, series: &Arc<Series>) -> bool {
    match table.series_reader().at(place) {
        LookupResult::Shown(reading) => Arc::ptr_eq(reading.series, series),
        LookupResult::Hidden(known) => Arc::ptr_eq(known, series),
        LookupResult::Gone => false,
    }
}

fn largest<K: Ord>(counts: SeriesCounts<K>, top: usize, name: impl Fn(&K) -> String) -> Vec<Count> {
    let mut counts: Vec<(K, usize)> = counts.into_iter().collect();
    counts.sort_unstable_by(|(a, many), (b, more)| more.cmp(many).then_with(|| a.cmp(b)));
    counts.truncate(top);
    let named = counts.iter().map(|(key, count)| Count {
        name: name(key),
        count: *count,
    });
    named.collect()
}
