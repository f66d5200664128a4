// SPDX-License-Identifier: Apache-2.0

//! Answers to queries in the JSON of Prometheus's API.

use serde_json::Value;
use tidegate_promql::{
    FloatHistogram, Instant, Labels, Millis, Patience, QueryError, QuerySeries, SampleValue,
};

use crate::prom::number::push_f64;

/// Seconds since 1970, without a zero fraction.
pub(super) fn seconds(at: Millis) -> Value {
    match at % 1000 {
        0 => (at / 1000).into(),
        _ => (at as f64 / 1000.0).into(),
    }
}

pub(super) fn text(value: f64) -> String {
    let mut text = String::new();
    push_f64(&mut text, value);
    text
}

/// Text that is being written: an object whose last member may be added by [`JsonText::end`].
pub(super) struct JsonText<'a> {
    text: Vec<u8>,
    most: usize,
    patience: &'a Patience,
    number: String,
}

impl<'a> JsonText<'a> {
    /// Creates a text of at most `most` bytes, for a reader that waits for it.
    pub(super) fn new(most: usize, patience: &'a Patience) -> Self {
        Self {
            text: Vec::new(),
            most,
            patience,
            number: String::new(),
        }
    }

    /// Writes the value of a query at an instant.
    pub(super) fn instant(&mut self, value: &Instant, at: Millis) -> Result<(), QueryError> {
        match value {
            Instant::Scalar(number) => {
                self.raw("{\"resultType\":\"scalar\",\"result\":");
                self.float(at, *number);
            }
            Instant::String(text) => {
                self.raw("{\"resultType\":\"string\",\"result\":[");
                self.time(at);
                self.raw(",");
                self.quoted(text);
                self.raw("]");
            }
            Instant::Vector(vector) => {
                self.raw("{\"resultType\":\"vector\",\"result\":");
                self.list(vector.iter(), |text, (labels, value)| {
                    text.metric(labels);
                    text.raw(match value {
                        SampleValue::Float(_) => ",\"value\":",
                        SampleValue::Histogram(_) => ",\"histogram\":",
                    });
                    match value {
                        SampleValue::Float(value) => text.float(at, *value),
                        SampleValue::Histogram(value) => text.histogram(at, value),
                    }
                    text.raw("}");
                    text.check()
                })?;
            }
            Instant::Matrix(series) => return self.matrix(series),
        }
        self.check()
    }

    /// Writes series.
    pub(super) fn matrix(&mut self, all: &[QuerySeries]) -> Result<(), QueryError> {
        self.raw("{\"resultType\":\"matrix\",\"result\":");
        self.list(all.iter(), |text, series| {
            text.metric(&series.labels);
            if !series.samples.is_empty() {
                text.raw(",\"values\":");
                text.list(series.samples.iter(), |text, one| {
                    text.float(one.time, one.value);
                    text.check_size()
                })?;
            }
            if !series.histograms.is_empty() {
                text.raw(",\"histograms\":");
                text.list(series.histograms.iter(), |text, one| {
                    text.histogram(one.time, &one.value);
                    text.check_size()
                })?;
            }
            text.raw("}");
            text.check()
        })?;
        self.check()
    }

