// SPDX-License-Identifier: Apache-2.0

//! The page, line by line.

use std::collections::HashSet;
use std::time::UNIX_EPOCH;

use tidegate_exposition::unit::unit_word;
use tidegate_exposition::write::{push_f64, push_i64, push_u64};

use super::name::{family_name, sample_names};
use crate::value::{
    Exemplar, ExponentialBuckets, ExponentialHistogram, FamilyValues, HistogramValue, SeriesValues, Value,
};

/// Buckets a power of two that text shows of an exponential histogram, as a power of two: one.
pub const TEXT_SCALE: i32 = 0;

/// A text format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' own, version 0.0.4.
    #[default]
    Prometheus,
    /// OpenMetrics 1.0.0: with units, exemplars and an end.
    OpenMetrics,
}

impl Format {
    /// What an answer says of its content.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The best that a reader who accepts this takes.
    pub fn accepted(accept: &str) -> Self {
        let refused = |kind: &str| kind.split(';').any(|part| matches!(part.trim(), "q=0" | "q=0.0"));
        let wants = accept
            .split(',')
            .any(|kind| kind.trim().starts_with("application/openmetrics-text") && !refused(kind));
        if wants {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }
}

/// All families as a page. One whose name another one has already is left out.
pub fn render(families: &[FamilyValues], format: Format) -> String {
    let mut order: Vec<(String, &FamilyValues)> = families
        .iter()
        .map(|family| (family_name(&family.name, &family.unit, &family.kind), family))
        .collect();
    order.sort_by(|a, b| a.0.cmp(&b.0));
    let mut taken = HashSet::new();
    let mut page = Page {
        text: String::new(),
        format,
    };
    for (at, (name, family)) in order.iter().enumerate() {
        let samples = sample_names(name, &family.kind);
        if samples.iter().any(|name| taken.contains(name)) {
            continue;
        }
        taken.extend(samples);
        // The same family with other constant labels is the same family to a reader.
        let same = order[at..]
            .iter()
            .filter(|(other, more)| other == name && more.kind.name() == family.kind.name());
        page.head(name, family);
        same.flat_map(|(_, family)| &family.series)
            .for_each(|series| page.series(name, series));
    }
    if format == Format::OpenMetrics {
        page.text.push_str("# EOF\n");
    }
    page.text
}

struct Page {
    text: String,
    format: Format,
}

impl Page {
    fn head(&mut self, name: &str, family: &FamilyValues) {
        let open = self.format == Format::OpenMetrics;
        let shown = if open && family.kind.is_monotonic() {
            name.strip_suffix("_total").unwrap_or(name)
        } else {
            name
        };
        let kind = match &family.kind {
            kind if kind.is_monotonic() => "counter",
            kind if kind.is_histogram() => "histogram",
            _ => "gauge",
        };
        self.text.push_str(&format!("# HELP {shown} "));
        escape(&mut self.text, &family.help, open);
        self.text.push_str(&format!("\n# TYPE {shown} {kind}\n"));
        let unit = unit_word(&family.unit);
        // A unit line must be the end of the name.
        if open && !unit.is_empty() && shown.strip_suffix(&unit).is_some_and(|rest| rest.ends_with('_')) {
            self.text.push_str(&format!("# UNIT {shown} {unit}\n"));
        }
    }

    fn series(&mut self, name: &str, series: &SeriesValues) {
        match &series.value {
            Value::Counter(value) => {
                self.start(name, "", &series.labels, None);
                push_u64(&mut self.text, *value);
                self.end(series.exemplars.first());
            }
            Value::UpDownCounter(value) => {
                self.start(name, "", &series.labels, None);
                push_i64(&mut self.text, *value);
                self.end(None);
            }
            Value::FloatCounter(value) | Value::Gauge(value) => {
                self.start(name, "", &series.labels, None);
                push_f64(&mut self.text, *value);
                self.end(series.exemplars.first());
            }
            Value::Histogram(histogram) => self.histogram(name, series, histogram),
            Value::Exponential(histogram) => {
                self.histogram(name, series, &classic(histogram));
            }
        }
    }

    fn histogram(&mut self, name: &str, series: &SeriesValues, histogram: &HistogramValue) {
        let mut count = 0u64;
        let bounds = histogram.bounds.iter().copied().chain([f64::INFINITY]);
        let mut below = f64::NEG_INFINITY;
        for (bound, own) in bounds.zip(&histogram.counts) {
            count = count.wrapping_add(*own);
            self.start(name, "_bucket", &series.labels, Some(bound));
            push_u64(&mut self.text, count);
            let within = |exemplar: &&Exemplar| exemplar.value > below && exemplar.value <= bound;
            self.end(series.exemplars.iter().find(within));
            below = bound;
        }
        self.start(name, "_sum", &series.labels, None);
        push_f64(&mut self.text, histogram.sum);
        self.text.push('\n');
        self.start(name, "_count", &series.labels, None);
        push_u64(&mut self.text, count);
        self.text.push('\n');
    }

