//! How far a value can be trusted, by who feeds it.

/// How far a value can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Every source is alive. Without observations in the window, gauges keep their level.
    Fresh,
    /// Only of events and deltas: every source is alive, and no observation is in the window.
    Idle,
    /// No source is alive.
    Stale,
    /// A source is not alive, a living source has left out a series, a loss upstream is known within the window, or living
    /// series collide. The value is that of what is there.
    Partial,
    /// Never seen, or every source has left.
    Absent,
}

impl State {
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

    /// Whether there is nothing to decide by.
    pub fn says_nothing(self) -> bool {
        matches!(self, Self::Stale | Self::Absent)
    }

    /// `any`: there were values within the window; `lossy`: some were lost before they came.
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
        assert_eq!(State::of(true, 2, 2, false), State::Fresh);
        assert_eq!(State::of(true, 2, 1, false), State::Partial);
        assert_eq!(State::of(true, 2, 2, true), State::Partial);
        assert_eq!(State::of(true, 2, 0, false), State::Stale);
        assert_eq!(State::of(true, 0, 0, false), State::Fresh);
        assert_eq!(State::of(false, 2, 2, false), State::Idle);
        assert_eq!(State::of(false, 2, 1, false), State::Partial);
        assert_eq!(State::of(false, 2, 0, true), State::Stale);
        assert_eq!(State::of(false, 0, 0, false), State::Absent);
    }
}
