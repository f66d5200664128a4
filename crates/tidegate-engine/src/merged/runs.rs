// SPDX-License-Identifier: Apache-2.0

//! The runs of producers: leases, goodbyes and folds.

use super::level::RunLease;
use super::{MergeRefusal, Merged, ProducerId};
use crate::UnixNanos;

impl Merged {
    /// Touches the lease of a run, which `seen` shows to be alive. Pass the time at which the broker took the message:
    /// an old message that is read late then keeps nothing alive. A time in the future counts as `now`.
    ///
    /// # Errors
    /// If the run is new and there is no room for its lease.
    pub fn touch(
        &mut self,
        producer: ProducerId,
        epoch: UnixNanos,
        seen: UnixNanos,
        now: UnixNanos,
    ) -> Result<(), MergeRefusal> {
        self.with_lease(producer, epoch, now, |lease| {
            lease.touched = lease.touched.max(seen.min(now));
        })
    }

    /// Notes that a run has said goodbye. Its levels go now.
    ///
    /// # Errors
    /// If the run is new and there is no room for its lease.
    pub fn end(
        &mut self,
        producer: ProducerId,
        epoch: UnixNanos,
        now: UnixNanos,
    ) -> Result<(), MergeRefusal> {
        self.with_lease(producer, epoch, now, |lease| lease.is_ended = true)?;
        self.drop_levels(producer, epoch);
        Ok(())
    }

    pub(super) fn with_lease(
        &mut self,
        producer: ProducerId,
        epoch: UnixNanos,
        now: UnixNanos,
        change: impl FnOnce(&mut RunLease),
    ) -> Result<(), MergeRefusal> {
        let (term, most) = (self.limits.lease_ns, self.limits.max_runs);
        let is_known = self.producers.lease(producer, epoch).is_some();
        let more = if is_known {
            0
        } else {
            self.producers.growth_by_lease(producer)
        };
        if !self.has_room(more, false) {
            return self.noted(Err(MergeRefusal::Memory(producer)));
        }
        let result = self.producers.change(producer, |known| {
            let lease = known.lease(epoch, most, |lease| !lease.is_alive(now, term));
            lease.map(change).ok_or(MergeRefusal::ProducerRuns(producer))
        });
        self.noted(result)
    }

    /// Removes the levels of all runs whose lease has ended.
    pub fn sweep(&mut self, now: UnixNanos) {
        let term = self.limits.lease_ns;
        // Our clock may have been set back since a touch.
        self.producers.clamp_leases(now);
        for (producer, epoch) in self.runs(|lease| lease.has_levels && !lease.is_alive(now, term)) {
            self.drop_levels(producer, epoch);
        }
    }

    /// The runs whose lease ended at least `age` nanoseconds ago, or that said goodbye: a leader may fold them.
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
    /// Only a leader folds. It looks at all series of the producer.
    pub fn fold(&mut self, producer: ProducerId, epoch: UnixNanos, is_over: bool) -> usize {
        let kept = self.limits.kept_runs;
        if is_over {
            self.drop_levels(producer, epoch);
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

    pub(super) fn drop_levels(&mut self, producer: ProducerId, epoch: UnixNanos) {
        if !self
            .producers
            .lease(producer, epoch)
            .is_some_and(|lease| lease.has_levels)
        {
            return;
        }
        let mut left = self.slots(producer);
        left.retain(|slot| {
            let has = self.change(*slot, |series| {
                series.drop_levels(producer, epoch);
                series.has(producer)
            });
            self.remove_if_empty(*slot);
            has == Some(true)
        });
        self.producers.change(producer, |known| {
            known.series = left;
            let lease = known.leases.iter_mut().find(|lease| lease.epoch == epoch);
            lease.into_iter().for_each(|lease| lease.has_levels = false);
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
