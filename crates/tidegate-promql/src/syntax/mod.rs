// SPDX-License-Identifier: Apache-2.0

//! The language: it converts text to a checked expression. Words and positions of errors are those of Prometheus.

pub(super) mod ast;
pub(super) mod durations;
mod functions;
mod lexer;
mod parser;
mod print;
mod text;
mod token;
mod tree;
mod types;

#[cfg(test)]
mod tests;

pub(super) use text::quoted;
pub(super) use tree::json;
pub(super) use types::handles_absence;

use ast::{Expr, QuerySpan};

/// Levels of expressions: the parser and the evaluation recurse this deep. Parentheses, a function, an aggregation, a sign
/// and the right side of an operator are a level each; the expression itself is one. A chain of operators counts once.
pub(super) const MAX_DEPTH: usize = 150;

/// An error in a query, and its position.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) at: usize,
    pub(super) why: String,
}

impl Wrong {
    fn at(span: QuerySpan, why: impl Into<String>) -> Self {
        Self {
            at: span.start,
            why: why.into(),
        }
    }

    /// The error as Prometheus writes it: `1:5: parse error: ...`.
    pub(super) fn shown(&self, query: &str) -> String {
        let position = if query.is_empty() {
            "unknown position".to_owned()
        } else {
            position(query, self.at)
        };
        format!("{position}: parse error: {}", self.why)
    }
}

/// Line and column of a byte, both counted from 1.
pub(super) fn position(query: &str, at: usize) -> String {
    let before = &query.as_bytes()[..at.min(query.len())];
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    let begin = before
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    format!("{line}:{}", before.len() - begin + 1)
}

/// Parses and checks a query.
pub(super) fn parse(query: &str) -> Result<Expr, Wrong> {
    let expr = parser::parse(query)?;
    types::check(&expr, query)?;
    Ok(expr)
}
