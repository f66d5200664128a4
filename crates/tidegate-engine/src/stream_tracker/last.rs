// SPDX-License-Identifier: Apache-2.0

//! The last value of a stream, or the sum of its values, and its bytes in saved state.

use std::sync::Arc;

use super::{Change, Moments};
use crate::bytes::{number, take};
use crate::{Buckets, Data, ExponentialHistogram, Histogram, Number, Summary, Value};

/// The last value of a stream, or a sum of values.
#[derive(Clone, Debug, Default)]
pub(crate) enum LastValue {
    #[default]
    Nothing,
    Number(Number),
    Histogram(Box<Histogram>),
    Exponential(Box<ExponentialHistogram>),
    Summary(Box<Moments>),
}

impl LastValue {
    /// Adds a change and returns the sum; `None`: the change is of another kind.
    pub(crate) fn add(&mut self, change: &Change<'_>) -> Option<Value> {
        match (&mut *self, change) {
            (Self::Nothing, Change::Number(number)) => *self = Self::Number(*number),
            (Self::Nothing, Change::Histogram(histogram)) => {
                *self = Self::Histogram(histogram.clone().into_owned());
            }
            (Self::Nothing, Change::Exponential(histogram)) => {
                *self = Self::Exponential(histogram.clone().into_owned());
            }
            (Self::Nothing, Change::Summary(moments)) => *self = Self::Summary(Box::new(*moments)),
            (Self::Number(sum), Change::Number(number)) => *sum = sum.plus(*number),
            (Self::Histogram(sum), Change::Histogram(histogram)) => sum.merge(histogram),
            (Self::Exponential(sum), Change::Exponential(histogram)) => sum.merge(histogram),
            (Self::Summary(sum), Change::Summary(moments)) => sum.add(moments),
            _ => return None,
        }
        self.value()
    }

    /// Whether a cumulative `value` is at most this one, so that it adds nothing.
    pub(crate) fn covers(&self, data: Data, value: &Value) -> bool {
        match (self, value) {
            (Self::Number(last), Value::Int(_) | Value::Double(_)) => {
                let number = value.number();
                let total = matches!(data, Data::Sum { monotonic: true, .. });
                total && number.is_some_and(|number| !last.less(number))
            }
            (Self::Histogram(last), Value::Histogram(now)) => now.count <= last.count,
            (Self::Exponential(last), Value::ExponentialHistogram(now)) => now.count <= last.count,
            (Self::Summary(last), Value::Summary(now)) => now.count <= last.count,
            _ => false,
        }
    }

    /// The size of the value, which shows a reset: the number, or the count of a distribution.
    pub(crate) fn weight(&self) -> Option<f64> {
        match self {
            Self::Nothing => None,
            Self::Number(number) => Some(number.as_f64()),
            Self::Histogram(histogram) => Some(histogram.count as f64),
            Self::Exponential(histogram) => Some(histogram.count as f64),
            Self::Summary(moments) => Some(moments.count as f64),
        }
    }

    /// The size of a value of a point.
    pub(crate) fn weight_of(value: &Value) -> Option<f64> {
        match value {
            Value::Int(_) | Value::Double(_) => value.number().map(Number::as_f64),
            Value::Histogram(histogram) => Some(histogram.count as f64),
            Value::ExponentialHistogram(histogram) => Some(histogram.count as f64),
            Value::Summary(summary) => Some(summary.count as f64),
            Value::NoRecordedValue => None,
        }
    }

