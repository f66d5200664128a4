//! How far an input stream has come: what each of its points adds, in order, across resets and repetitions.

mod last;

use std::borrow::Cow;

pub(crate) use last::Last;

use crate::{Data, Exemplar, ExponentialHistogram, Histogram, Number, Temporality, UnixNanos, Value};

/// A point of a known series, by reference.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Start of the interval that the value covers; 0 = unknown.
    pub start: UnixNanos,
    /// When the value was true.
    pub time: UnixNanos,
    /// The value.
    pub value: &'a Value,
    /// Examples of what the value is made of.
    pub exemplars: &'a [Exemplar],
}

/// Why a point was not taken into a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Rejection {
    /// Not newer than what the stream has already said.
    Late,
    /// Said before in the same words: nothing is lost.
    Duplicate,
    /// Breaks the data model (a monotonic sum that is negative or not finite, unsound buckets).
    Invalid,
    /// Can't be combined in the way the rule asks for.
    Unsupported,
    /// A cardinality cap, and no room in an overflow series either.
    Limit,
}

/// For whoever sent the point.
impl std::fmt::Display for Rejection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Late => "not newer than what was said before",
            Self::Duplicate => "said before",
            Self::Invalid => "the value breaks the rules of its kind of metric",
            Self::Unsupported => "it can't be combined in the way that is asked for",
            Self::Limit => "there are too many series",
        })
    }
}

impl Rejection {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 5] = [
        Self::Late,
        Self::Duplicate,
        Self::Invalid,
        Self::Unsupported,
        Self::Limit,
    ];
}

/// What a point adds to the state of its group.
#[derive(Clone, Debug)]
pub(crate) enum Change<'a> {
    /// An increase of a sum, or the value of a gauge.
    Number(Number),
    Histogram(Cow<'a, Histogram>),
    Exponential(Cow<'a, ExponentialHistogram>),
    /// The stream says that it has ended.
    End,
}

/// Where a stream stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) start: UnixNanos,
    pub(crate) time: UnixNanos,
    last: Last,
}

impl Progress {
    /// As far as another process had come.
    pub(crate) fn at(start: UnixNanos, time: UnixNanos, last: Last) -> Self {
        Self { start, time, last }
    }

    /// What the stream said last.
    pub(crate) fn last(&self) -> &Last {
        &self.last
    }

    /// What `sample` adds. The first point of a cumulative stream adds all it has counted so far.
    pub(crate) fn advance<'a>(&mut self, data: Data, sample: &Sample<'a>) -> Result<Change<'a>, Rejection> {
        check(data, sample.value)?;
        let restarted = self.order(data, sample)?;
        if restarted && !matches!(data, Data::Sum { monotonic: false, .. }) {
            self.last = Last::Nothing;
        }
        let change = self.change(data, sample.value)?;
        (self.start, self.time) = (sample.start, sample.time);
        Ok(change)
    }

    /// Checks order only, for states that take points as they are.
    pub(crate) fn follow(&mut self, data: Data, sample: &Sample<'_>) -> Result<(), Rejection> {
        check(data, sample.value)?;
        self.order(data, sample)?;
        (self.start, self.time) = (sample.start, sample.time);
        Ok(())
    }

    /// Whether the stream began anew; an error where the point is not newer than the last one.
    ///
    /// A later start time is a new beginning whatever the clock says. Points of an older beginning, and points at or
    /// before the last one's time, come too late; if they say the same again, nothing is lost.
    fn order(&self, data: Data, sample: &Sample<'_>) -> Result<bool, Rejection> {
        if self.time == 0 {
            return Ok(false);
        }
        let delta = data.temporality() == Temporality::Delta;
        let restarts = !delta && data != Data::Gauge;
        if restarts && self.start != 0 && sample.start > self.start {
            return Ok(true);
        }
        if sample.time > self.time {
            return Ok(false);
        }
        let repeated = sample.time == self.time && sample.start == self.start;
        match repeated && (delta || self.says(sample.value)) {
            true => Err(Rejection::Duplicate),
            false => Err(Rejection::Late),
        }
    }

    fn says(&self, value: &Value) -> bool {
        match (&self.last, value) {
            (Last::Number(last), _) => value.number().is_some_and(|number| number.same(*last)),
            (Last::Histogram(last), Value::Histogram(now)) => last == now,
            (Last::Exponential(last), Value::ExponentialHistogram(now)) => last == now,
            (Last::Nothing, _) => true,
            _ => false,
        }
    }

    fn change<'a>(&mut self, data: Data, value: &'a Value) -> Result<Change<'a>, Rejection> {
        let cumulative = data.temporality() == Temporality::Cumulative;
        Ok(match value {
            Value::Int(_) | Value::Double(_) => {
                let number = value.number().ok_or(Rejection::Invalid)?;
                Change::Number(self.number(data, cumulative, number))
            }
            Value::Histogram(now) if cumulative => Change::Histogram(self.histogram(now)),
            Value::Histogram(now) => Change::Histogram(Cow::Borrowed(now)),
            Value::ExponentialHistogram(now) if cumulative => Change::Exponential(self.exponential(now)),
            Value::ExponentialHistogram(now) => Change::Exponential(Cow::Borrowed(now)),
            Value::Summary(_) => return Err(Rejection::Unsupported),
            Value::NoRecordedValue => Change::End,
        })
    }

    fn number(&mut self, data: Data, cumulative: bool, now: Number) -> Number {
        let Data::Sum { monotonic, .. } = data else {
            self.last = Last::Number(now);
            return now;
        };
        let then = match &self.last {
            Last::Number(then) => *then,
            _ => Number::ZERO,
        };
        if !cumulative {
            if !monotonic {
                self.last = Last::Number(then.plus(now));
            }
            return now;
        }
        self.last = Last::Number(now);
        match monotonic && now.less(then) {
            true => now,
            false => now.minus(then),
        }
    }

    fn histogram<'a>(&mut self, now: &'a Histogram) -> Cow<'a, Histogram> {
        let increase = match &self.last {
            Last::Histogram(then) => now.since(then),
            _ => None,
        };
        match &mut self.last {
            Last::Histogram(last) => last.as_mut().clone_from(now),
            last => *last = Last::Histogram(Box::new(now.clone())),
        }
        increase.map_or(Cow::Borrowed(now), Cow::Owned)
    }

    fn exponential<'a>(&mut self, now: &'a ExponentialHistogram) -> Cow<'a, ExponentialHistogram> {
        let increase = match &self.last {
            Last::Exponential(then) => now.since(then),
            _ => None,
        };
        match &mut self.last {
            Last::Exponential(last) => last.as_mut().clone_from(now),
            last => *last = Last::Exponential(Box::new(now.clone())),
        }
        increase.map_or(Cow::Borrowed(now), Cow::Owned)
    }

    /// Whether it knows what a cumulative stream has counted so far.
    pub(crate) fn holds_total(&self) -> bool {
        !matches!(self.last, Last::Nothing)
    }

    /// What a stream that leaves takes with it: what it has added to a sum that may fall. Called once, at the end.
    pub(crate) fn withdraw(&mut self) -> Option<Number> {
        match std::mem::take(&mut self.last) {
            Last::Number(number) => Some(number),
            _ => None,
        }
    }
}

