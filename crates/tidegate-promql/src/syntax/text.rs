// SPDX-License-Identifier: Apache-2.0

//! String literals as Go writes and reads them.

use std::fmt::Write as _;

/// A text in double quotes, escaped as Go's `%q` does.
pub(crate) fn quoted(text: &str) -> String {
    let mut made = String::from("\"");
    text.chars().for_each(|c| escape(&mut made, c, '"'));
    made.push('"');
    made
}

/// A character in single quotes, escaped as Go's `%q` does.
pub(crate) fn quoted_char(c: char) -> String {
    let mut made = String::from("'");
    escape(&mut made, c, '\'');
    made.push('\'');
    made
}

fn escape(to: &mut String, c: char, quote: char) {
    match c {
        '\u{7}' => to.push_str("\\a"),
        '\u{8}' => to.push_str("\\b"),
        '\u{c}' => to.push_str("\\f"),
        '\n' => to.push_str("\\n"),
        '\r' => to.push_str("\\r"),
        '\t' => to.push_str("\\t"),
        '\u{b}' => to.push_str("\\v"),
        '\\' => to.push_str("\\\\"),
        _ if c == quote => {
            to.push('\\');
            to.push(c);
        }
        _ if c < ' ' || c == '\u{7f}' => {
            // A String takes every text.
            let _ = write!(to, "\\x{:02x}", c as u32);
        }
        _ if c.is_control() => {
            let _ = write!(to, "\\u{:04x}", c as u32);
        }
        _ => to.push(c),
    }
}

/// The text of a quoted string; `None`: its bytes are not UTF-8. The lexer has checked the escapes.
pub(super) fn unquoted(quoted: &str) -> Option<String> {
    let inner = quoted.get(1..quoted.len().checked_sub(1)?)?;
    if quoted.starts_with('`') {
        return Some(inner.replace('\r', ""));
    }
    let mut made: Vec<u8> = Vec::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => unescape(&mut made, &mut rest)?,
            c => made.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    String::from_utf8(made).ok()
}

/// Bytes of `\x` and octal escapes, characters of the others.
fn unescape(to: &mut Vec<u8>, rest: &mut std::str::Chars<'_>) -> Option<()> {
    let kind = rest.next()?;
    let (first, digits, base) = match kind {
        'x' => (None, 2, 16),
        'u' => (None, 4, 16),
        'U' => (None, 8, 16),
        '0'..='7' => (Some(kind), 2, 8),
        other => {
            to.push(plain(other));
            return Some(());
        }
    };
    let more = (0..digits).map(|_| rest.next());
    let text: Option<String> = first.map(Some).into_iter().chain(more).collect();
    let value = u32::from_str_radix(&text?, base).ok()?;
    match kind {
        'u' | 'U' => to.extend(char::from_u32(value)?.encode_utf8(&mut [0; 4]).bytes()),
        _ => to.push(u8::try_from(value).ok()?),
    }
    Some(())
}

/// The byte of an escape letter.
fn plain(letter: char) -> u8 {
    match letter {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        // The lexer lets only quotes and backslashes through.
        other => other as u8,
    }
}
