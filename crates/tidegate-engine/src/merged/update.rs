// SPDX-License-Identifier: Apache-2.0

//! How reports, retained totals and whole states come in, and which of them are refused.

use std::sync::Arc;

use super::item::Run;
use super::retained::bytes_of;
use super::series::{Effect, MergedSeries, RunFlags, RunIndex};
use super::{
    CompactedTotal, MergeRefusal, Merged, ProducerId, RetainedTotal, RunReport, bytes_of_slots, growth,
};
use crate::{Key, Series, UnixNanos};

impl Merged {
    /// Takes the report of a run. `identity` gives the series if `key` is new. Says whether the state has changed. A level
    /// of a run whose levels are hidden is hidden too.
    ///
    /// # Errors
    /// If the report does not count. The state is as before, except that a report of another kind is kept.
    pub fn take(
        &mut self,
        key: Key,
        identity: impl FnOnce() -> Arc<Series>,
        report: RunReport,
    ) -> Result<bool, MergeRefusal> {
        let producer = report.producer;
        let result = match report.checked() {
            None => Err(MergeRefusal::Invalid(producer)),
            Some(report) if !self.may_count(&report) => Err(MergeRefusal::LeaseEnded(producer)),
            Some(report) => self.take_checked(key, identity, report, false),
        };
        self.noted(result)
    }

    fn may_count(&self, report: &RunReport) -> bool {
        let lease = self.producers.lease(report.producer, report.epoch);
        report.mode.is_retained() || lease.is_some_and(|lease| !lease.life.is_ended)
    }

    fn take_checked(
        &mut self,
        key: Key,
        identity: impl FnOnce() -> Arc<Series>,
        report: RunReport,
        is_folded: bool,
    ) -> Result<bool, MergeRefusal> {
        let producer = report.producer;
        let known = self.places.get(&key).copied();
        let place = match self.at(known) {
            Some(series) => series.index_of(&report, self.guess),
            None => RunIndex::New(0),
        };
        let slot = match (place, known) {
            (RunIndex::Compacted, _) => return Err(MergeRefusal::FinalRun(producer)),
            (RunIndex::Known(_), Some(slot)) => {
                let more = self.at(known).map_or(0, |series| series.growth(place, &report));
                self.has_room(more, true)
                    .then_some(slot)
                    .ok_or(MergeRefusal::Memory(producer))?
            }
            _ => {
                let more = match self.at(known) {
                    Some(series) => series.growth(place, &report),
                    // The report, and the merged value that a reader computes.
                    None => 2 * bytes_of(&report.value) + size_of::<Run>() + growth::<Box<Run>>(0, 0),
                };
                let runs = match (place, self.at(known)) {
                    (RunIndex::New(at), Some(series)) => series.runs_beside(at, producer),
                    _ => 0,
                };
                let compacted = self.at(known).and_then(|series| series.compacted_of(producer));
                let is_new = runs == 0 && compacted.is_none();
                self.room_for_run(producer, runs, is_new)?;
                self.slot_for(key, known, identity, (producer, is_new), more)?
            }
        };
        if let RunIndex::Known(at) | RunIndex::New(at) = place {
            self.guess = at;
        }
        let is_hidden = !report.mode.is_retained() && self.note_level(producer, report.epoch);
        self.apply(slot, place, report, RunFlags { is_folded, is_hidden })
    }

    /// Refuses a run above the limits of its producer, which has so many runs in the series. `is_new`: it has nothing there.
    fn room_for_run(&self, producer: ProducerId, runs: usize, is_new: bool) -> Result<(), MergeRefusal> {
        if runs >= self.limits.max_runs {
            return Err(MergeRefusal::ProducerRuns(producer));
        }
        let own = self.producers.get(producer).map_or(0, |known| known.series.len());
        if is_new && own >= self.limits.max_series_per_producer {
            return Err(MergeRefusal::ProducerSeries(producer));
        }
        self.room_for_producer(producer)
    }

