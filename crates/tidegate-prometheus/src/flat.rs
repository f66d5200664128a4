// SPDX-License-Identifier: Apache-2.0

//! A series in Prometheus's data model: a name, labels, and one value, or several that differ by suffix and one
//! more label.

use tidegate_engine::{ExponentialHistogram, Histogram, Reading, Series, Summary, Value};
use tidegate_exposition::lines::{HistogramLine, histogram_lines};

use super::labels::PrometheusLabels;
use super::render::Style;
use super::render::histogram::quantiles;
use super::render::kind::kinds;

/// The name and labels of a series in this style; `None`: the data model can't express it.
pub fn identity(series: &Series, style: &Style) -> Option<(String, Vec<(String, String)>)> {
    let naming = &style.naming;
    let metric = &series.metric;
    let (kind, _) = kinds(metric.data).ok()?;
    let name = naming.of(metric, kind)?;
    let labels = PrometheusLabels::of(series, naming, &style.labels);
    let pairs = labels.into_pairs().into_iter();
    Some((name, pairs.filter(|(_, value)| !value.is_empty()).collect()))
}

/// A value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Flat<'a> {
    /// A number.
    Number(f64),
    /// A native histogram.
    Native(&'a ExponentialHistogram),
}

/// The suffixes of a metric's values.
pub const SUFFIXES: [&str; 4] = ["", "_bucket", "_sum", "_count"];

/// Shows every value of a series to `each`: suffix of the name, one more label, the value. For one series the order
/// stays the same as long as its buckets do. An exponential histogram is a native one, and a classic one too.
pub fn values<'a>(
    reading: &Reading<'a>,
    each: &mut dyn FnMut(&'static str, Option<(&'static str, f64)>, Flat<'a>),
) {
    if let Value::ExponentialHistogram(histogram) = reading.value {
        each("", None, Flat::Native(histogram));
    }
    numbers(reading.value, &mut |suffix, more, number| {
        each(suffix, more, Flat::Number(number));
    });
}

/// Like [`values`], for numbers only.
pub fn numbers(value: &Value, each: Each<'_>) {
    match value {
        Value::Int(number) => each("", None, *number as f64),
        Value::Double(number) => each("", None, *number),
        Value::Histogram(histogram) => explicit(histogram, each),
        Value::ExponentialHistogram(histogram) => explicit(&histogram.classic(), each),
        Value::Summary(value) => summary(value, each),
        Value::NoRecordedValue => {}
    }
}

/// Takes one value: the suffix of its name, an additional label such as `le`, and the number.
pub type Each<'a> = &'a mut dyn FnMut(&'static str, Option<(&'static str, f64)>, f64);

fn explicit(histogram: &Histogram, each: Each<'_>) {
    histogram_lines(histogram, false, |line| match line {
        HistogramLine::Bucket { bound, count, .. } => each("_bucket", Some(("le", bound)), count as f64),
        HistogramLine::Sum(sum) => each("_sum", None, sum),
        HistogramLine::Count(count) => each("_count", None, count as f64),
    });
}

fn summary(summary: &Summary, each: Each<'_>) {
    for (quantile, value) in quantiles(summary) {
        each("", Some(("quantile", quantile)), value);
    }
    each("_sum", None, summary.sum);
    each("_count", None, summary.count as f64);
}
