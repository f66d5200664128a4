// SPDX-License-Identifier: Apache-2.0

//! The effective configuration as YAML with all secrets masked.

use super::node::{Entry, Node, NodeValue, Scalar, ScalarKind};
use super::problems::Problems;
use super::secret;
use super::source::REDACTED;

/// The treatment of values that came out of `${...}`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SubstitutedValues {
    /// All of them are masked, because any of them may be a secret.
    Masked,
    /// They are shown like values that are written in a file: secrets are masked.
    Shown,
}

/// Prints a tree as YAML in which values of secret options, of keys that sound like secrets, and what came out of
/// `${...}` are `[REDACTED]`.
///
/// `problems` must be the one that the tree was loaded and its options were decoded with: it knows
/// which options have the type [`Secret`](super::Secret).
pub fn print_redacted(root: &Node, problems: &Problems) -> String {
    print_yaml(&redacted(root, problems, SubstitutedValues::Masked))
}

/// A copy of a tree in which values of secret options and of keys that sound like secrets are `[REDACTED]`, as one would
/// write it: `$$` stands for `$` where that is necessary.
///
/// `problems` is that of [`print_redacted`].
pub fn redacted(root: &Node, problems: &Problems, substituted: SubstitutedValues) -> Node {
    copy(root, &|node: &Node| match node.scalar() {
        Some(scalar) if scalar.kind == ScalarKind::Null => false,
        Some(scalar) => {
            (substituted == SubstitutedValues::Masked && node.is_substituted())
                || problems.hides(node.path())
                || secret::has_url_credentials(&scalar.text)
        }
        // Its keys may be the secret: `{hunter2}` instead of `[hunter2]`.
        None => problems.expects_secret(node.path()),
    })
}

fn copy(node: &Node, is_secret: &dyn Fn(&Node) -> bool) -> Node {
    if is_secret(node) {
        return Node::string(REDACTED, node.span());
    }
    let value = match node.value() {
        NodeValue::Map(entries) => {
            let entry = |entry: &Entry| Entry {
                key: entry.key.clone(),
                value: copy(&entry.value, is_secret),
            };
            NodeValue::Map(entries.iter().map(entry).collect())
        }
        NodeValue::List(items) => NodeValue::List(items.iter().map(|item| copy(item, is_secret)).collect()),
        NodeValue::Scalar(scalar) => NodeValue::Scalar(Scalar {
            kind: scalar.kind,
            text: without_references(&scalar.text),
            quoted: scalar.quoted,
        }),
    };
    Node::new(value, node.span())
}

/// A text that is read as this one: `$$` for each `$` that would begin a reference or stand for itself.
pub fn without_references(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        out.push(c);
        if c == '$' && matches!(chars.peek(), Some('$' | '{')) {
            out.push('$');
        }
    }
    out
}

/// Prints a tree as YAML, with nothing masked.
pub fn print_yaml(root: &Node) -> String {
    let mut printer = Printer { out: String::new() };
    printer.block(root, 0, false);
    printer.out
}

struct Printer {
    out: String,
}

impl Printer {
    /// A node that begins on a line of its own, or on the line that a key or a dash has begun.
    fn block(&mut self, node: &Node, indent: usize, mut is_begun: bool) {
        match node.value() {
            NodeValue::Map(entries) if !entries.is_empty() => {
                for entry in entries {
                    self.begin_line(indent, &mut is_begun);
                    self.out.push_str(&yaml_text(&entry.key));
                    self.out.push(':');
                    let nested = is_nested(&entry.value);
                    self.out.push(if nested { '\n' } else { ' ' });
                    self.block(&entry.value, indent + 1, !nested);
                }
            }
            NodeValue::List(items) if !items.is_empty() => {
                for item in items {
                    self.begin_line(indent, &mut is_begun);
                    self.out.push_str("- ");
                    self.block(item, indent + 1, true);
                }
            }
            _ => {
                self.begin_line(indent, &mut is_begun);
                self.inline(node);
                self.out.push('\n');
            }
        }
    }

    fn inline(&mut self, node: &Node) {
        let text = match node.value() {
            NodeValue::Map(_) => "{}".to_owned(),
            NodeValue::List(_) => "[]".to_owned(),
            NodeValue::Scalar(scalar) if scalar.kind == ScalarKind::Null => "null".to_owned(),
            NodeValue::Scalar(scalar) if scalar.kind == ScalarKind::Str => yaml_text(&scalar.text),
            NodeValue::Scalar(scalar) => scalar.text.clone(),
        };
        self.out.push_str(&text);
    }

    /// Indents a line that nothing has begun.
    fn begin_line(&mut self, indent: usize, is_begun: &mut bool) {
        if !std::mem::take(is_begun) {
            self.out.extend(std::iter::repeat_n("  ", indent));
        }
    }
}

/// Whether a node needs lines of its own.
fn is_nested(node: &Node) -> bool {
    match node.value() {
        NodeValue::Map(entries) => !entries.is_empty(),
        NodeValue::List(items) => !items.is_empty(),
        NodeValue::Scalar(_) => false,
    }
}

/// A string as a value or a key of YAML, in a block or in brackets: plainly where that is safe, in double quotes otherwise.
pub fn yaml_text(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b"_-./".contains(&c))
        && super::scalar::resolve(text) == ScalarKind::Str;
    if plain {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if needs_escape(c) => out.push_str(&format!("\\U{:08x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Whether YAML forbids a character in a text, or some readers take it for the end of a line.
fn needs_escape(c: char) -> bool {
    let is_line_end = matches!(c, '\u{2028}' | '\u{2029}');
    c.is_control() || is_line_end || matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}
