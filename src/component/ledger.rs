//! The books of a component: in + made + restored = out + absorbed + dropped by reason + held, always.
//!
//! Edges note what enters and leaves; the component itself notes what it absorbs, makes and drops.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_engine::{Outcome, Rejection};

use super::flow::Flow;

/// Why items were dropped. One list for the whole gateway; every drop names one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// A `filter` rule said so.
    Filtered,
    /// A cardinality or size cap was reached.
    Limit,
    /// The data breaks a rule of its format or data model.
    Invalid,
    /// The component can't express this kind of data.
    Unsupported,
    /// A queue was full and its policy is to drop.
    QueueFull,
    /// The destination refused for good.
    Rejected,
    /// Retries ran out of time.
    RetriesExhausted,
    /// Older than what is kept already.
    Late,
    /// Another component owns the same output identity.
    Conflict,
    /// The gateway stopped before it could be handed on.
    Shutdown,
    /// It was on disk, and is damaged.
    Damaged,
    /// It could not be written to disk, and its sender was told so.
    StorageFailed,
    /// Its time lies too far ahead of the gateway's clock.
    Future,
    /// There was no memory for it, or for what had to be made of it.
    Memory,
}

impl Reason {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 14] = [
        Self::Filtered,
        Self::Limit,
        Self::Invalid,
        Self::Unsupported,
        Self::QueueFull,
        Self::Rejected,
        Self::RetriesExhausted,
        Self::Late,
        Self::Conflict,
        Self::Shutdown,
        Self::Damaged,
        Self::StorageFailed,
        Self::Future,
        Self::Memory,
    ];

    /// The `reason` label of the drop counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Filtered => "filtered",
            Self::Limit => "limit",
            Self::Invalid => "invalid",
            Self::Unsupported => "unsupported",
            Self::QueueFull => "queue_full",
            Self::Rejected => "rejected",
            Self::RetriesExhausted => "retries_exhausted",
            Self::Late => "late",
            Self::Conflict => "conflict",
            Self::Shutdown => "shutdown",
            Self::Damaged => "damaged",
            Self::StorageFailed => "storage_failed",
            Self::Future => "future",
            Self::Memory => "memory",
        }
    }
}

impl From<Rejection> for Reason {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Late | Rejection::Duplicate => Self::Late,
            Rejection::Invalid => Self::Invalid,
            Rejection::Unsupported => Self::Unsupported,
            Rejection::Limit => Self::Limit,
            Rejection::Future => Self::Future,
        }
    }
}

/// Labels of a destination.
pub type PeerLabels = Vec<(&'static str, String)>;

/// Counts of items in one component's hands. `held` is what is left: derived, never stored, so it can't disagree.
#[derive(Debug, Default)]
pub struct Ledger {
    entered: AtomicU64,
    left: AtomicU64,
    absorbed: AtomicU64,
    unsent: AtomicU64,
    made: AtomicU64,
    restored: AtomicU64,
    dropped: [AtomicU64; Reason::ALL.len()],
    peer: OnceLock<PeerLabels>,
}

/// The books at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Items that came in.
    pub entered: u64,
    /// Items handed on (or delivered to a peer).
    pub left: u64,
    /// Items that became part of a state.
    pub absorbed: u64,
    /// Those of them that no reader or peer sees: they only set where the counting of a stream begins.
    pub unsent: u64,
    /// Items that the component made itself (emissions of state).
    pub made: u64,
    /// Items that a former run left on disk.
    pub restored: u64,
    /// Items dropped, by reason.
    pub dropped: [u64; Reason::ALL.len()],
}

impl Balance {
    /// Items dropped for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Items that a destination accepted: a peer, or the table that a page shows.
    pub fn sent(&self) -> u64 {
        self.left + self.absorbed.saturating_sub(self.unsent)
    }

    /// Items still in the component's hands.
    pub fn held(&self) -> u64 {
        (self.entered + self.made + self.restored)
            .saturating_sub(self.left + self.absorbed + self.dropped_total())
    }
}

impl Ledger {
    /// Says where the items go, once. It stands beside what was sent there.
    pub fn goes_to(&self, peer: PeerLabels) {
        let _ = self.peer.set(peer);
    }

    /// Where the items go; empty: nobody says.
    pub fn peer(&self) -> &[(&'static str, String)] {
        self.peer.get().map_or(&[], |peer| peer)
    }

    /// Counts items that came in.
    pub fn enter(&self, items: usize) {
        self.entered.fetch_add(items as u64, Relaxed);
    }

    /// Counts items that were handed on, or delivered.
    pub fn leave(&self, items: usize) {
        self.left.fetch_add(items as u64, Relaxed);
    }

    /// Counts items that became part of a state.
    pub fn absorb(&self, items: usize) {
        self.absorbed.fetch_add(items as u64, Relaxed);
    }

    /// Counts items that became part of a state and that no reader or peer sees by themselves.
    pub fn absorb_unsent(&self, items: usize) {
        self.unsent.fetch_add(items as u64, Relaxed);
        self.absorb(items);
    }

    /// Counts items that the component made itself and hands on; they never entered.
    pub fn make(&self, items: usize) {
        self.made.fetch_add(items as u64, Relaxed);
    }

    /// Counts items that a former run left on disk.
    pub fn restore(&self, items: usize) {
        self.restored.fetch_add(items as u64, Relaxed);
    }

    /// Counts items dropped.
    pub fn drop_items(&self, reason: Reason, items: usize) {
        if let Some(counter) = self.dropped.get(reason as usize) {
            counter.fetch_add(items as u64, Relaxed);
        }
    }

    /// Notes what a table made of a point, and tells the sender where the point itself is to blame. True where the
    /// table has no use for it.
    pub fn settle(&self, outcome: Outcome, metric: &str, flow: &mut Flow) -> bool {
        match outcome {
            Outcome::Absorbed => self.absorb(1),
            Outcome::Unmatched => return true,
            Outcome::Rejected(rejection) => {
                self.drop_items(rejection.into(), 1);
                // What was said before is part of the state: nothing is lost.
                if rejection != Rejection::Duplicate {
                    flow.reject(1, || format!("`{metric}`: {rejection}"));
                }
            }
        }
        false
    }

    /// Notes what a table made of events of the future, and tells the sender.
    pub fn settle_future(&self, events: usize, flow: &mut Flow) {
        self.drop_items(Reason::Future, events);
        flow.reject(events, || format!("events: {}", Rejection::Future));
    }

    /// The books now.
    pub fn balance(&self) -> Balance {
        Balance {
            entered: self.entered.load(Relaxed),
            left: self.left.load(Relaxed),
            unsent: self.unsent.load(Relaxed),
            absorbed: self.absorbed.load(Relaxed),
            made: self.made.load(Relaxed),
            restored: self.restored.load(Relaxed),
            dropped: std::array::from_fn(|reason| self.dropped[reason].load(Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_accounted_for_is_held() {
        let ledger = Ledger::default();
        ledger.enter(10);
        ledger.leave(3);
        ledger.absorb(2);
        ledger.drop_items(Reason::Shutdown, 1);
        let balance = ledger.balance();
        assert_eq!(balance.held(), 4);
        assert_eq!(balance.dropped[Reason::Shutdown as usize], 1);
    }

    #[test]
    fn reasons_are_listed_in_the_order_of_their_counters() {
        for (at, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
        }
    }
}
