// SPDX-License-Identifier: Apache-2.0

//! Tokens, and their names in error messages.

use super::ast::{Aggregation, Operator, QuerySpan};
use super::text::quoted;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    End,
    Identifier,
    MetricIdentifier,
    Number,
    Duration,
    Text,
    LeftParen,
    RightParen,
    LeftBrace,
    RightBrace,
    LeftBracket,
    RightBracket,
    Comma,
    Colon,
    /// `=`
    Assign,
    /// `=~`
    Matches,
    /// `!~`
    MatchesNot,
    At,
    Operator(Operator),
    Aggregation(Aggregation),
    Keyword(Keyword),
    /// `start`, `end`
    Bound(Bound),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyword {
    Offset,
    By,
    Without,
    On,
    Ignoring,
    GroupLeft,
    GroupRight,
    Bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    Start,
    End,
    Step,
}

/// Words that are more than names.
pub(super) fn word(text: &str) -> Option<TokenKind> {
    let lower = text.to_ascii_lowercase();
    let known = match &*lower {
        "and" => TokenKind::Operator(Operator::And),
        "or" => TokenKind::Operator(Operator::Or),
        "unless" => TokenKind::Operator(Operator::Unless),
        "atan2" => TokenKind::Operator(Operator::Atan2),
        "offset" => TokenKind::Keyword(Keyword::Offset),
        "by" => TokenKind::Keyword(Keyword::By),
        "without" => TokenKind::Keyword(Keyword::Without),
        "on" => TokenKind::Keyword(Keyword::On),
        "ignoring" => TokenKind::Keyword(Keyword::Ignoring),
        "group_left" => TokenKind::Keyword(Keyword::GroupLeft),
        "group_right" => TokenKind::Keyword(Keyword::GroupRight),
        "bool" => TokenKind::Keyword(Keyword::Bool),
        "start" => TokenKind::Bound(Bound::Start),
        "end" => TokenKind::Bound(Bound::End),
        "step" => TokenKind::Bound(Bound::Step),
        "inf" | "nan" => TokenKind::Number,
        other => {
            let found = Aggregation::ALL.iter().find(|(name, _)| *name == other);
            return found.map(|(_, operator)| TokenKind::Aggregation(*operator));
        }
    };
    Some(known)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) text: &'a str,
    pub(super) start: usize,
}

impl Token<'_> {
    pub(super) fn span(&self) -> QuerySpan {
        QuerySpan {
            start: self.start,
            end: self.start + self.text.len(),
        }
    }

    /// Its name in error messages.
    pub(super) fn described(&self) -> String {
        let shown = || {
            if self.text.chars().count() > 10 {
                format!("{}...", quoted(&self.text.chars().take(10).collect::<String>()))
            } else {
                quoted(self.text)
            }
        };
        match self.kind {
            TokenKind::End => "end of input".to_owned(),
            TokenKind::Identifier => format!("identifier {}", quoted(self.text)),
            TokenKind::MetricIdentifier => format!("metric identifier {}", quoted(self.text)),
            TokenKind::Number => format!("number {}", shown()),
            TokenKind::Duration => format!("duration {}", shown()),
            TokenKind::Text => format!("string {}", shown()),
            TokenKind::Keyword(_) => format!("<{}>", self.text),
            TokenKind::Operator(_) | TokenKind::Matches | TokenKind::MatchesNot | TokenKind::At => {
                format!("<op:{}>", self.text)
            }
            TokenKind::Aggregation(_) => format!("<aggr:{}>", self.text),
            _ => shown(),
        }
    }

    /// Whether it can be the name of a metric.
    pub(super) fn is_metric(&self) -> bool {
        match self.kind {
            TokenKind::Identifier
            | TokenKind::MetricIdentifier
            | TokenKind::Aggregation(_)
            | TokenKind::Bound(_) => true,
            TokenKind::Keyword(word) => matches!(word, Keyword::By | Keyword::Offset | Keyword::Without),
            TokenKind::Operator(operator) => operator.is_set(),
            _ => false,
        }
    }

    /// Whether it can be a label in `by (...)` and similar clauses.
    pub(super) fn is_label(&self) -> bool {
        self.is_metric()
            || matches!(
                self.kind,
                TokenKind::Keyword(_) | TokenKind::Operator(Operator::Atan2)
            )
    }
}
