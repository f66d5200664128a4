// SPDX-License-Identifier: Apache-2.0

//! Selectors: names of metrics and matchers of labels.

use super::{Parsed, Parser, text_of};
use crate::NAME;
use crate::labels::{MatchKind, Matcher};
use crate::syntax::Wrong;
use crate::syntax::ast::{Expr, Operator, Selector};
use crate::syntax::token::TokenKind;

impl Parser<'_> {
    pub(super) fn selector(&mut self, name: Option<&str>, start: usize) -> Parsed<Expr> {
        let mut matchers = if self.is(TokenKind::LeftBrace) {
            self.matchers()?
        } else {
            Vec::new()
        };
        matchers.extend(name.map(|name| Matcher::equal(NAME, name)));
        Ok(Expr::Selector(Box::new(Selector {
            name: name.map(str::to_owned),
            matchers,
            offset: None,
            at: None,
            span: self.since(start),
        })))
    }

    fn matchers(&mut self) -> Parsed<Vec<Matcher>> {
        const CONTEXT: &str = "label matching";
        self.expect(TokenKind::LeftBrace)?;
        let mut all = Vec::new();
        if self.accept(TokenKind::RightBrace)? {
            return Ok(all);
        }
        loop {
            match self.token.kind {
                TokenKind::Identifier | TokenKind::Text => all.push(self.matcher()?),
                _ => return self.unexpected_in(CONTEXT, "identifier or \"}\""),
            }
            let is_more = self.accept(TokenKind::Comma)?;
            if self.accept(TokenKind::RightBrace)? {
                return Ok(all);
            }
            if !is_more {
                return self.unexpected_in(CONTEXT, "\",\" or \"}\"");
            }
        }
    }

    fn matcher(&mut self) -> Parsed<Matcher> {
        const CONTEXT: &str = "label matching";
        let token = self.take()?;
        let is_quoted = token.kind == TokenKind::Text;
        let name = if is_quoted {
            text_of(token)?
        } else {
            token.text.to_owned()
        };
        let kind = match self.token.kind {
            TokenKind::Assign => MatchKind::Equal,
            TokenKind::Operator(Operator::NotEqual) => MatchKind::NotEqual,
            TokenKind::Matches => MatchKind::Matches,
            TokenKind::MatchesNot => MatchKind::MatchesNot,
            _ if is_quoted => return Ok(Matcher::equal(NAME, &name)),
            _ => return self.unexpected_in(CONTEXT, "label matching operator"),
        };
        self.take()?;
        if !self.is(TokenKind::Text) {
            return self.unexpected_in(CONTEXT, "string");
        }
        let value = self.take()?;
        Matcher::new(kind, &name, &text_of(value)?, &self.patterns)
            .map_err(|why| Wrong::at(token.span(), why))
    }
}
