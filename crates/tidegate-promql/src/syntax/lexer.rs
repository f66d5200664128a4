// SPDX-License-Identifier: Apache-2.0

//! Converts text to tokens, one at a time: text after a syntax error is never read.

use super::Wrong;
use super::text::{quoted, quoted_char};
use super::token::{Token, TokenKind, word};

use super::ast::Operator;

pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    parens: usize,
    in_braces: bool,
    in_brackets: bool,
    has_colon: bool,
    /// Behind `[`, before the first duration.
    wants_duration: bool,
}

type Lexed<'a> = Result<Token<'a>, Wrong>;

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            parens: 0,
            in_braces: false,
            in_brackets: false,
            has_colon: false,
            wants_duration: false,
        }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn skip_while(&mut self, accepts: impl Fn(char) -> bool) {
        let rest = self.rest();
        self.at += rest.find(|c| !accepts(c)).unwrap_or(rest.len());
    }

    fn skip_blanks(&mut self) {
        loop {
            self.skip_while(is_space);
            if !self.rest().starts_with('#') {
                return;
            }
            self.skip_while(|c| c != '\n' && c != '\r');
        }
    }

    fn token(&self, kind: TokenKind, start: usize) -> Lexed<'a> {
        let text = self.text.get(start..self.at).unwrap_or_default();
        Ok(Token { kind, text, start })
    }

    fn of(&mut self, kind: TokenKind, bytes: usize) -> Lexed<'a> {
        let start = self.at;
        self.at += bytes;
        self.token(kind, start)
    }

    fn wrong(&self, start: usize, why: impl Into<String>) -> Lexed<'a> {
        let _ = self;
        Err(Wrong {
            at: start,
            why: why.into(),
        })
    }

    pub(super) fn next(&mut self) -> Lexed<'a> {
        self.skip_blanks();
        let start = self.at;
        let Some(c) = self.peek() else {
            return self.end();
        };
        if self.in_braces {
            return self.within_braces(c);
        }
        let second = self.rest().chars().nth(1);
        let is_number = c.is_ascii_digit() || (c == '.' && second.is_some_and(|c| c.is_ascii_digit()));
        if self.wants_duration && !is_number && !"]+-*/%^(),".contains(c) {
            let why = format!("unexpected character in duration expression: {}", quoted_char(c));
            return self.wrong(start, why);
        }
        match c {
            '"' | '\'' => self.string(c),
            '`' => self.raw_string(),
            ',' => self.of(TokenKind::Comma, 1),
            '*' => self.of(TokenKind::Operator(Operator::Mul), 1),
            '/' => self.of(TokenKind::Operator(Operator::Div), 1),
            '%' => self.of(TokenKind::Operator(Operator::Mod), 1),
            '+' => self.of(TokenKind::Operator(Operator::Add), 1),
            '-' => self.of(TokenKind::Operator(Operator::Sub), 1),
            '^' => self.of(TokenKind::Operator(Operator::Pow), 1),
            '@' => self.of(TokenKind::At, 1),
            '=' if second == Some('=') => self.of(TokenKind::Operator(Operator::Equal), 2),
            '=' if second == Some('~') => self.wrong(start, "unexpected character after '=': '~'"),
            '=' => self.of(TokenKind::Assign, 1),
            '!' if second == Some('=') => self.of(TokenKind::Operator(Operator::NotEqual), 2),
            '!' => self.wrong(
                start,
                format!("unexpected character after '!': {}", shown(second)),
            ),
            '<' if second == Some('=') => self.of(TokenKind::Operator(Operator::LessOrEqual), 2),
            '<' => self.of(TokenKind::Operator(Operator::Less), 1),
            '>' if second == Some('=') => self.of(TokenKind::Operator(Operator::GreaterOrEqual), 2),
            '>' => self.of(TokenKind::Operator(Operator::Greater), 1),
            '(' => {
                self.parens += 1;
                self.of(TokenKind::LeftParen, 1)
            }
            ')' if self.parens == 0 => self.wrong(start + 1, "unexpected right parenthesis ')'"),
            ')' => {
                self.parens -= 1;
                self.of(TokenKind::RightParen, 1)
            }
            '{' => {
                self.in_braces = true;
                self.of(TokenKind::LeftBrace, 1)
            }
            '[' if self.in_brackets => self.wrong(start, "unexpected left bracket '['"),
            '[' => {
                (self.in_brackets, self.has_colon, self.wants_duration) = (true, false, true);
                self.of(TokenKind::LeftBracket, 1)
            }
            ']' if !self.in_brackets => self.wrong(start, "unexpected right bracket ']'"),
            ']' => {
                (self.in_brackets, self.wants_duration) = (false, false);
                self.of(TokenKind::RightBracket, 1)
            }
            _ if is_number => self.number(),
            ':' if self.in_brackets && !self.has_colon => {
                self.has_colon = true;
                self.of(TokenKind::Colon, 1)
            }
            _ if self.in_brackets && self.has_colon && (is_alpha(c) || c == ':') => {
                self.wrong(start, format!("unexpected colon {}", quoted_char(c)))
            }
            _ if self.in_brackets => self.wrong(
                start,
                format!("unexpected character: {}, expected ':'", quoted_char(c)),
            ),
            _ if is_alpha(c) || c == ':' => {
                self.skip_while(|c| is_alpha(c) || c.is_ascii_digit() || c == ':');
                let text = self.text.get(start..self.at).unwrap_or_default();
                let kind = word(text).unwrap_or(if text.contains(':') {
                    TokenKind::MetricIdentifier
                } else {
                    TokenKind::Identifier
                });
                self.token(kind, start)
            }
            _ => self.wrong(start, format!("unexpected character: {}", quoted_char(c))),
        }
    }

    fn end(&self) -> Lexed<'a> {
        let why = match self {
            _ if self.in_braces => "unexpected end of input inside braces",
            _ if self.in_brackets && self.wants_duration => "unexpected end of input in duration expression",
            _ if self.parens > 0 => "unclosed left parenthesis",
            _ if self.in_brackets => "unclosed left bracket",
            _ => return self.token(TokenKind::End, self.at),
        };
        self.wrong(self.at, why)
    }

    fn within_braces(&mut self, c: char) -> Lexed<'a> {
        let start = self.at;
        let second = self.rest().chars().nth(1);
        match c {
            '"' | '\'' => self.string(c),
            '`' => self.raw_string(),
            ',' => self.of(TokenKind::Comma, 1),
            '=' if second == Some('~') => self.of(TokenKind::Matches, 2),
            '=' => self.of(TokenKind::Assign, 1),
            '!' if second == Some('~') => self.of(TokenKind::MatchesNot, 2),
            '!' if second == Some('=') => self.of(TokenKind::Operator(Operator::NotEqual), 2),
            '!' => self.wrong(
                start,
                format!("unexpected character after '!' inside braces: {}", shown(second)),
            ),
            '{' => self.wrong(start, "unexpected left brace '{'"),
            '}' => {
                self.in_braces = false;
                self.of(TokenKind::RightBrace, 1)
            }
            _ if is_alpha(c) => {
                self.skip_while(|c| is_alpha(c) || c.is_ascii_digit());
                self.token(TokenKind::Identifier, start)
            }
            _ => self.wrong(
                start,
                format!("unexpected character inside braces: {}", quoted_char(c)),
            ),
        }
    }

    fn raw_string(&mut self) -> Lexed<'a> {
        let start = self.at;
        match self.rest().get(1..).and_then(|rest| rest.find('`')) {
            Some(length) => self.of(TokenKind::Text, length + 2),
            None => self.wrong(start, "unterminated raw string"),
        }
    }

    fn string(&mut self, quote: char) -> Lexed<'a> {
        let start = self.at;
        self.at += 1;
        while let Some(c) = self.peek() {
            self.at += c.len_utf8();
            match c {
                '\n' => break,
                '\\' => {
                    if let Err(why) = self.escape(quote) {
                        return self.wrong(start, why);
                    }
                }
                '\u{fffd}' => return self.wrong(start, "invalid UTF-8 rune"),
                _ if c == quote => return self.token(TokenKind::Text, start),
                _ => {}
            }
        }
        self.wrong(start, "unterminated quoted string")
    }

    /// Behind a backslash.
    fn escape(&mut self, quote: char) -> Result<(), String> {
        let not_terminated = || "escape sequence not terminated".to_owned();
        let kind = self.peek().ok_or_else(not_terminated)?;
        self.at += kind.len_utf8();
        let (digits, base, most) = match kind {
            'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\' => return Ok(()),
            _ if kind == quote => return Ok(()),
            '0'..='7' => {
                self.at -= 1;
                (3, 8, 255)
            }
            'x' => (2, 16, 255),
            'u' => (4, 16, 0x10_FFFF),
            'U' => (8, 16, 0x10_FFFF),
            other => return Err(format!("unknown escape sequence {}", code_point(other))),
        };
        let mut value = 0_u64;
        for _ in 0..digits {
            let c = self.peek().ok_or_else(not_terminated)?;
            let digit = c.to_digit(base);
            let digit =
                digit.ok_or_else(|| format!("illegal character {} in escape sequence", code_point(c)))?;
            value = value * u64::from(base) + u64::from(digit);
            self.at += c.len_utf8();
        }
        if value > most || (0xD800..0xE000).contains(&value) {
            Err("escape sequence is an invalid Unicode code point".to_owned())
        } else {
            Ok(())
        }
    }

    fn number(&mut self) -> Lexed<'a> {
        let start = self.at;
        self.wants_duration = false;
        if self.is_number() {
            return self.token(TokenKind::Number, start);
        }
        if self.is_duration() {
            return self.token(TokenKind::Duration, start);
        }
        let seen = self.text.get(start..self.at).unwrap_or_default();
        self.wrong(start, format!("bad number or duration syntax: {}", quoted(seen)))
    }

    fn accept(&mut self, accepts: impl Fn(char) -> bool) -> bool {
        let found = self.peek().filter(|c| accepts(*c));
        self.at += found.map_or(0, char::len_utf8);
        found.is_some()
    }

    /// Moves past a number; `false`: the text up to here is none.
    fn is_number(&mut self) -> bool {
        let is_hex = (self.rest().starts_with("0x") || self.rest().starts_with("0X"))
            .then(|| self.at += 2)
            .is_some();
        let is_digit = |c: char| {
            if is_hex {
                c.is_ascii_hexdigit()
            } else {
                c.is_ascii_digit()
            }
        };
        let is_exponent = |c: char| !is_hex && matches!(c, 'e' | 'E');
        let (mut has_dot, mut has_exponent) = (false, false);
        loop {
            if self.accept(is_digit) {
                continue;
            }
            if self.accept(|c| c == '.') {
                if is_hex || std::mem::replace(&mut has_dot, true) || self.accept(|c| matches!(c, '_' | '.'))
                {
                    return false;
                }
            } else if self.accept(is_exponent) {
                if std::mem::replace(&mut has_exponent, true) {
                    return false;
                }
                self.accept(|c| matches!(c, '+' | '-'));
                if self.peek().is_none() || self.accept(|c| matches!(c, '.' | '_' | 'e' | 'E')) {
                    return false;
                }
            } else if self.accept(|c| c == '_') {
                if self.peek().is_none() || self.accept(|c| matches!(c, '.' | '_' | 'e' | 'E')) {
                    return false;
                }
            } else {
                return !self.peek().is_some_and(|c| is_alpha(c) || c.is_ascii_digit());
            }
        }
    }

    /// Moves past the rest of a duration whose first digits were read.
    fn is_duration(&mut self) -> bool {
        let mut units = "smhdwy";
        loop {
            if !self.accept(|c| units.contains(c)) {
                return false;
            }
            self.accept(|c| c == 's');
            units = "smhdw";
            if !self.accept(|c| c.is_ascii_digit()) {
                return !self.peek().is_some_and(is_alpha);
            }
            self.skip_while(|c| c.is_ascii_digit());
        }
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

fn is_alpha(c: char) -> bool {
    c == '_' || c.is_ascii_alphabetic()
}

/// A character as Go shows it; the end of the text is -1 there, which it shows as U+FFFD.
fn shown(c: Option<char>) -> String {
    quoted_char(c.unwrap_or('\u{fffd}'))
}

/// The character in Go's `%#U` format.
fn code_point(c: char) -> String {
    format!("U+{:04X} '{c}'", c as u32)
}
