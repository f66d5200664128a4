//! The series of tables and composites as Prometheus knows them, for all readers of one gateway.
//!
//! Queries ask the view (`view`); pages are written by `render`. Two series of the same name and labels have one owner (`senders`), which a page and a query find by the same rule.

mod rivals;
mod senders;
mod view;

use std::collections::HashMap;

use foldhash::fast::RandomState;
use tidegate_engine::Key;

pub use self::rivals::differing;
pub use self::senders::{Life, Senders, Times};
pub use self::view::{
    About, Accepted, Asked, Census, Exposes, Found, HistoryRule, Notes, Shown, View, millis,
};

type KeyMap<V> = HashMap<Key, V, RandomState>;
