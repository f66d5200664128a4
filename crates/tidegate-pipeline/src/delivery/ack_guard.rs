// SPDX-License-Identifier: Apache-2.0

//! The guard that settles a record on disk when the memory copy of its batch is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use smallvec::SmallVec;
use tidegate_wal::Store;

/// A shared counter of items that are on disk and in memory. It is briefly negative if a batch is settled before
/// it is counted.
#[derive(Clone, Debug, Default)]
pub(super) struct ItemCounter(Arc<AtomicI64>);

impl ItemCounter {
    /// Subtracts items for another reason than the drop of a guard.
    pub(super) fn lose(&self, items: u64) {
        self.take(usize::try_from(items).unwrap_or(usize::MAX));
    }

    pub(super) fn add(&self, items: usize) {
        self.0.fetch_add(signed(items), Relaxed);
    }

    fn take(&self, items: usize) {
        self.0.fetch_sub(signed(items), Relaxed);
    }

    pub(super) fn items(&self) -> u64 {
        u64::try_from(self.0.load(Relaxed)).unwrap_or(0)
    }
}

fn signed(items: usize) -> i64 {
    i64::try_from(items).unwrap_or(i64::MAX)
}

/// Whether the write of a record has failed, so that the disk does not have its batch.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteFailure(Arc<AtomicBool>);

impl WriteFailure {
    pub(super) fn set(&self) {
        self.0.store(true, Relaxed);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Guards one record on disk whose batch is in memory too. Dropping the guard settles the record, so that the
/// store may delete it, unless `keep` was called.
pub(super) struct AckGuard {
    store: Arc<Store>,
    /// The counters that include its items until it is settled.
    counts: SmallVec<[ItemCounter; 2]>,
    seq: u64,
    items: usize,
    keeps: AtomicBool,
    failure: WriteFailure,
}

impl AckGuard {
    /// The guard of record `seq`, whose items the callers have added to `counts`. With `keeps`, the drop
    /// settles nothing.
    pub(super) fn new(
        store: Arc<Store>,
        counts: SmallVec<[ItemCounter; 2]>,
        seq: u64,
        items: usize,
        keeps: bool,
        failure: WriteFailure,
    ) -> Self {
        Self {
            store,
            counts,
            seq,
            items,
            keeps: keeps.into(),
            failure,
        }
    }

    /// Whether the write of the record fails, now or later.
    pub(super) fn failure(&self) -> &WriteFailure {
        &self.failure
    }

    /// Keeps the record on disk for the next run.
    pub(super) fn keep(&self) {
        self.keeps.store(true, Relaxed);
    }
}

impl Drop for AckGuard {
    fn drop(&mut self) {
        if !self.keeps.load(Relaxed) {
            self.counts.iter().for_each(|count| count.take(self.items));
            self.store.release(self.seq);
        }
    }
}
