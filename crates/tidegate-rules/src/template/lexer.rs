// SPDX-License-Identifier: Apache-2.0

//! A template's text as plain pieces and actions.

/// A word or a sign of an action.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TemplateToken {
    /// A keyword or a function.
    Name(String),
    /// `.name`.
    Field(String),
    /// `$name`; empty for `$`.
    Variable(String),
    Dot,
    Text(String),
    Int(i64),
    Float(f64),
    /// One of `|`, `(`, `)`, `,`.
    Sign(char),
    /// `:=`.
    Declare,
    /// `=`.
    Assign,
}

/// A token, and whether it stands directly after the one before it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lexed {
    pub(super) token: TemplateToken,
    pub(super) is_joined: bool,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    Text(String),
    Action(Vec<Lexed>),
}

/// What an action consists of, the text after it, and whether that loses its spaces.
type LexedAction<'t> = (Option<Vec<Lexed>>, &'t str, bool);

const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

/// Divides a template.
pub(super) fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut rest, mut trims_start) = (Vec::new(), text, false);
    loop {
        let (before, inside) = match rest.split_once("{{") {
            Some((before, inside)) => (before, Some(inside)),
            None => (rest, None),
        };
        let trimmed = inside.and_then(|inside| inside.strip_prefix('-'));
        let trimmed = trimmed.filter(|inside| inside.starts_with(SPACES));
        let before = if trims_start {
            before.trim_start_matches(SPACES)
        } else {
            before
        };
        let before = if trimmed.is_some() {
            before.trim_end_matches(SPACES)
        } else {
            before
        };
        if !before.is_empty() {
            pieces.push(Piece::Text(before.to_owned()));
        }
        let Some(inside) = trimmed.or(inside) else {
            return Ok(pieces);
        };
        let (tokens, after, trims) = action(inside)?;
        pieces.extend(tokens.map(Piece::Action));
        (rest, trims_start) = (after, trims);
    }
}

/// Reads an action up to its end. A comment has no tokens.
fn action(inside: &str) -> Result<LexedAction<'_>, String> {
    if let Some(comment) = inside.trim_start_matches(SPACES).strip_prefix("/*") {
        let (_, after) = comment.split_once("*/").ok_or("unclosed comment")?;
        let (after, trims) = end(after).ok_or("comment ends before closing delimiter")?;
        return Ok((None, after, trims));
    }
    let (mut tokens, mut rest) = (Vec::new(), inside);
    loop {
        if let Some((after, trims)) = end(rest) {
            return Ok((Some(tokens), after, trims));
        }
        let text = rest.trim_start_matches(SPACES);
        let is_joined = text.len() == rest.len() && !tokens.is_empty();
        let (token, after) = token(text)?;
        tokens.push(Lexed { token, is_joined });
        rest = after;
    }
}

/// The text after the end of an action, if it ends here, and whether that loses its spaces.
fn end(rest: &str) -> Option<(&str, bool)> {
    let text = rest.trim_start_matches(SPACES);
    if let Some(after) = text.strip_prefix("}}") {
        return Some((after, false));
    }
    let after = text.strip_prefix("-}}").filter(|_| text.len() < rest.len());
    after.map(|after| (after, true))
}

/// Reads one token, and gives the text after it.
fn token(text: &str) -> Result<(TemplateToken, &str), String> {
    let first = text.chars().next().ok_or("unclosed action")?;
    let after_first = &text[first.len_utf8()..];
    match first {
        '|' | '(' | ')' | ',' => Ok((TemplateToken::Sign(first), after_first)),
        '=' => Ok((TemplateToken::Assign, after_first)),
        ':' => match after_first.strip_prefix('=') {
            Some(after) => Ok((TemplateToken::Declare, after)),
            None => Err("expected :=".to_owned()),
        },
        '"' => quoted(after_first, '"').map(|(text, after)| (TemplateToken::Text(text), after)),
        '\'' => character(after_first),
        '`' => {
            let (text, after) = after_first
                .split_once('`')
                .ok_or("unterminated raw quoted string")?;
            Ok((TemplateToken::Text(text.to_owned()), after))
        }
        '$' => {
            let (name, after) = word(after_first);
            Ok((TemplateToken::Variable(name.to_owned()), after))
        }
        '.' if after_first.starts_with(|c: char| c.is_ascii_digit()) => number(text),
        '.' => match word(after_first) {
            ("", after) => Ok((TemplateToken::Dot, after)),
            (name, after) => Ok((TemplateToken::Field(name.to_owned()), after)),
        },
        '0'..='9' | '+' | '-' => number(text),
        _ => match word(text) {
            ("", _) => Err(format!("unexpected {first:?} in command")),
            (name, after) => Ok((TemplateToken::Name(name.to_owned()), after)),
        },
    }
}

