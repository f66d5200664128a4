// SPDX-License-Identifier: Apache-2.0

//! Labels of a series or exemplar, checked, without escapes.

use std::ops::Range;

use crate::NAME;
use crate::error::{Fault, Problem};
use crate::scan;

/// Labels in the order of the page, the metric's name first as `__name__`. It keeps its room for the next series.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    text: String,
    pairs: Vec<(Range<usize>, Range<usize>)>,
}

impl Labels {
    /// Names and values. A name can come twice: it is not for a parser to say what that means.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let text = |range: &Range<usize>| self.text.get(range.clone()).unwrap_or_default();
        self.pairs
            .iter()
            .map(move |(name, value)| (text(name), text(value)))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.pairs.clear();
    }

    pub(crate) fn push(&mut self, name: &str, value: &str) {
        let name = self.put(name, false);
        let value = self.put(value, false);
        self.pairs.push((name, value));
    }

    /// Adds a label whose value is two texts.
    pub(crate) fn push_joined(&mut self, name: &str, value: [&str; 2]) {
        self.push(name, value[0]);
        self.text.push_str(value[1]);
        if let Some((_, value)) = self.pairs.last_mut() {
            value.end = self.text.len();
        }
    }

    fn put(&mut self, text: &str, escaped: bool) -> Range<usize> {
        let start = self.text.len();
        if escaped && text.contains('\\') {
            unescape(text, true, &mut self.text);
        } else {
            self.text.push_str(text);
        }
        start..self.text.len()
    }
}

/// Appends what `text` means; a backslash before anything else stands for itself.
pub(crate) fn unescape(text: &str, is_quoted: bool, into: &mut String) {
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('\\') {
        into.push_str(before);
        let meant = match behind.as_bytes().first() {
            Some(b'\\') => Some('\\'),
            Some(b'n') => Some('\n'),
            Some(b'"') if is_quoted => Some('"'),
            _ => None,
        };
        into.push(meant.unwrap_or('\\'));
        // An escaped character is one byte long.
        rest = if meant.is_some() { &behind[1..] } else { behind };
    }
    into.push_str(rest);
}

/// Where the text formats differ within braces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// Blanks between tokens; commas may be omitted.
    Text,
    /// Neither, and no line feed in a value.
    OpenMetrics,
}

/// Checks `name{labels}`.
pub(crate) fn parse_series(
    page: &[u8],
    range: Range<usize>,
    syntax: Syntax,
    into: &mut Labels,
) -> Result<(), Fault> {
    let mut cursor = LabelCursor {
        bytes: page.get(..range.end).unwrap_or(page),
        at: range.start,
        syntax,
    };
    let first = scan::blanks(page, range.start);
    let end = scan::metric_name(page, first);
    // Blanks before a name are part of it, as Prometheus has it.
    let name = (end > first).then_some(range.start..end);
    cursor.at = scan::blanks(page, end);
    // The name comes first whatever its place was.
    into.push(NAME, "");
    let mut metric = name.map(|name| cursor.text(name, false, into)).transpose()?;
    if cursor.take(b'{') {
        cursor.pairs(Some(&mut metric), into)?;
    }
    let metric = metric.ok_or(Fault::new(range.start, Problem::NoName))?;
    if metric.is_empty() {
        return Err(Fault::new(range.start, Problem::EmptyName));
    }
    if let Some(first) = into.pairs.first_mut() {
        first.1 = metric;
    }
    Ok(())
}

/// Checks `{labels}` of an exemplar.
pub(crate) fn parse_exemplar(page: &[u8], range: Range<usize>, into: &mut Labels) -> Result<(), Fault> {
    let mut cursor = LabelCursor {
        bytes: page.get(..range.end).unwrap_or(page),
        at: range.start + 1,
        syntax: Syntax::OpenMetrics,
    };
    cursor.pairs(None, into)
}

struct LabelCursor<'a> {
    bytes: &'a [u8],
    at: usize,
    syntax: Syntax,
}

impl LabelCursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        if self.syntax == Syntax::Text {
            self.at = scan::blanks(self.bytes, self.at);
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn fault(&self, problem: Problem) -> Fault {
        Fault::new(self.at, problem)
    }

