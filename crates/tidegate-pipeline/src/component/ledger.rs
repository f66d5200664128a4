// SPDX-License-Identifier: Apache-2.0

//! The item counts of a component: in + made + restored = out + absorbed + dropped by reason + held, always.
//!
//! Edges count what enters and leaves. The component counts what it absorbs, makes and drops.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tidegate_engine::{Outcome, Rejection};

use super::flow::Flow;

/// The reason of a drop. The whole gateway has this one list, and every drop names an entry of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// A `filter` rule dropped it.
    Filtered,
    /// A cardinality or size cap was reached.
    Limit,
    /// The data breaks a rule of its format or data model.
    Invalid,
    /// The component does not support this kind of data.
    Unsupported,
    /// A queue was full and its policy is to drop.
    QueueFull,
    /// The destination refused it permanently.
    Rejected,
    /// The retries exceeded their time limit.
    RetriesExhausted,
    /// A newer point is already kept.
    Late,
    /// Another component owns the same output identity.
    Conflict,
    /// The gateway stopped before it handed the item on.
    Shutdown,
    /// The copy on disk is damaged.
    Damaged,
    /// The write to disk failed, and the sender got an error.
    StorageFailed,
    /// The time is too far ahead of the gateway's clock.
    Future,
    /// There was not enough memory for the item, or for its converted form.
    Memory,
    /// Another replica leads the cluster, and exports the data.
    NotLeader,
}

impl Reason {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 15] = [
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
        Self::NotLeader,
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
            Self::NotLeader => "not_leader",
        }
    }

    /// The meaning of the reason, in one sentence.
    pub fn help(self) -> &'static str {
        match self {
            Self::Filtered => "A rule of `filter` dropped the item.",
            Self::Limit => "A limit of the number of series or of the size was reached.",
            Self::Invalid => "The item breaks a rule of its format or data model.",
            Self::Unsupported => "The component does not support this kind of data.",
            Self::QueueFull => "The queue was full, and its policy is to drop.",
            Self::Rejected => "The destination refused the item permanently.",
            Self::RetriesExhausted => "The retries exceeded their time limit.",
            Self::Late => "A newer point is already there.",
            Self::Conflict => "Another component owns the same output identity.",
            Self::Shutdown => "The gateway stopped before it handed the item on.",
            Self::Damaged => "The copy on disk is damaged.",
            Self::StorageFailed => "The write to disk failed, and the sender got an error.",
            Self::Future => "The time is too far ahead of the gateway's clock.",
            Self::Memory => "There was not enough memory for the item, or for its converted form.",
            Self::NotLeader => "Another replica leads the cluster, and exports the data.",
        }
    }
}

impl From<Rejection> for Reason {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Late | Rejection::Duplicate => Self::Late,
            Rejection::Invalid => Self::Invalid,
            Rejection::Unsupported | Rejection::NoTemporality => Self::Unsupported,
            Rejection::Limit => Self::Limit,
            Rejection::Future => Self::Future,
        }
    }
}

/// Labels of a destination.
pub type PeerLabels = Vec<(&'static str, String)>;

/// What a destination got, and what was lost before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCounts {
    /// The labels of the destination; empty if it has none.
    pub labels: PeerLabels,
    /// Items that it accepted.
    pub sent: u64,
    /// Items that it did not get.
    pub failed: u64,
}

/// The destinations of a component, one after the other: a reload may change the address.
#[derive(Debug, Default)]
struct Peers {
    /// The counts until the last change of the labels.
    past: Vec<PeerCounts>,
    labels: PeerLabels,
}

/// The item counts of one component. `held` is derived and never stored, so that it can't disagree.
#[derive(Debug, Default)]
pub struct Ledger {
    entered: AtomicU64,
    left: AtomicU64,
    absorbed: AtomicU64,
    unsent: AtomicU64,
    made: AtomicU64,
    restored: AtomicU64,
    dropped: [AtomicU64; Reason::ALL.len()],
    peers: Mutex<Peers>,
    /// Held items that an instance left for its successor in this process.
    left_behind: AtomicU64,
}

/// The item counts at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Items that came in.
    pub entered: u64,
    /// Items handed on (or delivered to a peer).
    pub left: u64,
    /// Items absorbed into a state.
    pub absorbed: u64,
    /// Absorbed items that no reader or peer sees: they only set the start of a stream.
    pub unsent: u64,
    /// Items that the component made itself, from its state.
    pub made: u64,
    /// Items that a previous run left on disk.
    pub restored: u64,
    /// Items dropped, by reason.
    pub dropped: [u64; Reason::ALL.len()],
}

impl Balance {
    /// Items dropped for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Items that a destination did not get.
    pub fn failed(&self) -> u64 {
        const FAILED: [Reason; 3] = [Reason::Rejected, Reason::RetriesExhausted, Reason::Shutdown];
        FAILED
            .into_iter()
            .map(|reason| self.dropped[reason as usize])
            .sum()
    }

    /// Items that a destination accepted: a peer, or the table of a page.
    pub fn sent(&self) -> u64 {
        self.left + self.absorbed.saturating_sub(self.unsent)
    }

    /// Items that the component still holds.
    pub fn held(&self) -> u64 {
        (self.entered + self.made + self.restored)
            .saturating_sub(self.left + self.absorbed + self.dropped_total())
    }
}

impl Ledger {
    /// Sets the labels of the destination. The counters of sent items get these labels from now on.
    pub fn goes_to(&self, labels: PeerLabels) {
        let mut peers = self.peers.lock();
        if peers.labels != labels {
            let counts = self.with_present(&peers);
            // Without items, the old labels leave no series.
            peers.past = counts
                .into_iter()
                .filter(|peer| peer.sent + peer.failed > 0)
                .collect();
            peers.labels = labels;
        }
    }

