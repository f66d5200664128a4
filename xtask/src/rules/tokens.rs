// SPDX-License-Identifier: Apache-2.0

//! Rust source as names and signs, without comments and literals.

/// A name, `::`, or a single sign.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    /// Counted from 1.
    pub(super) line: usize,
}

pub(super) fn tokens(source: &str) -> Vec<Token<'_>> {
    let (mut tokens, mut rest, mut line) = (Vec::new(), source, 1);
    while !rest.is_empty() {
        let (length, is_token) = next(rest);
        let (text, after) = rest.split_at(length);
        if is_token {
            tokens.push(Token { text, line });
        }
        line += text.matches('\n').count();
        rest = after;
    }
    tokens
}

/// The length in bytes of the first piece of the text, and whether it is a name or a sign.
fn next(rest: &str) -> (usize, bool) {
    if let Some(length) = comment(rest).or_else(|| literal(rest)) {
        return (length, false);
    }
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let name = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
    let sign = rest.chars().next().map_or(0, char::len_utf8);
    match name {
        0 if rest.starts_with("::") => (2, true),
        0 => (sign, !rest.starts_with(char::is_whitespace)),
        _ => (name, true),
    }
}

/// The length of the comment at the start of the text. Comments in comments do not occur in this repository.
fn comment(rest: &str) -> Option<usize> {
    let end = match rest.get(..2)? {
        "//" => rest.find('\n'),
        "/*" => rest.find("*/").map(|at| at + 2),
        _ => return None,
    };
    Some(end.unwrap_or(rest.len()))
}

/// The length of the string or character at the start of the text, or of the quote of a lifetime.
fn literal(rest: &str) -> Option<usize> {
    let body = rest.trim_start_matches(['b', 'c', 'r']);
    let prefix = rest.len() - body.len();
    if rest[..prefix].ends_with('r') {
        return raw_string(body).map(|length| prefix + length);
    }
    let quote = body.chars().next().filter(|c| ['"', '\''].contains(c))?;
    let inside = &body[1..];
    if quote == '\'' && is_lifetime(inside) {
        return Some(prefix + 1);
    }
    let mut is_escaped = false;
    let end = inside.find(|c: char| {
        let ends = c == quote && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    });
    Some(prefix + 1 + end.map_or(inside.len(), |at| at + 1))
}

/// The length of `#"..."#` with any number of `#`.
fn raw_string(body: &str) -> Option<usize> {
    let hashes = body.len() - body.trim_start_matches('#').len();
    let inside = body[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", &body[..hashes]);
    let length = inside.find(&end).map_or(inside.len(), |at| at + end.len());
    Some(hashes + 1 + length)
}

/// Whether a quote before this text begins a lifetime: a character has another quote behind it.
fn is_lifetime(inside: &str) -> bool {
    !inside.starts_with('\\') && inside.chars().nth(1) != Some('\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<&str> {
        tokens(source).iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_and_literals_are_no_tokens() {
        let table: [(&str, &[&str]); 8] = [
            ("a // b\nc", &["a", "c"]),
            ("a /* b\n */ c", &["a", "c"]),
            (r#"f("b \" c", d)"#, &["f", "(", ",", "d", ")"]),
            (r##"x(r#"a " b"#)"##, &["x", "(", ")"]),
            (r"'\'' b'\\' '}' c", &["c"]),
            ("&'a str", &["&", "a", "str"]),
            ("crate::a_1::B", &["crate", "::", "a_1", "::", "B"]),
            ("r#type", &["r", "#", "type"]),
        ];
        for (source, expected) in table {
            assert_eq!(texts(source), expected, "{source}");
        }
    }

    #[test]
    fn lines_are_counted_through_literals() {
        let found = tokens("a\n\"b\nc\"\nd");
        assert_eq!(found.last(), Some(&Token { text: "d", line: 4 }));
    }
}