    pub(super) fn room_for_producer(&self, producer: ProducerId) -> Result<(), MergeRefusal> {
        let is_known = self.producers.get(producer).is_some();
        if !is_known && self.producers.len() >= self.limits.max_producers {
            return Err(MergeRefusal::Producers(producer));
        }
        Ok(())
    }

    /// The place of a series that gets something new of a producer, which takes `more` bytes. The producer is new there, or not.
    fn slot_for(
        &mut self,
        key: Key,
        known: Option<u32>,
        identity: impl FnOnce() -> Arc<Series>,
        (producer, is_new): (ProducerId, bool),
        more: usize,
    ) -> Result<u32, MergeRefusal> {
        let more = more
            + if is_new {
                self.producers.growth_by_series(producer)
            } else {
                0
            };
        let slot = match known {
            Some(slot) if self.has_room(more, false) => slot,
            Some(_) => return Err(MergeRefusal::Memory(producer)),
            None => self.add_series(key, identity, producer, more)?,
        };
        if is_new {
            self.producers.change(producer, |known| known.series.push(slot));
        }
        Ok(slot)
    }

    fn add_series(
        &mut self,
        key: Key,
        identity: impl FnOnce() -> Arc<Series>,
        producer: ProducerId,
        more: usize,
    ) -> Result<u32, MergeRefusal> {
        if self.places.len() >= self.limits.max_series {
            return Err(MergeRefusal::Series(producer));
        }
        let series = MergedSeries::new(key, identity());
        let more = more + series.bytes() + self.growth_by_series();
        if !self.has_room(more, false) {
            return Err(MergeRefusal::Memory(producer));
        }
        self.held += series.bytes();
        let slot = self.free.pop().unwrap_or(self.series.len() as u32);
        match self.series.get_mut(slot as usize) {
            Some(place) => *place = Some(series),
            None => self.series.push(Some(series)),
        }
        self.places.insert(key, slot);
        Ok(slot)
    }

    /// The bytes by which the lists grow for one more series.
    fn growth_by_series(&self) -> usize {
        let (places, most) = (self.places.len(), self.places.capacity());
        let list = if self.free.is_empty() {
            growth::<Option<MergedSeries>>(self.series.len(), self.series.capacity())
        } else {
            0
        };
        // A full map doubles; the smallest ones have 3 and 7 places.
        let doubled = bytes_of_slots(most.max(7));
        list + if places < most { 0 } else { doubled }
    }

    /// Notes that a run has a level. Says whether its levels are hidden.
    fn note_level(&mut self, producer: ProducerId, epoch: UnixNanos) -> bool {
        let Some(lease) = self.producers.lease(producer, epoch) else {
            return true;
        };
        let is_hidden = lease.hidden_at.is_some();
        if !lease.has_levels {
            self.producers.change(producer, |known| {
                let lease = known.leases.iter_mut().find(|lease| lease.epoch == epoch);
                lease.into_iter().for_each(|lease| lease.has_levels = true);
            });
        }
        is_hidden
    }

    fn apply(
        &mut self,
        slot: u32,
        place: RunIndex,
        report: RunReport,
        flags: RunFlags,
    ) -> Result<bool, MergeRefusal> {
        let (producer, sent) = (report.producer, report.kind());
        let applied = self.change(slot, |series| {
            let has_other_bounds = series.has_other_bounds(&report.value);
            let effect = series.take(place, report, flags);
            (
                effect,
                series.kind().filter(|shown| *shown != sent),
                has_other_bounds,
            )
        });
        let (Effect { is_changed, excluded }, other_kind, has_other_bounds) = applied.unwrap_or_default();
        self.stats.mixed_kinds += excluded as u64;
        self.stats.unequal_bounds += u64::from(has_other_bounds);
        match other_kind {
            Some(shown) => Err(MergeRefusal::MixedKinds {
                producer,
                sent,
                shown,
            }),
            None => Ok(is_changed),
        }
    }

