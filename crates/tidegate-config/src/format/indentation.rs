// SPDX-License-Identifier: Apache-2.0

//! Indentation by two spaces a level, line by line.

use super::inner::{Continuation, inner_lines};
use super::{Line, LineKind};

/// The spaces of a level.
const STEP: usize = 2;

/// What stands in a column.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LevelKind {
    /// Dashes.
    List,
    /// Keys, or a value of another type.
    Map,
}

/// An open level: its column in the original and in the result.
#[derive(Clone, Copy, Debug)]
struct OpenLevel {
    kind: LevelKind,
    old: usize,
    new: usize,
}

/// The lines of a text that is YAML, with their new indentation.
pub(super) fn indented(text: &str) -> Vec<Line> {
    let mut indenter = Indenter::default();
    let lines = text.strip_suffix('\n').unwrap_or(text).split('\n');
    for (text, inner) in lines.zip(inner_lines(text)) {
        let text = text.strip_suffix('\r').unwrap_or(text);
        indenter.line(text, inner);
    }
    indenter.flush(None);
    indenter.lines
}

#[derive(Default)]
struct Indenter<'a> {
    levels: Vec<OpenLevel>,
    /// The new column of the last content less the old one.
    shift: isize,
    /// Comments and blank lines before the next content. Their indentation may be that of the content.
    waiting: Vec<&'a str>,
    lines: Vec<Line>,
}

impl<'a> Indenter<'a> {
    fn line(&mut self, text: &'a str, inner: Continuation) {
        let trimmed = text.trim();
        match inner {
            Continuation::No if trimmed.is_empty() || trimmed.starts_with('#') => self.waiting.push(text),
            Continuation::No => self.content(text),
            // Text that looks blank or like a comment belongs to the value.
            inner => {
                self.flush(None);
                self.inner(text, inner);
            }
        }
    }

    fn inner(&mut self, text: &str, inner: Continuation) {
        let kept = match inner {
            Continuation::Flow => text.trim_end(),
            _ => text,
        };
        let is_blank = kept.trim().is_empty();
        let old = spaces(kept);
        let new = old.saturating_add_signed(self.shift);
        let text = if is_blank && (inner != Continuation::Block || old == 0) {
            String::new()
        } else {
            at_column(new, &kept[old..])
        };
        self.push(text, LineKind::Inner);
    }

    fn content(&mut self, text: &str) {
        let text = text.trim_end();
        let old = spaces(text);
        if old == 0 && is_marker(text) {
            self.flush(None);
            self.push(text.to_owned(), LineKind::Content);
            return;
        }
        let begin = if dash(&text[old..]).is_some() {
            LevelKind::List
        } else {
            LevelKind::Map
        };
        // Comments are placed by the levels that they end.
        let before = self.levels.clone();
        let new = self.enter(begin, old);
        let after = std::mem::replace(&mut self.levels, before);
        self.flush(Some((old, new)));
        self.levels = after;
        let written = self.after_dashes(&text[old..], old, new);
        self.push(at_column(new, &written), LineKind::Content);
    }

    /// The text of a line with one space after each dash. Enters the levels that begin in it.
    fn after_dashes(&mut self, text: &str, old: usize, new: usize) -> String {
        let mut written = String::new();
        let (mut rest, mut old, mut new) = (text, old, new);
        while let Some(item) = dash(rest) {
            written.push('-');
            if item.is_empty() || item.starts_with('#') {
                break;
            }
            written.push(' ');
            old += rest.len() - item.len();
            new += STEP;
            rest = item;
            let kind = if dash(rest).is_some() {
                LevelKind::List
            } else {
                LevelKind::Map
            };
            self.levels.push(OpenLevel { kind, old, new });
        }
        self.shift = new as isize - old as isize;
        match dash(rest) {
            // Only a comment follows the last dash.
            Some(comment) if !comment.is_empty() => written.push_str(&format!(" {comment}")),
            Some(_) => {}
            None => written.push_str(rest),
        }
        written
    }

    /// Ends the levels that a line in this column ends, begins one if necessary, and gives its new column.
    fn enter(&mut self, kind: LevelKind, old: usize) -> usize {
        let is_ended = |level: &OpenLevel| {
            level.old > old || (level.old == old && level.kind == LevelKind::List && kind == LevelKind::Map)
        };
        while self.levels.last().is_some_and(is_ended) {
            self.levels.pop();
        }
        match self.levels.last() {
            Some(level) if level.old == old && level.kind == kind => level.new,
            around => {
                let new = around.map_or(0, |around| around.new + STEP);
                self.levels.push(OpenLevel { kind, old, new });
                new
            }
        }
    }

    /// Writes the waiting lines. `next` has the columns of the content after them.
    fn flush(&mut self, next: Option<(usize, usize)>) {
        for text in std::mem::take(&mut self.waiting) {
            let trimmed = text.trim();
            if trimmed.is_empty() {
                self.push(String::new(), LineKind::Blank);
                continue;
            }
            let old = spaces(text);
            let level = self.levels.iter().rfind(|level| level.old <= old);
            let new = match next {
                Some((next_old, next_new)) if next_old == old => next_new,
                _ => level.map_or(0, |level| level.new),
            };
            self.push(at_column(new, trimmed), LineKind::Comment);
        }
    }

    fn push(&mut self, text: String, kind: LineKind) {
        self.lines.push(Line { text, kind });
    }
}

/// A text with so many spaces before it. `format!` has a limit for them.
fn at_column(column: usize, text: &str) -> String {
    " ".repeat(column) + text
}

fn spaces(text: &str) -> usize {
    text.len() - text.trim_start_matches(' ').len()
}

/// The text after a dash that begins an item.
fn dash(text: &str) -> Option<&str> {
    let item = text.strip_prefix('-')?;
    let is_dash = item.is_empty() || item.starts_with([' ', '\t']);
    is_dash.then(|| item.trim_start_matches([' ', '\t']))
}

/// Whether a line begins or ends a document, or is a directive.
fn is_marker(text: &str) -> bool {
    text.starts_with('%') || ["---", "..."].iter().any(|marker| text.starts_with(marker))
}
