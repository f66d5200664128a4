// SPDX-License-Identifier: Apache-2.0

//! The runs of producers: leases, ends and folds.

use std::collections::BTreeSet;

use super::level::RunLease;
use super::{GROWTH_SHARE, MergeRefusal, Merged, ProducerId};
use crate::{Key, UnixNanos};

impl Merged {
    /// Touches the lease of a run, which `seen` shows to be alive. Pass the time at which the broker took the message:
    /// an old message that is read late then keeps nothing alive. A time in the future counts as `now`. Hidden levels of
    /// a run that is alive count again.
    ///
    /// # Errors
    /// If the run is new and no memory is left for its lease.
    pub fn touch(
        &mut self,
        producer: ProducerId,
        epoch: UnixNanos,
        seen: UnixNanos,
        now: UnixNanos,
    ) -> Result<(), MergeRefusal> {
        let term = self.limits.lease_ns;
        let returns = self.with_lease(producer, epoch, now, |lease| {
            lease.life.touch(seen.min(now));
            lease.hidden_at.is_some() && lease.is_alive(now, term)
        })?;
        if returns {
            self.show_levels(producer, epoch);
        }
        Ok(())
    }

    /// Makes the hidden levels of a run count again. It looks at no runs of other producers: after an interruption, all
    /// producers return.
    pub(super) fn show_levels(&mut self, producer: ProducerId, epoch: UnixNanos) {
        let has_levels = self.producers.change(producer, |known| {
            let lease = known.leases.iter_mut().find(|lease| lease.epoch == epoch);
            lease.is_some_and(|lease| {
                lease.hidden_at = None;
                lease.has_levels
            })
        });
        if !has_levels {
            return;
        }
        for slot in self.slots(producer) {
            let excluded = self.change(slot, |series| series.show_levels(producer, epoch));
            self.stats.mixed_kinds += excluded.unwrap_or(0) as u64;
        }
    }

    /// Notes that a run has reported its end. Its levels are removed now.
    ///
    /// # Errors
    /// If the run is new and no memory is left for its lease.
    pub fn end(
        &mut self,
        producer: ProducerId,
        epoch: UnixNanos,
        now: UnixNanos,
    ) -> Result<(), MergeRefusal> {
        self.with_lease(producer, epoch, now, |lease| lease.life.end(now))?;
        self.drop_levels([(producer, epoch)]);
        Ok(())
    }

    pub(super) fn with_lease<T>(
        &mut self,
        producer: ProducerId,
        epoch: UnixNanos,
        now: UnixNanos,
        change: impl FnOnce(&mut RunLease) -> T,
    ) -> Result<T, MergeRefusal> {
        let (term, most) = (self.limits.lease_ns, self.limits.max_runs);
        let is_known = self.producers.lease(producer, epoch).is_some();
        let more = if is_known {
            0
        } else {
            self.producers.growth_by_lease(producer)
        };
        if let Err(refusal) = self.room_for_producer(producer) {
            return self.noted(Err(refusal));
        }
        if !self.has_room(more, false) {
            return self.noted(Err(MergeRefusal::Memory(producer)));
        }
        let result = self.producers.change(producer, |known| {
            let lease = known.lease(epoch, now, most, |lease| !lease.is_alive(now, term));
            lease.map(change).ok_or(MergeRefusal::ProducerRuns(producer))
        });
        self.noted(result)
    }

    /// Removes the level of a run in one series: the run says that it no longer has it. Says whether there was one.
    pub fn drop_level(&mut self, key: Key, producer: ProducerId, epoch: UnixNanos) -> bool {
        let known = self.places.get(&key).copied();
        let has_level = self
            .at(known)
            .is_some_and(|series| series.has_level(producer, epoch));
        let Some(slot) = known.filter(|_| has_level) else {
            return false;
        };
        let run = BTreeSet::from([(producer, epoch)]);
        let has_more = self.change(slot, |series| {
            series.drop_levels(&run);
            series.has(producer)
        });
        if has_more == Some(false) {
            self.producers
                .change(producer, |known| known.series.retain(|listed| *listed != slot));
        }
        self.remove_if_empty(slot);
        true
    }

    /// Hides the levels of all runs whose lease had ended at `read_to`, up to when all messages are known: a reader that is
    /// behind knows nothing of later leases. Removes levels that have been hidden for
    /// [`MergedLimits::hidden_ns`](super::MergedLimits::hidden_ns), or all of them if little room is left, and forgets
    /// producers that have nothing else. An ended run is known for a further term, so that its late reports do not count.
    pub fn sweep(&mut self, now: UnixNanos, read_to: UnixNanos) {
        let (term, most) = (self.limits.lease_ns, self.limits.hidden_ns);
        // Our clock may have been set back since a touch.
        self.producers.clamp_leases(now);
        let judged_at = read_to.min(now);
        let lapsed = self.runs(|lease| lease.hidden_at.is_none() && !lease.is_alive(judged_at, term));
        self.hide_levels(lapsed, now);
        let is_tight = self.bytes() > self.limits.max_bytes / GROWTH_SHARE * (GROWTH_SHARE - 1);
        let is_over = |lease: &RunLease| {
            let hidden_at = lease.hidden_at;
            hidden_at.is_some_and(|at| is_tight || now.saturating_sub(at) > most)
        };
        self.drop_levels(self.runs(is_over));
        self.producers.forget(now, term);
    }

