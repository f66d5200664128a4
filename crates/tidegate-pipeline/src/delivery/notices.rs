// SPDX-License-Identifier: Apache-2.0

//! Log lines about loss and failure: the first one at once, then at most one of each kind in an interval.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_runtime::Every;

/// The default interval between two lines of one kind.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);

/// The kinds of lines that one component writes.
#[derive(Default)]
pub(super) struct Notices {
    kinds: Mutex<HashMap<&'static str, Every>>,
}

impl Notices {
    /// Counts `items`. If a line is due, returns the items since the last line.
    pub(super) fn note(&self, kind: &'static str, items: usize, now: Instant) -> Option<usize> {
        self.note_every(INTERVAL, kind, items, now)
    }

    /// Like [`Self::note`], with another interval.
    pub(super) fn note_every(
        &self,
        interval: Duration,
        kind: &'static str,
        items: usize,
        now: Instant,
    ) -> Option<usize> {
        let mut kinds = self.kinds.lock();
        let kind = kinds.entry(kind).or_insert_with(|| Every::since(now, INTERVAL));
        kind.note(interval, items, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_line_names_what_was_silent() {
        let (notices, start) = (Notices::default(), Instant::now());
        assert_eq!(notices.note("a", 1, start), Some(1));
        assert_eq!(notices.note("a", 2, start), None);
        assert_eq!(notices.note("b", 5, start), Some(5));
        assert_eq!(notices.note("a", 3, start + INTERVAL), Some(5));
    }
}
