// SPDX-License-Identifier: Apache-2.0

//! Totals that never fall in a run, although their series expire and come back.

use std::sync::Arc;

use tidegate_engine::{UnixNanos, Value};

/// The total of a series in one run.
#[derive(Clone, Debug)]
pub(super) struct CarriedTotal {
    /// The start of the first value. Readers know the total by it.
    pub(super) start: UnixNanos,
    /// When the newest value was true.
    pub(super) time: UnixNanos,
    /// The total: what was carried over and the newest value.
    pub(super) value: Value,
    /// The start of the newest value in its table.
    source_start: UnixNanos,
    /// The number of observations in the newest value, or the number itself.
    weight: f64,
    /// The sum of earlier values.
    carried: Option<Value>,
}

/// The effect of a new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CarryOutcome {
    /// The total is the same.
    Same,
    /// The total has grown.
    Grown,
    /// The value and the earlier ones do not add up. The total is as before.
    Refused,
}

impl CarriedTotal {
    pub(super) fn new(start: UnixNanos, time: UnixNanos, value: Value) -> Self {
        Self {
            start,
            time,
            weight: weight(&value),
            value,
            source_start: start,
            carried: None,
        }
    }

    /// Takes the value of the table. A value with a later start, or a smaller value, adds to the total so far. A start of 0
    /// is not known: it is the same one. A table moves a start back if it adds a process that began earlier.
    pub(super) fn take(&mut self, start: UnixNanos, time: UnixNanos, value: &Value) -> CarryOutcome {
        let start = if start == 0 { self.source_start } else { start };
        let weight = weight(value);
        let is_reset = start > self.source_start || weight < self.weight;
        let carried = if is_reset {
            Some(&self.value)
        } else {
            self.carried.as_ref()
        };
        let total = match carried {
            Some(carried) => sum(carried, value),
            None => same_form(&self.value, value).then(|| value.clone()),
        };
        let Some(total) = total else {
            return CarryOutcome::Refused;
        };
        let before = std::mem::replace(&mut self.value, total);
        let is_same = before == self.value;
        if is_reset {
            self.carried = Some(before);
        }
        (self.source_start, self.time, self.weight) = (start, time.max(self.time), weight);
        if is_same {
            CarryOutcome::Same
        } else {
            CarryOutcome::Grown
        }
    }

    /// Whether an earlier value is part of it.
    pub(super) fn is_carried(&self) -> bool {
        self.carried.is_some()
    }
}

fn weight(value: &Value) -> f64 {
    match value {
        Value::Histogram(histogram) => histogram.count as f64,
        Value::ExponentialHistogram(histogram) => histogram.count as f64,
        Value::Summary(summary) => summary.count as f64,
        value => value.as_f64().unwrap_or_default(),
    }
}

/// Whether two values have one form, and histograms the same bounds.
fn same_form(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Histogram(one), Value::Histogram(other)) => {
            let is_same_list = Arc::ptr_eq(&one.bounds, &other.bounds);
            one.counts.len() == other.counts.len() && (is_same_list || one.bounds == other.bounds)
        }
        (Value::ExponentialHistogram(_), Value::ExponentialHistogram(_))
        | (Value::Summary(_), Value::Summary(_)) => true,
        (one, other) => one.number().is_some() && other.number().is_some(),
    }
}

/// The sum of two totals; `None`: it would not be exact.
fn sum(one: &Value, other: &Value) -> Option<Value> {
    if !same_form(one, other) {
        return None;
    }
    let mut sum = one.clone();
    match (&mut sum, other) {
        (Value::Histogram(sum), Value::Histogram(more)) => sum.merge(more),
        (Value::ExponentialHistogram(sum), Value::ExponentialHistogram(more)) => sum.merge(more),
        (Value::Summary(sum), Value::Summary(more)) => {
            sum.count = sum.count.saturating_add(more.count);
            sum.sum += more.sum;
        }
        (sum, more) => *sum = sum.number()?.plus(more.number()?).into(),
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use tidegate_engine::Histogram;

    use super::*;

    fn histogram(bounds: &[f64], values: &[f64]) -> Value {
        let mut histogram = Histogram::empty(bounds.into());
        values.iter().for_each(|value| histogram.observe(*value, 1));
        Value::Histogram(Box::new(histogram))
    }

    #[test]
    fn a_series_that_comes_back_continues_from_its_total() {
        let mut total = CarriedTotal::new(10, 11, Value::Int(5));
        assert_eq!(total.take(10, 12, &Value::Int(5)), CarryOutcome::Same);
        assert_eq!(total.take(10, 13, &Value::Int(7)), CarryOutcome::Grown);
        assert!(!total.is_carried());
        assert_eq!(total.take(20, 21, &Value::Int(1)), CarryOutcome::Grown);
        assert_eq!(total.take(20, 22, &Value::Int(4)), CarryOutcome::Grown);
        assert_eq!(total.take(30, 31, &Value::Int(2)), CarryOutcome::Grown);
        assert_eq!((total.start, &total.value), (10, &Value::Int(13)));
        assert!(total.is_carried());
    }

    #[test]
    fn a_total_that_falls_with_its_start_unchanged_adds_to_the_old_one() {
        let mut total = CarriedTotal::new(10, 11, Value::Double(5.0));
        assert_eq!(total.take(10, 12, &Value::Double(1.5)), CarryOutcome::Grown);
        assert_eq!(total.value, Value::Double(6.5));
    }

    #[test]
    fn a_start_that_moves_back_does_not_add_the_value_again() {
        let mut total = CarriedTotal::new(10, 11, Value::Int(5));
        assert_eq!(total.take(7, 12, &Value::Int(9)), CarryOutcome::Grown);
        assert_eq!(total.take(7, 13, &Value::Int(9)), CarryOutcome::Same);
        assert_eq!((total.start, &total.value), (10, &Value::Int(9)));
        assert!(!total.is_carried());
    }

    #[test]
    fn histograms_add_up_unless_their_bounds_differ() {
        let mut total = CarriedTotal::new(10, 11, histogram(&[1.0], &[0.5]));
        assert_eq!(
            total.take(20, 21, &histogram(&[1.0], &[2.0])),
            CarryOutcome::Grown
        );
        assert_eq!(total.value, histogram(&[1.0], &[0.5, 2.0]));
        assert_eq!(
            total.take(20, 22, &histogram(&[3.0], &[2.0])),
            CarryOutcome::Refused
        );
        assert_eq!(total.take(20, 22, &Value::Int(9)), CarryOutcome::Refused);
        assert_eq!(total.value, histogram(&[1.0], &[0.5, 2.0]));
    }
}
