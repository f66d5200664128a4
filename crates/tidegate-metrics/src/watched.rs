// SPDX-License-Identifier: Apache-2.0

//! The part of series and families that composites and callbacks need. Without the feature `composites`,
//! `unwatched.rs` takes the place of this module: recording then pays for none of it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::composite::Watch;
use crate::side::Side;

const NO_MIN: u64 = f64::INFINITY.to_bits();
const NO_MAX: u64 = f64::NEG_INFINITY.to_bits();

/// The watchers of a series, and the extremes since they looked.
#[derive(Debug)]
pub(crate) struct SeriesWatch {
    /// The number of watchers. While there is one, every value is compared with the extremes.
    watchers: AtomicU32,
    min: AtomicU64,
    max: AtomicU64,
    last: AtomicU64,
    /// The last values that watchers saw; recording never touches them.
    pub(crate) watch: Mutex<Watch>,
}

impl Default for SeriesWatch {
    fn default() -> Self {
        Self {
            watchers: AtomicU32::new(0),
            min: AtomicU64::new(NO_MIN),
            max: AtomicU64::new(NO_MAX),
            last: AtomicU64::new(0),
            watch: Mutex::default(),
        }
    }
}

impl SeriesWatch {
    /// Extremes are kept from now on.
    pub(crate) fn watch(&self) {
        self.watchers.fetch_add(1, Relaxed);
    }

    /// One watcher less.
    pub(crate) fn unwatch(&self) {
        self.watchers.fetch_sub(1, Relaxed);
    }

    /// Shows a value.
    #[inline]
    pub(crate) fn observe(&self, value: f64) {
        if self.is_watched() {
            lower(&self.min, value);
            raise(&self.max, value);
            self.last.store(value.to_bits(), Relaxed);
        }
    }

    /// The newest value that was seen during a watch.
    pub(crate) fn last(&self) -> f64 {
        f64::from_bits(self.last.load(Relaxed))
    }

    /// Whether there is a watcher.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.watchers.load(Relaxed) != 0
    }

    /// Smallest and largest value since the last call; `None`: there were none.
    pub(crate) fn take_range(&self) -> Option<(f64, f64)> {
        let min = f64::from_bits(self.min.swap(NO_MIN, Relaxed));
        let max = f64::from_bits(self.max.swap(NO_MAX, Relaxed));
        (min <= max).then_some((min, max))
    }
}

/// Lowers a double; a value that is not a number changes nothing.
#[inline]
fn lower(cell: &AtomicU64, value: f64) {
    let mut seen = cell.load(Relaxed);
    while value < f64::from_bits(seen) {
        match cell.compare_exchange_weak(seen, value.to_bits(), Relaxed, Relaxed) {
            Ok(_) => return,
            Err(newer) => seen = newer,
        }
    }
}

/// Raises a double; a value that is not a number changes nothing.
#[inline]
fn raise(cell: &AtomicU64, value: f64) {
    let mut seen = cell.load(Relaxed);
    while value > f64::from_bits(seen) {
        match cell.compare_exchange_weak(seen, value.to_bits(), Relaxed, Relaxed) {
            Ok(_) => return,
            Err(newer) => seen = newer,
        }
    }
}

/// The watchers of a family.
#[derive(Debug, Default)]
pub(crate) struct FamilyWatch {
    /// Changes with the set of series.
    version: AtomicU64,
    /// How many watch all series, those to come as well.
    watchers: AtomicU32,
}

impl FamilyWatch {
    /// Starts or ends a watch of all series. A series that is made during a watch keeps its extremes from its first
    /// value on, also after the watch.
    pub(crate) fn expect(&self, is_watched: bool) {
        if is_watched {
            self.watchers.fetch_add(1, Relaxed)
        } else {
            self.watchers.fetch_sub(1, Relaxed)
        };
    }

    /// Changes with the set of series.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    /// A new series, before it is put in.
    pub(crate) fn note_new(&self, side: Option<&Arc<Side>>) {
        if let Some(side) = side.filter(|_| self.watchers.load(Relaxed) > 0) {
            side.watched.watch();
        }
    }

    /// The set of series has changed.
    pub(crate) fn changed(&self) {
        self.version.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_are_of_what_came_since_the_last_look_while_watched() {
        let watched = SeriesWatch::default();
        watched.observe(5.0);
        assert_eq!(watched.take_range(), None);
        watched.watch();
        [3.0, -1.0, f64::NAN, 2.0]
            .iter()
            .for_each(|value| watched.observe(*value));
        assert_eq!(watched.take_range(), Some((-1.0, 3.0)));
        assert_eq!(watched.take_range(), None);
        watched.unwatch();
        watched.observe(5.0);
        assert_eq!(watched.take_range(), None);
    }
}
