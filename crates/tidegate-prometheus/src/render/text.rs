// SPDX-License-Identifier: Apache-2.0

//! The text formats: one line a sample.

use tidegate_engine::{Exemplar, ExponentialHistogram, Histogram, Number, Summary, UnixNanos, Value};
use tidegate_exposition::lines::{FamilyHead, HistogramLine, histogram_lines, push_bound, push_seconds};

use super::Style;
use super::bounds::Bounds;
use super::encoder::{Encoder, SampleSnapshot, ValueTimes};
use super::exemplar;
use super::family::PageFamily;
use super::histogram::quantiles;
use super::kind::{self, Type};
use crate::format::Format;
use crate::labels::render;
use crate::model::NANOS_PER_MILLI;
use crate::name::Spelling;
use crate::number::{TextSink, push_f64, push_i64, push_u64};

/// Encodes the text formats: one line per sample.
pub(super) struct TextEncoder<'a> {
    page: Vec<u8>,
    style: &'a Style,
    /// The origin of the current family's names.
    spelling: Spelling,
    format: Format,
    bounds: Bounds,
    /// The common part of bucket lines.
    bucket: Vec<u8>,
    /// The head of number lines.
    number: Head,
    /// The head of lines about the start.
    created: Head,
}

/// The text around the labels, for lines that are otherwise equal up to their value. Most lines are numbers.
#[derive(Default)]
struct Head {
    before: Vec<u8>,
    /// The whole head without labels.
    bare: Vec<u8>,
}

impl Head {
    fn set(&mut self, family: &PageFamily, suffix: &str) {
        self.before.clear();
        self.bare.clear();
        open(&mut self.before, family, suffix, false);
        open(&mut self.bare, family, suffix, true);
        close(&mut self.bare, family, true);
    }

    #[inline]
    fn put(&self, page: &mut Vec<u8>, labels: &[u8]) {
        if labels.is_empty() {
            return page.extend_from_slice(&self.bare);
        }
        page.extend_from_slice(&self.before);
        page.extend_from_slice(labels);
        page.extend_from_slice(b"} ");
    }
}

impl<'a> TextEncoder<'a> {
    pub(super) fn new(page: Vec<u8>, format: Format, style: &'a Style) -> Self {
        Self {
            page,
            style,
            spelling: Spelling::default(),
            format,
            bounds: Bounds::default(),
            bucket: Vec::new(),
            number: Head::default(),
            created: Head::default(),
        }
    }

    fn is_openmetrics(&self) -> bool {
        self.format == Format::OpenMetrics
    }

    /// Name and labels, up to the value.
    fn head(&mut self, family: &PageFamily, suffix: &str, labels: &[u8]) {
        open(&mut self.page, family, suffix, labels.is_empty());
        self.page.extend_from_slice(labels);
        close(&mut self.page, family, labels.is_empty());
    }

    /// Writes the text after the value.
    #[inline]
    fn tail(&mut self, time: UnixNanos, exemplar: Option<&Exemplar>) {
        if self.style.timestamps && time > 0 {
            self.time(time);
        }
        if let (Format::OpenMetrics, Some(exemplar)) = (self.format, exemplar) {
            self.exemplar(exemplar);
        }
        self.page.push(b'\n');
    }

    fn time(&mut self, time: UnixNanos) {
        let millis = time / NANOS_PER_MILLI;
        self.page.push(b' ');
        match self.format {
            Format::OpenMetrics => push_seconds(&mut self.page, millis),
            _ => push_u64(&mut self.page, millis),
        }
    }

    fn exemplar(&mut self, exemplar: &Exemplar) {
        let Some(value) = exemplar::value(exemplar) else {
            return;
        };
        self.page.put(" # {");
        let labels = exemplar::labels(exemplar, &self.style.naming, self.spelling, true);
        self.page.put(&render(&labels));
        self.page.put("} ");
        push_f64(&mut self.page, value);
        if exemplar.time > 0 {
            self.page.push(b' ');
            push_seconds(&mut self.page, exemplar.time / NANOS_PER_MILLI);
        }
    }

