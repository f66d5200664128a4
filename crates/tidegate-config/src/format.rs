// SPDX-License-Identifier: Apache-2.0

//! The canonical layout of a configuration file: indentation by two spaces, sections in a fixed order.
//!
//! Works on lines and keeps the text in them, so comments, anchors and quotes stay. The result is parsed again and compared
//! with the original, because whole lines can't show everything that matters to YAML.

mod indentation;
mod inner;
mod sections;

use super::node::{Node, NodeValue};
use super::print::print_yaml;
use super::problems::Problems;
use super::yaml::parse_text;

/// A line of a file in canonical layout.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Line {
    text: String,
    kind: LineKind,
}

/// What a line is, for the order of sections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LineKind {
    /// Nothing but white space.
    Blank,
    /// Only a comment.
    Comment,
    /// The begin of a key, an item or another value.
    Content,
    /// The middle or the end of a value that began on an earlier line.
    Inner,
}

/// The text in canonical layout. The meaning stays the same.
///
/// `None` if the text is not YAML, or if its layout can't be changed without a change of its meaning. `problems` then has the
/// reason.
pub fn format_text(name: &str, text: &str, problems: &mut Problems) -> Option<String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let expected = meaning(name, text, problems)?;
    let lines = indentation::indented(text);
    let ordered = joined(&sections::ordered(&lines));
    // An alias must follow its anchor: if a new order breaks that, the sections stay where they are.
    let unmoved = joined(&lines);
    // The last line break may belong to a block scalar.
    let unended = unmoved.trim_end_matches('\n').to_owned();
    let means_the_same =
        |text: &String| meaning(name, text, &mut Problems::default()).is_some_and(|found| found == expected);
    let found = [ordered, unmoved, unended].into_iter().find(means_the_same);
    if found.is_none() {
        problems
            .at_span(None, name)
            .help("indent the file by two spaces yourself, and write multi-line values with `|`")
            .error("this file stays as it is: another layout would change its meaning");
    }
    found
}

/// A text that two files share if they mean the same: the order of their sections does not count. `None` after an error.
fn meaning(name: &str, text: &str, problems: &mut Problems) -> Option<String> {
    let before = problems.error_count();
    let root = parse_text(name, text, problems);
    if problems.error_count() > before {
        return None;
    }
    Some(root.map_or_else(String::new, |mut root| {
        sort_sections(&mut root);
        print_yaml(&root)
    }))
}

fn sort_sections(root: &mut Node) {
    if let NodeValue::Map(entries) = root.value_mut() {
        entries.sort_by(|a, b| a.key.cmp(&b.key));
    }
}

/// The lines as a text that ends with a line break. Blank lines at its begin and its end are gone.
fn joined(lines: &[Line]) -> String {
    let is_text = |line: &Line| line.kind != LineKind::Blank;
    let Some(first) = lines.iter().position(is_text) else {
        return String::new();
    };
    let last = lines.iter().rposition(is_text).unwrap_or(first);
    let texts = lines[first..=last].iter().map(|line| line.text.as_str());
    texts.flat_map(|text| [text, "\n"]).collect()
}
