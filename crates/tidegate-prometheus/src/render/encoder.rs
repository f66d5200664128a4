// SPDX-License-Identifier: Apache-2.0

//! The interface of the format encoders. They write families one after the other, series by series.

use tidegate_engine::{Exemplar, ExponentialHistogram, Histogram, Number, Reading, UnixNanos, Value};

use super::family::PageFamily;

/// Encodes a page in one format.
///
/// The calls come in this order: `begin`, then `number` or `sample` for each series, then `end`; `finish`
/// comes last.
pub(super) trait Encoder {
    /// The bytes written so far.
    fn page(&mut self) -> &mut Vec<u8>;

    /// Begins a family.
    fn begin(&mut self, name: &str, family: &PageFamily);

    /// Writes a series that is a number. `false`: the format can't say it.
    fn number(&mut self, family: &PageFamily, labels: &[u8], number: Number, times: ValueTimes) -> bool;

    /// Writes a series of any kind. `false`: the format can't say it.
    fn sample(&mut self, family: &PageFamily, labels: &[u8], snapshot: &SampleSnapshot) -> bool;

    /// Ends a family, of which there is at least one sample.
    fn end(&mut self, family: &PageFamily);

    /// Ends the page.
    fn finish(&mut self) {}
}

/// The times of a value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ValueTimes {
    /// Since when it counts; 0: not known.
    pub(super) start: UnixNanos,
    /// The time of the value.
    pub(super) time: UnixNanos,
}

impl From<&Reading<'_>> for ValueTimes {
    fn from(reading: &Reading<'_>) -> Self {
        Self {
            start: reading.start,
            time: reading.time,
        }
    }
}

/// A copy of one series' state. The walk copies under the table's lock and encodes after it releases the
/// lock.
///
/// Its buffers are reused for the next series.
#[derive(Debug)]
pub(super) struct SampleSnapshot {
    pub(super) value: Value,
    pub(super) times: ValueTimes,
    pub(super) exemplars: Vec<Exemplar>,
}

impl Default for SampleSnapshot {
    fn default() -> Self {
        Self {
            value: Value::NoRecordedValue,
            times: ValueTimes::default(),
            exemplars: Vec::new(),
        }
    }
}

impl SampleSnapshot {
    /// Replaces the copy by `reading`.
    pub(super) fn take(&mut self, reading: &Reading<'_>, exemplars: &[Exemplar]) {
        copy(&mut self.value, reading.value);
        self.times = reading.into();
        self.exemplars.clear();
        self.exemplars.extend_from_slice(exemplars);
    }
}

/// Clones into an existing value, and reuses its memory if the kind is equal.
fn copy(to: &mut Value, from: &Value) {
    match (to, from) {
        (Value::Histogram(to), Value::Histogram(from)) => {
            let Histogram {
                count,
                sum,
                min,
                max,
                bounds,
                counts,
            } = &mut **to;
            (*count, *sum, *min, *max) = (from.count, from.sum, from.min, from.max);
            bounds.clone_from(&from.bounds);
            counts.clone_from(&from.counts);
        }
        (Value::ExponentialHistogram(to), Value::ExponentialHistogram(from)) => {
            let mut positive = std::mem::take(&mut to.positive);
            let mut negative = std::mem::take(&mut to.negative);
            for (to, from) in [(&mut positive, &from.positive), (&mut negative, &from.negative)] {
                to.offset = from.offset;
                to.counts.clone_from(&from.counts);
            }
            **to = ExponentialHistogram {
                count: from.count,
                sum: from.sum,
                min: from.min,
                max: from.max,
                scale: from.scale,
                zero_count: from.zero_count,
                zero_threshold: from.zero_threshold,
                positive,
                negative,
            };
        }
        (to, from) => *to = from.clone(),
    }
}
