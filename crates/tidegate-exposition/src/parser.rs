// SPDX-License-Identifier: Apache-2.0

//! One parser for all formats.

use crate::error::ParseError;
use crate::event::Event;
use crate::openmetrics::OpenMetrics;
use crate::protobuf::Protobuf;
use crate::text::PlainText;

/// How a page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Prometheus text 0.0.4 and 1.0.0. The newer one only adds names in quotes.
    Text,
    /// OpenMetrics 0.0.1 and 1.0.0.
    OpenMetrics,
    /// `io.prometheus.client.MetricFamily` messages, each with its length before it.
    Protobuf,
}

impl Format {
    /// The format of a content type; parameters play no part in it.
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        let known = [
            ("text/plain", Self::Text),
            ("application/openmetrics-text", Self::OpenMetrics),
            ("application/vnd.google.protobuf", Self::Protobuf),
        ];
        let found = known.iter().find(|(name, _)| name.eq_ignore_ascii_case(essence));
        found.map(|(_, format)| *format)
    }
}

/// The form in which the parser reads a histogram that has native buckets; only protobuf has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NativeHistograms {
    /// The native one alone.
    #[default]
    Native,
    /// The classic one alone: buckets as samples.
    Classic,
    /// Both, the native one first.
    Both,
}

/// The choices of a caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Native or classic histograms.
    pub native_histograms: NativeHistograms,
}

/// Reads a page.
#[derive(Debug)]
pub struct Parser<'a>(FormatParser<'a>);

#[derive(Debug)]
enum FormatParser<'a> {
    Text(PlainText<'a>),
    OpenMetrics(OpenMetrics<'a>),
    Protobuf(Box<Protobuf<'a>>),
}

impl<'a> Parser<'a> {
    /// A parser of a whole page.
    pub fn new(format: Format, page: &'a [u8], options: Options) -> Self {
        Self(match format {
            Format::Text => FormatParser::Text(PlainText::new(page)),
            Format::OpenMetrics => FormatParser::OpenMetrics(OpenMetrics::new(page)),
            Format::Protobuf => FormatParser::Protobuf(Box::new(Protobuf::new(page, options))),
        })
    }

    /// The next thing that the page says; nothing at its end.
    ///
    /// `expected` are the bytes of a series that was on an earlier page of this format and had sound labels. If the next
    /// line begins with them, they are its series, which spares the search for its end. Empty where nothing is expected.
    ///
    /// # Errors
    /// The page breaks the syntax of its format; the error names the place.
    pub fn next(&mut self, expected: &[u8]) -> Result<Option<Event<'_>>, ParseError> {
        match &mut self.0 {
            FormatParser::Text(text) => text.next(expected).map_err(|fault| fault.in_line(text.page())),
            FormatParser::OpenMetrics(text) => {
                text.next(expected).map_err(|fault| fault.in_line(text.page()))
            }
            FormatParser::Protobuf(protobuf) => protobuf.next(expected),
        }
    }
}
