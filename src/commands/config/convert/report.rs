// SPDX-License-Identifier: Apache-2.0

//! What a conversion changed, and what it could not carry over.

use std::fmt::Write as _;

use crate::config::{Node, Sources, Span};

/// All that was changed or left out, and remarks.
#[derive(Debug, Default)]
pub(super) struct Report {
    list: Vec<Finding>,
    notes: Vec<String>,
    /// The begin of paths that the file does not have.
    prefix: &'static str,
}

/// A thing that the output has in another form, or does not have.
#[derive(Debug, Eq, PartialEq)]
struct Finding {
    kind: FindingKind,
    span: Option<Span>,
    path: String,
    message: String,
}

/// What the conversion did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum FindingKind {
    /// It wrote something else instead.
    Changed,
    /// It wrote nothing.
    LeftOut,
}

impl Report {
    /// Adds what is left out at a node of the file.
    pub(super) fn add(&mut self, node: &Node, message: impl Into<String>) {
        self.find_at(FindingKind::LeftOut, node, message);
    }

    /// Adds what is left out at a position.
    pub(super) fn add_at(&mut self, span: Option<Span>, path: String, message: impl Into<String>) {
        self.find(FindingKind::LeftOut, span, path, message);
    }

    /// Adds what the output has in another form than a node of the file.
    pub(super) fn add_change(&mut self, node: &Node, message: impl Into<String>) {
        self.find_at(FindingKind::Changed, node, message);
    }

    /// Adds a line about the key of a node, or about its value.
    fn find_at(&mut self, kind: FindingKind, node: &Node, message: impl Into<String>) {
        let span = node.key_span().unwrap_or(node.span());
        self.find(kind, Some(span), node.path().to_string(), message);
    }

    /// Adds a line, once.
    fn find(&mut self, kind: FindingKind, span: Option<Span>, path: String, message: impl Into<String>) {
        let finding = Finding {
            kind,
            span,
            path,
            message: message.into(),
        };
        if !self.list.contains(&finding) {
            self.list.push(finding);
        }
    }

    /// Adds a remark about the output.
    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Shows paths without this begin, because the file does not have it.
    pub(super) fn omit_prefix(&mut self, prefix: &'static str) {
        self.prefix = prefix;
    }

    /// The number of things that the output has in another form.
    pub(super) fn changed(&self) -> usize {
        self.count(FindingKind::Changed)
    }

    /// The number of things that were left out.
    pub(super) fn left_out(&self) -> usize {
        self.count(FindingKind::LeftOut)
    }

    fn count(&self, kind: FindingKind) -> usize {
        self.list.iter().filter(|finding| finding.kind == kind).count()
    }

    /// One line for each thing, in the order of the file, then the remarks.
    pub(super) fn text(&self, sources: &Sources) -> String {
        let mut list: Vec<_> = self.list.iter().collect();
        list.sort_by_key(|finding| (finding.span.is_none(), finding.span));
        let mut text = String::new();
        for Finding {
            span, path, message, ..
        } in list
        {
            if let Some(span) = span {
                let _ = write!(text, "{}:{}: ", sources.name(span.file), span.line);
            }
            let path = path.strip_prefix(self.prefix).unwrap_or(path);
            if !path.is_empty() {
                let _ = write!(text, "{path}: ");
            }
            let _ = writeln!(text, "{message}");
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }
}