    /// Name and labels, and the space before the value.
    fn start(&mut self, name: &str, suffix: &str, labels: &[(String, String)], bound: Option<f64>) {
        self.text.push_str(name);
        self.text.push_str(suffix);
        let mut separator = '{';
        for (key, value) in labels {
            self.text.push(separator);
            self.text.push_str(key);
            self.text.push_str("=\"");
            escape(&mut self.text, value, true);
            self.text.push('"');
            separator = ',';
        }
        if let Some(bound) = bound {
            self.text.push(separator);
            self.text.push_str("le=\"");
            push_bound(&mut self.text, bound, self.format);
            self.text.push('"');
            separator = ',';
        }
        self.text.push_str(if separator == ',' { "} " } else { " " });
    }

    fn end(&mut self, exemplar: Option<&Exemplar>) {
        if let (Format::OpenMetrics, Some(exemplar)) = (self.format, exemplar) {
            let (trace, span) = (exemplar.span.trace_hex(), exemplar.span.span_hex());
            self.text
                .push_str(&format!(" # {{trace_id=\"{trace}\",span_id=\"{span}\"}} "));
            push_f64(&mut self.text, exemplar.value);
            let time = exemplar.time.duration_since(UNIX_EPOCH).unwrap_or_default();
            self.text
                .push_str(&format!(" {}.{:03}", time.as_secs(), time.subsec_millis()));
        }
        self.text.push('\n');
    }
}

/// A bound as the formats want it: OpenMetrics' is always recognisably a float.
fn push_bound(text: &mut String, bound: f64, format: Format) {
    let before = text.len();
    push_f64(text, bound);
    let is_whole = text[before..]
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'-');
    if format == Format::OpenMetrics && is_whole {
        text.push_str(".0");
    }
}

fn escape(text: &mut String, raw: &str, quotes: bool) {
    for c in raw.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if quotes => text.push_str("\\\""),
            // Prometheus' own parsers take a NUL for the end of the page.
            '\0' => text.push('_'),
            c => text.push(c),
        }
    }
}

/// An exponential histogram with bounds that text can show.
fn classic(histogram: &ExponentialHistogram) -> HistogramValue {
    let shift = (histogram.scale - TEXT_SCALE).max(0);
    let bound = |index: i64| (index as f64 * (-f64::from(histogram.scale.min(TEXT_SCALE))).exp2()).exp2();
    let mut bounds = Vec::new();
    let mut counts = Vec::new();
    // From the largest size to the smallest; bucket i of the negative side is [-base^(i+1), -base^i).
    let negative = coarse(&histogram.negative, shift);
    for (index, count) in negative.iter().rev() {
        bounds.push(-bound(*index));
        counts.push(*count);
    }
    if histogram.zero_count > 0 || !negative.is_empty() {
        bounds.push(0.0);
        counts.push(histogram.zero_count);
    }
    for (index, count) in coarse(&histogram.positive, shift) {
        bounds.push(bound(index + 1));
        counts.push(count);
    }
    if bounds.last() == Some(&f64::INFINITY) {
        bounds.pop(); // the last bucket has this bound anyway
    } else {
        counts.push(0);
    }
    HistogramValue {
        bounds: bounds.into(),
        counts,
        sum: histogram.sum.unwrap_or_default(),
    }
}

/// Buckets of a side put together, from the first filled one to the last.
fn coarse(side: &ExponentialBuckets, shift: i32) -> Vec<(i64, u64)> {
    let filled = |count: &u64| *count > 0;
    let (Some(first), Some(last)) = (
        side.counts.iter().position(filled),
        side.counts.iter().rposition(filled),
    ) else {
        return Vec::new();
    };
    let index = |at: usize| (i64::from(side.offset) + at as i64) >> shift.min(62);
    let mut buckets: Vec<(i64, u64)> = (index(first)..=index(last)).map(|at| (at, 0)).collect();
    for (at, count) in side.counts.iter().enumerate().filter(|(_, count)| filled(count)) {
        // Between the first and the last by the choice of both.
        if let Some(bucket) = buckets.get_mut((index(at) - index(first)) as usize) {
            bucket.1 += count;
        }
    }
    buckets
}
