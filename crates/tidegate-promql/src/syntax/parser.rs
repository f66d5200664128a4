// SPDX-License-Identifier: Apache-2.0

//! Converts tokens to expressions, by precedence climbing. The first error ends it.

mod modifiers;
mod selector;

use super::ast::{
    Aggregate, Aggregation, Call, Chain, Expr, GroupModifier, Grouping, Link, Matching, Operator, QuerySpan,
    Unary,
};
use super::lexer::Lexer;
use super::text::{quoted, unquoted};
use super::token::{Keyword, Token, TokenKind};
use super::{MAX_DEPTH, Wrong, durations, functions};
use crate::labels::Patterns;

pub(super) fn parse(text: &str) -> Result<Expr, Wrong> {
    let mut lexer = Lexer::new(text);
    let token = lexer.next()?;
    let mut parser = Parser {
        query: text,
        lexer,
        token,
        before: 0,
        aggregations: 0,
        depth: 0,
        patterns: Patterns::default(),
    };
    if parser.token.kind == TokenKind::End {
        return Err(Wrong::at(QuerySpan::default(), "no expression found in input"));
    }
    let expr = parser.expr(1)?;
    match parser.token.kind {
        TokenKind::End => Ok(expr),
        _ => parser.unexpected(),
    }
}

struct Parser<'a> {
    query: &'a str,
    lexer: Lexer<'a>,
    /// The next one.
    token: Token<'a>,
    /// The end of the last token taken.
    before: usize,
    /// Aggregations that are not complete: errors within them say so.
    aggregations: usize,
    depth: usize,
    /// The patterns of its selectors.
    patterns: Patterns,
}

type Parsed<T> = Result<T, Wrong>;

