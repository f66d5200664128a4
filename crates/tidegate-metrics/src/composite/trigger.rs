// SPDX-License-Identifier: Apache-2.0

//! When a callback is due.

use std::time::Duration;

use tidegate_engine::{Direction, Hysteresis, Threshold, UnixNanos};

use super::Snapshot;

/// When a callback is due.
///
/// ```
/// # use std::time::Duration;
/// # use tidegate_metrics::Trigger;
/// let slow = Trigger::above(0.5).hysteresis(0.1).min_interval(Duration::from_millis(100));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Trigger {
    pub(super) when: When,
    hysteresis: f64,
    min_interval: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum When {
    Beyond(Direction, f64),
    /// The value is so far from the last reported one, or farther.
    Moved(f64),
}

impl Trigger {
    fn new(when: When) -> Self {
        Self {
            when,
            hysteresis: 0.0,
            min_interval: Duration::ZERO,
        }
    }

    /// When the value gets greater than this, and when that is over.
    pub fn above(at: f64) -> Self {
        Self::new(When::Beyond(Direction::Above, at))
    }

    /// When the value gets less than this, and when that is over.
    pub fn below(at: f64) -> Self {
        Self::new(When::Beyond(Direction::Below, at))
    }

    /// Whenever the value has changed.
    pub fn changed() -> Self {
        Self::new(When::Moved(0.0))
    }

    /// Whenever the value is so far from the last reported one, or farther.
    pub fn moved(by: f64) -> Self {
        Self::new(When::Moved(by.abs()))
    }

    /// A crossing is over only when the value is back by more than this.
    pub fn hysteresis(mut self, by: f64) -> Self {
        self.hysteresis = by.abs();
        self
    }

    /// At least so long between two calls. A change that comes sooner is reported when the time is over, if it still holds.
    pub fn min_interval(mut self, min_interval: Duration) -> Self {
        self.min_interval = min_interval;
        self
    }

    /// Whether all its numbers are some.
    pub(super) fn is_valid(&self) -> bool {
        let (When::Beyond(_, at) | When::Moved(at)) = self.when;
        at.is_finite() && self.hysteresis.is_finite()
    }

    fn threshold(&self, direction: Direction, at: f64) -> Threshold {
        Threshold {
            name: "".into(),
            direction,
            at,
            clear: match direction {
                Direction::Above => at - self.hysteresis,
                Direction::Below => at + self.hysteresis,
            },
            min_interval: self.min_interval,
        }
    }
}

/// The argument of a callback.
#[derive(Clone, Debug)]
pub struct Change {
    /// Everything about the value.
    pub snapshot: Snapshot,
    /// The value that made it due.
    pub value: f64,
    /// Whether the threshold is crossed now. (Of triggers without a threshold: yes.)
    pub is_crossed: bool,
}

/// Where a trigger stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TriggerState {
    crossing: Hysteresis,
    told: Option<(f64, UnixNanos)>,
}

impl TriggerState {
    /// Shows a value; `Some`: a callback is due, and says whether the threshold is crossed.
    pub(super) fn observe(&mut self, trigger: &Trigger, value: Option<f64>, now: UnixNanos) -> Option<bool> {
        match trigger.when {
            When::Beyond(direction, at) => {
                let threshold = trigger.threshold(direction, at);
                self.crossing
                    .update(&threshold, value, now)
                    .then(|| self.crossing.is_crossed())
            }
            When::Moved(by) => {
                let value = value.filter(|value| !value.is_nan())?;
                let is_due = match self.told {
                    // The first value is where changes are counted from.
                    None => {
                        self.told = Some((value, 0));
                        false
                    }
                    Some((told, at)) => {
                        let is_early =
                            at != 0 && u128::from(now.saturating_sub(at)) < trigger.min_interval.as_nanos();
                        let distance = (value - told).abs();
                        !is_early && distance > 0.0 && distance >= by
                    }
                };
                if is_due {
                    self.told = Some((value, now));
                }
                is_due.then_some(true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(trigger: &Trigger, values: &[(u64, f64)]) -> Vec<(u64, bool)> {
        let mut standing = TriggerState::default();
        let observe =
            |(now, value): &(u64, f64)| Some((*now, standing.observe(trigger, Some(*value), *now)?));
        values.iter().filter_map(observe).collect()
    }

    #[test]
    fn a_crossing_is_over_only_beyond_the_hysteresis() {
        let trigger = Trigger::above(10.0).hysteresis(2.0);
        let values = [(1, 9.0), (2, 11.0), (3, 9.0), (4, 12.0), (5, 7.9), (6, 11.0)];
        assert_eq!(run(&trigger, &values), [(2, true), (5, false), (6, true)]);
        let trigger = Trigger::below(10.0).hysteresis(2.0);
        let values = [(1, 9.0), (2, 11.0), (3, 12.5), (4, 10.0), (5, 9.9)];
        assert_eq!(run(&trigger, &values), [(1, true), (3, false), (5, true)]);
    }

    #[test]
    fn calls_keep_their_distance() {
        let trigger = Trigger::above(10.0).min_interval(Duration::from_nanos(10));
        let values = [(1, 11.0), (5, 1.0), (9, 11.0), (11, 1.0), (12, 11.0), (21, 11.0)];
        assert_eq!(run(&trigger, &values), [(1, true), (11, false), (21, true)]);
        let trigger = Trigger::changed().min_interval(Duration::from_nanos(10));
        let values = [(1, 0.0), (2, 1.0), (5, 2.0), (12, 2.0), (30, 2.0), (31, 3.0)];
        assert_eq!(run(&trigger, &values), [(2, true), (12, true), (31, true)]);
    }

    #[test]
    fn moves_add_up_until_they_are_reported() {
        let values = [(1, 0.0), (2, 1.0), (3, 1.9), (4, 2.0), (5, 3.0), (6, -0.1)];
        assert_eq!(run(&Trigger::moved(2.0), &values), [(4, true), (6, true)]);
    }
}