/// Whether a value is one that its kind of data can have.
fn check(data: Data, value: &Value) -> Result<(), Rejection> {
    let sound = match (data, value) {
        (_, Value::NoRecordedValue) => true,
        (_, _) if data.temporality() == Temporality::Unspecified => return Err(Rejection::Unsupported),
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

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTER: Data = Data::Sum {
        monotonic: true,
        temporality: Temporality::Cumulative,
    };
    const UP_DOWN: Data = Data::Sum {
        monotonic: false,
        temporality: Temporality::Cumulative,
    };
    const DELTA: Data = Data::Sum {
        monotonic: true,
        temporality: Temporality::Delta,
    };

    /// What each point (start, time, value) adds, or why it does not.
    fn run(data: Data, points: &[(u64, u64, i64)]) -> Vec<Result<i64, Rejection>> {
        let mut progress = Progress::default();
        let mut added = Vec::new();
        for (start, time, value) in points {
            let value = Value::Int(*value);
            let sample = Sample {
                start: *start,
                time: *time,
                value: &value,
                exemplars: &[],
            };
            added.push(match progress.advance(data, &sample) {
                Ok(Change::Number(Number::Int(number))) => Ok(number),
                Ok(other) => panic!("{other:?}"),
                Err(rejection) => Err(rejection),
            });
        }
        added
    }

    use Rejection::{Duplicate, Invalid, Late};

    #[test]
    fn a_counter_adds_its_increases_and_begins_anew_by_start_time_or_decrease() {
        let points = [
            (5, 10, 100),
            (5, 20, 130),
            (25, 30, 140),
            (0, 40, 141),
            (0, 50, 3),
        ];
        assert_eq!(run(COUNTER, &points), [Ok(100), Ok(30), Ok(140), Ok(1), Ok(3)]);
    }

    #[test]
    fn a_restart_counts_even_when_the_clock_was_set_back_and_the_old_run_no_longer_does() {
        let points = [(5, 100, 10), (50, 60, 4), (5, 55, 11), (50, 61, 5)];
        assert_eq!(run(COUNTER, &points), [Ok(10), Ok(4), Err(Late), Ok(1)]);
    }

    #[test]
    fn repeated_points_add_nothing_and_contradicting_ones_are_late() {
        let points = [(5, 10, 100), (5, 10, 100), (5, 10, 101), (5, 9, 90)];
        assert_eq!(
            run(COUNTER, &points),
            [Ok(100), Err(Duplicate), Err(Late), Err(Late)]
        );
        let points = [(5, 10, 7), (5, 10, 7), (10, 20, 7), (5, 10, 7)];
        assert_eq!(run(DELTA, &points), [Ok(7), Err(Duplicate), Ok(7), Err(Late)]);
    }

    #[test]
    fn a_sum_that_may_fall_adds_differences_and_takes_back_all_when_it_leaves() {
        assert_eq!(
            run(UP_DOWN, &[(5, 10, 8), (5, 20, 3), (25, 30, 1)]),
            [Ok(8), Ok(-5), Ok(-2)]
        );
        let mut progress = Progress::default();
        let data = Data::Sum {
            monotonic: false,
            temporality: Temporality::Delta,
        };
        for (time, value) in [(1, 5), (2, -2)] {
            let value = Value::Int(value);
            let sample = Sample {
                start: 0,
                time,
                value: &value,
                exemplars: &[],
            };
            progress.advance(data, &sample).unwrap();
        }
        assert_eq!(progress.withdraw(), Some(Number::Int(3)));
        assert_eq!(progress.withdraw(), None);
    }

    #[test]
    fn values_that_a_counter_can_not_have_are_invalid() {
        assert_eq!(run(COUNTER, &[(5, 10, -1)]), [Err(Invalid)]);
        assert_eq!(run(DELTA, &[(5, 10, -1)]), [Err(Invalid)]);
    }
}
