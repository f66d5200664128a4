// SPDX-License-Identifier: Apache-2.0

//! The mistakes of a page, with their positions.

use crate::native::BadHistogram;

/// A page that counts for nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A line of a text format.
    #[error("line {line}, column {column}: {problem}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// In bytes, counted from 1.
        column: usize,
        /// The mistake there.
        problem: Problem,
    },
    /// A message of the protobuf format.
    #[error("metric family {family}, byte {offset}: {problem}")]
    Message {
        /// Counted from 1.
        family: usize,
        /// From the beginning of the page.
        offset: usize,
        /// The mistake there.
        problem: Problem,
    },
}

impl ParseError {
    /// The mistake, without its position.
    pub fn problem(&self) -> &Problem {
        match self {
            Self::Line { problem, .. } | Self::Message { problem, .. } => problem,
        }
    }
}

/// A mistake in a page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A line begins with something else.
    #[error("expected a metric name, `{{` or `#`")]
    ExpectedStart,
    /// Behind `# TYPE` and its like.
    #[error("expected a metric name after the keyword")]
    ExpectedFamily,
    /// In OpenMetrics, where other comments are not allowed.
    #[error("expected HELP, TYPE, UNIT or EOF after `# `")]
    ExpectedKeyword,
    /// In OpenMetrics, behind the name of a metadata line.
    #[error("expected a space and the rest of the metadata line")]
    ExpectedText,
    /// An unknown type.
    #[error("expected a metric type that this format has")]
    ExpectedType,
    /// A unit that the family's name does not end in.
    #[error("expected a unit that is the suffix of the family's name")]
    ExpectedUnit,
    /// Within braces.
    #[error("expected a label name")]
    ExpectedLabelName,
    /// Behind a label's name.
    #[error("expected `=` after the label name")]
    ExpectedEqual,
    /// Behind `=`.
    #[error("expected a label value in quotes")]
    ExpectedLabelValue,
    /// Behind a label's value.
    #[error("expected `,` or `}}` after the label value")]
    ExpectedComma,
    /// A brace or a quote is not closed.
    #[error("expected `}}` after the labels")]
    ExpectedBrace,
    /// Two names, one before the braces or in them, and another in them.
    #[error("expected one metric name, found a second one")]
    SecondName,
    /// Braces without a name in or before them.
    #[error("expected a metric name before or within the braces")]
    NoName,
    /// Behind the series.
    #[error("expected a number after the series")]
    ExpectedValue,
    /// Behind the value.
    #[error("expected a timestamp or the end of the line after the value")]
    ExpectedTimestamp,
    /// More than there should be.
    #[error("expected the end of the line")]
    ExpectedEnd,
    /// Behind an exemplar's labels.
    #[error("expected a number after the exemplar's labels")]
    ExpectedExemplarValue,
    /// OpenMetrics ends with `# EOF`.
    #[error("expected `# EOF` at the end of the page")]
    ExpectedEof,
    /// OpenMetrics ends with `# EOF`.
    #[error("expected nothing after `# EOF`")]
    BehindEof,
    /// A label, a name or a help text.
    #[error("expected UTF-8")]
    ExpectedUtf8,
    /// A label or metric without a name.
    #[error("expected a name that is not empty")]
    EmptyName,
    /// Cut off, or no protobuf at all.
    #[error("expected a protobuf message")]
    ExpectedMessage,
    /// Buckets, quantiles or exemplars beyond measure: an empty one takes two bytes of a page and much more in memory.
    #[error("expected fewer buckets, quantiles or exemplars in a metric")]
    TooMany,
    /// Buckets that contradict each other.
    #[error("expected a valid native histogram: {0}")]
    Histogram(#[from] BadHistogram),
}

/// A problem and the byte of the page where it is.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) offset: usize,
    pub(crate) problem: Problem,
}

impl Fault {
    pub(crate) fn new(offset: usize, problem: Problem) -> Self {
        Self { offset, problem }
    }

    /// The error of a text format.
    pub(crate) fn in_line(self, body: &[u8]) -> ParseError {
        let before = body.get(..self.offset).unwrap_or(body);
        ParseError::Line {
            line: 1 + memchr::memchr_iter(b'\n', before).count(),
            column: before.len() - memchr::memrchr(b'\n', before).map_or(0, |at| at + 1) + 1,
            problem: self.problem,
        }
    }
}
