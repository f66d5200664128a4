//! The receipt for data that is on disk and in memory: when memory lets go of it, the disk may.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use smallvec::SmallVec;
use tidegate_wal::Store;

/// Items on disk that are in memory too. Briefly negative, when a batch is settled before it is noted.
#[derive(Clone, Debug, Default)]
pub(super) struct Claimed(Arc<AtomicI64>);

impl Claimed {
    /// Fewer, for another reason than a ticket's end.
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

/// Data on disk that is in memory too. On drop it is settled: nobody needs it any more.
pub(super) struct Ticket {
    store: Arc<Store>,
    /// What counts its items until they are settled.
    counts: SmallVec<[Claimed; 2]>,
    seq: u64,
    items: usize,
    keeps: AtomicBool,
}

impl Ticket {
    /// For data of this number, whose items others count; `keeps`: it is not
    /// settled, unless that changes.
    pub(super) fn new(
        store: Arc<Store>,
        counts: SmallVec<[Claimed; 2]>,
        seq: u64,
        items: usize,
        keeps: bool,
    ) -> Self {
        Self {
            store,
            counts,
            seq,
            items,
            keeps: keeps.into(),
        }
    }

    /// It stays on disk, for the next run.
    pub(super) fn keep(&self) {
        self.keeps.store(true, Relaxed);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.keeps.load(Relaxed) {
            self.counts.iter().for_each(|count| count.take(self.items));
            self.store.settle(self.seq);
        }
    }
}
