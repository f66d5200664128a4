//! Converts tokens to expressions, by precedence climbing. The first error ends it.

use super::ast::{
    Aggregate, Aggregation, At, Call, Chain, Expr, Group, Grouping, Link, Matching, Operator, Range,
    Selector, Span, Subquery, Unary,
};
use super::lexer::Lexer;
use super::text::{quoted, unquoted};
use super::token::{Bound, Keyword, Kind, Token};
use super::{MAX_DEPTH, Wrong, durations, functions, types};
use crate::labels::{MatchKind, Matcher, Patterns};
use crate::{Millis, NAME};

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
    if parser.token.kind == Kind::End {
        return Err(Wrong::at(Span::default(), "no expression found in input"));
    }
    let expr = parser.expr(1)?;
    match parser.token.kind {
        Kind::End => Ok(expr),
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

    fn is(&self, kind: Kind) -> bool {
        self.token.kind == kind
    }

    /// Takes a token of this kind, if it is the next.
    fn accept(&mut self, kind: Kind) -> Parsed<bool> {
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

    fn expect(&mut self, kind: Kind) -> Parsed<Token<'a>> {
        if self.is(kind) {
            self.take()
        } else {
            self.unexpected()
        }
    }

    fn since(&self, start: usize) -> Span {
        Span {
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
        while let Kind::Operator(operator) = self.token.kind
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
            Kind::Operator(Operator::Add) => false,
            Kind::Operator(Operator::Sub) => true,
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
            as_bool: self.accept(Kind::Keyword(Keyword::Bool))?,
            ..Matching::default()
        };
        let Kind::Keyword(word @ (Keyword::On | Keyword::Ignoring)) = self.token.kind else {
            return Ok(made);
        };
        self.take()?;
        made.is_on = word == Keyword::On;
        made.labels = Some(self.labels()?);
        made.group = match self.token.kind {
            Kind::Keyword(Keyword::GroupLeft) => Group::Left,
            Kind::Keyword(Keyword::GroupRight) => Group::Right,
            _ => return Ok(made),
        };
        self.take()?;
        if self.is(Kind::LeftParen) {
            made.include = self.labels()?;
        }
        Ok(made)
    }

    /// Names of labels in parentheses.
    fn labels(&mut self) -> Parsed<Vec<String>> {
        const CONTEXT: &str = "grouping opts";
        if !self.accept(Kind::LeftParen)? {
            return self.unexpected_in(CONTEXT, "\"(\"");
        }
        let mut all = Vec::new();
        if self.accept(Kind::RightParen)? {
            return Ok(all);
        }
        loop {
            match self.token.kind {
                Kind::Text => {
                    let text = self.take()?;
                    all.push(text_of(text)?);
                }
                _ if self.token.is_label() => all.push(self.take()?.text.to_owned()),
                _ => return self.unexpected_in(CONTEXT, "label"),
            }
            let is_more = self.accept(Kind::Comma)?;
            if self.accept(Kind::RightParen)? {
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
                Kind::LeftBracket => self.range(expr)?,
                Kind::Keyword(Keyword::Offset) => self.offset(expr)?,
                Kind::At => self.at(expr)?,
                _ => return Ok(expr),
            };
        }
    }

    fn operand(&mut self) -> Parsed<Expr> {
        let token = self.token;
        match token.kind {
            Kind::Number => {
                self.take()?;
                let number = durations::number(token.text).map_err(|why| Wrong::at(token.span(), why))?;
                Ok(Expr::Number(number, token.span()))
            }
            Kind::Duration => {
                self.take()?;
                let millis = durations::parse(token.text).map_err(|why| Wrong::at(token.span(), why))?;
                Ok(Expr::Number(millis as f64 / 1000.0, token.span()))
            }
            Kind::Text => {
                self.take()?;
                Ok(Expr::Text(text_of(token)?, token.span()))
            }
            Kind::LeftParen => {
                self.take()?;
                let expr = self.expr(1)?;
                self.expect(Kind::RightParen)?;
                Ok(Expr::Paren(Box::new(expr), self.since(token.start)))
            }
            Kind::LeftBrace => self.selector(None, token.start),
            Kind::Aggregation(operator) => {
                self.take()?;
                match self.token.kind {
                    Kind::LeftParen | Kind::Keyword(Keyword::By | Keyword::Without) => {
                        self.aggregate(operator, token.start)
                    }
                    _ => self.selector(Some(token.text), token.start),
                }
            }
            Kind::Identifier => {
                self.take()?;
                match self.token.kind {
                    Kind::LeftParen => self.call(token),
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
        self.expect(Kind::LeftParen)?;
        let mut all = Vec::new();
        if self.accept(Kind::RightParen)? {
            return Ok(all);
        }
        loop {
            all.push(self.expr(1)?);
            if self.accept(Kind::RightParen)? {
                return Ok(all);
            }
            let comma = self.expect(Kind::Comma)?;
            if self.is(Kind::RightParen) {
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
            Kind::Keyword(Keyword::By) => false,
            Kind::Keyword(Keyword::Without) => true,
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

    fn selector(&mut self, name: Option<&str>, start: usize) -> Parsed<Expr> {
        let mut matchers = if self.is(Kind::LeftBrace) {
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
        self.expect(Kind::LeftBrace)?;
        let mut all = Vec::new();
        if self.accept(Kind::RightBrace)? {
            return Ok(all);
        }
        loop {
            match self.token.kind {
                Kind::Identifier | Kind::Text => all.push(self.matcher()?),
                _ => return self.unexpected_in(CONTEXT, "identifier or \"}\""),
            }
            let is_more = self.accept(Kind::Comma)?;
            if self.accept(Kind::RightBrace)? {
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
        let is_quoted = token.kind == Kind::Text;
        let name = if is_quoted {
            text_of(token)?
        } else {
            token.text.to_owned()
        };
        let kind = match self.token.kind {
            Kind::Assign => MatchKind::Equal,
            Kind::Operator(Operator::NotEqual) => MatchKind::NotEqual,
            Kind::Matches => MatchKind::Matches,
            Kind::MatchesNot => MatchKind::MatchesNot,
            _ if is_quoted => return Ok(Matcher::equal(NAME, &name)),
            _ => return self.unexpected_in(CONTEXT, "label matching operator"),
        };
        self.take()?;
        if !self.is(Kind::Text) {
            return self.unexpected_in(CONTEXT, "string");
        }
        let value = self.take()?;
        Matcher::new(kind, &name, &text_of(value)?, &self.patterns)
            .map_err(|why| Wrong::at(token.span(), why))
    }

    /// A number of seconds or a duration, in milliseconds; `None`: something else comes.
    fn duration(&mut self) -> Parsed<Option<Millis>> {
        let token = self.token;
        let made = match token.kind {
            Kind::Number => durations::number(token.text).and_then(durations::of_seconds),
            Kind::Duration => durations::parse(token.text),
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

    fn range(&mut self, expr: Expr) -> Parsed<Expr> {
        let bracket = self.take()?;
        let range = self.positive_duration("number or duration")?;
        if self.accept(Kind::Colon)? {
            let step = match self.token.kind {
                Kind::RightBracket => None,
                Kind::Number | Kind::Duration => Some(self.positive_duration("number or duration")?),
                _ => {
                    return self.unexpected_in("subquery selector", "number, duration, or \"]\"");
                }
            };
            if !self.is(Kind::RightBracket) {
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
        if !self.is(Kind::RightBracket) {
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

    fn offset(&mut self, mut expr: Expr) -> Parsed<Expr> {
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
            Kind::Operator(Operator::Add) => 1,
            Kind::Operator(Operator::Sub) => -1,
            _ => return Ok(1),
        };
        self.take()?;
        Ok(sign)
    }

    fn at(&mut self, mut expr: Expr) -> Parsed<Expr> {
        const CONTEXT: (&str, &str) = ("@", "timestamp");
        self.take()?;
        let span = expr.span();
        let at = match self.token.kind {
            Kind::Bound(bound @ (Bound::Start | Bound::End)) => {
                self.take()?;
                for kind in [Kind::LeftParen, Kind::RightParen] {
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
                    Kind::Number => {
                        durations::number(token.text).map_err(|why| Wrong::at(token.span(), why))?
                    }
                    Kind::Duration => {
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

fn text_of(token: Token<'_>) -> Parsed<String> {
    unquoted(token.text).ok_or_else(|| {
        let why = format!("invalid UTF-8 in string {}", quoted(token.text));
        Wrong::at(token.span(), why)
    })
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