/// The word at the start of a text, and the text after it.
fn word(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    text.split_at(end.unwrap_or(text.len()))
}

fn number(text: &str) -> Result<(TemplateToken, &str), String> {
    let mut last = ' ';
    let mut is_part = |c: char| {
        let is_sign = matches!(c, '+' | '-') && matches!(last, ' ' | 'e' | 'E' | 'p');
        last = c;
        c.is_alphanumeric() || matches!(c, '.' | '_') || is_sign
    };
    let end = text.find(|c: char| !is_part(c)).unwrap_or(text.len());
    let (digits, after) = text.split_at(end);
    let bad = || format!("bad number syntax: {digits:?}");
    let plain = digits.replace('_', "").to_ascii_lowercase();
    if let Some(whole) = whole(&plain) {
        return Ok((TemplateToken::Int(whole), after));
    }
    let is_decimal = plain.bytes().all(|b| b.is_ascii_digit() || b".e+-".contains(&b));
    let float = plain.parse::<f64>().ok().filter(|_| is_decimal).ok_or_else(bad)?;
    Ok((TemplateToken::Float(float), after))
}

fn whole(plain: &str) -> Option<i64> {
    let (sign, digits) = match plain.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, plain.strip_prefix('+').unwrap_or(plain)),
    };
    let radix = [("0x", 16), ("0o", 8), ("0b", 2)];
    let found = radix
        .iter()
        .find_map(|(prefix, radix)| Some((digits.strip_prefix(prefix)?, *radix)));
    let (digits, radix) = found.unwrap_or((digits, 10));
    let number = i64::from_str_radix(digits, radix)
        .ok()
        .filter(|number| *number >= 0)?;
    number.checked_mul(sign)
}

fn character(text: &str) -> Result<(TemplateToken, &str), String> {
    let (inside, after) = quoted(text, '\'')?;
    let mut chars = inside.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) => Ok((TemplateToken::Int(i64::from(u32::from(c))), after)),
        _ => Err("malformed character constant".to_owned()),
    }
}

/// The text up to a quote, its escapes resolved, and the text after the quote.
fn quoted(text: &str, quote: char) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\n' => break,
            '\\' => value.push(escape(&mut chars)?),
            c if c == quote => return Ok((value, &text[at + c.len_utf8()..])),
            c => value.push(c),
        }
    }
    Err("unterminated quoted string".to_owned())
}

/// The character that an escape stands for.
fn escape(chars: &mut std::str::CharIndices<'_>) -> Result<char, String> {
    let invalid = || "invalid escape in a quoted string".to_owned();
    let (_, kind) = chars.next().ok_or_else(invalid)?;
    let digits = match kind {
        'a' => return Ok('\u{7}'),
        'b' => return Ok('\u{8}'),
        'f' => return Ok('\u{c}'),
        'n' => return Ok('\n'),
        'r' => return Ok('\r'),
        't' => return Ok('\t'),
        'v' => return Ok('\u{b}'),
        '\\' | '"' | '\'' => return Ok(kind),
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => return Err(invalid()),
    };
    let hex: String = chars.by_ref().take(digits).map(|(_, c)| c).collect();
    let code = u32::from_str_radix(&hex, 16).ok().filter(|_| hex.len() == digits);
    code.and_then(char::from_u32).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        let pieces = pieces(text).unwrap().into_iter();
        let shown = pieces.map(|piece| match piece {
            Piece::Text(text) => text,
            Piece::Action(tokens) => format!("{}", tokens.len()),
        });
        shown.collect()
    }

    #[test]
    fn actions_divide_the_text_and_trim_it() {
        assert_eq!(texts("a {{ $x }} b"), ["a ", "1", " b"]);
        assert_eq!(texts("a {{- $x -}} b"), ["a", "1", "b"]);
        assert_eq!(texts("a{{/* no */}}b"), ["a", "b"]);
        assert_eq!(texts(r#"{{ "}}" | f }}"#), ["3"]);
        assert_eq!(texts("{{ -1 }}{{ 1e3 }}{{.5}}"), ["1", "1", "1"]);
    }

    #[test]
    fn broken_actions_are_errors() {
        for text in [
            "{{",
            "{{ \"a }}",
            "{{ 1x }}",
            "{{ : }}",
            "{{/* a }}",
            "{{ % }}",
            "{{ 'ab' }}",
            "{{ \"\\q\" }}",
        ] {
            assert!(pieces(text).is_err(), "{text}");
        }
    }
}
