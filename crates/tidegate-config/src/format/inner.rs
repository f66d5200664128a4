// SPDX-License-Identifier: Apache-2.0

//! The lines on which a value goes on that began on an earlier line.

use std::ops::Range;

use granit_parser::{Event, ScalarStyle};

use crate::yaml::events;

/// How far a line belongs to a value of an earlier line.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Continuation {
    /// A value, a comment or nothing begins here.
    #[default]
    No,
    /// In brackets or braces. White space at its end means nothing.
    Flow,
    /// In a scalar in quotes, or a plain one.
    Scalar,
    /// In a block scalar. All white space counts.
    Block,
}

/// For every line of a text that is YAML, whether it belongs to an earlier one.
pub(super) fn inner_lines(text: &str) -> Vec<Continuation> {
    let mut lines = InnerLines::new(text);
    // The begin of each open collection, with whether it has brackets or braces.
    let mut open: Vec<(usize, bool)> = Vec::new();
    for (event, span) in events(text).map_while(Result::ok) {
        let at = span.byte_range().unwrap_or_default();
        match event {
            Event::Scalar(_, ScalarStyle::Literal | ScalarStyle::Folded, ..) => lines.mark_block(at),
            Event::Scalar(..) => lines.mark(at, Continuation::Scalar),
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                let begin = text.get(at.start..).unwrap_or_default();
                open.push((at.start, begin.starts_with(['[', '{'])));
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some((start, true)) = open.pop() {
                    lines.mark(start..at.end, Continuation::Flow);
                }
            }
            _ => {}
        }
    }
    lines.inner
}

struct InnerLines<'a> {
    text: &'a str,
    starts: Vec<usize>,
    inner: Vec<Continuation>,
}

impl<'a> InnerLines<'a> {
    fn new(text: &'a str) -> Self {
        let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        let starts: Vec<_> = std::iter::once(0).chain(breaks).collect();
        let inner = vec![Continuation::No; starts.len()];
        Self { text, starts, inner }
    }

    fn line(&self, at: usize) -> usize {
        self.starts
            .partition_point(|start| *start <= at)
            .saturating_sub(1)
    }

    /// The line after the text of a range.
    fn next_line(&self, range: &Range<usize>, written: &str) -> usize {
        let end = range.start + written.len();
        self.line(end.saturating_sub(1).max(range.start)) + 1
    }

    /// Marks all lines of a range except the first.
    fn mark(&mut self, range: Range<usize>, inner: Continuation) {
        let written = self.text.get(range.clone()).unwrap_or_default().trim_end();
        let first = self.line(range.start);
        let next = self.next_line(&range, written);
        self.mark_lines(first + 1..next, inner);
    }

    /// Marks the lines of a block scalar, and blank ones after it, which may belong to it.
    fn mark_block(&mut self, range: Range<usize>) {
        self.mark(range.clone(), Continuation::Block);
        let written = self.text.get(range.clone()).unwrap_or_default().trim_end();
        let next = self.next_line(&range, written);
        let rest = self.starts.get(next).and_then(|start| self.text.get(*start..));
        let blank = rest.map_or(0, |rest| {
            let lines = rest.split('\n');
            lines.take_while(|line| line.trim().is_empty()).count()
        });
        self.mark_lines(next..next + blank, Continuation::Block);
    }

    fn mark_lines(&mut self, lines: Range<usize>, inner: Continuation) {
        let end = lines.end.min(self.inner.len());
        for line in self.inner.get_mut(lines.start..end).unwrap_or_default() {
            *line = inner.max(*line);
        }
    }
}
