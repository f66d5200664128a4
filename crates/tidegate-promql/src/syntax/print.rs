// SPDX-License-Identifier: Apache-2.0

//! Expressions as text, each on one line.

use std::fmt::{Display, Formatter, Result, Write as _};

use super::ast::{At, Expr, GroupModifier, Link, Range, Selector, Subquery};
use super::durations::show;
use super::text::quoted;
use crate::{Millis, NAME};

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Number(number, _) => f.write_str(&crate::show_number(*number)),
            Self::Text(text, _) => f.write_str(&quoted(text)),
            Self::Paren(inner, _) => write!(f, "({inner})"),
            Self::Unary(node) => {
                let sign = if node.is_negative { '-' } else { '+' };
                write!(f, "{sign}{}", node.expr)
            }
            Self::Chain(node) => {
                node.first.fmt(f)?;
                node.links.iter().try_for_each(|link| link.fmt(f))
            }
            Self::Call(node) => {
                f.write_str(node.function.name)?;
                list(f, node.arguments.iter())
            }
            Self::Aggregate(node) => {
                f.write_str(node.operator.name())?;
                if node.grouping.is_given {
                    let word = if node.grouping.is_without { "without" } else { "by" };
                    write!(f, " {word} ({}) ", node.grouping.labels.join(", "))?;
                }
                list(f, node.parameter.iter().chain([&node.expr]))
            }
            Self::Selector(node) => node.fmt(f),
            Self::Range(node) => node.fmt(f),
            Self::Subquery(node) => node.fmt(f),
        }
    }
}

fn list<'a>(f: &mut Formatter<'_>, all: impl Iterator<Item = &'a Expr>) -> Result {
    f.write_char('(')?;
    for (at, expr) in all.enumerate() {
        let comma = if at > 0 { ", " } else { "" };
        write!(f, "{comma}{expr}")?;
    }
    f.write_char(')')
}

impl Display for Link {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, " {}", self.operator.name())?;
        let matching = &self.matching;
        if matching.as_bool {
            f.write_str(" bool")?;
        }
        if let Some(labels) = &matching.labels {
            let word = if matching.is_on { "on" } else { "ignoring" };
            write!(f, " {word} ({})", labels.join(", "))?;
        }
        match matching.group {
            GroupModifier::None => {}
            GroupModifier::Left => write!(f, " group_left ({})", matching.include.join(", "))?,
            GroupModifier::Right => write!(f, " group_right ({})", matching.include.join(", "))?,
        }
        write!(f, " {}", self.right)
    }
}

impl Selector {
    /// Without offset and `@`.
    fn plain(&self, f: &mut Formatter<'_>) -> Result {
        let name = self.name.as_deref().unwrap_or_default();
        f.write_str(name)?;
        let shown = self.matchers.iter();
        let shown = shown.filter(|matcher| self.name.is_none() || matcher.name() != NAME);
        let shown: Vec<String> = shown.map(ToString::to_string).collect();
        if shown.is_empty() && self.name.is_some() {
            Ok(())
        } else {
            write!(f, "{{{}}}", shown.join(","))
        }
    }
}

fn modifiers(f: &mut Formatter<'_>, at: Option<At>, offset: Option<Millis>) -> Result {
    match at {
        None => {}
        Some(At::Start) => f.write_str(" @ start()")?,
        Some(At::End) => f.write_str(" @ end()")?,
        Some(At::Time(time)) => write!(f, " @ {:.3}", time as f64 / 1000.0)?,
    }
    match offset {
        None | Some(0) => Ok(()),
        Some(offset) if offset < 0 => write!(f, " offset -{}", show(-offset)),
        Some(offset) => write!(f, " offset {}", show(offset)),
    }
}

impl Display for Selector {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.plain(f)?;
        modifiers(f, self.at, self.offset)
    }
}

impl Display for Range {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.selector.plain(f)?;
        write!(f, "[{}]", show(self.range))?;
        modifiers(f, self.selector.at, self.selector.offset)
    }
}

impl Display for Subquery {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let step = self.step.map(show).unwrap_or_default();
        write!(f, "{}[{}:{step}]", self.expr, show(self.range))?;
        modifiers(f, self.at, self.offset)
    }
}
