//! Thresholds: when a value crosses one, and when that counts as over.

use std::sync::Arc;
use std::time::Duration;

use crate::UnixNanos;
use crate::lease::nanos;

/// Which side of a threshold is worth telling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Values greater than it.
    Above,
    /// Values less than it.
    Below,
}

impl Side {
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
    /// What it is called.
    pub name: Arc<str>,
    /// Which values are beyond it.
    pub side: Side,
    /// Where it is.
    pub at: f64,
    /// Hysteresis: once crossed, it counts as crossed until the value is on the other side of this.
    pub clear: f64,
    /// At least so long between two changes.
    pub min_interval: Duration,
}

impl Threshold {
    fn is_beyond(&self, value: f64) -> bool {
        match self.side {
            Side::Above => value > self.at,
            Side::Below => value < self.at,
        }
    }

    fn is_clear(&self, value: f64) -> bool {
        match self.side {
            Side::Above => value <= self.clear,
            Side::Below => value >= self.clear,
        }
    }
}

/// Where a value stands to a threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    is_crossed: bool,
    /// 0: never.
    changed: UnixNanos,
}

impl Gate {
    /// Whether the threshold counts as crossed.
    pub fn is_crossed(self) -> bool {
        self.is_crossed
    }

    /// Shows a value; `true`: that changed where it stands. No value changes nothing: nobody knows.
    pub fn see(&mut self, threshold: &Threshold, value: Option<f64>, now: UnixNanos) -> bool {
        let Some(value) = value.filter(|value| !value.is_nan()) else {
            return false;
        };
        let changes = match self.is_crossed {
            true => threshold.is_clear(value),
            false => threshold.is_beyond(value),
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

    fn threshold(side: Side, at: f64, clear: f64, min_interval: u64) -> Threshold {
        Threshold {
            name: "t".into(),
            side,
            at,
            clear,
            min_interval: Duration::from_nanos(min_interval),
        }
    }

    fn run(threshold: &Threshold, values: &[(u64, Option<f64>)]) -> Vec<(u64, bool)> {
        let mut gate = Gate::default();
        let mut changes = Vec::new();
        for (now, value) in values {
            if gate.see(threshold, *value, *now) {
                changes.push((*now, gate.is_crossed()));
            }
        }
        changes
    }

    #[test]
    fn a_value_that_trembles_between_the_two_bounds_changes_nothing() {
        let values = [5.0, 11.0, 9.0, 10.5, 8.5, 8.0, 9.9, 11.0].map(Some);
        let values: Vec<_> = (1..).zip(values).collect();
        let changes = run(&threshold(Side::Above, 10.0, 8.0, 0), &values);
        assert_eq!(changes, [(2, true), (6, false), (8, true)]);
        let values: Vec<_> = (1..).zip([5.0, 1.0, 2.0, 3.0, 0.5].map(Some)).collect();
        let changes = run(&threshold(Side::Below, 2.0, 3.0, 0), &values);
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
        let changes = run(&threshold(Side::Above, 10.0, 8.0, 10), &values);
        assert_eq!(changes, [(10, true), (20, false)]);
    }
}
