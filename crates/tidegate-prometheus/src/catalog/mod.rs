// SPDX-License-Identifier: Apache-2.0

//! The Prometheus series of tables and composites, for all readers of one gateway.
//!
//! Queries read the view (`view`); `render` writes pages. If two series have the same name and labels, one of them
//! owns these. Pages and queries determine the owner by the same rule (`contests`), from the history of their
//! resources (`senders`).

#[cfg(test)]
mod agreement_tests;
mod contests;
mod rivals;
mod senders;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod view;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use tidegate_engine::Key;

pub use self::contests::{ContestOutcome, Contests, LastLifetime, Lifetime, owner};
pub use self::rivals::differing;
pub use self::senders::{LastReport, Newcomers, Senders, Sight, Times};
pub use self::view::{
    About, Accepted, Asked, BeforeHistory, Borrowed, Exposes, Found, HistoryPage, HistoryRule, KeptPast,
    LOAN_SAMPLES, Level, MergedTables, NamedTable, PastNeed, QueryWarnings, SeriesPosition, SeriesStats,
    View, max_past_bytes_within, max_samples_within, millis,
};

type KeyMap<V> = HashMap<Key, V, RandomState>;

/// Whether a weak reference is one to this table or composite.
pub(crate) fn refers_to<T>(known: &Weak<T>, other: &Arc<T>) -> bool {
    std::ptr::eq(known.as_ptr(), Arc::as_ptr(other))
}
