// SPDX-License-Identifier: Apache-2.0

//! Where a name, a quoted string, a list of labels ends. Shared by the text formats.

use memchr::{memchr, memchr2};

const LETTER: u8 = 1;
const DIGIT: u8 = 2;
const COLON: u8 = 4;

/// The classes of each byte: where it may stand in a name.
const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => LETTER,
            b'0'..=b'9' => DIGIT,
            b':' => COLON,
            _ => 0,
        };
        byte += 1;
    }
    classes
};

fn is(byte: u8, classes: u8) -> bool {
    CLASSES[usize::from(byte)] & classes != 0
}

/// The end of the metric name that begins at `at`; `at` itself where none does.
#[inline]
pub(crate) fn metric_name(bytes: &[u8], at: usize) -> usize {
    name(bytes, at, LETTER | COLON)
}

/// The end of the unquoted label name that begins at `at`; `at` itself where none does.
pub(crate) fn label_name(bytes: &[u8], at: usize) -> usize {
    name(bytes, at, LETTER)
}

#[inline]
fn name(bytes: &[u8], at: usize, first: u8) -> usize {
    match bytes.get(at) {
        Some(byte) if is(*byte, first) => {}
        _ => return at,
    }
    let rest = bytes.get(at + 1..).unwrap_or_default();
    let len = rest.iter().position(|byte| !is(*byte, first | DIGIT));
    at + 1 + len.unwrap_or(rest.len())
}

/// The first place from `at` on where no space or tab stands.
#[inline]
pub(crate) fn blanks(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    let len = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t'));
    at + len.unwrap_or(rest.len())
}

/// The end of the line that `at` is in: where the line feed is, or the end of the page.
#[inline]
pub(crate) fn line_end(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    at + memchr(b'\n', rest).unwrap_or(rest.len())
}

/// The place of the closing quote of a string whose first byte is at `at`.
#[inline]
pub(crate) fn closing_quote(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let found = at + memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes.get(found) == Some(&b'"') {
            return Some(found);
        }
        at = found + 2;
    }
}

/// The place of a backslash that has a line feed behind it, which it can't escape.
pub(crate) fn broken_escape(quoted: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let found = at + memchr(b'\\', quoted.get(at..)?)?;
        if quoted.get(found + 1) == Some(&b'\n') {
            return Some(found);
        }
        at = found + 2;
    }
}

/// The place of the brace that closes the labels, `at` being behind the one that opens them. It looks only at the
/// quotes in between.
#[inline]
pub(crate) fn closing_brace(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let found = at + memchr2(b'"', b'}', bytes.get(at..)?)?;
        if bytes.get(found) == Some(&b'}') {
            return Some(found);
        }
        at = closing_quote(bytes, found + 1)? + 1;
    }
}

/// Whether `rest` begins with the whole of a series that was found to be one before: `at` of the value behind it. Where
/// blanks are not the plain single space, the long way decides.
#[inline]
pub(crate) fn expected(rest: &[u8], series: &[u8]) -> Option<usize> {
    let behind = rest.strip_prefix(series)?;
    let plain = matches!(behind, [b' ', value, ..] if !matches!(value, b' ' | b'\t' | b'{'));
    (plain && !series.is_empty()).then_some(series.len() + 1)
}
