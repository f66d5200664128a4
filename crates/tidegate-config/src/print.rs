// SPDX-License-Identifier: Apache-2.0

//! The effective configuration as YAML with all secrets masked.

use super::node::{Node, NodeValue, Scalar, ScalarKind};
use super::problems::Problems;
use super::secret;
use super::source::REDACTED;

/// Prints a tree as YAML in which values of secret options, of keys that sound like secrets, and what came out of
/// `${...}` are `[REDACTED]`.
///
/// `problems` must be the one that the tree was loaded and its options were decoded with: it knows
/// which options have the type [`Secret`](super::Secret).
pub fn print_redacted(root: &Node, problems: &Problems) -> String {
    let mut printer = Printer {
        problems,
        out: String::new(),
    };
    printer.block(root, 0);
    printer.out
}

struct Printer<'a> {
    problems: &'a Problems,
    out: String,
}

impl Printer<'_> {
    /// A node that begins on a line of its own.
    fn block(&mut self, node: &Node, indent: usize) {
        match node.value() {
            NodeValue::Map(entries) if !entries.is_empty() => {
                for entry in entries {
                    self.indent(indent);
                    self.out.push_str(&written(&entry.key));
                    self.out.push(':');
                    self.after(&entry.value, indent + 1);
                }
            }
            NodeValue::List(items) if !items.is_empty() => {
                for item in items {
                    self.indent(indent);
                    self.out.push('-');
                    self.after(item, indent + 1);
                }
            }
            _ => {
                self.indent(indent);
                self.inline(node);
                self.out.push('\n');
            }
        }
    }

    /// A node after a key or a dash.
    fn after(&mut self, node: &Node, indent: usize) {
        let nested = match node.value() {
            NodeValue::Map(entries) => !entries.is_empty(),
            NodeValue::List(items) => !items.is_empty(),
            NodeValue::Scalar(_) => false,
        };
        if nested {
            self.out.push('\n');
            self.block(node, indent);
        } else {
            self.out.push(' ');
            self.inline(node);
            self.out.push('\n');
        }
    }

    fn inline(&mut self, node: &Node) {
        let text = match node.value() {
            NodeValue::Map(_) => "{}".to_owned(),
            NodeValue::List(_) => "[]".to_owned(),
            NodeValue::Scalar(scalar) if scalar.kind == ScalarKind::Null => "null".to_owned(),
            NodeValue::Scalar(scalar) if self.is_secret(node, scalar) => format!("\"{REDACTED}\""),
            NodeValue::Scalar(scalar) if scalar.kind == ScalarKind::Str => written(&scalar.text),
            NodeValue::Scalar(scalar) => scalar.text.clone(),
        };
        self.out.push_str(&text);
    }

    fn is_secret(&self, node: &Node, scalar: &Scalar) -> bool {
        node.is_substituted() || self.problems.hides(node.path()) || secret::has_url_credentials(&scalar.text)
    }

    fn indent(&mut self, indent: usize) {
        self.out.extend(std::iter::repeat_n("  ", indent));
    }
}

/// A string plainly where that is safe, in double quotes otherwise.
fn written(text: &str) -> String {
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
            c if c.is_control() => out.push_str(&format!("\\U{:08x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