    /// The last value of a stream whose last point has `value`; `None`: `value` is not a number.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Int(_) | Value::Double(_) => Self::Number(value.number()?),
            Value::Histogram(histogram) => Self::Histogram(histogram.clone()),
            Value::ExponentialHistogram(histogram) => Self::Exponential(histogram.clone()),
            Value::NoRecordedValue => Self::Nothing,
            Value::Summary(summary) => Self::Summary(Box::new(Moments::of(summary))),
        })
    }

    /// Bytes that it has allocated. Bounds count as its own: each point has its own copy.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Nothing | Self::Number(_) => 0,
            Self::Histogram(histogram) => of_histogram(histogram),
            Self::Exponential(histogram) => of_exponential(histogram),
            Self::Summary(_) => size_of::<Moments>(),
        }
    }

    /// Bytes that the last value allocates for `value`.
    pub(crate) fn bytes_of(value: &Value) -> usize {
        match value {
            Value::Int(_) | Value::Double(_) | Value::NoRecordedValue => 0,
            Value::Histogram(histogram) => of_histogram(histogram),
            Value::ExponentialHistogram(histogram) => of_exponential(histogram),
            Value::Summary(_) => size_of::<Moments>(),
        }
    }

    /// The value of a point.
    pub(crate) fn value(&self) -> Option<Value> {
        Some(match self {
            Self::Nothing => return None,
            Self::Number(number) => (*number).into(),
            Self::Histogram(histogram) => Value::Histogram(histogram.clone()),
            Self::Exponential(histogram) => Value::ExponentialHistogram(histogram.clone()),
            Self::Summary(moments) => Value::Summary(Box::new(Summary {
                count: moments.count,
                sum: moments.sum,
                quantiles: Vec::new(),
            })),
        })
    }

    pub(crate) fn save(&self, to: &mut Vec<u8>) {
        match self {
            Self::Nothing => to.push(0),
            Self::Number(Number::Int(whole)) => {
                to.push(1);
                to.extend(whole.to_le_bytes());
            }
            Self::Number(Number::Double(double)) => {
                to.push(2);
                to.extend(double.to_le_bytes());
            }
            Self::Histogram(histogram) => {
                to.push(3);
                save_moments(to, histogram.count, [histogram.sum, histogram.min, histogram.max]);
                save_list(to, histogram.bounds.iter().map(|bound| bound.to_bits()));
                save_list(to, histogram.counts.iter().copied());
            }
            Self::Exponential(histogram) => {
                to.push(4);
                save_moments(to, histogram.count, [histogram.sum, histogram.min, histogram.max]);
                to.extend(histogram.scale.to_le_bytes());
                to.extend(histogram.zero_count.to_le_bytes());
                to.extend(histogram.zero_threshold.to_le_bytes());
                for side in [&histogram.positive, &histogram.negative] {
                    to.extend(side.offset.to_le_bytes());
                    save_list(to, side.counts.iter().copied());
                }
            }
            Self::Summary(moments) => {
                to.push(5);
                to.extend(moments.count.to_le_bytes());
                to.extend(moments.sum.to_le_bytes());
            }
        }
    }

    pub(crate) fn load(from: &mut &[u8]) -> Option<Self> {
        let [kind] = *take(from)?;
        Some(match kind {
            0 => Self::Nothing,
            1 => Self::Number(Number::Int(number(from)?.cast_signed())),
            2 => Self::Number(Number::Double(f64::from_bits(number(from)?))),
            3 => {
                let (count, [sum, min, max]) = load_moments(from)?;
                let bounds = load_list(from)?.into_iter().map(f64::from_bits);
                Self::Histogram(Box::new(Histogram {
                    count,
                    sum,
                    min,
                    max,
                    bounds: bounds.collect::<Arc<[f64]>>(),
                    counts: load_list(from)?,
                }))
            }
            4 => {
                let (count, [sum, min, max]) = load_moments(from)?;
                let scale = i32::from_le_bytes(*take(from)?);
                let (zero_count, zero_threshold) = (number(from)?, f64::from_bits(number(from)?));
                let mut side = || {
                    Some(Buckets {
                        offset: i32::from_le_bytes(*take(from)?),
                        counts: load_list(from)?,
                    })
                };
                let (positive, negative) = (side()?, side()?);
                Self::Exponential(Box::new(ExponentialHistogram {
                    count,
                    sum,
                    min,
                    max,
                    scale,
                    zero_count,
                    zero_threshold,
                    positive,
                    negative,
                }))
            }
            5 => Self::Summary(Box::new(Moments {
                count: number(from)?,
                sum: f64::from_bits(number(from)?),
            })),
            _ => return None,
        })
    }
}

fn of_histogram(histogram: &Histogram) -> usize {
    size_of::<Histogram>() + 8 * histogram.counts.len() + size_of_val(&*histogram.bounds)
}

fn of_exponential(histogram: &ExponentialHistogram) -> usize {
    let buckets = histogram.positive.counts.len() + histogram.negative.counts.len();
    size_of::<ExponentialHistogram>() + 8 * buckets
}

impl Moments {
    fn add(&mut self, more: &Self) {
        self.count = self.count.saturating_add(more.count);
        self.sum += more.sum;
    }
}

/// The count, and the others as far as they exist.
fn save_moments(to: &mut Vec<u8>, count: u64, others: [Option<f64>; 3]) {
    to.extend(count.to_le_bytes());
    for other in others {
        to.push(u8::from(other.is_some()));
        to.extend(other.unwrap_or_default().to_le_bytes());
    }
}

fn load_moments(from: &mut &[u8]) -> Option<(u64, [Option<f64>; 3])> {
    let count = number(from)?;
    let mut others = [None; 3];
    for other in &mut others {
        let [is_some] = *take(from)?;
        let bits = number(from)?;
        *other = (is_some != 0).then_some(f64::from_bits(bits));
    }
    Some((count, others))
}

fn save_list(to: &mut Vec<u8>, list: impl ExactSizeIterator<Item = u64>) {
    to.extend((list.len() as u32).to_le_bytes());
    list.for_each(|number| to.extend(number.to_le_bytes()));
}

/// Loads a list; `None` if it is longer than the remaining bytes.
fn load_list(from: &mut &[u8]) -> Option<Vec<u64>> {
    let length = u32::from_le_bytes(*take(from)?) as usize;
    let (list, rest) = from.split_at_checked(length.checked_mul(8)?)?;
    *from = rest;
    let numbers = list.chunks_exact(8).filter_map(|mut bytes| number(&mut bytes));
    Some(numbers.collect())
}
