// SPDX-License-Identifier: Apache-2.0

//! Ranges, subqueries, `offset` and `@`, which follow an operand.

use super::{Parsed, Parser};
use crate::Millis;
use crate::syntax::ast::{At, Expr, Operator, Range, Subquery};
use crate::syntax::token::{Bound, TokenKind};
use crate::syntax::{Wrong, durations, types};

impl Parser<'_> {
    /// A number of seconds or a duration, in milliseconds; `None`: something else comes.
    fn duration(&mut self) -> Parsed<Option<Millis>> {
        let token = self.token;
        let made = match token.kind {
            TokenKind::Number => durations::number(token.text).and_then(durations::of_seconds),
            TokenKind::Duration => durations::parse(token.text),
            _ => return Ok(None),
        };
        let made = made.map_err(|why| Wrong::at(token.span(), why))?;
        self.take()?;
        Ok(Some(made))
    }

    fn positive_duration(&mut self, expected: &str) -> Parsed<Millis> {
        let span = self.token.span();
        match self.duration()? {
            None => self.unexpected_in("subquery selector", expected),
            Some(duration) if duration <= 0 => Err(Wrong::at(span, "duration must be greater than 0")),
            Some(duration) => Ok(duration),
        }
    }

    pub(super) fn range(&mut self, expr: Expr) -> Parsed<Expr> {
        let bracket = self.take()?;
        let range = self.positive_duration("number or duration")?;
        if self.accept(TokenKind::Colon)? {
            let step = match self.token.kind {
                TokenKind::RightBracket => None,
                TokenKind::Number | TokenKind::Duration => {
                    Some(self.positive_duration("number or duration")?)
                }
                _ => {
                    return self.unexpected_in("subquery selector", "number, duration, or \"]\"");
                }
            };
            if !self.is(TokenKind::RightBracket) {
                return self.unexpected_in("subquery selector", "\"]\"");
            }
            let end = self.take()?.span().end;
            let has_range = matches!(expr.bare(), Expr::Range(_) | Expr::Subquery(_));
            let subquery = Expr::Subquery(Box::new(Subquery {
                expr,
                range,
                step,
                offset: None,
                at: None,
                end,
            }));
            // Brackets add no depth. A range of a range is refused here. Otherwise a short query would make a tree of
            // thousands of levels, which overflows the stack of a recursive walk.
            if has_range {
                types::check(&subquery, self.query)?;
            }
            return Ok(subquery);
        }
        if !self.is(TokenKind::RightBracket) {
            return self.unexpected_in("subquery or range", "\":\" or \"]\"");
        }
        let end = self.take()?.span().end;
        let why = match expr {
            Expr::Selector(selector) if selector.offset.is_none() && selector.at.is_none() => {
                return Ok(Expr::Range(Box::new(Range {
                    selector: *selector,
                    range,
                    end,
                })));
            }
            Expr::Selector(selector) if selector.offset.is_some() => {
                "no offset modifiers allowed before range"
            }
            Expr::Selector(_) => "no @ modifiers allowed before range",
            _ => "ranges only allowed for vector selectors",
        };
        Err(Wrong::at(bracket.span(), why))
    }

    pub(super) fn offset(&mut self, mut expr: Expr) -> Parsed<Expr> {
        self.take()?;
        let sign = self.sign()?;
        let Some(offset) = self.duration()? else {
            return self.unexpected_in("offset", "number or duration");
        };
        let (span, end) = (expr.span(), self.before);
        let (place, ends) = match &mut expr {
            Expr::Selector(node) => (&mut node.offset, &mut node.span.end),
            Expr::Range(node) => (&mut node.selector.offset, &mut node.end),
            Expr::Subquery(node) => (&mut node.offset, &mut node.end),
            _ => {
                let why = "offset modifier must be preceded by an instant vector selector or range vector selector or a subquery";
                return Err(Wrong::at(span, why));
            }
        };
        if place.is_some_and(|offset| offset != 0) {
            return Err(Wrong::at(span, "offset may not be set multiple times"));
        }
        (*place, *ends) = (Some(sign * offset), end);
        Ok(expr)
    }

    fn sign(&mut self) -> Parsed<Millis> {
        let sign = match self.token.kind {
            TokenKind::Operator(Operator::Add) => 1,
            TokenKind::Operator(Operator::Sub) => -1,
            _ => return Ok(1),
        };
        self.take()?;
        Ok(sign)
    }

    pub(super) fn at(&mut self, mut expr: Expr) -> Parsed<Expr> {
        const CONTEXT: (&str, &str) = ("@", "timestamp");
        self.take()?;
        let span = expr.span();
        let at = match self.token.kind {
            TokenKind::Bound(bound @ (Bound::Start | Bound::End)) => {
                self.take()?;
                for kind in [TokenKind::LeftParen, TokenKind::RightParen] {
                    if !self.accept(kind)? {
                        return self.unexpected_in(CONTEXT.0, CONTEXT.1);
                    }
                }
                match bound {
                    Bound::Start => At::Start,
                    _ => At::End,
                }
            }
            _ => {
                let sign = self.sign()?;
                let token = self.token;
                let seconds = match token.kind {
                    TokenKind::Number => {
                        durations::number(token.text).map_err(|why| Wrong::at(token.span(), why))?
                    }
                    TokenKind::Duration => {
                        let millis =
                            durations::parse(token.text).map_err(|why| Wrong::at(token.span(), why))?;
                        millis as f64 / 1000.0
                    }
                    _ => return self.unexpected_in(CONTEXT.0, CONTEXT.1),
                };
                self.take()?;
                let seconds = seconds * sign as f64;
                if seconds.is_nan() || seconds.abs() >= i64::MAX as f64 {
                    let why = format!("timestamp out of bounds for @ modifier: {}", go_fixed(seconds));
                    return Err(Wrong::at(span, why));
                }
                // More than an `i64` holds is as far as one can go.
                At::Time(((seconds * 1000.0).round() as Millis).clamp(Millis::MIN / 4, Millis::MAX / 4))
            }
        };
        let end = self.before;
        let (place, ends) = match &mut expr {
            Expr::Selector(node) => (&mut node.at, &mut node.span.end),
            Expr::Range(node) => (&mut node.selector.at, &mut node.end),
            Expr::Subquery(node) => (&mut node.at, &mut node.end),
            _ => {
                let why = "@ modifier must be preceded by an instant vector selector or range vector selector or a subquery";
                return Err(Wrong::at(span, why));
            }
        };
        if place.is_some() {
            return Err(Wrong::at(span, "@ <timestamp> may not be set multiple times"));
        }
        (*place, *ends) = (Some(at), end);
        Ok(expr)
    }
}

/// The number in Go's `%f` format.
fn go_fixed(number: f64) -> String {
    match number {
        _ if number.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        _ => format!("{number:.6}"),
    }
}