    /// Writes the start of a counter, histogram or summary, for OpenMetrics.
    fn created(&mut self, labels: &[u8], times: ValueTimes) {
        if self.is_openmetrics() && self.style.created && times.start > 0 {
            self.created.put(&mut self.page, labels);
            push_seconds(&mut self.page, times.start / NANOS_PER_MILLI);
            self.tail(times.time, None);
        }
    }

    fn scalar(
        &mut self,
        family: &PageFamily,
        labels: &[u8],
        number: Number,
        times: ValueTimes,
        exemplar: Option<&Exemplar>,
    ) -> bool {
        if self.is_openmetrics() && !openmetrics_has(family, labels, number.as_f64()) {
            return false;
        }
        self.number.put(&mut self.page, labels);
        match number {
            Number::Int(number) => push_i64(&mut self.page, number),
            Number::Double(number) => push_f64(&mut self.page, number),
        }
        self.tail(times.time, exemplar);
        if family.of_type == Type::Counter {
            self.created(labels, times);
        }
        true
    }

    fn histogram(
        &mut self,
        family: &PageFamily,
        labels: &[u8],
        histogram: &Histogram,
        snapshot: &SampleSnapshot,
    ) {
        self.bounds.set(&histogram.bounds, self.is_openmetrics());
        self.bucket.clear();
        open(&mut self.bucket, family, "_bucket", labels.is_empty());
        self.bucket.extend_from_slice(labels);
        self.bucket.put(match (labels.is_empty(), family.is_quoted) {
            (true, false) => "{le=\"",
            _ => ",le=\"",
        });
        histogram_lines(histogram, self.is_openmetrics(), |line| match line {
            HistogramLine::Bucket {
                at,
                above,
                bound,
                count,
            } => {
                let exemplar = exemplar::within(&snapshot.exemplars, above, bound);
                self.bucket(at, count, snapshot.times.time, exemplar);
            }
            HistogramLine::Sum(sum) => self.sum(family, labels, sum, snapshot.times),
            HistogramLine::Count(count) => self.count(family, labels, count, snapshot.times),
        });
        self.created(labels, snapshot.times);
    }

    /// The line of the bucket whose bound is at `at`, or of the last one.
    fn bucket(&mut self, at: usize, count: u64, time: UnixNanos, exemplar: Option<&Exemplar>) {
        self.page.extend_from_slice(&self.bucket);
        self.page.put(self.bounds.get(at));
        self.page.put("\"} ");
        push_u64(&mut self.page, count);
        self.tail(time, exemplar);
    }

    fn sum(&mut self, family: &PageFamily, labels: &[u8], sum: f64, times: ValueTimes) {
        self.head(family, "_sum", labels);
        push_f64(&mut self.page, sum);
        self.tail(times.time, None);
    }

    fn count(&mut self, family: &PageFamily, labels: &[u8], count: u64, times: ValueTimes) {
        self.head(family, "_count", labels);
        push_u64(&mut self.page, count);
        self.tail(times.time, None);
    }

    fn summary(&mut self, family: &PageFamily, labels: &[u8], summary: &Summary, times: ValueTimes) {
        let is_openmetrics = self.is_openmetrics();
        for (quantile, value) in quantiles(summary) {
            if is_openmetrics && value < 0.0 {
                continue;
            }
            open(&mut self.page, family, "", labels.is_empty());
            self.page.extend_from_slice(labels);
            self.page.put(match (labels.is_empty(), family.is_quoted) {
                (true, false) => "{quantile=\"",
                _ => ",quantile=\"",
            });
            push_bound(&mut self.page, quantile, is_openmetrics);
            self.page.put("\"} ");
            push_f64(&mut self.page, value);
            self.tail(times.time, None);
        }
        if !is_openmetrics || summary.sum >= 0.0 {
            self.sum(family, labels, summary.sum, times);
        }
        self.count(family, labels, summary.count, times);
        self.created(labels, times);
    }
}

