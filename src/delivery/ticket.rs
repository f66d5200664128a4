//! The receipt for data that is on disk and in memory: when memory lets go of it, the disk may.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::storage::Store;

/// Data on disk that is in memory too. On drop it is settled: nobody needs it any more.
pub(super) struct Ticket {
    store: Arc<Store>,
    seq: u64,
    keeps: AtomicBool,
}

impl Ticket {
    /// For data of this number; `keeps`: it is not settled, unless that changes.
    pub(super) fn new(store: Arc<Store>, seq: u64, keeps: bool) -> Self {
        Self {
            store,
            seq,
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
            self.store.settle(self.seq);
        }
    }
}
