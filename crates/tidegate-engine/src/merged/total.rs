// SPDX-License-Identifier: Apache-2.0

//! The value of a series: whole numbers and bucket counts are kept up to date, the rest is computed for a reader.
//!
//! A sum of floats depends on the order of its terms. [`ByProducer`] adds up the runs of each producer by start time,
//! and then the producers by id. So all replicas show the same bits. A retained total is the sum of the first runs of
//! its producer, so that compaction does not change a bit.

use super::ProducerId;
use super::item::{Head, Item, same_bounds};
use super::report::{MergeMode, ReportKind, ValueForm};
use super::retained::bytes_of;
use crate::{ExponentialHistogram, Histogram, Number, Summary, Value};

/// The work that a reader has to do before it sees the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Nothing,
    /// Whole numbers and bucket counts are right.
    Floats,
    #[default]
    Everything,
}

/// The merged value of a series.
#[derive(Debug, Default)]
pub(super) struct MergedValue {
    value: Option<Value>,
    /// The sum of the whole numbers, which is exact.
    whole: i128,
    /// Number of the other numbers.
    doubles: usize,
    due: Due,
}

impl MergedValue {
    /// The value, once it is settled.
    pub(super) fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }

    pub(super) fn bytes(&self) -> usize {
        self.value.as_ref().map_or(0, bytes_of)
    }

    /// Everything must be recomputed.
    pub(super) fn discard(&mut self) {
        self.due = Due::Everything;
    }

    /// A value of the series' kind takes the place of another, or is new.
    pub(super) fn replace(&mut self, kind: ReportKind, old: Option<&Value>, new: &Value) {
        if self.due == Due::Everything {
            return;
        }
        let is_done = match (kind.form, kind.mode) {
            (ValueForm::Number, MergeMode::Add | MergeMode::Level) => {
                old.into_iter().for_each(|old| self.count_number(old, -1));
                self.count_number(new, 1);
                true
            }
            (ValueForm::Histogram, _) => self.replace_histogram(old, new),
            _ => false,
        };
        self.due = if is_done { Due::Floats } else { Due::Everything };
    }

    fn count_number(&mut self, value: &Value, times: i8) {
        match value {
            Value::Int(whole) => self.whole += i128::from(*whole) * i128::from(times),
            _ => self.doubles = self.doubles.saturating_add_signed(times.into()),
        }
    }

    fn replace_histogram(&mut self, old: Option<&Value>, new: &Value) -> bool {
        let (Some(Value::Histogram(total)), Value::Histogram(new)) = (&mut self.value, new) else {
            return false;
        };
        let old = match old {
            Some(Value::Histogram(old)) => Some(old.as_ref()),
            _ => None,
        };
        let fits = |one: &Histogram| {
            same_bounds(&one.bounds, &total.bounds) && one.counts.len() == total.counts.len()
        };
        let rest = total.count.checked_sub(old.map_or(0, |old| old.count));
        let count = rest.and_then(|rest| rest.checked_add(new.count));
        // A count that did not fit is the largest number, and no difference of it is right.
        let count = count.filter(|count| total.count < u64::MAX && *count < u64::MAX);
        let (true, Some(count)) = (old.is_none_or(fits) && fits(new), count) else {
            return false;
        };
        total.count = count;
        // No bucket overflows: the counts of all buckets add up to the count.
        let olds = old.map_or(&[][..], |old| &old.counts);
        for (count, old) in total.counts.iter_mut().zip(olds) {
            *count = count.wrapping_sub(*old);
        }
        for (count, new) in total.counts.iter_mut().zip(&new.counts) {
            *count = count.wrapping_add(*new);
        }
        true
    }

    /// Computes the parts that are due. `each` shows the items by producer and start.
    pub(super) fn compute<'a>(&mut self, head: Option<&Head>, each: impl Fn(&mut dyn FnMut(Item<'a>))) {
        let Some(head) = head else {
            *self = Self::default();
            return;
        };
        let each = |take: &mut dyn FnMut(Item<'a>)| {
            each(&mut |item| {
                if super::report::kind(item.mode, item.value) == head.kind {
                    take(item);
                }
            });
        };
        if self.due == Due::Everything {
            self.count(head, &each);
        }
        if self.due != Due::Nothing {
            self.add_floats(head.kind, &each);
        }
        self.due = Due::Nothing;
    }

    /// Computes whole numbers and bucket counts.
    fn count<'a>(&mut self, head: &Head, each: &impl Fn(&mut dyn FnMut(Item<'a>))) {
        (self.whole, self.doubles) = (0, 0);
        match head.kind.form {
            ValueForm::Number => each(&mut |item| self.count_number(item.value, 1)),
            ValueForm::Histogram => {
                let mut total = Histogram::empty(head.bounds.clone().unwrap_or_default());
                each(&mut |item| {
                    if let Value::Histogram(histogram) = item.value {
                        total.merge(histogram);
                    }
                });
                self.value = Some(Value::Histogram(Box::new(total)));
            }
            ValueForm::ExponentialHistogram | ValueForm::Summary => {}
        }
    }

    fn add_floats<'a>(&mut self, kind: ReportKind, each: &impl Fn(&mut dyn FnMut(Item<'a>))) {
        match (kind.form, kind.mode) {
            (_, MergeMode::Last | MergeMode::Min | MergeMode::Max | MergeMode::Mean) => {
                self.value = super::level::combine(kind.mode, each);
            }
            (ValueForm::Number, _) => self.value = Some(self.number(each)),
            (ValueForm::Histogram, _) => {
                let moments = moments(each);
                if let Some(Value::Histogram(total)) = &mut self.value {
                    (total.sum, total.min, total.max) = (moments.sum, moments.min, moments.max);
                }
            }
            (ValueForm::ExponentialHistogram, _) => self.value = exponential(each),
            (ValueForm::Summary, _) => self.value = summary(each),
        }
    }

    fn number<'a>(&self, each: &impl Fn(&mut dyn FnMut(Item<'a>))) -> Value {
        if self.doubles == 0 {
            let whole = i64::try_from(self.whole);
            return whole.map_or(Value::Double(self.whole as f64), Value::Int);
        }
        let mut sum = ByProducer::new(Number::plus);
        each(&mut |item| {
            if let Some(number) = item.value.number() {
                sum.add(item.producer, number);
            }
        });
        sum.total().unwrap_or(Number::ZERO).into()
    }
}

