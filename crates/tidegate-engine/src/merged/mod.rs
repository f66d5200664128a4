// SPDX-License-Identifier: Apache-2.0

//! Merged series: the values of many producers, in a form that tolerates repetition, delay, loss and any order.
//!
//! A producer reports the cumulative value of a series, the start time of that value and a sequence number. For each
//! producer and start the report with the highest sequence counts. So a lost or late report costs freshness and never a
//! count, and the merge of two states is commutative, associative and idempotent.
//!
//! Totals of ended runs stay. [`Merged::fold`] makes a run part of the retained total of its producer, which a leader
//! publishes ([`Merged::retained`]) and others merge ([`Merged::take_retained`]). A folded run keeps its own value, so
//! that a run that was folded too early may say more. Two leaders may fold at any moment. Levels are not folded: they
//! are hidden when the lease of their run ends, and count again when the run is seen again.
//!
//! Decision 0010 gives the reasons.

mod item;
mod level;
mod producer;
mod report;
mod retained;
mod runs;
mod series;
mod shares;
mod stream;
mod total;
mod update;

use std::sync::Arc;

use producer::Producers;
pub use report::{MergeMode, MergeRefusal, ProducerId, ReportKind, RunReport, ValueForm};
pub use retained::{CompactedPart, CompactedTotal, LISTED_STARTS, RetainedTotal};
use series::MergedSeries;
pub use shares::ProducerShare;
pub use stream::StreamTotal;

use crate::key::KeyMap;
use crate::{Key, Series, UnixNanos, Value};

/// Values of known runs may grow beyond the bound by this share of it.
const GROWTH_SHARE: usize = 8;

/// The bounds of merged series.
#[derive(Clone, Copy, Debug)]
pub struct MergedLimits {
    /// The most series.
    pub max_series: usize,
    /// The most producers.
    pub max_producers: usize,
    /// The most series of a producer.
    pub max_series_per_producer: usize,
    /// The most runs that a producer has: of a series, those that are not compacted; of leases, all.
    pub max_runs: usize,
    /// The folded runs of a producer that keep their own values in a series. Only the leader compacts the others.
    pub kept_runs: usize,
    /// The most bytes, as [`Merged::bytes`] counts them. Known runs may take one eighth more.
    pub max_bytes: usize,
    /// How long a lease lasts after its last touch, in nanoseconds.
    pub lease_ns: u64,
    /// How long levels are kept after they were hidden, in nanoseconds (default: 2 min).
    pub hidden_ns: u64,
}

impl Default for MergedLimits {
    fn default() -> Self {
        Self {
            max_series: 1_000_000,
            max_producers: 1_000_000,
            max_series_per_producer: 100_000,
            max_runs: 1024,
            kept_runs: 8,
            max_bytes: usize::MAX,
            lease_ns: 3_000_000_000,
            hidden_ns: 120_000_000_000,
        }
    }
}

/// Counts of refusals, and of what readers should know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergedStats {
    /// Reports whose value or start is not valid.
    pub invalid: u64,
    /// Reports of another kind than their series has, and runs that turned out to have another kind.
    pub mixed_kinds: u64,
    /// Levels of runs that have ended.
    pub lease_ended: u64,
    /// Reports of runs that a compacted total contains.
    pub final_runs: u64,
    /// Reports beyond a limit of a producer.
    pub producer_limits: u64,
    /// Reports beyond a limit of all.
    pub limits: u64,
    /// Histograms whose bounds are not those that are shown. Their observations move to the shown bounds.
    pub unequal_bounds: u64,
    /// Compacted totals of which one lacked runs of the other. The one with more runs counts.
    pub unequal_compactions: u64,
}

impl MergedStats {
    fn note(&mut self, refusal: &MergeRefusal) {
        let counter = match refusal {
            MergeRefusal::Invalid(_) => &mut self.invalid,
            MergeRefusal::MixedKinds { .. } => &mut self.mixed_kinds,
            MergeRefusal::LeaseEnded(_) => &mut self.lease_ended,
            MergeRefusal::FinalRun(_) => &mut self.final_runs,
            MergeRefusal::ProducerSeries(_) | MergeRefusal::ProducerRuns(_) => &mut self.producer_limits,
            MergeRefusal::Series(_) | MergeRefusal::Producers(_) | MergeRefusal::Memory(_) => {
                &mut self.limits
            }
        };
        *counter += 1;
    }
}