    /// Reads the text between braces, up to and with the closing one. A quoted string alone is the metric's name, if
    /// the name may be inside the braces.
    fn pairs(
        &mut self,
        mut metric: Option<&mut Option<Range<usize>>>,
        into: &mut Labels,
    ) -> Result<(), Fault> {
        loop {
            self.skip_blanks();
            if self.take(b'}') {
                return Ok(());
            }
            let (name, is_quoted) = self.name()?;
            // Prometheus takes line breaks in the names of series only.
            let is_broken = metric.is_none()
                && self
                    .bytes
                    .get(name.clone())
                    .is_some_and(|name| name.contains(&b'\n'));
            if is_broken {
                return Err(Fault::new(name.start, Problem::ExpectedLabelName));
            }
            self.skip_blanks();
            if is_quoted && matches!(self.peek(), Some(b',' | b'}')) {
                let metric = metric.as_deref_mut().ok_or(self.fault(Problem::ExpectedEqual))?;
                if metric.is_some() {
                    return Err(Fault::new(name.start, Problem::SecondName));
                }
                *metric = Some(self.text(name, true, into)?);
                self.take(b',');
                continue;
            }
            let start = name.start;
            // Prometheus looks at the names of an exemplar's labels less closely.
            let is_unnamed = name.is_empty() && metric.is_some();
            self.pair(name, is_quoted, into)?;
            // Like every label without a value, one without a name as well does not exist.
            if is_unnamed && into.pairs.last().is_some_and(|(_, value)| !value.is_empty()) {
                return Err(Fault::new(start, Problem::EmptyName));
            }
        }
    }

    /// A label's name, or a metric's in quotes, without them.
    fn name(&mut self) -> Result<(Range<usize>, bool), Fault> {
        let start = self.at;
        if self.take(b'"') {
            return Ok((self.quoted(true, Problem::ExpectedLabelName)?, true));
        }
        self.at = scan::label_name(self.bytes, start);
        if self.at > start {
            Ok((start..self.at, false))
        } else {
            Err(self.fault(Problem::ExpectedLabelName))
        }
    }

    /// `="value"` and the comma.
    fn pair(&mut self, name: Range<usize>, is_quoted: bool, into: &mut Labels) -> Result<(), Fault> {
        let name = self.text(name, is_quoted, into)?;
        if !self.take(b'=') {
            return Err(self.fault(Problem::ExpectedEqual));
        }
        self.skip_blanks();
        if !self.take(b'"') {
            return Err(self.fault(Problem::ExpectedLabelValue));
        }
        let value = self.quoted(false, Problem::ExpectedLabelValue)?;
        let value = self.text(value, true, into)?;
        into.pairs.push((name, value));
        self.skip_blanks();
        let goes_on = self.take(b',') || self.peek() == Some(b'}') || self.syntax == Syntax::Text;
        goes_on.then_some(()).ok_or(self.fault(Problem::ExpectedComma))
    }

    /// A quoted string whose opening quote has been taken, without its quotes.
    fn quoted(&mut self, is_name: bool, problem: Problem) -> Result<Range<usize>, Fault> {
        let start = self.at;
        let end = scan::closing_quote(self.bytes, start);
        let end = end.ok_or(Fault::new(start, problem.clone()))?;
        let inner = self.bytes.get(start..end).unwrap_or_default();
        let forbidden = match (is_name, self.syntax) {
            (true, _) => memchr::memchr(0, inner),
            (false, Syntax::OpenMetrics) => memchr::memchr(b'\n', inner),
            (false, Syntax::Text) => None,
        };
        if let Some(at) = forbidden.or_else(|| scan::broken_escape(inner)) {
            return Err(Fault::new(start + at, problem));
        }
        self.at = end + 1;
        Ok(start..end)
    }

    /// Puts text of the page where labels are kept.
    fn text(&self, range: Range<usize>, escaped: bool, into: &mut Labels) -> Result<Range<usize>, Fault> {
        let bytes = self.bytes.get(range.clone()).unwrap_or_default();
        let text = std::str::from_utf8(bytes)
            .map_err(|error| Fault::new(range.start + error.valid_up_to(), Problem::ExpectedUtf8))?;
        Ok(into.put(text, escaped))
    }
}