impl<'a> Parser<'a> {
    fn take(&mut self) -> Parsed<Token<'a>> {
        let next = self.lexer.next()?;
        let taken = std::mem::replace(&mut self.token, next);
        self.before = taken.span().end;
        Ok(taken)
    }

    fn is(&self, kind: TokenKind) -> bool {
        self.token.kind == kind
    }

    /// Takes a token of this kind, if it is the next.
    fn accept(&mut self, kind: TokenKind) -> Parsed<bool> {
        let found = self.is(kind);
        if found {
            self.take()?;
        }
        Ok(found)
    }

    fn unexpected<T>(&self) -> Parsed<T> {
        let context = if self.aggregations > 0 {
            " in aggregation"
        } else {
            ""
        };
        let why = format!("unexpected {}{context}", self.token.described());
        Err(Wrong::at(self.token.span(), why))
    }

    fn unexpected_in<T>(&self, context: &str, expected: &str) -> Parsed<T> {
        let why = format!(
            "unexpected {} in {context}, expected {expected}",
            self.token.described()
        );
        Err(Wrong::at(self.token.span(), why))
    }

    fn expect(&mut self, kind: TokenKind) -> Parsed<Token<'a>> {
        if self.is(kind) {
            self.take()
        } else {
            self.unexpected()
        }
    }

    fn since(&self, start: usize) -> QuerySpan {
        QuerySpan {
            start,
            end: self.before,
        }
    }

    /// An expression whose operators bind at least so tightly.
    fn expr(&mut self, least: u8) -> Parsed<Expr> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let why = format!("expressions are nested too deeply: {MAX_DEPTH} levels are allowed");
            return Err(Wrong::at(self.token.span(), why));
        }
        let first = self.unary()?;
        let mut links = Vec::new();
        while let TokenKind::Operator(operator) = self.token.kind
            && operator.precedence() >= least
        {
            self.take()?;
            let matching = self.matching()?;
            let right = match operator {
                Operator::Pow => self.expr(operator.precedence())?,
                _ => self.expr(operator.precedence() + 1)?,
            };
            links.push(Link {
                operator,
                matching,
                right,
            });
        }
        self.depth -= 1;
        Ok(if links.is_empty() {
            first
        } else {
            Expr::Chain(Box::new(Chain { first, links }))
        })
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let is_negative = match self.token.kind {
            TokenKind::Operator(Operator::Add) => false,
            TokenKind::Operator(Operator::Sub) => true,
            _ => return self.with_modifiers(),
        };
        let start = self.take()?.start;
        let expr = self.expr(Operator::Pow.precedence())?;
        let span = self.since(start);
        Ok(match expr {
            Expr::Number(number, _) if is_negative => Expr::Number(-number, span),
            Expr::Number(number, _) => Expr::Number(number, span),
            expr => Expr::Unary(Box::new(Unary {
                is_negative,
                expr,
                span,
            })),
        })
    }

    fn matching(&mut self) -> Parsed<Matching> {
        let mut made = Matching {
            as_bool: self.accept(TokenKind::Keyword(Keyword::Bool))?,
            ..Matching::default()
        };
        let TokenKind::Keyword(word @ (Keyword::On | Keyword::Ignoring)) = self.token.kind else {
            return Ok(made);
        };
        self.take()?;
        made.is_on = word == Keyword::On;
        made.labels = Some(self.labels()?);
        made.group = match self.token.kind {
            TokenKind::Keyword(Keyword::GroupLeft) => GroupModifier::Left,
            TokenKind::Keyword(Keyword::GroupRight) => GroupModifier::Right,
            _ => return Ok(made),
        };
        self.take()?;
        if self.is(TokenKind::LeftParen) {
            made.include = self.labels()?;
        }
        Ok(made)
    }

    /// Names of labels in parentheses.
    fn labels(&mut self) -> Parsed<Vec<String>> {
        const CONTEXT: &str = "grouping opts";
        if !self.accept(TokenKind::LeftParen)? {
            return self.unexpected_in(CONTEXT, "\"(\"");
        }
        let mut all = Vec::new();
        if self.accept(TokenKind::RightParen)? {
            return Ok(all);
        }
        loop {
            match self.token.kind {
                TokenKind::Text => {
                    let text = self.take()?;
                    all.push(text_of(text)?);
                }
                _ if self.token.is_label() => all.push(self.take()?.text.to_owned()),
                _ => return self.unexpected_in(CONTEXT, "label"),
            }
            let is_more = self.accept(TokenKind::Comma)?;
            if self.accept(TokenKind::RightParen)? {
                return Ok(all);
            }
            if !is_more {
                return self.unexpected_in(CONTEXT, "\",\" or \")\"");
            }
        }
    }

    /// An operand with its ranges, offsets and `@`.
    fn with_modifiers(&mut self) -> Parsed<Expr> {
        let mut expr = self.operand()?;
        loop {
            expr = match self.token.kind {
                TokenKind::LeftBracket => self.range(expr)?,
                TokenKind::Keyword(Keyword::Offset) => self.offset(expr)?,
                TokenKind::At => self.at(expr)?,
                _ => return Ok(expr),
            };
        }
    }

    fn operand(&mut self) -> Parsed<Expr> {
        let token = self.token;
        match token.kind {
            TokenKind::Number => {
                self.take()?;
                let number = durations::number(token.text).map_err(|why| Wrong::at(token.span(), why))?;
                Ok(Expr::Number(number, token.span()))
            }
            TokenKind::Duration => {
                self.take()?;
                let millis = durations::parse(token.text).map_err(|why| Wrong::at(token.span(), why))?;
                Ok(Expr::Number(millis as f64 / 1000.0, token.span()))
            }
            TokenKind::Text => {
                self.take()?;
                Ok(Expr::Text(text_of(token)?, token.span()))
            }
            TokenKind::LeftParen => {
                self.take()?;
                let expr = self.expr(1)?;
                self.expect(TokenKind::RightParen)?;
                Ok(Expr::Paren(Box::new(expr), self.since(token.start)))
            }
            TokenKind::LeftBrace => self.selector(None, token.start),
            TokenKind::Aggregation(operator) => {
                self.take()?;
                match self.token.kind {
                    TokenKind::LeftParen | TokenKind::Keyword(Keyword::By | Keyword::Without) => {
                        self.aggregate(operator, token.start)
                    }
                    _ => self.selector(Some(token.text), token.start),
                }
            }
            TokenKind::Identifier => {
                self.take()?;
                match self.token.kind {
                    TokenKind::LeftParen => self.call(token),
                    _ => self.selector(Some(token.text), token.start),
                }
            }
            _ if token.is_metric() => {
                self.take()?;
                self.selector(Some(token.text), token.start)
            }
            _ => self.unexpected(),
        }
    }

    fn arguments(&mut self) -> Parsed<Vec<Expr>> {
        self.expect(TokenKind::LeftParen)?;
        let mut all = Vec::new();
        if self.accept(TokenKind::RightParen)? {
            return Ok(all);
        }
        loop {
            all.push(self.expr(1)?);
            if self.accept(TokenKind::RightParen)? {
                return Ok(all);
            }
            let comma = self.expect(TokenKind::Comma)?;
            if self.is(TokenKind::RightParen) {
                let why = "trailing commas not allowed in function call args";
                return Err(Wrong::at(comma.span(), why));
            }
        }
    }

    fn call(&mut self, name: Token<'_>) -> Parsed<Expr> {
        let arguments = self.arguments()?;
        let span = self.since(name.start);
        let function = functions::find(name.text).ok_or_else(|| {
            let why = if functions::is_refused(name.text) {
                format!("the function {} is not supported", quoted(name.text))
            } else {
                format!("unknown function with name {}", quoted(name.text))
            };
            Wrong::at(name.span(), why)
        })?;
        Ok(Expr::Call(Box::new(Call {
            function,
            arguments,
            span,
        })))
    }

    fn grouping(&mut self) -> Parsed<Option<Grouping>> {
        let is_without = match self.token.kind {
            TokenKind::Keyword(Keyword::By) => false,
            TokenKind::Keyword(Keyword::Without) => true,
            _ => return Ok(None),
        };
        self.take()?;
        Ok(Some(Grouping {
            is_without,
            labels: self.labels()?,
            is_given: true,
        }))
    }

    fn aggregate(&mut self, operator: Aggregation, start: usize) -> Parsed<Expr> {
        self.aggregations += 1;
        let before = self.grouping()?;
        let mut arguments = self.arguments()?;
        let grouping = match before {
            None => self.grouping()?,
            before => before,
        };
        self.aggregations -= 1;
        let span = self.since(start);
        let given = arguments.len();
        let (expr, parameter) = (arguments.pop(), arguments.pop());
        let wanted = 1 + usize::from(operator.parameter().is_some());
        let wrong_number = || {
            let why = match given {
                0 => "no arguments for aggregate expression provided".to_owned(),
                _ => format!(
                    "wrong number of arguments for aggregate expression provided, expected {wanted}, got {given}"
                ),
            };
            Wrong::at(span, why)
        };
        let expr = expr.filter(|_| given == wanted).ok_or_else(wrong_number)?;
        if operator == Aggregation::LimitRatio {
            return Err(Wrong::at(span, "limit_ratio() is not supported"));
        }
        Ok(Expr::Aggregate(Box::new(Aggregate {
            operator,
            parameter,
            expr,
            grouping: grouping.unwrap_or(Grouping {
                is_without: false,
                labels: Vec::new(),
                is_given: false,
            }),
            span,
        })))
    }
}

fn text_of(token: Token<'_>) -> Parsed<String> {
    unquoted(token.text).ok_or_else(|| {
        let why = format!("invalid UTF-8 in string {}", quoted(token.text));
        Wrong::at(token.span(), why)
    })
}
