//! The sample lines of one series.

use tidegate_engine::{Exemplar, ExponentialHistogram, Histogram, Reading, Summary, UnixNanos, Value};

use super::format::Format;
use super::labels::{Labels, text};
use super::number::{push_f64, push_i64, push_u64};

/// Most buckets that an exponential histogram becomes in a text format, which has no native form of it.
const MAX_BUCKETS: usize = 40;

/// Where lines go and what they have in common.
struct Lines<'a> {
    text: &'a mut String,
    format: Format,
    family: &'a str,
    labels: &'a str,
    time: Option<UnixNanos>,
}

/// Appends all lines of a series.
pub(super) fn push_samples(
    text: &mut String,
    format: Format,
    family: &str,
    kind: &str,
    labels: &str,
    reading: &Reading<'_>,
    time: Option<UnixNanos>,
) {
    let mut lines = Lines {
        text,
        format,
        family,
        labels,
        time,
    };
    match reading.value {
        Value::Int(number) => lines.number(kind, reading, |text| push_i64(text, *number)),
        Value::Double(number) => lines.number(kind, reading, |text| push_f64(text, *number)),
        Value::Histogram(histogram) => lines.histogram(histogram, reading.exemplars),
        Value::ExponentialHistogram(histogram) => lines.exponential(histogram, reading.exemplars),
        Value::Summary(summary) => lines.summary(summary),
        Value::NoRecordedValue => {}
    }
}

impl Lines<'_> {
    /// Name and labels, `extra` being one more label.
    fn head(&mut self, suffix: &str, extra: Option<(&str, f64)>) {
        self.text.push_str(self.family);
        self.text.push_str(suffix);
        if self.labels.is_empty() && extra.is_none() {
            self.text.push(' ');
            return;
        }
        self.text.push('{');
        self.text.push_str(self.labels);
        if let Some((name, bound)) = extra {
            if !self.labels.is_empty() {
                self.text.push(',');
            }
            self.text.push_str(name);
            self.text.push_str("=\"");
            self.bound(bound);
            self.text.push('"');
        }
        self.text.push_str("} ");
    }

    /// OpenMetrics writes bounds as floats (`1.0`), text 0.0.4 commonly does not.
    fn bound(&mut self, bound: f64) {
        let start = self.text.len();
        push_f64(self.text, bound);
        let whole = self
            .text
            .get(start..)
            .is_some_and(|written| written.bytes().all(|c| c.is_ascii_digit() || c == b'-'));
        if self.format == Format::OpenMetrics && whole {
            self.text.push_str(".0");
        }
    }

    fn tail(&mut self, exemplar: Option<&Exemplar>) {
        if let Some(time) = self.time {
            push_time(self.text, self.format, time);
        }
        if let (Format::OpenMetrics, Some(exemplar)) = (self.format, exemplar) {
            self.exemplar(exemplar);
        }
        self.text.push('\n');
    }

    fn exemplar(&mut self, exemplar: &Exemplar) {
        let Some(value) = exemplar_value(exemplar) else {
            return;
        };
        self.text.push_str(" # {");
        self.text.push_str(&exemplar_labels(exemplar));
        self.text.push_str("} ");
        push_f64(self.text, value);
        if exemplar.time > 0 {
            push_time(self.text, self.format, exemplar.time);
        }
    }

    fn number(&mut self, kind: &str, reading: &Reading<'_>, push: impl FnOnce(&mut String)) {
        let counter = kind == "counter";
        let suffix = if counter && self.format == Format::OpenMetrics {
            "_total"
        } else {
            ""
        };
        self.head(suffix, None);
        push(self.text);
        self.tail(reading.exemplars.last().filter(|_| counter));
    }

    fn histogram(&mut self, histogram: &Histogram, exemplars: &[Exemplar]) {
        let mut running = 0u64;
        let mut below = f64::NEG_INFINITY;
        for (bound, count) in histogram.bounds.iter().zip(&histogram.counts) {
            running = running.saturating_add(*count);
            // Bounds must rise and +Inf comes by itself; what is else in a hostile list merges into the next bucket.
            if *bound > below && *bound < f64::INFINITY {
                self.bucket(*bound, running, within(exemplars, below, *bound));
                below = *bound;
            }
        }
        let count = total(histogram.count, histogram.counts.iter());
        self.end(count, histogram.sum, within(exemplars, below, f64::INFINITY));
    }

    /// Its buckets as classic ones: populated buckets only, merged in runs where there are too many.
    fn exponential(&mut self, histogram: &ExponentialHistogram, exemplars: &[Exemplar]) {
        let buckets = classic(histogram);
        let run = buckets.len().div_ceil(MAX_BUCKETS).max(1);
        let mut running = 0u64;
        let mut below = f64::NEG_INFINITY;
        for merged in buckets.chunks(run) {
            running = merged
                .iter()
                .fold(running, |sum, (_, count)| sum.saturating_add(*count));
            let Some((bound, _)) = merged.last() else { continue };
            if *bound > below && bound.is_finite() {
                self.bucket(*bound, running, within(exemplars, below, *bound));
                below = *bound;
            }
        }
        let count = total(histogram.count, buckets.iter().map(|(_, count)| count));
        self.end(count, histogram.sum, within(exemplars, below, f64::INFINITY));
    }

    fn end(&mut self, count: u64, sum: Option<f64>, exemplar: Option<&Exemplar>) {
        self.bucket(f64::INFINITY, count, exemplar);
        self.sum_and_count(sum, count);
    }

    fn summary(&mut self, summary: &Summary) {
        for quantile in &summary.quantiles {
            self.head("", Some(("quantile", quantile.quantile)));
            push_f64(self.text, quantile.value);
            self.tail(None);
        }
        self.sum_and_count(Some(summary.sum), summary.count);
    }

    fn bucket(&mut self, bound: f64, count: u64, exemplar: Option<&Exemplar>) {
        self.head("_bucket", Some(("le", bound)));
        push_u64(self.text, count);
        self.tail(exemplar);
    }

    fn sum_and_count(&mut self, sum: Option<f64>, count: u64) {
        if let Some(sum) = sum {
            self.head("_sum", None);
            push_f64(self.text, sum);
            self.tail(None);
        }
        self.head("_count", None);
        push_u64(self.text, count);
        self.tail(None);
    }
}