    /// The labels of the present destination; empty if it has none.
    pub fn peer(&self) -> PeerLabels {
        self.peers.lock().labels.clone()
    }

    /// The counts of each destination that the component has had. Their sums are those of the balance.
    pub fn peer_counts(&self) -> Vec<PeerCounts> {
        self.with_present(&self.peers.lock())
    }

    fn with_present(&self, peers: &Peers) -> Vec<PeerCounts> {
        let balance = self.balance();
        let mut counts = peers.past.clone();
        let (sent, failed) = counts.iter().fold((0, 0), |(sent, failed), peer| {
            (sent + peer.sent, failed + peer.failed)
        });
        let (sent, failed) = (
            balance.sent().saturating_sub(sent),
            balance.failed().saturating_sub(failed),
        );
        match counts.iter_mut().find(|peer| peer.labels == peers.labels) {
            Some(again) => {
                again.sent += sent;
                again.failed += failed;
            }
            None => counts.push(PeerCounts {
                labels: peers.labels.clone(),
                sent,
                failed,
            }),
        }
        counts
    }

    /// Counts items that came in.
    pub fn enter(&self, items: usize) {
        self.entered.fetch_add(items as u64, Relaxed);
    }

    /// Counts items that were handed on, or delivered.
    pub fn leave(&self, items: usize) {
        self.left.fetch_add(items as u64, Relaxed);
    }

    /// Counts items absorbed into a state.
    pub fn absorb(&self, items: usize) {
        self.absorbed.fetch_add(items as u64, Relaxed);
    }

    /// Counts items absorbed into a state that no reader or peer sees individually.
    pub fn absorb_unsent(&self, items: usize) {
        self.unsent.fetch_add(items as u64, Relaxed);
        self.absorb(items);
    }

    /// Counts items that the component made itself and hands on. They never entered.
    pub fn make(&self, items: usize) {
        self.made.fetch_add(items as u64, Relaxed);
    }

    /// Counts items that a previous run left on disk.
    pub fn restore(&self, items: usize) {
        let known = self.left_behind.load(Relaxed).min(items as u64);
        self.left_behind.fetch_sub(known, Relaxed);
        self.restored.fetch_add(items as u64 - known, Relaxed);
    }

    /// Notes that the instance has ended, and that its successor finds the items that it still holds. They are counted
    /// already: [`Self::restore`] does not count them again. No other call may run at the same time.
    pub fn succeed(&self) {
        self.left_behind.store(self.balance().held(), Relaxed);
    }

    /// Counts items dropped.
    pub fn drop_items(&self, reason: Reason, items: usize) {
        if let Some(counter) = self.dropped.get(reason as usize) {
            counter.fetch_add(items as u64, Relaxed);
        }
    }

    /// Counts the outcome of a point in a table, and rejects an invalid point to the sender. Returns true if no
    /// rule of the table matches the point.
    pub fn count_outcome(&self, outcome: Outcome, metric: &str, flow: &mut Flow) -> bool {
        match outcome {
            Outcome::Absorbed => self.absorb(1),
            Outcome::Unmatched => return true,
            Outcome::Rejected(rejection) => {
                self.drop_items(rejection.into(), 1);
                // The state already includes the earlier copy, so nothing is lost.
                if rejection != Rejection::Duplicate {
                    flow.reject(1, || format!("`{metric}`: {rejection}"));
                }
            }
        }
        false
    }

    /// Drops events from the future, and rejects them to the sender.
    pub fn drop_future(&self, events: usize, flow: &mut Flow) {
        self.drop_items(Reason::Future, events);
        flow.reject(events, || format!("events: {}", Rejection::Future));
    }

    /// The current item counts.
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
    fn a_successor_does_not_count_again_what_it_finds() {
        let ledger = Ledger::default();
        ledger.enter(10);
        ledger.leave(3);
        ledger.succeed();
        // Ten items are on disk: seven of the predecessor, and three of an earlier process.
        ledger.restore(4);
        ledger.restore(6);
        let balance = ledger.balance();
        assert_eq!((balance.restored, balance.held()), (3, 10));
    }

    #[test]
    fn counts_of_destinations_add_up_when_the_address_changes() {
        let ledger = Ledger::default();
        let at = |address: &str| vec![("server_address", address.to_owned())];
        let sent = |address: &str| {
            let counts = ledger.peer_counts().into_iter();
            counts
                .filter(|peer| peer.labels == at(address))
                .map(|peer| peer.sent)
                .sum::<u64>()
        };
        ledger.goes_to(at("a"));
        // A configuration that does not run names another address for a moment.
        ledger.goes_to(at("b"));
        ledger.goes_to(at("a"));
        ledger.leave(5);
        assert_eq!(ledger.peer_counts().len(), 1);
        ledger.goes_to(at("b"));
        ledger.leave(2);
        assert_eq!((sent("a"), sent("b")), (5, 2));
        ledger.goes_to(at("a"));
        ledger.leave(1);
        ledger.drop_items(Reason::Rejected, 3);
        assert_eq!((sent("a"), sent("b")), (6, 2));
        let failed: u64 = ledger.peer_counts().iter().map(|peer| peer.failed).sum();
        assert_eq!(failed, 3);
    }

    #[test]
    fn reasons_are_listed_in_the_order_of_their_counters() {
        for (at, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
        }
    }
}