    /// Writes a list of label sets.
    pub(super) fn label_sets<'l>(&mut self, all: impl Iterator<Item = &'l Labels>) -> Result<(), QueryError> {
        self.list(all, |text, labels| {
            text.labels(labels);
            text.check()
        })
    }

    /// Writes a list of texts.
    pub(super) fn texts<'t>(&mut self, all: impl Iterator<Item = &'t str>) -> Result<(), QueryError> {
        self.list(all, |text, one| {
            text.quoted(one);
            text.check()
        })
    }

    /// Writes a list of anything.
    pub(super) fn values(&mut self, all: impl Iterator<Item = Value>) -> Result<(), QueryError> {
        self.list(all, |text, one| {
            text.raw(&one.to_string());
            text.check()
        })
    }

    /// Writes an object of lists.
    pub(super) fn lists(
        &mut self,
        all: impl Iterator<Item = (String, Vec<Value>)>,
    ) -> Result<(), QueryError> {
        self.raw("{");
        for (at, (name, list)) in all.enumerate() {
            if at > 0 {
                self.raw(",");
            }
            self.quoted(&name);
            self.raw(":");
            self.values(list.into_iter())?;
        }
        self.raw("}");
        self.check()
    }

    /// Writes the exemplars of a series.
    pub(super) fn exemplars(
        &mut self,
        all: impl Iterator<Item = (Labels, Vec<Value>)>,
    ) -> Result<(), QueryError> {
        self.list(all, |text, (labels, exemplars)| {
            text.raw("{\"seriesLabels\":");
            text.labels(&labels);
            text.raw(",\"exemplars\":");
            text.values(exemplars.into_iter())?;
            text.raw("}");
            Ok(())
        })
    }

    /// Text of another kind.
    pub(super) fn plain(&mut self, text: &str) -> Result<(), QueryError> {
        self.raw(text);
        self.check()
    }

    /// The written text.
    pub(super) fn whole(self) -> Vec<u8> {
        self.text
    }

    /// The whole text, with one more member if `more` has one.
    pub(super) fn end(mut self, more: Option<(&str, Value)>) -> Vec<u8> {
        if let Some((name, value)) = more {
            self.raw(",");
            self.quoted(name);
            self.raw(":");
            self.raw(&value.to_string());
        }
        self.raw("}");
        self.text
    }

    fn check(&self) -> Result<(), QueryError> {
        self.patience.check()?;
        self.check_size()
    }

    fn check_size(&self) -> Result<(), QueryError> {
        if self.text.len() > self.most {
            Err(QueryError::TooMuch(format!(
                "the answer has more than {} bytes: ask for fewer series or steps, or raise `query::max_answer_bytes`",
                self.most
            )))
        } else {
            Ok(())
        }
    }

    fn raw(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    fn quoted(&mut self, text: &str) {
        // Writing to memory can't fail.
        let _ = serde_json::to_writer(&mut self.text, text);
    }

    fn list<T>(
        &mut self,
        all: impl Iterator<Item = T>,
        mut each: impl FnMut(&mut Self, T) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        self.raw("[");
        for (at, one) in all.enumerate() {
            if at > 0 {
                self.raw(",");
            }
            each(self, one)?;
        }
        self.raw("]");
        Ok(())
    }

    /// The beginning of a series.
    fn metric(&mut self, labels: &Labels) {
        self.raw("{\"metric\":");
        self.labels(labels);
    }

    fn labels(&mut self, labels: &Labels) {
        self.raw("{");
        for (at, (name, value)) in labels.iter().enumerate() {
            if at > 0 {
                self.raw(",");
            }
            self.quoted(name);
            self.raw(":");
            self.quoted(value);
        }
        self.raw("}");
    }

    fn time(&mut self, at: Millis) {
        let _ = serde_json::to_writer(&mut self.text, &seconds(at));
    }

    /// A number as a text.
    fn number(&mut self, value: f64) {
        self.number.clear();
        push_f64(&mut self.number, value);
        self.text.push(b'"');
        self.text.extend_from_slice(self.number.as_bytes());
        self.text.push(b'"');
    }

    fn float(&mut self, at: Millis, value: f64) {
        self.raw("[");
        self.time(at);
        self.raw(",");
        self.number(value);
        self.raw("]");
    }

    fn histogram(&mut self, at: Millis, value: &FloatHistogram) {
        self.raw("[");
        self.time(at);
        self.raw(",{\"count\":");
        self.number(value.count);
        self.raw(",\"sum\":");
        self.number(value.sum);
        let buckets = value.buckets();
        for (place, bucket) in buckets.iter().enumerate() {
            self.raw(if place == 0 { ",\"buckets\":[" } else { "," });
            self.raw(&format!("[{}", bucket.rule as u8));
            for number in [bucket.lower, bucket.upper, bucket.count] {
                self.raw(",");
                self.number(number);
            }
            self.raw("]");
        }
        if !buckets.is_empty() {
            self.raw("]");
        }
        self.raw("}]");
    }
}