    /// Hides the levels of runs. It visits a series once, however many of the runs have a level there.
    fn hide_levels(&mut self, runs: Vec<(ProducerId, UnixNanos)>, now: UnixNanos) {
        for (producer, epoch) in &runs {
            self.producers.change(*producer, |known| {
                let lease = known.leases.iter_mut().find(|lease| lease.epoch == *epoch);
                lease.into_iter().for_each(|lease| lease.hidden_at = Some(now));
            });
        }
        let (with_levels, producers) = self.with_levels(runs);
        let slots: BTreeSet<u32> = producers.iter().flat_map(|id| self.slots(*id)).collect();
        for slot in slots {
            self.change(slot, |series| series.hide_levels(&with_levels));
        }
    }

    /// Those of the runs that may have levels, and their producers.
    fn with_levels(
        &self,
        runs: impl IntoIterator<Item = (ProducerId, UnixNanos)>,
    ) -> (BTreeSet<(ProducerId, UnixNanos)>, BTreeSet<ProducerId>) {
        let has_levels = |(producer, epoch): &(ProducerId, UnixNanos)| {
            let lease = self.producers.lease(*producer, *epoch);
            lease.is_some_and(|lease| lease.has_levels)
        };
        let runs: BTreeSet<_> = runs.into_iter().filter(has_levels).collect();
        let producers = runs.iter().map(|(producer, _)| *producer).collect();
        (runs, producers)
    }

    /// The runs whose lease ended at least `age` nanoseconds ago, or that reported their end: a replica may fold them.
    pub fn lapsed(&self, now: UnixNanos, age: u64) -> Vec<(ProducerId, UnixNanos)> {
        let term = self.limits.lease_ns.saturating_add(age);
        self.runs(|lease| !lease.is_alive(now, term))
    }

    pub(super) fn runs(&self, which: impl Fn(&RunLease) -> bool) -> Vec<(ProducerId, UnixNanos)> {
        let of = |(id, leases): (ProducerId, &[RunLease])| {
            let found = leases.iter().filter(|lease| which(lease));
            found.map(|lease| (id, lease.epoch)).collect::<Vec<_>>()
        };
        self.producers.leases().flat_map(of).collect()
    }

    /// Folds a run that is over: its totals become part of the retained total of the producer, and its levels go. Of a
    /// run that goes on, it folds the starts that newer ones have replaced. Gives the number of totals folded.
    ///
    /// Every replica may fold. A replica that does not lead waits longer. This looks at all series of the producer.
    pub fn fold(&mut self, producer: ProducerId, epoch: UnixNanos, is_over: bool) -> usize {
        let kept = self.limits.kept_runs;
        if is_over {
            self.drop_levels([(producer, epoch)]);
        }
        let mut folded = 0;
        for slot in self.slots(producer) {
            folded += self
                .change(slot, |series| series.fold(producer, epoch, is_over, kept))
                .unwrap_or(0);
        }
        if is_over {
            self.producers.change(producer, |known| {
                known.leases.retain(|lease| lease.epoch != epoch);
            });
        }
        folded
    }

    fn slots(&self, producer: ProducerId) -> Vec<u32> {
        let known = self.producers.get(producer);
        known.map_or_else(Vec::new, |known| known.series.clone())
    }

    /// Removes the levels of runs. It visits a series once, however many of the runs have a level there.
    pub(super) fn drop_levels(&mut self, runs: impl IntoIterator<Item = (ProducerId, UnixNanos)>) {
        let (dead, producers) = self.with_levels(runs);
        let slots: BTreeSet<u32> = producers.iter().flat_map(|id| self.slots(*id)).collect();
        for slot in &slots {
            self.change(*slot, |series| series.drop_levels(&dead));
        }
        for producer in producers {
            self.forget_levels(producer, &dead);
        }
        for slot in slots {
            self.remove_if_empty(slot);
        }
    }

    /// Brings the lists of a producer up to date after the levels of runs went.
    fn forget_levels(&mut self, producer: ProducerId, dead: &BTreeSet<(ProducerId, UnixNanos)>) {
        let mut left = self.slots(producer);
        left.retain(|slot| self.at(Some(*slot)).is_some_and(|series| series.has(producer)));
        self.producers.change(producer, |known| {
            known.series = left;
            for lease in &mut known.leases {
                lease.has_levels &= !dead.contains(&(producer, lease.epoch));
            }
        });
    }

    fn remove_if_empty(&mut self, slot: u32) {
        let Some(place) = self.series.get_mut(slot as usize) else {
            return;
        };
        if let Some(series) = place.take_if(|series| series.is_empty()) {
            self.held -= series.bytes();
            self.places.remove(&series.key);
            self.free.push(slot);
        }
    }
}
