// SPDX-License-Identifier: Apache-2.0

//! The words of values in the retained file, and the merge of the values of several processes.

use crate::exponential::{self, BUCKETS, MIN_SCALE};
use crate::spec::{GaugeMode, Kind, value_words};
use crate::value::Value;

impl Value {
    /// The words of a value, of which all are zero before; what [`Value::decode`] reads again.
    pub(crate) fn encode(&self, kind: &Kind, mut write: impl FnMut(usize, u64)) {
        match self {
            Value::Counter(count) => write(0, *count),
            Value::UpDownCounter(sum) => write(0, *sum as u64),
            Value::FloatCounter(value) => write(0, value.to_bits()),
            Value::Gauge { value, set_ns } => {
                write(0, value.to_bits());
                if value_words(kind) > 1 {
                    write(1, *set_ns);
                }
            }
            Value::Histogram { buckets, sum } => {
                write(0, sum.to_bits());
                buckets
                    .iter()
                    .enumerate()
                    .for_each(|(at, count)| write(at + 1, *count));
            }
            Value::Exponential(value) => exponential::encode(value, &mut write),
            Value::Summary { count, sum } => {
                write(0, *count);
                write(1, sum.to_bits());
            }
        }
    }

    /// Takes in the value of the same series of another process. Both are of the same kind, histograms of the
    /// same bounds; else nothing changes.
    pub(crate) fn merge(&mut self, other: &Value, kind: &Kind) {
        match (self, other) {
            (Value::Counter(a), Value::Counter(b)) => *a = a.wrapping_add(*b),
            (Value::UpDownCounter(a), Value::UpDownCounter(b)) => *a = a.wrapping_add(*b),
            (Value::FloatCounter(a), Value::FloatCounter(b)) => *a += b,
            (
                Value::Gauge { value, set_ns },
                Value::Gauge {
                    value: b,
                    set_ns: b_ns,
                },
            ) => {
                if let Kind::Gauge(mode) = kind {
                    (*value, *set_ns) = gauge(*mode, (*value, *set_ns), (*b, *b_ns));
                }
            }
            (
                Value::Histogram { buckets, sum },
                Value::Histogram {
                    buckets: b,
                    sum: b_sum,
                },
            ) => {
                buckets
                    .iter_mut()
                    .zip(b)
                    .for_each(|(a, b)| *a = a.wrapping_add(*b));
                *sum += b_sum;
            }
            (Value::Exponential(a), Value::Exponential(b)) => a.merge_within(b, BUCKETS, MIN_SCALE),
            (Value::Summary { count, sum }, Value::Summary { count: b, sum: b_sum }) => {
                *count = count.wrapping_add(*b);
                *sum += b_sum;
            }
            _ => {}
        }
    }
}

fn gauge(mode: GaugeMode, a: (f64, u64), b: (f64, u64)) -> (f64, u64) {
    use GaugeMode as M;
    match mode {
        M::Sum | M::LiveSum => (a.0 + b.0, 0),
        M::Max | M::LiveMax => (a.0.max(b.0), 0),
        M::Min | M::LiveMin => (a.0.min(b.0), 0),
        M::MostRecent | M::LiveMostRecent if b.1 < a.1 => a,
        // Two that are the same series of the same process: one of them.
        M::MostRecent | M::LiveMostRecent | M::All | M::LiveAll => b,
    }
}

/// A histogram's buckets over fewer bounds, all of which it has.
pub(crate) fn rebucket(buckets: &[u64], bounds: &[f64], to: &[f64]) -> Vec<u64> {
    let mut result = vec![0_u64; to.len() + 1];
    let mut at = 0;
    for (bucket, count) in buckets.iter().enumerate() {
        if let Some(count_at) = result.get_mut(at) {
            *count_at = count_at.wrapping_add(*count);
        }
        if bounds.get(bucket).is_some() && bounds.get(bucket) == to.get(at) {
            at += 1;
        }
    }
    result
}
