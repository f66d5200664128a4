// SPDX-License-Identifier: Apache-2.0

//! The list of components is YAML, with a level of each signal.

mod errors;
mod options;

use super::*;
use crate::config::{Node, Problems, parse_text};

/// A component as the reader of configurations reads it from the list.
fn read(about: &About) -> Node {
    let text = format!("all:\n{}\n", lines(about, true).join("\n"));
    let mut problems = Problems::default();
    let root = parse_text("components.yaml", &text, &mut problems);
    assert!(problems.is_empty(), "{text}\n{problems}");
    let root = root.expect("the list");
    let all = root.child("all").as_list().unwrap_or_default();
    all.first().expect("the component").clone()
}

#[test]
fn the_list_of_components_is_yaml_with_their_texts() {
    for about in all() {
        let one = read(&about);
        assert_eq!(one.child("name").as_text(), Some(about.kind));
        assert_eq!(one.child("description").as_text(), Some(about.help));
        let listed = one.child("options").as_map().unwrap_or_default();
        let listed: Vec<_> = listed.iter().map(|entry| entry.key.as_str()).collect();
        let options = (about.config.docs)();
        let names: Vec<_> = options.iter().map(|option| option.name).collect();
        assert_eq!(listed, names, "{}", about.kind);
    }
}

#[test]
fn each_signal_and_each_extension_has_a_level() {
    for about in all() {
        let one = read(&about);
        let listed = one.child("stability").as_map().unwrap_or_default();
        let listed: Vec<_> = listed.iter().map(|entry| entry.key.as_str()).collect();
        let mut expected: Vec<_> = about.signals.iter().map(|(signal, _)| signal.name()).collect();
        if about.class == Class::Extension {
            expected.push("extension");
        }
        assert!(!expected.is_empty(), "{}", about.kind);
        assert_eq!(listed, expected, "{}", about.kind);
    }
}

#[test]
fn descriptions_that_look_like_other_yaml_are_read_as_texts() {
    let one = all()[0];
    for help in [
        "a # b", "- a", "[a", "{a", "a:", "a: b", "'a", "\"a", "&a", "*a", "!a", "| a", "> a", "% a", "@a",
        "`a", "true", "~", "1", "? a", "#a", " a ", "a\\b", "a\nb",
    ] {
        let read = read(&About { help, ..one });
        assert_eq!(read.child("description").as_text(), Some(help));
    }
}
