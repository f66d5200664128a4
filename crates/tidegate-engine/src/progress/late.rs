//! What of a stream may still come out of order: gaps between deltas, and the end of the run before this one.

use smallvec::SmallVec;

use super::Last;
use crate::UnixNanos;

/// Gaps of one stream that are remembered; what would fill an older one is refused as late.
const MAX_GAPS: usize = 16;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Late {
    /// Between deltas: from, to; in the order in which they came up.
    gaps: SmallVec<[(UnixNanos, UnixNanos); 1]>,
    /// The run before this one.
    pub(super) former: Option<Run>,
    /// The stream was forgotten, and what it had counted until then is part of what is retained.
    pub(super) is_folded: bool,
}

/// A run of a cumulative stream, from one start to the next.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) start: UnixNanos,
    pub(super) time: UnixNanos,
    pub(super) last: Last,
}

impl Run {
    pub(super) fn new(start: UnixNanos, time: UnixNanos, last: Last) -> Self {
        Self { start, time, last }
    }
}

impl Late {
    pub(super) fn folded() -> Self {
        Self {
            is_folded: true,
            ..Self::default()
        }
    }

    /// A new run came after this one.
    pub(super) fn after(start: UnixNanos, time: UnixNanos, last: Last) -> Self {
        Self {
            former: Some(Run::new(start, time, last)),
            ..Self::default()
        }
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
