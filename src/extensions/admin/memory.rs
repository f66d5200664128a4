// SPDX-License-Identifier: Apache-2.0

//! Memory for heavy queries. Grants are not part of the account, so senders are not refused for memory that a
//! query has not used yet. Its used memory is measured like all other. While a query runs, this memory counts
//! twice: as used, and as granted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::component::{Account, Ceiling};

/// Bytes that a sample takes: 16, and as much again while it is computed.
pub(super) const SAMPLE_BYTES: usize = 32;

/// This part of the soft limit is left to senders.
const SPARED: usize = 4;

/// A query that takes no more gets it from that part, too.
const SMALL: usize = 1 << 20;

/// The memory that heavy queries share.
pub(super) struct QueryMemory {
    account: Arc<Account>,
    taken: Arc<AtomicUsize>,
}

/// The memory of one query, until the drop.
pub(super) struct Grant {
    taken: Arc<AtomicUsize>,
    bytes: usize,
}

impl Grant {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Relaxed);
    }
}

impl QueryMemory {
    pub(super) fn of(account: Arc<Account>) -> Self {
        let taken = Arc::default();
        Self { account, taken }
    }

    /// Grants `wanted` bytes, or the rest; `None`: nothing is left.
    pub(super) fn take(&self, wanted: usize) -> Option<Grant> {
        if wanted == 0 {
            let taken = self.taken.clone();
            return Some(Grant { taken, bytes: 0 });
        }
        let soft = self.account.limit_under(Ceiling::Soft);
        let mut bytes = 0;
        let taken = self.taken.fetch_update(Relaxed, Relaxed, |taken| {
            let all = taken.saturating_add(wanted);
            let room = |most| self.account.room_for(all, most).saturating_sub(taken);
            bytes = room(soft - soft / SPARED).max(room(soft).min(SMALL));
            (bytes >= wanted.min(SMALL)).then(|| taken + bytes)
        });
        taken.ok()?;
        let taken = self.taken.clone();
        Some(Grant { taken, bytes })
    }

    #[cfg(test)]
    pub(super) fn granted_bytes(&self) -> usize {
        self.taken.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::{Held, Limit};

    const MIB: usize = 1 << 20;

    #[test]
    fn queries_leave_a_quarter_of_the_memory_to_senders() {
        let account = Arc::<Account>::default();
        account.add_limit(Limit::of(64 * MIB));
        let memory = QueryMemory::of(account.clone());
        let take = |mib: usize| memory.take(mib * MIB).map(|grant| (grant.bytes() / MIB, grant));
        let (bytes, _first) = take(40).unwrap();
        assert_eq!(bytes, 40);
        let (bytes, second) = take(40).unwrap();
        assert_eq!(bytes, 8, "three quarters in all");
        let (bytes, _small) = take(40).unwrap();
        assert_eq!(bytes, 1, "a small one");
        assert_eq!(account.reserved_bytes(), 0);
        let mut body = Held::new(account.clone());
        body.try_grow(40 * MIB).unwrap();
        assert!(take(40).is_none(), "senders come first");
        body.shrink(40 * MIB);
        drop(second);
        let (bytes, _again) = take(40).unwrap();
        assert_eq!(bytes, 7);
    }

    #[test]
    fn without_a_limit_a_query_has_all_it_wants() {
        let memory = QueryMemory::of(Arc::default());
        assert_eq!(memory.take(640 * MIB).unwrap().bytes(), 640 * MIB);
    }
}
