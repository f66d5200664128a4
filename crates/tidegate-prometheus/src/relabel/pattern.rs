// SPDX-License-Identifier: Apache-2.0

//! Regular expressions and templates with the meaning of Go.

use std::borrow::Cow;

use regex::{Captures, Regex};

use tidegate_config::{Decode, Node, Problems, TypeHelp, YamlType, wrong_type};

/// An anchored regular expression with the text it was made of.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    pub(super) regex: Regex,
}

impl Pattern {
    /// A pattern that must match the whole text; `.` matches line ends too.
    ///
    /// # Errors
    /// It is not a regular expression.
    pub fn new(text: &str) -> Result<Self, regex::Error> {
        let regex = Regex::new(&format!("^(?s:{})$", as_go_reads(text)))?;
        let text = text.to_owned();
        Ok(Self { text, regex })
    }

    pub(super) fn is_default(&self) -> bool {
        self.text == DEFAULT_REGEX
    }
}

const DEFAULT_REGEX: &str = "(.*)";

impl Default for Pattern {
    fn default() -> Self {
        Self::new(DEFAULT_REGEX).expect("it is a regular expression")
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// Replaces classes: Go's are ASCII, ours are Unicode.
fn as_go_reads(text: &str) -> Cow<'_, str> {
    const CLASSES: &[(char, &str)] = &[
        ('d', "[0-9]"),
        ('D', "[^0-9]"),
        ('w', "[0-9A-Za-z_]"),
        ('W', "[^0-9A-Za-z_]"),
        ('s', r"[\t\n\f\r ]"),
        ('S', r"[^\t\n\f\r ]"),
        ('b', r"(?-u:\b)"),
        ('B', r"(?-u:\B)"),
    ];
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let escaped = (c == '\\').then(|| chars.next()).flatten();
        let class = CLASSES.iter().find(|(letter, _)| Some(*letter) == escaped);
        match (class, escaped) {
            (Some((_, class)), _) => out.push_str(class),
            (None, Some(escaped)) => out.extend([c, escaped]),
            (None, None) => out.push(c),
        }
    }
    Cow::Owned(out)
}

impl Decode for Pattern {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let Some(text) = node.as_text() else {
            return wrong_type(node, cx);
        };
        if !cx.has_room_for_expression(text, node) {
            return None;
        }
        match Self::new(text) {
            Ok(pattern) => Some(pattern),
            Err(error) => {
                let said = error.to_string();
                let last = said.lines().last().unwrap_or_default();
                let last = last.trim_start_matches("error: ").to_owned();
                cx.at(node).error(format!("not a regular expression: {last}"));
                None
            }
        }
    }

    fn type_help() -> TypeHelp {
        TypeHelp::plain("regular expression").accepting(YamlType::Scalar)
    }

    fn show(&self) -> String {
        self.text.clone()
    }
}

/// The expansion of a template for a match.
pub(super) fn expanded(template: &str, found: &Captures<'_>) -> String {
    let mut out = String::new();
    expand(template, &mut out, |group| {
        let number = group.parse::<usize>().ok();
        // A number with zeros in front is a name, and no group is called so.
        let number = number.filter(|_| group == "0" || !group.starts_with('0'));
        let matched = match number {
            Some(number) => found.get(number),
            None => found.name(group),
        };
        matched.map_or("", |matched| matched.as_str())
    });
    out
}

/// Expands a template as Go's `Regexp.Expand`: `$1`, `$name` as long as letters, digits and underscores go on,
/// `${name}`, `$$`; a `$` before anything else stays.
pub(super) fn expand<'a>(template: &str, out: &mut String, group: impl Fn(&str) -> &'a str) {
    let mut rest = template;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let (braced, body) = match rest.strip_prefix('{') {
            Some(body) => (true, body),
            None => (false, rest),
        };
        let end = body.find(|c: char| c != '_' && !c.is_alphanumeric());
        let (name, after) = body.split_at(end.unwrap_or(body.len()));
        let after = if braced {
            after.strip_prefix('}')
        } else {
            Some(after)
        };
        match after.filter(|_| !name.is_empty()) {
            Some(after) => {
                out.push_str(group(name));
                rest = after;
            }
            None => out.push('$'),
        }
    }
    out.push_str(rest);
}
