// SPDX-License-Identifier: Apache-2.0

//! The order of the sections of a configuration.

use std::mem::take;

use super::{Line, LineKind};

/// The canonical order. Other keys precede these, because they may have anchors.
const ORDER: [&str; 6] = [
    "receivers",
    "processors",
    "exporters",
    "connectors",
    "extensions",
    "service",
];

/// A section with the comments before it.
struct Section {
    rank: usize,
    lines: Vec<Line>,
}

/// A file in parts.
struct FileParts {
    /// The comment about the whole file.
    header: Vec<Line>,
    sections: Vec<Section>,
    /// Comments after the last section.
    footer: Vec<Line>,
}

/// The lines with their sections in order. They stay the same if the order is right already.
pub(super) fn ordered(lines: &[Line]) -> Vec<Line> {
    let mut parts = parts(lines);
    if parts.sections.is_sorted_by_key(|section| section.rank) {
        return lines.to_vec();
    }
    let mut later = parts.sections.iter().skip(1);
    let is_separated = later.any(|section| section.lines.first().is_some_and(is_blank));
    parts.sections.sort_by_key(|section| section.rank);
    let mut all = parts.header;
    for (at, section) in parts.sections.into_iter().enumerate() {
        let first = section.lines.iter().position(|line| !is_blank(line));
        let written = &section.lines[first.unwrap_or(0)..];
        let begins_with_comment = written.first().is_some_and(|line| line.kind == LineKind::Comment);
        let separates = match at {
            // The comment of a section must not become a part of the header.
            0 => begins_with_comment,
            _ => is_separated,
        };
        if separates && all.last().is_some_and(|line| !is_blank(line)) {
            all.push(blank());
        }
        all.extend_from_slice(written);
    }
    all.extend(parts.footer);
    all
}

fn parts(lines: &[Line]) -> FileParts {
    let mut parts = FileParts {
        header: Vec::new(),
        sections: Vec::new(),
        footer: Vec::new(),
    };
    let mut leading = Vec::new();
    for line in lines {
        if is_key(line) {
            parts.begin(line, take(&mut leading));
        } else {
            leading.push(line.clone());
            if !is_blank(line) && !is_comment(line) {
                parts.add(&mut leading);
            }
        }
    }
    parts.footer = leading;
    parts
}

impl FileParts {
    fn begin(&mut self, key: &Line, mut comments: Vec<Line>) {
        if self.sections.is_empty() {
            // A comment that a blank line separates from the header belongs to the section.
            let end = comments
                .iter()
                .rposition(is_blank)
                .map_or(comments.len(), |at| at + 1);
            let of_section = comments.split_off(end);
            self.header.append(&mut comments);
            comments = of_section;
        }
        comments.push(key.clone());
        self.sections.push(Section {
            rank: rank(&key.text),
            lines: comments,
        });
    }

    /// Lines that belong to what began before them.
    fn add(&mut self, lines: &mut Vec<Line>) {
        match self.sections.last_mut() {
            Some(section) => section.lines.append(lines),
            None => self.header.append(lines),
        }
    }
}

/// The position of a key in the order: 0 if it is not a section.
fn rank(line: &str) -> usize {
    let key = line.split(':').next().unwrap_or_default();
    let key = key.trim().trim_matches(['"', '\'']);
    ORDER
        .iter()
        .position(|section| *section == key)
        .map_or(0, |at| at + 1)
}

fn is_blank(line: &Line) -> bool {
    line.kind == LineKind::Blank
}

/// A comment that is not inside a section.
fn is_comment(line: &Line) -> bool {
    line.kind == LineKind::Comment && line.text.starts_with('#')
}

/// Whether a section or another key of the file begins here.
fn is_key(line: &Line) -> bool {
    let is_outer = !line.text.starts_with([' ', '-', '%', '{', '[']);
    line.kind == LineKind::Content && is_outer && !line.text.starts_with("...")
}

fn blank() -> Line {
    Line {
        text: String::new(),
        kind: LineKind::Blank,
    }
}
