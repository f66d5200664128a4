// SPDX-License-Identifier: Apache-2.0

//! The freshness of a value, derived from its sources.

/// The freshness of a value: whether all its sources are alive, some, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Every source is alive. Without observations in the window, gauges keep their level.
    Fresh,
    /// Only of events and deltas: every source is alive, and no observation is in the window.
    Idle,
    /// No source is alive.
    Stale,
    /// A source is not alive, a live source has omitted a series, data was lost upstream within the window,
    /// live series collide, an earlier run fed the window and no source has reported since, or a rate does not cover its
    /// window yet. The value is of the data that is there.
    Partial,
    /// No source was ever seen, or every source has left.
    Absent,
}

impl Freshness {
    /// The name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Idle => "idle",
            Self::Stale => "stale",
            Self::Partial => "partial",
            Self::Absent => "absent",
        }
    }

    /// Whether the value is unfit for a decision.
    pub fn is_unusable(self) -> bool {
        matches!(self, Self::Stale | Self::Absent)
    }

    /// The freshness by the number of sources. `any`: the window has values; `lossy`: some were lost
    /// upstream.
    pub(crate) fn of(any: bool, expected: usize, reporting: usize, lossy: bool) -> Self {
        match (any, expected, reporting) {
            (false, 0, _) => Self::Absent,
            (_, 1.., 0) => Self::Stale,
            _ if reporting < expected || lossy => Self::Partial,
            (true, ..) => Self::Fresh,
            (false, ..) => Self::Idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_its_own_circumstances() {
        assert_eq!(Freshness::of(true, 2, 2, false), Freshness::Fresh);
        assert_eq!(Freshness::of(true, 2, 1, false), Freshness::Partial);
        assert_eq!(Freshness::of(true, 2, 2, true), Freshness::Partial);
        assert_eq!(Freshness::of(true, 2, 0, false), Freshness::Stale);
        assert_eq!(Freshness::of(true, 0, 0, false), Freshness::Fresh);
        assert_eq!(Freshness::of(false, 2, 2, false), Freshness::Idle);
        assert_eq!(Freshness::of(false, 2, 1, false), Freshness::Partial);
        assert_eq!(Freshness::of(false, 2, 0, true), Freshness::Stale);
        assert_eq!(Freshness::of(false, 0, 0, false), Freshness::Absent);
    }
}
