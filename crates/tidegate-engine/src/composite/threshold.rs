// SPDX-License-Identifier: Apache-2.0

//! Thresholds: the crossing of one by a value, and the end of the crossing.

use std::sync::Arc;
use std::time::Duration;

use crate::UnixNanos;
use crate::lease::nanos;

/// The direction in which a value crosses a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Values greater than the threshold cross it.
    Above,
    /// Values less than the threshold cross it.
    Below,
}

impl Direction {
    /// The name in configuration and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Above => "above",
            Self::Below => "below",
        }
    }
}

/// A declared threshold.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    /// Its name.
    pub name: Arc<str>,
    /// The values that cross it.
    pub direction: Direction,
    /// The value to cross.
    pub at: f64,
    /// Hysteresis: a crossed threshold stays crossed until the value is at this one or on its other side.
    pub clear: f64,
    /// The least time between two changes.
    pub min_interval: Duration,
}

impl Threshold {
    fn is_crossed_by(&self, value: f64) -> bool {
        match self.direction {
            Direction::Above => value > self.at,
            Direction::Below => value < self.at,
        }
    }

    fn is_cleared_by(&self, value: f64) -> bool {
        match self.direction {
            Direction::Above => value <= self.clear,
            Direction::Below => value >= self.clear,
        }
    }
}

/// Whether one value has crossed a threshold, with hysteresis: the value has to come back to `clear` before
/// the next crossing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hysteresis {
    is_crossed: bool,
    /// The time of the last change; 0: never.
    changed: UnixNanos,
}

impl Hysteresis {
    /// Whether the threshold counts as crossed.
    pub fn is_crossed(self) -> bool {
        self.is_crossed
    }

    /// Takes the next value; `true`: the threshold is crossed or cleared now. `None` and NaN change nothing.
    pub fn update(&mut self, threshold: &Threshold, value: Option<f64>, now: UnixNanos) -> bool {
        let Some(value) = value.filter(|value| !value.is_nan()) else {
            return false;
        };
        let changes = if self.is_crossed {
            threshold.is_cleared_by(value)
        } else {
            threshold.is_crossed_by(value)
        };
        let is_early = self.changed != 0 && now.saturating_sub(self.changed) < nanos(threshold.min_interval);
        if changes && !is_early {
            self.is_crossed = !self.is_crossed;
            self.changed = now.max(1);
        }
        changes && !is_early
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threshold(direction: Direction, at: f64, clear: f64, min_interval: u64) -> Threshold {
        Threshold {
            name: "t".into(),
            direction,
            at,
            clear,
            min_interval: Duration::from_nanos(min_interval),
        }
    }

    fn run(threshold: &Threshold, values: &[(u64, Option<f64>)]) -> Vec<(u64, bool)> {
        let mut hysteresis = Hysteresis::default();
        let mut changes = Vec::new();
        for (now, value) in values {
            if hysteresis.update(threshold, *value, *now) {
                changes.push((*now, hysteresis.is_crossed()));
            }
        }
        changes
    }

    #[test]
    fn a_value_that_trembles_between_the_two_bounds_changes_nothing() {
        let values = [5.0, 11.0, 9.0, 10.5, 8.5, 8.0, 9.9, 11.0].map(Some);
        let values: Vec<_> = (1..).zip(values).collect();
        let changes = run(&threshold(Direction::Above, 10.0, 8.0, 0), &values);
        assert_eq!(changes, [(2, true), (6, false), (8, true)]);
        let values: Vec<_> = (1..).zip([5.0, 1.0, 2.0, 3.0, 0.5].map(Some)).collect();
        let changes = run(&threshold(Direction::Below, 2.0, 3.0, 0), &values);
        assert_eq!(changes, [(2, true), (4, false), (5, true)]);
    }

    #[test]
    fn changes_keep_their_distance_and_no_value_is_no_change() {
        let values = [
            (10, Some(11.0)),
            (12, Some(1.0)),
            (14, None),
            (19, Some(f64::NAN)),
            (20, Some(1.0)),
        ];
        let changes = run(&threshold(Direction::Above, 10.0, 8.0, 10), &values);
        assert_eq!(changes, [(10, true), (20, false)]);
    }
}
