// SPDX-License-Identifier: Apache-2.0

//! Headers as a map and as a list.

use std::collections::HashSet;

use proptest::prelude::*;

use super::printing::{any_text, printed};
use crate::{Decode, Headers, Problems, Secret, parse_text, yaml_text};

fn decode(text: &str) -> (Option<Headers>, Problems) {
    let mut cx = Problems::default();
    let node = parse_text("h.yaml", text, &mut cx).unwrap_or_else(|| panic!("{text}: {cx}"));
    (Headers::decode(&node, &mut cx), cx)
}

fn pairs(text: &str) -> Vec<(String, String)> {
    let (headers, problems) = decode(text);
    assert!(problems.is_empty(), "{problems}");
    let headers = headers.expect("headers");
    let pairs = headers.iter();
    pairs
        .map(|(name, value)| (name.to_owned(), value.expose().to_owned()))
        .collect()
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn headers_are_a_map_or_a_list_in_written_order() {
    let expected = owned(&[("b", "1"), ("a", "true"), ("c", "")]);
    assert_eq!(pairs("{b: 1, a: true, c: }"), expected);
    let list = "[{name: b, value: 1}, {value: true, name: a}, {name: c, value: }]";
    assert_eq!(pairs(list), expected);
    assert!(pairs("{}").is_empty() && pairs("[]").is_empty());
}

#[test]
fn a_list_of_headers_may_repeat_a_name() {
    let list = "[{name: a, value: x}, {name: b, value: y}, {name: a, value: z}]";
    assert_eq!(pairs(list), owned(&[("a", "x"), ("b", "y"), ("a", "z")]));
    let (headers, _) = decode(list);
    for name in ["a", "A"] {
        let first = headers.as_ref().and_then(|headers| headers.get(name));
        assert_eq!(first, Some(&Secret::new("x")), "{name}");
    }
}

#[test]
fn the_value_of_a_duplicate_key_is_masked() {
    for (text, key) in [
        ("[{name: a, value: b, value: hunter2}]", "value"),
        ("{a: b, a: hunter2}", "a"),
        ("{a: b, a: [{c: hunter2}]}", "a"),
    ] {
        let problems = decode(text).1.to_string();
        assert!(problems.contains(&format!("duplicate key {key:?}")), "{problems}");
        assert!(!problems.contains("hunter2"), "{problems}");
    }
}

#[test]
fn mistakes_in_headers_are_named_without_their_values() {
    for (text, message) in [
        ("[{value: hunter2}]", "`name` must be specified"),
        ("[{name: a}]", "`value` must be specified"),
        ("[{name: , value: hunter2}]", "`name` must be specified"),
        (
            "[{name: a, value: b, content: hunter2}]",
            "unknown key \"content\"",
        ),
        ("[{name: [a], value: hunter2}]", "expected a string, found a list"),
        (
            "[{name: a, value: [hunter2]}]",
            "expected a string (secret), found a list",
        ),
        (
            "- hunter2",
            "expected a map with name and value (secret), found a string",
        ),
        (
            "hunter2",
            "expected a map of strings (secret), or list of maps with name and value, found a string",
        ),
    ] {
        let (headers, problems) = decode(text);
        assert!(headers.is_none(), "{text}");
        let messages: Vec<_> = problems.sorted().iter().map(|p| p.message.clone()).collect();
        assert_eq!(messages, [message], "{text}");
        let shown = problems.to_string();
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn values_of_headers_are_masked_in_both_forms_and_names_are_not() {
    for headers in [
        "{x-a: hunter2, x-b: \"${env:WORD}\"}",
        "[{name: x-a, value: hunter2}, {name: x-b, value: \"${env:WORD}\"}]",
        "[{name: x-a, content: hunter2}, {name: x-b}]",
        "[{name: x-a, value: {x-b: hunter2}}, {name: x-b}]",
    ] {
        for key in ["headers", "record_headers"] {
            let shown = printed(&format!(
                "exporters: {{otlphttp: {{endpoint: e, {key}: {headers}}}}}"
            ));
            assert!(!shown.contains("hunter2"), "{shown}");
            assert!(shown.contains("x-a") && shown.contains("x-b"), "{shown}");
        }
    }
    let shown = printed("exporters: {otlphttp: {endpoint: e, headers: [{name: {a: hunter2}}, hunter2]}}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

fn listed(pairs: &[(String, String)]) -> String {
    let items = pairs.iter();
    let items: Vec<_> = items
        .map(|(name, value)| format!("{{name: {}, value: {}}}", yaml_text(name), yaml_text(value)))
        .collect();
    format!("[{}]", items.join(", "))
}

fn mapped(pairs: &[(String, String)]) -> String {
    let entries = pairs.iter();
    let entries: Vec<_> = entries
        .map(|(name, value)| format!("{}: {}", yaml_text(name), yaml_text(value)))
        .collect();
    format!("{{{}}}", entries.join(", "))
}

proptest! {
    #[test]
    fn both_forms_of_headers_have_the_same_meaning(
        written in prop::collection::vec((any_text(), any_text()), 0..5),
    ) {
        prop_assert_eq!(&pairs(&listed(&written)), &written);
        let mut names = HashSet::new();
        let mut distinct = written;
        distinct.retain(|(name, _)| names.insert(name.clone()));
        prop_assert_eq!(pairs(&mapped(&distinct)), distinct);
    }
}
