// SPDX-License-Identifier: Apache-2.0

//! Compares what a unit test expects with what it found, and shows both as `promtool` does.

use tidegate_promql::{Labels, SampleValue};

/// An alert that fires.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FiringAlert {
    pub(super) labels: Labels,
    pub(super) annotations: Labels,
}

/// Alerts in lines.
pub(super) fn show_alerts(alerts: &[FiringAlert]) -> String {
    const INDENT: &str = "\n            ";
    if alerts.is_empty() {
        return "[]".to_owned();
    }
    let shown = alerts.iter().enumerate().map(|(at, alert)| {
        let FiringAlert { labels, annotations } = alert;
        format!("{INDENT}{at}:{INDENT}  Labels:{labels}{INDENT}  Annotations:{annotations}")
    });
    let shown: Vec<String> = shown.collect();
    format!("[{}{INDENT}]", shown.join(","))
}

/// Samples in one line.
pub(super) fn show_samples(samples: &[(Labels, SampleValue)]) -> String {
    if samples.is_empty() {
        return "nil".to_owned();
    }
    let shown = samples.iter().map(|(labels, value)| match value {
        SampleValue::Float(number) => format!("{labels} {}", scientific(*number)),
        SampleValue::Histogram(histogram) => format!("{labels} {histogram:?}"),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Whether two samples are equal: a fuzzy comparison lets neighbours pass.
pub(super) fn is_same(
    expected: &(Labels, SampleValue),
    found: &(Labels, SampleValue),
    is_fuzzy: bool,
) -> bool {
    if expected.0 != found.0 {
        return false;
    }
    match (&expected.1, &found.1) {
        (SampleValue::Float(a), SampleValue::Float(b)) => {
            let is_near = is_fuzzy && (a.next_down()..=a.next_up()).contains(b);
            a == b || (a.is_nan() && b.is_nan()) || is_near
        }
        (a, b) => a == b,
    }
}

/// A number as Go's `%E` writes it with as few digits as possible.
fn scientific(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}E{sign}{:02}", exponent.abs())
}
