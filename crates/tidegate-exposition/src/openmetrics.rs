// SPDX-License-Identifier: Apache-2.0

//! OpenMetrics, 0.0.1 and 1.0.0.
//!
//! Rules are those of Prometheus' lexer: single spaces, no blank lines, no comments but metadata, `# EOF` at the end.
//! Like the lexer, the parser does not check further rules of the specification (suffixes, order, types of values).

use crate::error::{Fault, Problem};
use crate::event::{
    Escapes, Event, Exemplar, ExemplarLabels, ExposedSample, ExposedSeries, MetricType, Text,
};
use crate::labels::{self, Labels, Syntax};
use crate::text::{family, help};
use crate::{number, scan};

#[derive(Debug)]
pub(crate) struct OpenMetrics<'a> {
    page: &'a [u8],
    at: usize,
    is_over: bool,
    /// Labels of the exemplar that is checked.
    exemplar: Labels,
}

/// The beginning of an exemplar.
const EXEMPLAR: &[u8] = b" # {";

impl<'a> OpenMetrics<'a> {
    pub(crate) fn new(page: &'a [u8]) -> Self {
        Self {
            page,
            at: 0,
            is_over: false,
            exemplar: Labels::default(),
        }
    }

    pub(crate) fn page(&self) -> &'a [u8] {
        self.page
    }

    #[inline]
    pub(crate) fn next(&mut self, expected: &[u8]) -> Result<Option<Event<'a>>, Fault> {
        let rest = self.page.get(self.at..).unwrap_or_default();
        if scan::expected(rest, expected).is_some() {
            return self.sample(self.at + expected.len()).map(Some);
        }
        self.next_line()
    }

    fn next_line(&mut self) -> Result<Option<Event<'a>>, Fault> {
        match self.page.get(self.at) {
            _ if self.is_over => Ok(None),
            None => Err(Fault::new(self.at, Problem::ExpectedEof)),
            Some(b'#') => self.keyword(),
            Some(_) => self.series().map(Some),
        }
    }

    fn series(&mut self) -> Result<Event<'a>, Fault> {
        let name_end = scan::metric_name(self.page, self.at);
        let end = match self.page.get(name_end) {
            Some(b'{') => {
                let brace = scan::closing_brace(self.page, name_end + 1);
                brace.ok_or(Fault::new(name_end, Problem::ExpectedBrace))? + 1
            }
            _ if name_end == self.at => return Err(Fault::new(self.at, Problem::ExpectedStart)),
            _ => name_end,
        };
        self.sample(end)
    }

    /// A sample whose series ends at `end`.
    #[inline]
    fn sample(&mut self, end: usize) -> Result<Event<'a>, Fault> {
        let series = ExposedSeries::text(self.page, self.at, end, Syntax::OpenMetrics);
        let (value, mut at) = self.value(end, Problem::ExpectedValue)?;
        let (mut timestamp, mut exemplar) = (None, None);
        if !self.is_line_end(at) {
            if !self.is_exemplar(at) {
                (timestamp, at) = self.timestamp(at)?;
            }
            if self.is_exemplar(at) {
                (exemplar, at) = self.exemplar(at)?;
            }
        }
        self.end_line(at)?;
        Ok(Event::Sample(ExposedSample {
            series,
            value,
            timestamp,
            created: None,
            exemplar,
        }))
    }

    fn is_line_end(&self, at: usize) -> bool {
        self.page.get(at) == Some(&b'\n')
    }

    fn is_exemplar(&self, at: usize) -> bool {
        self.page.get(at..).is_some_and(|rest| rest.starts_with(EXEMPLAR))
    }

    fn end_line(&mut self, at: usize) -> Result<(), Fault> {
        self.at = at + 1;
        match self.page.get(at) {
            Some(b'\n') => Ok(()),
            None => Err(Fault::new(at, Problem::ExpectedEof)),
            Some(_) => Err(Fault::new(at, Problem::ExpectedEnd)),
        }
    }

    /// A space and what follows up to the next one or the end of the line, and where that is.
    fn word(&self, at: usize) -> Option<(&'a [u8], usize)> {
        let rest = self.page.get(at..)?.strip_prefix(b" ")?;
        let len = rest.iter().position(|byte| matches!(byte, b' ' | b'\n'));
        let len = len.unwrap_or(rest.len());
        Some((rest.get(..len).unwrap_or_default(), at + 1 + len))
    }

    #[inline]
    fn value(&self, at: usize, problem: Problem) -> Result<(f64, usize), Fault> {
        let rest = self.page.get(at..).unwrap_or_default();
        if let [b' ', digits @ ..] = rest
            && let Some((number, len)) = number::quick(digits)
        {
            return Ok((number, at + 1 + len));
        }
        let word = self.word(at);
        let number = word.and_then(|(word, end)| Some((number::parse_float(word)?, end)));
        number.ok_or(Fault::new(at, problem))
    }

    fn timestamp(&self, at: usize) -> Result<(Option<i64>, usize), Fault> {
        let word = self.word(at);
        let time = word.and_then(|(word, end)| Some((Some(number::seconds(word)?), end)));
        time.ok_or(Fault::new(at, Problem::ExpectedTimestamp))
    }

    /// An exemplar that begins at `at`, and where it ends.
    fn exemplar(&mut self, at: usize) -> Result<(Option<Exemplar<'a>>, usize), Fault> {
        let start = at + EXEMPLAR.len() - 1;
        let brace = scan::closing_brace(self.page, start + 1);
        let end = brace.ok_or(Fault::new(start, Problem::ExpectedBrace))? + 1;
        self.exemplar.clear();
        labels::parse_exemplar(self.page, start..end, &mut self.exemplar)?;
        let (value, behind) = self.value(end, Problem::ExpectedExemplarValue)?;
        let (timestamp, behind) = match self.page.get(behind) {
            Some(b' ') => self.timestamp(behind)?,
            _ => (None, behind),
        };
        let raw = self.page.get(start..end).unwrap_or_default();
        let exemplar = Exemplar {
            labels: ExemplarLabels::OpenMetrics(raw),
            value,
            timestamp,
        };
        Ok((Some(exemplar), behind))
    }

    fn keyword(&mut self) -> Result<Option<Event<'a>>, Fault> {
        let fault = Fault::new(self.at, Problem::ExpectedKeyword);
        let rest = self.page.get(self.at..).unwrap_or_default();
        let word = rest.strip_prefix(b"# ").ok_or(fault)?;
        if let Some(behind) = word.strip_prefix(b"EOF") {
            if !matches!(behind, b"" | b"\n") {
                return Err(Fault::new(self.at + b"# EOF".len(), Problem::BehindEof));
            }
            (self.at, self.is_over) = (self.page.len(), true);
            return Ok(None);
        }
        let keyword = word.get(..5).unwrap_or_default();
        if !matches!(keyword, b"HELP " | b"TYPE " | b"UNIT ") {
            return Err(Fault::new(self.at + 2, Problem::ExpectedKeyword));
        }
        self.metadata(keyword, self.at + 2 + keyword.len()).map(Some)
    }

    /// A metadata line from its family's name on.
    fn metadata(&mut self, keyword: &[u8], at: usize) -> Result<Event<'a>, Fault> {
        let (family, behind) = family(self.page, at)?;
        let end = scan::line_end(self.page, behind);
        let line = self.page.get(behind..end).unwrap_or_default();
        let raw = line.strip_prefix(b" ").filter(|_| self.is_line_end(end));
        let raw = raw.ok_or(Fault::new(behind, Problem::ExpectedText))?;
        self.at = end + 1;
        match keyword {
            b"HELP " => help(family, raw, Escapes::Quoted, end),
            b"TYPE " => {
                let found = MetricType::ALL.iter().find(|kind| kind.name().as_bytes() == raw);
                let kind = *found.ok_or(Fault::new(behind + 1, Problem::ExpectedType))?;
                Ok(Event::Type { family, kind })
            }
            _ if is_suffix(family.raw, raw) => Ok(Event::Unit {
                family,
                unit: Text {
                    raw,
                    escapes: Escapes::None,
                },
            }),
            _ => Err(Fault::new(behind + 1, Problem::ExpectedUnit)),
        }
    }
}

/// Whether a name ends in `_` and the unit. No unit is every name's.
pub(crate) fn is_suffix(name: &[u8], unit: &[u8]) -> bool {
    unit.is_empty() || name.strip_suffix(unit).is_some_and(|rest| rest.ends_with(b"_"))
}
