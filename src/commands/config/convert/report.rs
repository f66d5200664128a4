// SPDX-License-Identifier: Apache-2.0

//! What a conversion could not carry over.

use std::fmt::Write as _;

use crate::config::{Node, Sources, Span};

/// All that was left out, and remarks.
#[derive(Debug, Default)]
pub(super) struct Report {
    list: Vec<LeftOut>,
    notes: Vec<String>,
    /// The begin of paths that the file does not have.
    prefix: &'static str,
}

/// A thing that the output does not have.
#[derive(Debug, Eq, PartialEq)]
struct LeftOut {
    span: Option<Span>,
    path: String,
    message: String,
}

impl Report {
    /// Adds what stands at a node of the file.
    pub(super) fn add(&mut self, node: &Node, message: impl Into<String>) {
        let span = node.key_span().unwrap_or(node.span());
        self.add_at(Some(span), node.path().to_string(), message);
    }

    /// Adds what stands at a position. The same line is added once.
    pub(super) fn add_at(&mut self, span: Option<Span>, path: String, message: impl Into<String>) {
        let message = message.into();
        let left_out = LeftOut { span, path, message };
        if !self.list.contains(&left_out) {
            self.list.push(left_out);
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

    /// The number of things that were left out.
    pub(super) fn count(&self) -> usize {
        self.list.len()
    }

    /// One line for each thing, in the order of the file, then the remarks.
    pub(super) fn text(&self, sources: &Sources) -> String {
        let mut list: Vec<_> = self.list.iter().collect();
        list.sort_by_key(|left_out| (left_out.span.is_none(), left_out.span));
        let mut text = String::new();
        for LeftOut { span, path, message } in list {
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