/// Sum, smallest and largest observation of histograms that have observations.
#[derive(Clone, Copy, Debug)]
struct Moments {
    sum: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
}

fn moments<'a>(each: &impl Fn(&mut dyn FnMut(Item<'a>))) -> Moments {
    let join = |a: Option<f64>, b: Option<f64>, join: fn(f64, f64) -> f64| Some(join(a?, b?));
    let mut all = ByProducer::new(|a: Moments, b: Moments| Moments {
        sum: join(a.sum, b.sum, |a, b| a + b),
        min: join(a.min, b.min, f64::min),
        max: join(a.max, b.max, f64::max),
    });
    each(&mut |item| {
        if let Value::Histogram(histogram) = item.value
            && histogram.count > 0
        {
            let Histogram { sum, min, max, .. } = **histogram;
            all.add(item.producer, Moments { sum, min, max });
        }
    });
    let empty = Moments {
        sum: Some(0.0),
        min: None,
        max: None,
    };
    all.total().unwrap_or(empty)
}

fn exponential<'a>(each: &impl Fn(&mut dyn FnMut(Item<'a>))) -> Option<Value> {
    let mut all = ByProducer::new(|mut a: Box<ExponentialHistogram>, b| {
        a.merge(&b);
        a
    });
    each(&mut |item| {
        if let Value::ExponentialHistogram(histogram) = item.value {
            all.add(item.producer, histogram.clone());
        }
    });
    all.total().map(Value::ExponentialHistogram)
}

fn summary<'a>(each: &impl Fn(&mut dyn FnMut(Item<'a>))) -> Option<Value> {
    let mut all = ByProducer::new(|mut a: Box<Summary>, b| {
        a.merge(&b);
        a
    });
    each(&mut |item| {
        if let Value::Summary(summary) = item.value {
            all.add(item.producer, summary.clone());
        }
    });
    all.total().map(Value::Summary)
}

/// A sum whose terms come by producer: the sum over producers of the sums of their runs.
pub(super) struct ByProducer<T, F> {
    plus: F,
    done: Option<T>,
    current: Option<(ProducerId, T)>,
}

impl<T, F: Fn(T, T) -> T> ByProducer<T, F> {
    pub(super) fn new(plus: F) -> Self {
        Self {
            plus,
            done: None,
            current: None,
        }
    }

    pub(super) fn add(&mut self, producer: ProducerId, term: T) {
        let sum = match self.current.take() {
            Some((current, sum)) if current == producer => (self.plus)(sum, term),
            Some((_, sum)) => {
                self.close(sum);
                term
            }
            None => term,
        };
        self.current = Some((producer, sum));
    }

    fn close(&mut self, sum: T) {
        self.done = Some(match self.done.take() {
            Some(done) => (self.plus)(done, sum),
            None => sum,
        });
    }

    pub(super) fn total(mut self) -> Option<T> {
        if let Some((_, sum)) = self.current.take() {
            self.close(sum);
        }
        self.done
    }
}
