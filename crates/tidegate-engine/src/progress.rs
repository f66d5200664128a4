//! How far an input stream has come: what each of its points adds, in order, across resets and repetitions.

mod last;
mod late;

pub(crate) use last::Last;
use late::{Late, Run};

use crate::{
    Data, Exemplar, ExponentialHistogram, Histogram, Number, Summary, Temporality, UnixNanos, Value,
};

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
    Histogram(Increase<'a, Histogram>),
    Exponential(Increase<'a, ExponentialHistogram>),
    /// Of a summary only what adds up; its quantiles do not.
    Summary(Moments),
    /// The stream says that it has ended.
    End,
}

/// A distribution that is borrowed where it is all new, and computed where it is a difference.
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

/// What of a summary adds up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moments {
    pub(crate) count: u64,
    pub(crate) sum: f64,
}

/// Where a stream stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) start: UnixNanos,
    pub(crate) time: UnixNanos,
    last: Last,
    /// What may still come out of order; `None` where nothing can.
    late: Option<Box<Late>>,
}

/// Where in its stream a point stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Behind everything so far.
    Next,
    /// The first of a new run.
    Restart,
    /// In a gap that was left by deltas: it comes late, and counts.
    Gap,
    /// Of the run before this one, which it continues: it comes late, and counts.
    FormerRun,
    /// Of a run that was folded when the stream was forgotten: increases are counted from here.
    Folded,
}

impl Progress {
    /// As far as another process had come.
    pub(crate) fn at(start: UnixNanos, time: UnixNanos, last: Last) -> Self {
        Self {
            start,
            time,
            last,
            late: None,
        }
    }

    /// A stream whose runs up to the one that began at `start` are part of what is retained: they add nothing again.
    pub(crate) fn folded(start: UnixNanos, time: UnixNanos) -> Self {
        Self {
            late: Some(Box::new(Late::folded())),
            ..Self::at(start, time, Last::Nothing)
        }
    }

    /// What the stream said last.
    pub(crate) fn last(&self) -> &Last {
        &self.last
    }

    /// What `advance` gives for what nearly every point is, by a shorter way: the next word of a whole running total.
    #[inline]
    pub(crate) fn next_total(&mut self, data: Data, sample: &Sample<'_>) -> Option<Number> {
        let (Last::Number(Number::Int(then)), Value::Int(now)) = (&mut self.last, sample.value) else {
            return None;
        };
        let is_total = matches!(data, Data::Sum { .. }) && data.temporality() == Temporality::Cumulative;
        let is_next = sample.start == self.start && sample.time > self.time && self.late.is_none();
        if !is_total || !is_next || *then < 0 || *now < *then {
            return None;
        }
        let increase = *now - *then;
        *then = *now;
        self.time = sample.time;
        Some(Number::Int(increase))
    }

