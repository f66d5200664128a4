// SPDX-License-Identifier: Apache-2.0

//! The rare state of a stream: gaps between deltas, epochs beside the newest, and refused points.

use smallvec::SmallVec;

use super::epochs::Epochs;
use super::stall::Stall;
use crate::UnixNanos;

/// Gaps that a stream remembers. A delta that fills an older gap is refused as late.
const MAX_GAPS: usize = 16;

/// The state of a stream whose points come out of order or from several processes.
#[derive(Clone, Debug, Default)]
pub(super) struct OutOfOrder {
    /// The gaps between deltas: from, to; in the order of their discovery.
    gaps: SmallVec<[(UnixNanos, UnixNanos); 1]>,
    /// The epochs of a cumulative stream that began before the newest.
    pub(super) epochs: Epochs,
    /// The stream was forgotten, and its series still has the counts until then.
    pub(super) is_folded: bool,
    /// The latest refused points in a row.
    pub(super) stall: Stall,
}

impl OutOfOrder {
    pub(super) fn folded(start: UnixNanos) -> Self {
        Self {
            is_folded: true,
            epochs: Epochs::forgotten_until(start),
            ..Self::default()
        }
    }

    /// Whether it equals the default, so that it can be freed.
    pub(super) fn holds_nothing(&self) -> bool {
        self.gaps.is_empty()
            && !self.is_folded
            && self.stall == Stall::default()
            && self.epochs.hold_nothing()
    }

    pub(super) fn of_epochs(epochs: Epochs) -> Self {
        Self {
            epochs,
            ..Self::default()
        }
    }

    /// Follows the sender's clock, which was set back: all samples so far count as of `time` at the latest.
    pub(super) fn set_back(&mut self, time: UnixNanos) {
        self.gaps.clear();
        self.epochs.set_back(time);
    }

    /// Adds a gap, and drops the gaps that are older than `oldest`.
    pub(super) fn add_gap(&mut self, from: UnixNanos, to: UnixNanos, oldest: UnixNanos) {
        self.gaps.retain(|(_, to)| *to > oldest);
        if self.gaps.len() >= MAX_GAPS {
            self.gaps.remove(0);
        }
        let from = from.max(oldest);
        if from < to {
            self.gaps.push((from, to));
        }
    }

    /// The index of the gap that has the whole interval.
    pub(super) fn gap(&self, start: UnixNanos, time: UnixNanos) -> Option<usize> {
        let is_interval = start != 0 && start < time;
        let holds = |gap: &(UnixNanos, UnixNanos)| is_interval && gap.0 <= start && time <= gap.1;
        self.gaps.iter().position(holds)
    }

    /// Cuts the interval out of its gap.
    pub(super) fn fill(&mut self, start: UnixNanos, time: UnixNanos) {
        let Some(at) = self.gap(start, time) else { return };
        let (from, to) = self.gaps.remove(at);
        for (from, to) in [(time, to), (from, start)] {
            if from < to && self.gaps.len() < MAX_GAPS {
                self.gaps.insert(at.min(self.gaps.len()), (from, to));
            }
        }
    }
}