/// The buckets decide where they say otherwise: `+Inf`, `_count` and the running totals must agree.
pub(super) fn total<'a>(count: u64, buckets: impl Iterator<Item = &'a u64>) -> u64 {
    let summed = buckets.fold(0u64, |sum, count| sum.saturating_add(*count));
    if summed == 0 { count } else { summed }
}

fn exemplar_value(exemplar: &Exemplar) -> Option<f64> {
    match exemplar.value {
        tidegate_engine::AttributeValue::Int(number) => Some(number as f64),
        tidegate_engine::AttributeValue::Double(number) => Some(number),
        _ => None,
    }
}

/// The newest exemplar of a bucket.
fn within(exemplars: &[Exemplar], below: f64, bound: f64) -> Option<&Exemplar> {
    let inside = |e: &&Exemplar| exemplar_value(e).is_some_and(|value| value > below && value <= bound);
    exemplars
        .iter()
        .filter(inside)
        .max_by_key(|exemplar| exemplar.time)
}

/// (upper bound, observations) of every populated bucket, bounds rising: negative ones, zero, positive ones.
pub(super) fn classic(histogram: &ExponentialHistogram) -> Vec<(f64, u64)> {
    let base = 2f64.powf(2f64.powi(-histogram.scale));
    let power = |offset: i32, at: usize| base.powf(f64::from(offset) + at as f64);
    let populated = |counts: &[u64]| -> Vec<(usize, u64)> {
        counts
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, count)| *count > 0)
            .collect()
    };
    let (negative, positive) = (&histogram.negative, &histogram.positive);
    let mut buckets: Vec<(f64, u64)> = populated(&negative.counts)
        .into_iter()
        .rev()
        .map(|(at, count)| (-power(negative.offset, at), count))
        .collect();
    if histogram.zero_count > 0 {
        buckets.push((histogram.zero_threshold, histogram.zero_count));
    }
    buckets.extend(
        populated(&positive.counts)
            .into_iter()
            .map(|(at, count)| (power(positive.offset, at + 1), count)),
    );
    // Bounds of extreme scales can meet (overflow to infinity, underflow to zero): an `le` must not come twice.
    buckets.dedup_by(|next, kept| {
        let same = next.0 <= kept.0;
        if same {
            kept.1 = kept.1.saturating_add(next.1);
        }
        same
    });
    buckets
}

/// A timestamp: milliseconds in text 0.0.4, seconds in OpenMetrics.
fn push_time(line: &mut String, format: Format, nanos: u64) {
    line.push(' ');
    match format {
        Format::Text => push_i64(line, i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX)),
        Format::OpenMetrics => push_f64(line, (nanos / 1_000_000) as f64 / 1e3),
    }
}

/// The exemplar's labels: trace and span first, attributes while there is room.
fn exemplar_labels(exemplar: &Exemplar) -> String {
    /// OpenMetrics 1.0: label names and values of an exemplar have at most 128 characters together.
    const ROOM: usize = 128;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut labels = Labels::default();
    let mut used = 0;
    for (name, id) in [("trace_id", &exemplar.trace_id), ("span_id", &exemplar.span_id)] {
        if !id.is_empty() {
            used += name.len() + id.len() * 2;
            labels.set(name, hex(id));
        }
    }
    for (key, value) in exemplar.filtered_attributes.iter() {
        let size = key.chars().count() + text(value).chars().count();
        if used + size <= ROOM {
            used += size;
            labels.add(key, value);
        }
    }
    labels.render()
}
