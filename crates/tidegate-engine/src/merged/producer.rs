// SPDX-License-Identifier: Apache-2.0

//! The producers: which series each of them has, and the leases of their runs.

use std::collections::BTreeMap;

use super::level::RunLease;
use super::{ProducerId, growth};
use crate::UnixNanos;

/// Bytes of an entry of the map, estimated: entries of a B-tree fill it at least by half.
const ENTRY: usize = 2 * size_of::<(ProducerId, Producer)>();

/// A producer.
#[derive(Debug, Default)]
pub(super) struct Producer {
    /// The places of the series that have something of it, in the order of their first reports.
    pub(super) series: Vec<u32>,
    pub(super) leases: Vec<RunLease>,
}

/// All producers, and the bytes that they take.
#[derive(Debug, Default)]
pub(super) struct Producers {
    by_id: BTreeMap<ProducerId, Producer>,
    lists: usize,
}

impl Producers {
    pub(super) fn bytes(&self) -> usize {
        self.by_id.len() * ENTRY + self.lists
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn get(&self, id: ProducerId) -> Option<&Producer> {
        self.by_id.get(&id)
    }

    pub(super) fn leases(&self) -> impl Iterator<Item = (ProducerId, &[RunLease])> {
        self.by_id.iter().map(|(id, producer)| (*id, &*producer.leases))
    }

    /// No lease was touched or ended after `now`.
    pub(super) fn clamp_leases(&mut self, now: UnixNanos) {
        for lease in self.by_id.values_mut().flat_map(|known| &mut known.leases) {
            lease.life.touched = lease.life.touched.min(now);
            // Without levels, the time begins with the first one.
            let has_levels = lease.has_levels;
            lease.hidden_at = lease
                .hidden_at
                .map(|at| if has_levels { at.min(now) } else { now });
        }
    }

    /// Forgets the runs of producers without series, a `term` after their last touch or end.
    pub(super) fn forget(&mut self, now: UnixNanos, term: u64) {
        let is_over = |lease: &RunLease| now.saturating_sub(lease.life.touched) > term;
        let without_series = self.by_id.iter().filter(|(_, known)| known.series.is_empty());
        let silent = without_series.filter(|(_, known)| known.leases.iter().any(is_over));
        let silent: Vec<ProducerId> = silent.map(|(id, _)| *id).collect();
        for id in silent {
            self.change(id, |known| known.leases.retain(|lease| !is_over(lease)));
        }
    }

    pub(super) fn lease(&self, id: ProducerId, epoch: UnixNanos) -> Option<&RunLease> {
        let leases = &self.by_id.get(&id)?.leases;
        leases.iter().find(|lease| lease.epoch == epoch)
    }

    /// The bytes that one more series of a producer takes.
    pub(super) fn growth_by_series(&self, id: ProducerId) -> usize {
        match self.by_id.get(&id) {
            Some(known) => growth::<u32>(known.series.len(), known.series.capacity()),
            None => ENTRY + growth::<u32>(0, 0),
        }
    }

    /// The bytes that one more lease of a producer takes.
    pub(super) fn growth_by_lease(&self, id: ProducerId) -> usize {
        match self.by_id.get(&id) {
            Some(known) => growth::<RunLease>(known.leases.len(), known.leases.capacity()),
            None => ENTRY + growth::<RunLease>(0, 0),
        }
    }

    /// Changes a producer, which need not exist before. One that has nothing afterwards goes.
    pub(super) fn change<T>(&mut self, id: ProducerId, change: impl FnOnce(&mut Producer) -> T) -> T {
        let producer = self.by_id.entry(id).or_default();
        let before = producer.bytes();
        let result = change(producer);
        let is_empty = producer.series.is_empty() && producer.leases.is_empty();
        let after = if is_empty { 0 } else { producer.bytes() };
        if is_empty {
            self.by_id.remove(&id);
        }
        self.lists = self.lists + after - before;
        result
    }
}

impl Producer {
    fn bytes(&self) -> usize {
        4 * self.series.capacity() + size_of::<RunLease>() * self.leases.capacity()
    }

    /// The lease of a run. If there are `most` leases, the oldest one that has ended makes room; `None`: none has.
    pub(super) fn lease(
        &mut self,
        epoch: UnixNanos,
        now: UnixNanos,
        most: usize,
        is_over: impl Fn(&RunLease) -> bool,
    ) -> Option<&mut RunLease> {
        let known = self.leases.iter().position(|lease| lease.epoch == epoch);
        let at = match known {
            Some(at) => at,
            None if self.leases.len() < most => {
                self.leases.push(RunLease::new(epoch, now));
                self.leases.len() - 1
            }
            None => {
                let over = self.leases.iter().enumerate();
                let over = over.filter(|(_, lease)| is_over(lease) && !lease.has_levels);
                let (at, _) = over.min_by_key(|(_, lease)| lease.life.touched)?;
                *self.leases.get_mut(at)? = RunLease::new(epoch, now);
                at
            }
        };
        self.leases.get_mut(at)
    }
}