    /// Takes the retained total of a producer, as a leader has published it.
    ///
    /// # Errors
    /// If the record is not valid, or if no memory is left for all of it. The part that fits counts.
    pub fn take_retained(
        &mut self,
        key: Key,
        identity: &Arc<Series>,
        retained: RetainedTotal,
    ) -> Result<(), MergeRefusal> {
        let producer = retained.producer;
        let Some(RetainedTotal { compacted, runs, .. }) = retained.checked() else {
            return self.noted(Err(MergeRefusal::Invalid(producer)));
        };
        let compacted = compacted.map_or(Ok(()), |compacted| {
            self.take_compacted(key, identity, producer, compacted)
        });
        let mut result = self.noted(compacted);
        for run in runs {
            let taken = self.take_run(key, identity, run, true);
            result = result.and(taken);
        }
        result
    }

    fn take_compacted(
        &mut self,
        key: Key,
        identity: &Arc<Series>,
        producer: ProducerId,
        compacted: CompactedTotal,
    ) -> Result<(), MergeRefusal> {
        let known = self.places.get(&key).copied();
        let series = self.at(known);
        if series.and_then(|series| series.compacted_of(producer)) == Some(&compacted) {
            return Ok(());
        }
        let more = series.map_or_else(
            || compacted.bytes() + compacted.largest() + growth::<(ProducerId, CompactedTotal)>(0, 0),
            |series| series.growth_by_compacted(producer, &compacted),
        );
        let slot = match known.filter(|_| series.is_some_and(|series| series.has(producer))) {
            // It mostly takes the place of runs, so it frees memory.
            Some(slot) if self.has_room(more, true) => slot,
            Some(_) => return Err(MergeRefusal::Memory(producer)),
            None => {
                self.room_for_run(producer, 0, true)?;
                self.slot_for(key, known, || identity.clone(), (producer, true), more)?
            }
        };
        let lacks_runs = self.change(slot, |series| series.join_compacted(producer, compacted));
        self.stats.unequal_compactions += u64::from(lacks_runs == Some(true));
        Ok(())
    }

    /// Takes a run of another state. A run that is compacted already, or of another kind, is not an error here.
    fn take_run(
        &mut self,
        key: Key,
        identity: &Arc<Series>,
        run: RunReport,
        is_folded: bool,
    ) -> Result<(), MergeRefusal> {
        let taken = self.take_checked(key, || identity.clone(), run, is_folded);
        match taken {
            Ok(_) | Err(MergeRefusal::FinalRun(_)) => Ok(()),
            Err(refusal @ MergeRefusal::MixedKinds { .. }) => {
                self.stats.note(&refusal);
                Ok(())
            }
            Err(refusal) => self.noted(Err(refusal)),
        }
    }

    /// Merges another state into this one.
    ///
    /// # Errors
    /// If no memory is left for all of it. The part that fits counts.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeRefusal> {
        let mut result = Ok(());
        let mut shown = Vec::new();
        for (producer, leases) in other.producers.leases() {
            for theirs in leases {
                let touched = self.with_lease(producer, theirs.epoch, theirs.life.touched, |mine| {
                    mine.life.touch(theirs.life.touched);
                    mine.life.is_ended |= theirs.life.is_ended;
                });
                if touched.is_ok() && theirs.hidden_at.is_none() {
                    shown.push((producer, theirs.epoch));
                }
                result = result.and(touched);
            }
        }
        // What one of the two shows is shown. The next sweep judges it.
        for (producer, epoch) in shown {
            self.show_levels(producer, epoch);
        }
        for series in other.series.iter().flatten() {
            let (key, identity) = (series.key, &series.identity);
            for (producer, compacted) in &series.compacted {
                let taken = self.take_compacted(key, identity, *producer, compacted.clone());
                result = result.and(self.noted(taken));
            }
            for run in &series.runs {
                let Run {
                    report, is_folded, ..
                } = &**run;
                let lease = self.producers.lease(report.producer, report.epoch);
                if lease.is_none() && !report.mode.is_retained() {
                    continue;
                }
                result = result.and(self.take_run(key, identity, report.clone(), *is_folded));
            }
        }
        self.drop_levels(self.runs(|lease| lease.life.is_ended));
        result
    }
}
