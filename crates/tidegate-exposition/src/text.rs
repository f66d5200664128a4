// SPDX-License-Identifier: Apache-2.0

//! Prometheus text, 0.0.4 and 1.0.0.
//!
//! Rules are those of Prometheus' lexer: blanks may stand nearly everywhere, label values may hold line feeds, a NUL
//! where a line or comment begins ends the page, the last line feed may be missing.

use crate::error::{Fault, Problem};
use crate::event::{Escapes, Event, ExposedSample, ExposedSeries, MetricType, Text};
use crate::labels::Syntax;
use crate::{number, scan};

#[derive(Debug)]
pub(crate) struct PlainText<'a> {
    page: &'a [u8],
    at: usize,
}

/// Types by their names.
const TYPES: [(&[u8], MetricType); 5] = [
    (b"counter", MetricType::Counter),
    (b"gauge", MetricType::Gauge),
    (b"histogram", MetricType::Histogram),
    (b"summary", MetricType::Summary),
    (b"untyped", MetricType::Unknown),
];

impl<'a> PlainText<'a> {
    pub(crate) fn new(page: &'a [u8]) -> Self {
        Self { page, at: 0 }
    }

    pub(crate) fn page(&self) -> &'a [u8] {
        self.page
    }

    #[inline]
    pub(crate) fn next(&mut self, expected: &[u8]) -> Result<Option<Event<'a>>, Fault> {
        let rest = self.page.get(self.at..).unwrap_or_default();
        if let Some(value) = scan::expected(rest, expected) {
            return self
                .sample(self.at, self.at + expected.len(), self.at + value)
                .map(Some);
        }
        self.next_line()
    }

    fn next_line(&mut self) -> Result<Option<Event<'a>>, Fault> {
        loop {
            let first = scan::blanks(self.page, self.at);
            match self.page.get(first) {
                None | Some(0) => {
                    self.at = self.page.len();
                    return Ok(None);
                }
                Some(b'\n') => self.at = first + 1,
                Some(b'#') => {
                    if let Some(event) = self.comment(first + 1)? {
                        return Ok(Some(event));
                    }
                }
                Some(_) => return self.series(first).map(Some),
            }
        }
    }

    fn series(&mut self, first: usize) -> Result<Event<'a>, Fault> {
        let name_end = scan::metric_name(self.page, first);
        let behind = scan::blanks(self.page, name_end);
        let end = match self.page.get(behind) {
            Some(b'{') => {
                let brace = scan::closing_brace(self.page, behind + 1);
                brace.ok_or(Fault::new(behind, Problem::ExpectedBrace))? + 1
            }
            _ if name_end == first => return Err(Fault::new(first, Problem::ExpectedStart)),
            _ => name_end,
        };
        self.sample(self.at, end, scan::blanks(self.page, end))
    }

    /// A sample whose series is known to be from `start` to `end` and whose value begins at `value`.
    #[inline]
    fn sample(&mut self, start: usize, end: usize, value: usize) -> Result<Event<'a>, Fault> {
        let (number, behind) = self.value(value)?;
        let timestamp = match self.page.get(behind) {
            Some(b'\n') => {
                self.at = behind + 1;
                None
            }
            _ => self.timestamp(behind)?,
        };
        Ok(Event::Sample(ExposedSample {
            series: ExposedSeries::text(self.page, start, end, Syntax::Text),
            value: number,
            timestamp,
            created: None,
            exemplar: None,
        }))
    }

    #[inline]
    fn value(&self, at: usize) -> Result<(f64, usize), Fault> {
        let rest = self.page.get(at..).unwrap_or_default();
        if let Some((number, len)) = number::quick(rest) {
            return Ok((number, at + len));
        }
        let is_end = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'{' | 0);
        let len = rest.iter().position(is_end).unwrap_or(rest.len());
        let number = number::parse_float(rest.get(..len).unwrap_or_default());
        let number = number.ok_or(Fault::new(at, Problem::ExpectedValue))?;
        Ok((number, at + len))
    }

    /// Reads the timestamp behind the value, and the end of the line.
    fn timestamp(&mut self, at: usize) -> Result<Option<i64>, Fault> {
        let start = scan::blanks(self.page, at);
        let rest = self.page.get(start..).unwrap_or_default();
        let digits = rest.iter().position(|byte| !byte.is_ascii_digit());
        let digits = rest.get(..digits.unwrap_or(rest.len())).unwrap_or_default();
        let end = start + digits.len();
        let end = if digits.is_empty() {
            end
        } else {
            scan::blanks(self.page, end)
        };
        match self.page.get(end) {
            None => self.at = end,
            Some(b'\n') => self.at = end + 1,
            Some(_) if digits.is_empty() => return Err(Fault::new(start, Problem::ExpectedTimestamp)),
            Some(_) => return Err(Fault::new(end, Problem::ExpectedEnd)),
        }
        if digits.is_empty() {
            return Ok(None);
        }
        let number = std::str::from_utf8(digits)
            .ok()
            .and_then(|text| text.parse().ok());
        let number: i64 = number.ok_or(Fault::new(start, Problem::ExpectedTimestamp))?;
        Ok(Some(number))
    }

    /// Reads the text behind a `#`: metadata, or a comment without effect.
    fn comment(&mut self, at: usize) -> Result<Option<Event<'a>>, Fault> {
        let word = scan::blanks(self.page, at);
        let rest = self.page.get(word..).unwrap_or_default();
        let is_help = rest.starts_with(b"HELP");
        let is_keyword = is_help || rest.starts_with(b"TYPE");
        if word > at && is_keyword && matches!(rest.get(4), Some(b' ' | b'\t')) {
            return self
                .metadata(is_help, scan::blanks(self.page, word + 4))
                .map(Some);
        }
        let end = scan::line_end(self.page, word);
        // A NUL ends the page where the comment begins, and anywhere in one that begins without a blank.
        let from = if word > at {
            word..(word + 1).min(end)
        } else {
            at..end
        };
        let has_nul = self.page.get(from).is_some_and(|bytes| bytes.contains(&0));
        self.at = if has_nul {
            self.page.len()
        } else {
            (end + 1).min(self.page.len())
        };
        Ok(None)
    }

    /// A HELP or TYPE line from its family's name on.
    fn metadata(&mut self, is_help: bool, at: usize) -> Result<Event<'a>, Fault> {
        let (family, behind) = family(self.page, at)?;
        let end = scan::line_end(self.page, behind);
        let line = self.page.get(behind..end).unwrap_or_default();
        // The byte behind the name separates, whatever it is.
        let text = match line {
            [_, text @ ..] if line.iter().any(|byte| !matches!(byte, b' ' | b'\t')) => text,
            _ => &[],
        };
        self.at = (end + 1).min(self.page.len());
        if is_help {
            return help(family, text, Escapes::Help, end);
        }
        let found = TYPES.iter().find(|(name, _)| *name == text);
        let (_, kind) = found.ok_or(Fault::new(behind, Problem::ExpectedType))?;
        Ok(Event::Type { family, kind: *kind })
    }
}

