// SPDX-License-Identifier: Apache-2.0

//! The change by a point: the increase over the last value of its stream.

use super::{LastValue, Rejection, StreamTracker};
use crate::{Data, ExponentialHistogram, Histogram, Number, Summary, Temporality, Value};

/// The change of a group's state by a point.
#[derive(Clone, Debug)]
pub(crate) enum Change<'a> {
    /// An increase of a sum, or the value of a gauge.
    Number(Number),
    Histogram(Increase<'a, Histogram>),
    Exponential(Increase<'a, ExponentialHistogram>),
    /// The parts of a summary that add up; its quantiles do not.
    Summary(Moments),
    /// The stream says that it has ended.
    End,
}

/// A distribution: borrowed if it is all new, computed if it is a difference.
#[derive(Clone, Debug)]
pub(crate) enum Increase<'a, T> {
    All(&'a T),
    Part(Box<T>),
}

impl<T> std::ops::Deref for Increase<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::All(all) => all,
            Self::Part(part) => part,
        }
    }
}

impl<T: Clone> Increase<'_, T> {
    pub(crate) fn into_owned(self) -> Box<T> {
        match self {
            Self::All(all) => Box::new(all.clone()),
            Self::Part(part) => part,
        }
    }
}

/// The parts of a summary that add up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moments {
    pub(crate) count: u64,
    pub(crate) sum: f64,
}

impl Moments {
    pub(crate) fn of(summary: &Summary) -> Self {
        Self {
            count: summary.count,
            sum: summary.sum,
        }
    }
}

impl StreamTracker {
    /// Whether the last value equals this one.
    pub(super) fn equals_last(&self, value: &Value) -> bool {
        match (&self.last, value) {
            (LastValue::Number(last), _) => value.number().is_some_and(|number| number.same(*last)),
            (LastValue::Histogram(last), Value::Histogram(now)) => last == now,
            (LastValue::Exponential(last), Value::ExponentialHistogram(now)) => last == now,
            (LastValue::Summary(last), Value::Summary(now)) => **last == Moments::of(now),
            (LastValue::Nothing, _) => true,
            _ => false,
        }
    }

    pub(super) fn change<'a>(&mut self, data: Data, value: &'a Value) -> Result<Change<'a>, Rejection> {
        let cumulative = data.temporality() == Temporality::Cumulative;
        Ok(match value {
            Value::Int(_) | Value::Double(_) => {
                let number = value.number().ok_or(Rejection::Invalid)?;
                Change::Number(self.number(data, cumulative, number))
            }
            Value::Histogram(now) if cumulative => Change::Histogram(self.histogram(now)),
            Value::Histogram(now) => Change::Histogram(Increase::All(now)),
            Value::ExponentialHistogram(now) if cumulative => Change::Exponential(self.exponential(now)),
            Value::ExponentialHistogram(now) => Change::Exponential(Increase::All(now)),
            Value::Summary(now) => Change::Summary(self.summary(Moments::of(now))),
            Value::NoRecordedValue => Change::End,
        })
    }

    fn number(&mut self, data: Data, cumulative: bool, now: Number) -> Number {
        let Data::Sum { monotonic, .. } = data else {
            self.last = LastValue::Number(now);
            return now;
        };
        let then = match &self.last {
            LastValue::Number(then) => *then,
            _ => Number::ZERO,
        };
        if !cumulative {
            if !monotonic {
                self.last = LastValue::Number(then.plus(now));
            }
            return now;
        }
        self.last = LastValue::Number(now);
        if monotonic && now.less(then) {
            now
        } else {
            now.minus(then)
        }
    }

    fn histogram<'a>(&mut self, now: &'a Histogram) -> Increase<'a, Histogram> {
        let increase = match &self.last {
            LastValue::Histogram(then) => now.since(then),
            _ => None,
        };
        match &mut self.last {
            LastValue::Histogram(last) => last.as_mut().clone_from(now),
            last => *last = LastValue::Histogram(Box::new(now.clone())),
        }
        increase.map_or(Increase::All(now), |part| Increase::Part(Box::new(part)))
    }

    fn exponential<'a>(&mut self, now: &'a ExponentialHistogram) -> Increase<'a, ExponentialHistogram> {
        let increase = match &self.last {
            LastValue::Exponential(then) => now.since(then),
            _ => None,
        };
        match &mut self.last {
            LastValue::Exponential(last) => last.as_mut().clone_from(now),
            last => *last = LastValue::Exponential(Box::new(now.clone())),
        }
        increase.map_or(Increase::All(now), |part| Increase::Part(Box::new(part)))
    }

    fn summary(&mut self, now: Moments) -> Moments {
        let then = match &self.last {
            LastValue::Summary(then) if then.count <= now.count => **then,
            _ => Moments::default(),
        };
        self.last = LastValue::Summary(Box::new(now));
        Moments {
            count: now.count - then.count,
            sum: now.sum - then.sum,
        }
    }
}

/// Checks that a value is valid for its kind of data.
pub(super) fn check(data: Data, value: &Value) -> Result<(), Rejection> {
    let sound = match (data, value) {
        (_, Value::NoRecordedValue) => true,
        (_, _) if data.temporality() == Temporality::Unspecified => return Err(Rejection::NoTemporality),
        (Data::Gauge, Value::Int(_) | Value::Double(_)) => true,
        (Data::Sum { monotonic, .. }, Value::Int(_) | Value::Double(_)) => value
            .number()
            .is_some_and(|number| number.is_finite() && !(monotonic && number.less(Number::ZERO))),
        (Data::Histogram { .. }, Value::Histogram(histogram)) => histogram.is_sound(),
        (Data::ExponentialHistogram { .. }, Value::ExponentialHistogram(histogram)) => histogram.is_sound(),
        (Data::Summary, Value::Summary(_)) => true,
        _ => false,
    };
    if sound { Ok(()) } else { Err(Rejection::Invalid) }
}
