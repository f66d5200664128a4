//! What the formats have in common: a sheet on which families are written, series by series.

use tidegate_engine::{Exemplar, ExponentialHistogram, Histogram, Number, Reading, UnixNanos, Value};

use super::family::Family;

/// The page of one format.
pub(super) trait Sheet {
    /// What has been written.
    fn page(&mut self) -> &mut Vec<u8>;

    /// Begins a family.
    fn begin(&mut self, name: &str, family: &Family);

    /// Writes a series that is a number. `false`: the format can't say it.
    fn number(&mut self, family: &Family, labels: &[u8], number: Number, times: Times) -> bool;

    /// Writes a series of any kind. `false`: the format can't say it.
    fn sample(&mut self, family: &Family, labels: &[u8], shot: &Shot) -> bool;

    /// Ends a family, of which there is at least one sample.
    fn end(&mut self, family: &Family);

    /// Ends the page.
    fn finish(&mut self) {}
}

/// The times of a value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    /// Since when it counts; 0: not known.
    pub(super) start: UnixNanos,
    /// When it was true.
    pub(super) time: UnixNanos,
}

impl From<&Reading<'_>> for Times {
    fn from(reading: &Reading<'_>) -> Self {
        Self {
            start: reading.start,
            time: reading.time,
        }
    }
}

/// A copy of a series' state, so that a table's lock is given back before it is written. Used again for the next one.
#[derive(Debug)]
pub(super) struct Shot {
    pub(super) value: Value,
    pub(super) times: Times,
    pub(super) exemplars: Vec<Exemplar>,
}

impl Default for Shot {
    fn default() -> Self {
        Self {
            value: Value::NoRecordedValue,
            times: Times::default(),
            exemplars: Vec::new(),
        }
    }
}

impl Shot {
    pub(super) fn take(&mut self, reading: &Reading<'_>, exemplars: &[Exemplar]) {
        copy(&mut self.value, reading.value);
        self.times = reading.into();
        self.exemplars.clear();
        self.exemplars.extend_from_slice(exemplars);
    }
}

/// Clones into what is there already, as far as it is of the same kind.
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
