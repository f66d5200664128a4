// SPDX-License-Identifier: Apache-2.0

//! Composites and callbacks: values derived from instruments, read at any instant or notified on changes.
//!
//! Recording pays for none of it but extremes (two comparisons a value, of instruments that are watched). A thread of
//! its own looks at what is watched every few milliseconds ([`LOOK_EVERY`]); it exists only while something is. A
//! [`get`](Composite::get) looks itself, so that it covers everything that was recorded before it.

mod build;
mod change;
mod live;
mod series;
mod snapshot;
#[cfg(test)]
mod tests;
mod thread;
mod trigger;
mod watch;

pub use build::{CompositeBuilder, CompositeError, Source};
pub use live::Composite;
pub use snapshot::Snapshot;
pub use thread::{LOOK_EVERY, Subscription, callback_panics};
// The SDKs in C and Python call it state, too.
pub use tidegate_engine::Freshness as State;
pub use tidegate_engine::{Across, Function};
pub use trigger::{Change, Trigger};
pub use watch::Watcher;

pub(crate) use series::Watch;

/// The time that windows, leases and triggers live by: it never jumps when the wall clock is set.
use tidegate_engine::clock::now;

/// Begins a composite of this name.
pub fn composite(name: &str) -> CompositeBuilder {
    CompositeBuilder::new(name)
}
