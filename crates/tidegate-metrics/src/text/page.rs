// SPDX-License-Identifier: Apache-2.0

//! The page, line by line.

use std::collections::HashSet;
use std::time::UNIX_EPOCH;

use tidegate_exposition::lines::{
    FamilyHead, HistogramLine, histogram_lines, push_bound, push_quoted, push_seconds,
};
use tidegate_exposition::unit::unit_of_family;
use tidegate_exposition::write::{push_f64, push_i64, push_u64};
use tidegate_model::Histogram;

use super::name::{family_name, sample_names};
use crate::value::{Exemplar, FamilyValues, HistogramValue, SeriesValues, Value};

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
    /// The content type of an answer.
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

/// All families as a page. One whose name another one has already is omitted.
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
        let unit = unit_of_family(&family.unit, shown).filter(|_| open);
        let head = FamilyHead {
            name: shown,
            is_quoted: false,
            help: &family.help,
            of_type: kind,
            unit: unit.as_deref(),
            is_openmetrics: open,
        };
        head.put(&mut self.text);
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
            Value::Histogram(histogram) => self.histogram(name, series, &explicit(histogram)),
            Value::Exponential(histogram) => self.histogram(name, series, &histogram.classic()),
        }
    }

    fn histogram(&mut self, name: &str, series: &SeriesValues, histogram: &Histogram) {
        let open = self.format == Format::OpenMetrics;
        histogram_lines(histogram, open, |line| match line {
            HistogramLine::Bucket {
                above, bound, count, ..
            } => {
                self.start(name, "_bucket", &series.labels, Some(bound));
                push_u64(&mut self.text, count);
                let within = |exemplar: &&Exemplar| exemplar.value > above && exemplar.value <= bound;
                self.end(series.exemplars.iter().find(within));
            }
            HistogramLine::Sum(sum) => {
                self.start(name, "_sum", &series.labels, None);
                push_f64(&mut self.text, sum);
                self.end(None);
            }
            HistogramLine::Count(count) => {
                self.start(name, "_count", &series.labels, None);
                push_u64(&mut self.text, count);
                self.end(None);
            }
        });
    }

    /// Name and labels, and the space before the value.
    fn start(&mut self, name: &str, suffix: &str, labels: &[(String, String)], bound: Option<f64>) {
        self.text.push_str(name);
        self.text.push_str(suffix);
        let mut separator = '{';
        for (key, value) in labels {
            self.text.push(separator);
            self.text.push_str(key);
            self.text.push('=');
            push_quoted(&mut self.text, value);
            separator = ',';
        }
        if let Some(bound) = bound {
            self.text.push(separator);
            self.text.push_str("le=\"");
            push_bound(&mut self.text, bound, self.format == Format::OpenMetrics);
            self.text.push('"');
            separator = ',';
        }
        self.text.push_str(if separator == ',' { "} " } else { " " });
    }

    fn end(&mut self, exemplar: Option<&Exemplar>) {
        if let (Format::OpenMetrics, Some(exemplar)) = (self.format, exemplar) {
            // The gateway sorts labels by name: its pages have the same order.
            let (trace, span) = (exemplar.span.trace_hex(), exemplar.span.span_hex());
            self.text
                .push_str(&format!(" # {{span_id=\"{span}\",trace_id=\"{trace}\"}} "));
            push_f64(&mut self.text, exemplar.value);
            let time = exemplar.time.duration_since(UNIX_EPOCH).unwrap_or_default();
            self.text.push(' ');
            push_seconds(&mut self.text, time.as_millis() as u64);
        }
        self.text.push('\n');
    }
}

/// A histogram of the SDK as the other crates have it.
fn explicit(histogram: &HistogramValue) -> Histogram {
    Histogram {
        count: histogram.count(),
        sum: Some(histogram.sum),
        min: None,
        max: None,
        bounds: histogram.bounds.clone(),
        counts: histogram.counts.clone(),
    }
}
