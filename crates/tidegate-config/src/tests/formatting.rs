// SPDX-License-Identifier: Apache-2.0

//! The canonical layout of files.

use std::fmt::Write as _;

use proptest::prelude::*;

use crate::{Node, Problems, format_text, parse_text, print_yaml};

fn formatted(text: &str) -> String {
    let mut problems = Problems::default();
    let formatted = format_text("f.yaml", text, &mut problems);
    formatted.unwrap_or_else(|| panic!("{text}\n{problems}"))
}

/// Formats once to `expected`, and then to the same text again.
fn becomes(text: &str, expected: &str) {
    assert_eq!(formatted(text), expected, "of\n{text}");
    assert_eq!(formatted(expected), expected, "again");
}

#[test]
fn sections_get_their_order_and_keep_their_comments() {
    becomes(
        "# The file.\nservice:\n  x: 1\n# In.\nreceivers: {otlp: }   \nexporters:\n  a: 1\n# The end.\n",
        "# The file.\n\n# In.\nreceivers: {otlp: }\nexporters:\n  a: 1\nservice:\n  x: 1\n# The end.\n",
    );
    becomes(
        "service: {}\n\n# Out.\nexporters:\n  a: 1\n  # last of a\n\nreceivers: {}\n",
        "receivers: {}\n\n# Out.\nexporters:\n  a: 1\n  # last of a\n\nservice: {}\n",
    );
    becomes(
        "# The file.\n\n# The service.\nservice: {}\nreceivers: {}\n",
        "# The file.\n\nreceivers: {}\n# The service.\nservice: {}\n",
    );
}

#[test]
fn a_file_in_order_keeps_its_blank_lines() {
    let text = "# The file.\nreceivers: {}\n\n\nexporters: {}\nservice: {}\n";
    becomes(text, text);
    becomes("\n\na: 1\n\n\n", "a: 1\n");
    becomes("", "");
    becomes("# Only this.", "# Only this.\n");
}

#[test]
fn a_level_is_two_spaces() {
    becomes(
        "a:\n    b:\n    - c: 1\n      d: 2\n    -   e: 3\n        f:\n        - g\n    -\n      h: 4\n    # of b\n    i: 5\n",
        "a:\n  b:\n    - c: 1\n      d: 2\n    - e: 3\n      f:\n        - g\n    -\n      h: 4\n  # of b\n  i: 5\n",
    );
    becomes(
        "- - a: 1\n    b: 2\n  - c\n- d\n",
        "- - a: 1\n    b: 2\n  - c\n- d\n",
    );
    becomes("a:\r\n    b: 1\r\n", "a:\n  b: 1\n");
}

#[test]
fn values_of_several_lines_move_with_their_key() {
    becomes(
        "a:\n    b: |\n        x\n          # no comment\n\n        y  \n    c: {d: 1,\n        e: 2}   \n    f: \"g\n      h\"\n",
        "a:\n  b: |\n    x\n      # no comment\n\n    y  \n  c: {d: 1,\n      e: 2}\n  f: \"g\n    h\"\n",
    );
    becomes("a:\n    - |+\n      x\n\n", "a:\n  - |+\n    x\n\n");
}

#[test]
fn anchors_stay_before_their_aliases() {
    let text = "service: &s\n  a: {b: 1}\nreceivers:\n  c: *s\n  <<: *s\n";
    becomes(text, text);
    becomes(
        "x: &x {a: 1}\nservice: *x\nreceivers: *x\n",
        "x: &x {a: 1}\nreceivers: *x\nservice: *x\n",
    );
}

#[test]
fn a_text_that_is_not_yaml_is_refused() {
    for text in ["a: [", "a: 1\na: 2\n", "a: 1\n---\nb: 2\n"] {
        let mut problems = Problems::default();
        assert_eq!(format_text("f.yaml", text, &mut problems), None, "{text}");
        assert!(problems.has_errors(), "{text}");
    }
}

