// SPDX-License-Identifier: Apache-2.0

//! The content of a page, one event at a time.

use std::borrow::Cow;

pub use tidegate_model::kind::MetricType;

use crate::error::ParseError;
use crate::labels::{self, Labels, Syntax};
use crate::native::NativeHistogram;
use crate::protobuf;

/// One thing that a page says.
#[derive(Debug)]
pub enum Event<'a> {
    /// A family's type. It holds for the samples that follow, as far as their names fit.
    Type {
        /// The family's name.
        family: Text<'a>,
        /// Its type.
        kind: MetricType,
    },
    /// The description of a family.
    Help {
        /// The family's name.
        family: Text<'a>,
        /// Free text, valid UTF-8.
        help: Text<'a>,
    },
    /// A family's unit, as a word.
    Unit {
        /// The family's name.
        family: Text<'a>,
        /// The word; it may be empty.
        unit: Text<'a>,
    },
    /// A number of a series.
    Sample(ExposedSample<'a>),
    /// A native histogram of a series.
    Histogram(Histogram<'a>),
}

/// Text of a page that may hold escapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    pub(crate) raw: &'a [u8],
    pub(crate) escapes: Escapes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escapes {
    /// It is what it is.
    None,
    /// `\\` and `\n`.
    Help,
    /// These and `\"`.
    Quoted,
}

impl<'a> Text<'a> {
    /// The bytes as they stand on the page.
    pub fn raw(self) -> &'a [u8] {
        self.raw
    }

    /// The text that the bytes mean; U+FFFD replaces bytes that are not UTF-8.
    pub fn get(self) -> Cow<'a, str> {
        let text = String::from_utf8_lossy(self.raw);
        let is_quoted = match self.escapes {
            Escapes::None => return text,
            Escapes::Help => false,
            Escapes::Quoted => true,
        };
        if !text.contains('\\') {
            return text;
        }
        let mut unescaped = String::with_capacity(text.len());
        labels::unescape(&text, is_quoted, &mut unescaped);
        Cow::Owned(unescaped)
    }
}

/// A number of a series.
#[derive(Debug)]
pub struct ExposedSample<'a> {
    /// Whose.
    pub series: ExposedSeries<'a>,
    /// The number. A NaN of a text format is always the ordinary one.
    pub value: f64,
    /// Milliseconds since the epoch, where the page says when.
    pub timestamp: Option<i64>,
    /// When counting began, in milliseconds since the epoch; only protobuf has it (OpenMetrics has `_created` samples).
    pub created: Option<i64>,
    /// An example of what the number is made of.
    pub exemplar: Option<Exemplar<'a>>,
}

/// A native histogram of a series.
#[derive(Debug)]
pub struct Histogram<'a> {
    /// Whose.
    pub series: ExposedSeries<'a>,
    /// Its buckets.
    pub value: &'a NativeHistogram,
    /// Milliseconds since the epoch, where the page says when.
    pub timestamp: Option<i64>,
    /// When counting began, in milliseconds since the epoch.
    pub created: Option<i64>,
    /// Examples of what it is made of.
    pub exemplars: &'a [Exemplar<'a>],
}

/// The series of a sample: bytes that identify it, and its labels on request.
#[derive(Clone, Debug)]
pub struct ExposedSeries<'a>(pub(crate) SeriesSource<'a>);

#[derive(Clone, Debug)]
pub(crate) enum SeriesSource<'a> {
    Text {
        page: &'a [u8],
        start: usize,
        end: usize,
        syntax: Syntax,
    },
    Protobuf(protobuf::ProtobufSeries<'a>),
}

impl<'a> ExposedSeries<'a> {
    pub(crate) fn text(page: &'a [u8], start: usize, end: usize, syntax: Syntax) -> Self {
        Self(SeriesSource::Text {
            page,
            start,
            end,
            syntax,
        })
    }

    /// The bytes of its name and labels. Two lines of one format with the same bytes are of one series (two spellings
    /// of one series have different bytes).
    pub fn raw(&self) -> &'a [u8] {
        match &self.0 {
            SeriesSource::Text { page, start, end, .. } => page.get(*start..*end).unwrap_or_default(),
            SeriesSource::Protobuf(series) => series.raw,
        }
    }

    /// Checks its labels and puts them into `into`, whatever that held before. A page with a series that fails this is
    /// a page that counts for nothing.
    ///
    /// # Errors
    /// The name or a label breaks the syntax of the format; the error names the place.
    pub fn labels(&self, into: &mut Labels) -> Result<(), ParseError> {
        into.clear();
        match &self.0 {
            SeriesSource::Text {
                page,
                start,
                end,
                syntax,
            } => labels::parse_series(page, *start..*end, *syntax, into).map_err(|fault| fault.in_line(page)),
            SeriesSource::Protobuf(series) => series.labels(into),
        }
    }
}

/// An example of what a number is made of. It has been checked.
#[derive(Clone, Debug)]
pub struct Exemplar<'a> {
    pub(crate) labels: ExemplarLabels<'a>,
    /// The measured value.
    pub value: f64,
    /// Milliseconds since the epoch, where the page says when.
    pub timestamp: Option<i64>,
}

#[derive(Clone, Debug)]
pub(crate) enum ExemplarLabels<'a> {
    /// With the braces.
    OpenMetrics(&'a [u8]),
    /// The message.
    Protobuf(&'a [u8]),
}

impl Exemplar<'_> {
    /// How many bytes its labels have on the page.
    pub fn label_bytes(&self) -> usize {
        match self.labels {
            ExemplarLabels::OpenMetrics(raw) | ExemplarLabels::Protobuf(raw) => raw.len(),
        }
    }

    /// Puts its labels into `into`, whatever that held before.
    pub fn labels(&self, into: &mut Labels) {
        into.clear();
        // It was checked when it was made.
        let _ = match self.labels {
            ExemplarLabels::OpenMetrics(raw) => {
                labels::parse_exemplar(raw, 0..raw.len(), into).map_err(|_| ())
            }
            ExemplarLabels::Protobuf(message) => protobuf::exemplar_labels(message, into).map_err(|_| ()),
        };
    }
}
