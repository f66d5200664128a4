// SPDX-License-Identifier: Apache-2.0

//! Tokens, and their names in error messages.

use super::ast::{Aggregation, Operator, Span};
use super::text::quoted;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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
pub(super) fn word(text: &str) -> Option<Kind> {
    let lower = text.to_ascii_lowercase();
    let known = match &*lower {
        "and" => Kind::Operator(Operator::And),
        "or" => Kind::Operator(Operator::Or),
        "unless" => Kind::Operator(Operator::Unless),
        "atan2" => Kind::Operator(Operator::Atan2),
        "offset" => Kind::Keyword(Keyword::Offset),
        "by" => Kind::Keyword(Keyword::By),
        "without" => Kind::Keyword(Keyword::Without),
        "on" => Kind::Keyword(Keyword::On),
        "ignoring" => Kind::Keyword(Keyword::Ignoring),
        "group_left" => Kind::Keyword(Keyword::GroupLeft),
        "group_right" => Kind::Keyword(Keyword::GroupRight),
        "bool" => Kind::Keyword(Keyword::Bool),
        "start" => Kind::Bound(Bound::Start),
        "end" => Kind::Bound(Bound::End),
        "step" => Kind::Bound(Bound::Step),
        "inf" | "nan" => Kind::Number,
        other => {
            let found = Aggregation::ALL.iter().find(|(name, _)| *name == other);
            return found.map(|(_, operator)| Kind::Aggregation(*operator));
        }
    };
    Some(known)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    pub(super) start: usize,
}

impl Token<'_> {
    pub(super) fn span(&self) -> Span {
        Span {
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
            Kind::End => "end of input".to_owned(),
            Kind::Identifier => format!("identifier {}", quoted(self.text)),
            Kind::MetricIdentifier => format!("metric identifier {}", quoted(self.text)),
            Kind::Number => format!("number {}", shown()),
            Kind::Duration => format!("duration {}", shown()),
            Kind::Text => format!("string {}", shown()),
            Kind::Keyword(_) => format!("<{}>", self.text),
            Kind::Operator(_) | Kind::Matches | Kind::MatchesNot | Kind::At => format!("<op:{}>", self.text),
            Kind::Aggregation(_) => format!("<aggr:{}>", self.text),
            _ => shown(),
        }
    }

    /// Whether it can be the name of a metric.
    pub(super) fn is_metric(&self) -> bool {
        match self.kind {
            Kind::Identifier | Kind::MetricIdentifier | Kind::Aggregation(_) | Kind::Bound(_) => true,
            Kind::Keyword(word) => matches!(word, Keyword::By | Keyword::Offset | Keyword::Without),
            Kind::Operator(operator) => operator.is_set(),
            _ => false,
        }
    }

    /// Whether it can be a label in `by (...)` and similar clauses.
    pub(super) fn is_label(&self) -> bool {
        self.is_metric() || matches!(self.kind, Kind::Keyword(_) | Kind::Operator(Operator::Atan2))
    }
}