    /// What `sample` adds. The first point of a cumulative stream adds all it has counted so far. Points that come
    /// out of order count when they are at most `lateness_ns` older than the newest and say what no other has said.
    pub(crate) fn advance<'a>(
        &mut self,
        data: Data,
        sample: &Sample<'a>,
        lateness_ns: u64,
    ) -> Result<Change<'a>, Rejection> {
        check(data, sample.value)?;
        let place = self.place(data, sample, lateness_ns)?;
        match place {
            Place::Next => self.note_gap(data, sample, lateness_ns),
            Place::Restart => self.restart(data, sample, lateness_ns),
            Place::Gap => return self.fill(data, sample),
            Place::FormerRun => return self.continue_former(data, sample),
            Place::Folded => {
                self.late = None;
                // Only tells where increases are counted from.
                self.change(data, sample.value)?;
            }
        }
        let change = self.change(data, sample.value)?;
        (self.start, self.time) = (sample.start, sample.time);
        Ok(change)
    }

    /// Checks order only, for states that take points as they are.
    pub(crate) fn follow(&mut self, data: Data, sample: &Sample<'_>) -> Result<(), Rejection> {
        check(data, sample.value)?;
        self.place(data, sample, 0)?;
        (self.start, self.time) = (sample.start, sample.time);
        Ok(())
    }

    /// Where a point stands; an error where it adds nothing.
    ///
    /// A later start time is a new beginning whatever the clock says. Of a run that has been heard of later than this
    /// point all is known; if it says no more than that, nothing is lost.
    fn place(&self, data: Data, sample: &Sample<'_>, lateness_ns: u64) -> Result<Place, Rejection> {
        if self.time == 0 {
            return Ok(Place::Next);
        }
        if data.temporality() == Temporality::Delta {
            return self.place_of_delta(sample);
        }
        let runs = data != Data::Gauge && self.start != 0 && sample.start != 0;
        let (newer_run, older_run) = (sample.start > self.start, sample.start < self.start);
        if self.late.as_ref().is_some_and(|late| late.is_folded) && !(runs && newer_run) {
            let is_newer = sample.time > self.time;
            return if is_newer {
                Ok(Place::Folded)
            } else {
                Err(Rejection::Late)
            };
        }
        if runs && newer_run {
            return Ok(Place::Restart);
        }
        if runs && older_run {
            let falls = matches!(data, Data::Sum { monotonic: false, .. });
            let is_recent = self.time.saturating_sub(sample.time) <= lateness_ns;
            let former = self.late.as_ref().and_then(|late| late.former.as_ref());
            return match former {
                Some(former) if former.start == sample.start => match sample.time > former.time {
                    true => Ok(Place::FormerRun),
                    false if former.last.covers(data, sample.value) => Err(Rejection::Duplicate),
                    false => Err(Rejection::Late),
                },
                // A clock was set back between two runs.
                _ if sample.time > self.time => Ok(Place::Restart),
                // Nothing was heard of it before the run that came after it.
                None if lateness_ns > 0 && is_recent && !falls => Ok(Place::FormerRun),
                _ => Err(Rejection::Late),
            };
        }
        if sample.time > self.time {
            return Ok(Place::Next);
        }
        let is_same = sample.time == self.time && self.says(sample.value);
        let is_covered = sample.time < self.time && self.last.covers(data, sample.value);
        match is_same || is_covered {
            true => Err(Rejection::Duplicate),
            false => Err(Rejection::Late),
        }
    }

    fn place_of_delta(&self, sample: &Sample<'_>) -> Result<Place, Rejection> {
        if sample.time > self.time {
            return Ok(Place::Next);
        }
        if (sample.start, sample.time) == (self.start, self.time) {
            return Err(Rejection::Duplicate);
        }
        let late = self.late.as_ref();
        match late.is_some_and(|late| late.gap(sample.start, sample.time).is_some()) {
            true => Ok(Place::Gap),
            false => Err(Rejection::Late),
        }
    }

    /// Remembers what deltas in between have not been seen yet.
    fn note_gap(&mut self, data: Data, sample: &Sample<'_>, lateness_ns: u64) {
        let delta = data.temporality() == Temporality::Delta;
        if !delta || lateness_ns == 0 || sample.start == 0 {
            return;
        }
        let oldest = sample.time.saturating_sub(lateness_ns);
        let from = if self.time == 0 { oldest } else { self.time };
        if from < sample.start {
            let late = self.late.get_or_insert_default();
            late.add_gap(from, sample.start, oldest);
        }
    }

    fn restart(&mut self, data: Data, sample: &Sample<'_>, lateness_ns: u64) {
        self.late = None;
        if matches!(data, Data::Sum { monotonic: false, .. }) {
            return;
        }
        let last = std::mem::take(&mut self.last);
        let is_recent = sample.time.saturating_sub(self.time) <= lateness_ns;
        if lateness_ns > 0 && is_recent && !matches!(last, Last::Nothing) {
            self.late = Some(Box::new(Late::after(self.start, self.time, last)));
        }
    }

    fn fill<'a>(&mut self, data: Data, sample: &Sample<'a>) -> Result<Change<'a>, Rejection> {
        let change = self.change(data, sample.value)?;
        if let Some(late) = &mut self.late {
            late.fill(sample.start, sample.time);
        }
        Ok(change)
    }

    fn continue_former<'a>(&mut self, data: Data, sample: &Sample<'a>) -> Result<Change<'a>, Rejection> {
        let late = self.late.get_or_insert_default();
        let unheard = || Run::new(sample.start, 0, Last::Nothing);
        let mut former = late.former.take().unwrap_or_else(unheard);
        std::mem::swap(&mut former.last, &mut self.last);
        let change = self.change(data, sample.value);
        std::mem::swap(&mut former.last, &mut self.last);
        former.time = sample.time;
        self.late.get_or_insert_default().former = Some(former);
        change
    }

    fn says(&self, value: &Value) -> bool {
        match (&self.last, value) {
            (Last::Number(last), _) => value.number().is_some_and(|number| number.same(*last)),
            (Last::Histogram(last), Value::Histogram(now)) => last == now,
            (Last::Exponential(last), Value::ExponentialHistogram(now)) => last == now,
            (Last::Summary(last), Value::Summary(now)) => **last == Moments::of(now),
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
            Value::Histogram(now) => Change::Histogram(Increase::All(now)),
            Value::ExponentialHistogram(now) if cumulative => Change::Exponential(self.exponential(now)),
            Value::ExponentialHistogram(now) => Change::Exponential(Increase::All(now)),
            Value::Summary(now) => Change::Summary(self.summary(Moments::of(now))),
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

    fn histogram<'a>(&mut self, now: &'a Histogram) -> Increase<'a, Histogram> {
        let increase = match &self.last {
            Last::Histogram(then) => now.since(then),
            _ => None,
        };
        match &mut self.last {
            Last::Histogram(last) => last.as_mut().clone_from(now),
            last => *last = Last::Histogram(Box::new(now.clone())),
        }
        increase.map_or(Increase::All(now), |part| Increase::Part(Box::new(part)))
    }

    fn exponential<'a>(&mut self, now: &'a ExponentialHistogram) -> Increase<'a, ExponentialHistogram> {
        let increase = match &self.last {
            Last::Exponential(then) => now.since(then),
            _ => None,
        };
        match &mut self.last {
            Last::Exponential(last) => last.as_mut().clone_from(now),
            last => *last = Last::Exponential(Box::new(now.clone())),
        }
        increase.map_or(Increase::All(now), |part| Increase::Part(Box::new(part)))
    }

    fn summary(&mut self, now: Moments) -> Moments {
        let then = match &self.last {
            Last::Summary(then) if then.count <= now.count => **then,
            _ => Moments::default(),
        };
        self.last = Last::Summary(Box::new(now));
        Moments {
            count: now.count - then.count,
            sum: now.sum - then.sum,
        }
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

impl Moments {
    pub(crate) fn of(summary: &Summary) -> Self {
        Self {
            count: summary.count,
            sum: summary.sum,
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
mod tests;