/// The family's name of a metadata line, and where it ends.
pub(crate) fn family(page: &[u8], at: usize) -> Result<(Text<'_>, usize), Fault> {
    let fault = || Fault::new(at, Problem::ExpectedFamily);
    if page.get(at) != Some(&b'"') {
        let end = scan::metric_name(page, at);
        let raw = page
            .get(at..end)
            .filter(|raw| !raw.is_empty())
            .ok_or_else(fault)?;
        let escapes = Escapes::None;
        return Ok((Text { raw, escapes }, end));
    }
    let end = scan::closing_quote(page, at + 1).ok_or_else(fault)?;
    let raw = page.get(at + 1..end).unwrap_or_default();
    if memchr::memchr(0, raw).is_some() || scan::broken_escape(raw).is_some() {
        return Err(fault());
    }
    let escapes = Escapes::Quoted;
    Ok((Text { raw, escapes }, end + 1))
}

/// A HELP line whose text ends at `end`.
pub(crate) fn help<'a>(
    family: Text<'a>,
    raw: &'a [u8],
    escapes: Escapes,
    end: usize,
) -> Result<Event<'a>, Fault> {
    if let Err(error) = std::str::from_utf8(raw) {
        let offset = end - raw.len() + error.valid_up_to();
        return Err(Fault::new(offset, Problem::ExpectedUtf8));
    }
    let help = Text { raw, escapes };
    Ok(Event::Help { family, help })
}
