// SPDX-License-Identifier: Apache-2.0

//! The rounds in which a directory sends all series again, also those that did not change.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::directory::PUSH_POINTS;

/// The number of a family, and that of a series in it.
pub(super) type SeriesPosition = (usize, usize);

/// When a round begins, and how far it is.
pub(super) struct Repeats {
    interval: Duration,
    /// When the last round began. `None`: nothing was sent yet.
    begun: Option<Instant>,
    /// The next series of the round that goes on.
    next: Option<SeriesPosition>,
}

impl Repeats {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            begun: None,
            next: None,
        }
    }

    /// Whether series have been sent before.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Begins a round with the next look, if series have been sent before.
    pub(super) fn restart(&mut self) {
        if self.has_begun() {
            self.next = Some((0, 0));
        }
    }

    /// No round goes on, and the next one begins an interval after this.
    pub(super) fn pause(&mut self, now: Instant) {
        (self.begun, self.next) = (Some(now), None);
    }

    /// Makes further series due: at most a push of them. If looks are so rare that a round has not ended when the next one
    /// begins, the rest of it is due too.
    pub(super) fn add<T>(&mut self, now: Instant, known: &[Vec<T>], due: &mut BTreeSet<SeriesPosition>) {
        let begun = self.begun.get_or_insert(now);
        if now.saturating_duration_since(*begun) >= self.interval {
            *begun = now;
            self.add_rest(known, due);
            self.next = Some((0, 0));
        }
        if let Some(first) = self.next {
            self.next = add_from(first, PUSH_POINTS, known, due);
        }
    }

    /// Makes all series due that the round has not reached.
    pub(super) fn add_rest<T>(&mut self, known: &[Vec<T>], due: &mut BTreeSet<SeriesPosition>) {
        if let Some(next) = self.next.take() {
            add_from(next, usize::MAX, known, due);
        }
    }
}

/// Makes at most `room` series due, from this one on, and returns the next one. `None`: these were the last.
fn add_from<T>(
    (mut family, mut series): SeriesPosition,
    mut room: usize,
    known: &[Vec<T>],
    due: &mut BTreeSet<SeriesPosition>,
) -> Option<SeriesPosition> {
    while let Some(all) = known.get(family) {
        let end = all.len().min(series.saturating_add(room));
        due.extend((series..end).map(|series| (family, series)));
        room -= end.saturating_sub(series);
        if room == 0 {
            return Some((family, end));
        }
        (family, series) = (family + 1, 0);
    }
    None
}