/// A merged series as a reader sees it.
#[derive(Clone, Copy, Debug)]
pub struct MergedReading<'a> {
    /// The key under which it was reported.
    pub key: Key,
    /// The series.
    pub series: &'a Arc<Series>,
    /// The smallest start of all runs; 0 = unknown. The start of a total never moves forward.
    pub start: UnixNanos,
    /// The newest time of a report.
    pub time: UnixNanos,
    /// The merged value.
    pub value: &'a Value,
}

/// The values of many producers for many series.
#[derive(Debug, Default)]
pub struct Merged {
    limits: MergedLimits,
    places: KeyMap<u32>,
    series: Vec<Option<MergedSeries>>,
    free: Vec<u32>,
    producers: Producers,
    /// Bytes that the series have allocated.
    held: usize,
    /// Number of series with something that counts.
    counting: usize,
    stats: MergedStats,
    /// The index of the last report among the runs of its series: the next one is often there in another series.
    guess: usize,
    /// Number of changes of series.
    #[cfg(test)]
    changes: usize,
}

impl Merged {
    /// Without series.
    pub fn new(limits: MergedLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Replaces the bound of [`MergedLimits::max_bytes`].
    pub fn set_max_bytes(&mut self, bytes: usize) {
        self.limits.max_bytes = bytes;
    }

    /// Number of series with a value. Series whose levels are all hidden have none.
    pub fn len(&self) -> usize {
        self.counting
    }

    /// Whether no series has a value.
    pub fn is_empty(&self) -> bool {
        self.counting == 0
    }

    /// The counts since the beginning.
    pub fn stats(&self) -> MergedStats {
        self.stats
    }

    /// The bytes of everything, for the account.
    pub fn bytes(&self) -> usize {
        let places = bytes_of_slots(self.places.capacity());
        let lists = self.series.capacity() * size_of::<Option<MergedSeries>>() + 4 * self.free.capacity();
        self.held + lists + places + self.producers.bytes()
    }

    /// Shows every series that has a value. It computes the values that have changed since the last time.
    pub fn read(&mut self, each: &mut dyn FnMut(MergedReading<'_>)) {
        for series in self.series.iter_mut().flatten() {
            let before = series.bytes();
            series.compute();
            self.held = self.held + series.bytes() - before;
            if let Some(reading) = series.reading() {
                each(reading);
            }
        }
    }

    /// Shows what a leader publishes of a producer: its retained total in each series that has one.
    pub fn retained(&self, producer: ProducerId, each: &mut dyn FnMut(Key, &Arc<Series>, RetainedTotal)) {
        let slots = self
            .producers
            .get(producer)
            .map_or(&[][..], |known| &known.series);
        for series in slots.iter().filter_map(|slot| self.at(Some(*slot))) {
            if let Some(retained) = series.retained(producer) {
                each(series.key, &series.identity, retained);
            }
        }
    }

    fn noted<T>(&mut self, result: Result<T, MergeRefusal>) -> Result<T, MergeRefusal> {
        result.inspect_err(|refusal| self.stats.note(refusal))
    }

    /// The series at a place.
    fn at(&self, slot: Option<u32>) -> Option<&MergedSeries> {
        self.series.get(slot? as usize)?.as_ref()
    }

    /// Changes a series and counts its bytes.
    fn change<T>(&mut self, slot: u32, change: impl FnOnce(&mut MergedSeries) -> T) -> Option<T> {
        let series = self.series.get_mut(slot as usize)?.as_mut()?;
        let (before, did_count) = (series.bytes(), series.kind().is_some());
        let result = change(series);
        self.held = self.held + series.bytes() - before;
        self.counting = self.counting + usize::from(series.kind().is_some()) - usize::from(did_count);
        #[cfg(test)]
        {
            self.changes += 1;
        }
        Some(result)
    }

    fn has_room(&self, more: usize, is_known: bool) -> bool {
        let most = self.limits.max_bytes;
        let most = if is_known {
            most.saturating_add(most / GROWTH_SHARE)
        } else {
            most
        };
        more == 0 || self.bytes().saturating_add(more) <= most
    }
}

/// The bytes of the map of places. A hash map leaves one eighth of its places empty.
fn bytes_of_slots(capacity: usize) -> usize {
    capacity * 8 / 7 * (size_of::<(Key, u32)>() + 1)
}

/// The bytes by which a list grows for one more item.
fn growth<T>(length: usize, capacity: usize) -> usize {
    let doubled = capacity.max(4) * size_of::<T>();
    if length < capacity { 0 } else { doubled }
}

#[cfg(test)]
mod tests;