impl Encoder for TextEncoder<'_> {
    fn page(&mut self) -> &mut Vec<u8> {
        &mut self.page
    }

    fn begin(&mut self, name: &str, family: &PageFamily) {
        self.number.set(family, number_suffix(family, self.format));
        if self.is_openmetrics() {
            self.created.set(family, "_created");
        }
        let metric = &family.metric;
        self.spelling = Spelling::of(metric);
        let has_unit = self.is_openmetrics() && !matches!(family.of_type, Type::Info | Type::StateSet);
        let unit = self.style.naming.unit(&metric.unit, name).filter(|_| has_unit);
        let head = FamilyHead {
            name: &family.name,
            is_quoted: family.is_quoted,
            help: &metric.description,
            of_type: kind::word(family.of_type, self.format),
            unit: unit.as_deref(),
            is_openmetrics: self.is_openmetrics(),
        };
        head.put(&mut self.page);
    }

    #[inline]
    fn number(&mut self, family: &PageFamily, labels: &[u8], number: Number, times: ValueTimes) -> bool {
        self.scalar(family, labels, number, times, None)
    }

    fn sample(&mut self, family: &PageFamily, labels: &[u8], snapshot: &SampleSnapshot) -> bool {
        match &snapshot.value {
            Value::Int(number) => {
                let exemplar = exemplar::newest(&snapshot.exemplars);
                return self.scalar(family, labels, Number::Int(*number), snapshot.times, exemplar);
            }
            Value::Double(number) => {
                let exemplar = exemplar::newest(&snapshot.exemplars);
                return self.scalar(family, labels, Number::Double(*number), snapshot.times, exemplar);
            }
            Value::Histogram(histogram) => self.histogram(family, labels, histogram, snapshot),
            Value::ExponentialHistogram(histogram) => self.exponential(family, labels, histogram, snapshot),
            Value::Summary(summary) => self.summary(family, labels, summary, snapshot.times),
            Value::NoRecordedValue => return false,
        }
        true
    }

    fn end(&mut self, _: &PageFamily) {}

    fn finish(&mut self) {
        if self.is_openmetrics() {
            self.page.put("# EOF\n");
        }
    }
}

impl TextEncoder<'_> {
    fn exponential(
        &mut self,
        family: &PageFamily,
        labels: &[u8],
        histogram: &ExponentialHistogram,
        snapshot: &SampleSnapshot,
    ) {
        self.histogram(family, labels, &histogram.classic(), snapshot);
    }
}

/// The suffix of a number's name.
fn number_suffix(family: &PageFamily, format: Format) -> &'static str {
    match (family.of_type, format) {
        (Type::Counter, Format::OpenMetrics) => "_total",
        (Type::Info, _) => "_info",
        _ => "",
    }
}

/// Writes the text before the labels: `name{`, or `{"name",`. Without labels nothing follows the name.
fn open(page: &mut Vec<u8>, family: &PageFamily, suffix: &str, is_bare: bool) {
    let (before, behind) = match (family.is_quoted, is_bare) {
        (true, true) => ("{\"", "\""),
        (true, false) => ("{\"", "\","),
        (false, true) => ("", ""),
        (false, false) => ("", "{"),
    };
    for part in [before, &*family.name, suffix, behind] {
        page.put(part);
    }
}

/// Writes the text after the labels, or after a bare name.
fn close(page: &mut Vec<u8>, family: &PageFamily, is_bare: bool) {
    page.put(if is_bare && !family.is_quoted { " " } else { "} " });
}

/// Whether OpenMetrics can have a sample of this value.
#[inline]
fn openmetrics_has(family: &PageFamily, labels: &[u8], value: f64) -> bool {
    match family.of_type {
        // Never NaN.
        Type::Counter => value >= 0.0,
        Type::Info => value == 1.0,
        Type::StateSet => (value == 0.0 || value == 1.0) && has_label(labels, &family.name),
        _ => true,
    }
}

/// Whether one of the labels is called `name`.
fn has_label(labels: &[u8], name: &str) -> bool {
    let starts = [format!("{name}=\""), format!("\"{name}\"=\"")];
    let (mut in_quotes, mut is_escaped) = (false, false);
    let parts = labels.split(|byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => in_quotes = !in_quotes,
            b',' => return !in_quotes,
            _ => {}
        }
        false
    });
    let mut parts = parts.into_iter();
    parts.any(|label| starts.iter().any(|start| label.starts_with(start.as_bytes())))
}
