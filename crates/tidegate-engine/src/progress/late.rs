//! What of a stream may still come out of order: gaps between deltas, and runs beside the newest.

use smallvec::SmallVec;

use super::astray::Astray;
use super::runs::Runs;
use crate::UnixNanos;

/// Gaps of one stream that are remembered; what would fill an older one is refused as late.
const MAX_GAPS: usize = 16;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Late {
    /// Between deltas: from, to; in the order in which they came up.
    gaps: SmallVec<[(UnixNanos, UnixNanos); 1]>,
    /// The runs of a cumulative stream that began before the newest.
    pub(super) runs: Runs,
    /// The stream was forgotten, and what it had counted until then is part of what is retained.
    pub(super) is_folded: bool,
    /// The latest points in a row that were not taken.
    pub(super) astray: Astray,
}

impl Late {
    pub(super) fn folded(start: UnixNanos) -> Self {
        Self {
            is_folded: true,
            runs: Runs::forgotten_until(start),
            ..Self::default()
        }
    }

    /// Whether nothing would be lost with it.
    pub(super) fn holds_nothing(&self) -> bool {
        self.gaps.is_empty()
            && !self.is_folded
            && self.astray == Astray::default()
            && self.runs.hold_nothing()
    }

    pub(super) fn of_runs(runs: Runs) -> Self {
        Self {
            runs,
            ..Self::default()
        }
    }

    /// The sender's clock was set back: all that was said was said before `time`.
    pub(super) fn set_back(&mut self, time: UnixNanos) {
        self.gaps.clear();
        self.runs.set_back(time);
    }

    /// Notes a gap, and gives up what is older than `oldest`.
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

    /// The gap that this interval lies in.
    pub(super) fn gap(&self, start: UnixNanos, time: UnixNanos) -> Option<usize> {
        let is_interval = start != 0 && start < time;
        let holds = |gap: &(UnixNanos, UnixNanos)| is_interval && gap.0 <= start && time <= gap.1;
        self.gaps.iter().position(holds)
    }

    /// Leaves of a gap what this interval does not fill.
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
