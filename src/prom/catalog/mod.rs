//! The series of tables and composites as Prometheus knows them, for all readers of one gateway.
//!
//! Queries ask the view (`view`); pages are written by `render`. Two series of the same name and labels have
//! one owner, which a page and a query find by the same rule (`contests`) from what the gateway knows of their resources
//! (`senders`).

#[cfg(test)]
mod agreement_tests;
mod contests;
mod rivals;
mod senders;
#[cfg(test)]
pub(crate) mod testing;
mod view;

use std::collections::HashMap;

use foldhash::fast::RandomState;
use tidegate_engine::Key;

pub use self::contests::{Contests, Life, Standing, Verdict, owner};
pub use self::rivals::differing;
pub use self::senders::{Newcomers, Senders, Times};
pub use self::view::{
    About, Accepted, Asked, Exposes, Found, HistoryRule, Level, NamedTable, QueryWarnings, SeriesStats, View,
    max_samples_within, millis,
};

type KeyMap<V> = HashMap<Key, V, RandomState>;