/// A value to be written in some layout.
#[derive(Clone, Debug)]
enum Written {
    Plain(&'static str),
    Block(Vec<&'static str>),
    Map(Vec<(Decoration, Written)>),
    List(Vec<(Decoration, Written)>),
}

/// Lines before an entry, and the indentation of what is below it.
#[derive(Clone, Debug)]
struct Decoration {
    is_blank: bool,
    comment: Option<usize>,
    step: usize,
}

fn decoration() -> impl Strategy<Value = Decoration> {
    (any::<bool>(), proptest::option::of(0..9_usize), 1..6_usize).prop_map(|(is_blank, comment, step)| {
        Decoration {
            is_blank,
            comment,
            step,
        }
    })
}

fn written() -> impl Strategy<Value = Written> {
    const PLAIN: &[&str] = &[
        "1",
        "x y",
        "'a # b'",
        "\"a\\tb\"",
        "{a: 1, b: [c]}",
        "[a, b] # c",
        "null",
        "-1",
        "\"${env:A}\"",
        "{a: 1,\n                                        b: 2}",
    ];
    const LINES: &[&str] = &["text", "  deeper", "# none", "- dash", "", "key: value"];
    let plain = proptest::sample::select(PLAIN).prop_map(Written::Plain);
    let lines = proptest::collection::vec(proptest::sample::select(LINES), 1..4);
    let leaf = prop_oneof![3 => plain, 1 => lines.prop_map(Written::Block)];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let entries = || proptest::collection::vec((decoration(), inner.clone()), 1..4);
        prop_oneof![
            2 => entries().prop_map(Written::Map),
            1 => entries().prop_map(Written::List),
        ]
    })
}

const KEYS: [&str; 5] = ["service", "receivers", "x", "exporters", "\"y z\""];

impl Decoration {
    fn write(&self, text: &mut String) {
        if self.is_blank {
            text.push('\n');
        }
        if let Some(indent) = self.comment {
            let _ = writeln!(text, "{:indent$}# comment", "");
        }
    }
}

/// Writes a value after its key or dash, which stands at `indent`.
fn write_value(value: &Written, indent: usize, step: usize, text: &mut String) {
    let below = indent + step;
    match value {
        Written::Plain(plain) => {
            let _ = writeln!(text, " {plain}");
        }
        Written::Block(lines) => {
            // The first line decides the indentation.
            text.push_str(" |\n");
            let _ = writeln!(text, "{:below$}first", "");
            for line in lines {
                let _ = writeln!(text, "{:below$}{line}", "");
            }
        }
        Written::Map(entries) | Written::List(entries) => {
            text.push('\n');
            write_entries(matches!(value, Written::Map(_)), entries, below, text);
        }
    }
}

fn write_entries(is_map: bool, entries: &[(Decoration, Written)], indent: usize, text: &mut String) {
    for (at, (decoration, value)) in entries.iter().enumerate() {
        decoration.write(text);
        let begin = if is_map {
            format!("{}:", KEYS[at])
        } else {
            "-".to_owned()
        };
        let _ = write!(text, "{:indent$}{begin}", "");
        write_value(value, indent, decoration.step, text);
    }
}

/// The tree with its sections sorted.
fn tree(text: &str) -> Option<String> {
    let mut problems = Problems::default();
    let root = parse_text("t.yaml", text, &mut problems);
    if problems.has_errors() {
        return None;
    }
    let mut entries = root.as_ref().and_then(Node::as_map).unwrap_or_default().to_vec();
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    let sections = entries
        .iter()
        .map(|entry| format!("{}\n{}", entry.key, print_yaml(&entry.value)));
    Some(sections.collect::<String>())
}

proptest! {
    #[test]
    fn a_new_layout_keeps_the_tree_and_comments_and_is_final(
        entries in proptest::collection::vec((decoration(), written()), 1..5),
    ) {
        let mut text = String::new();
        write_entries(true, &entries, 0, &mut text);
        prop_assert!(tree(&text).is_some(), "{}", text);
        let first = formatted(&text);
        prop_assert_eq!(tree(&first), tree(&text));
        prop_assert_eq!(first.matches('#').count(), text.matches('#').count());
        prop_assert_eq!(formatted(&first), first);
    }

    #[test]
    fn no_text_makes_it_panic_or_change_its_meaning(text in "[a-c:\\-#|>&*?'\"{}\\[\\], \n\t]{0,60}") {
        if let Some(formatted) = format_text("f.yaml", &text, &mut Problems::default()) {
            prop_assert_eq!(tree(&formatted), tree(&text));
        }
    }
}
