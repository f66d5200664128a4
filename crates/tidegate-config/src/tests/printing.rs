// SPDX-License-Identifier: Apache-2.0

//! The effective configuration as it is printed.

use proptest::prelude::*;

use super::{Known, load};
use crate::{Loader, Node, Problems, SubstitutedValues, parse_text, print_yaml, redacted, yaml_text};

/// Characters that mean something in YAML.
const MEANINGFUL: &str = ": #-?[]{},&*!|>'\"%@`\\/~=<$.0aE\n\r\t";

/// Characters that readers of YAML refuse or change.
const REFUSED: &str = "\0\u{7f}\u{85}\u{a0}\u{2028}\u{2029}\u{feff}\u{fffe}\u{ffff}";

pub(super) fn any_text() -> impl Strategy<Value = String> {
    let special: Vec<char> = MEANINGFUL.chars().chain(REFUSED.chars()).collect();
    let character = prop_oneof![prop::sample::select(special), any::<char>()];
    prop::collection::vec(character, 0..24).prop_map(|characters| characters.into_iter().collect())
}

/// The texts of `a: TEXT` and of the first item of `b: [TEXT, x]`.
fn read_again(text: &str) -> [Option<String>; 2] {
    let shown = yaml_text(text);
    let mut problems = Problems::default();
    let root = parse_text("q.yaml", &format!("a: {shown}\nb: [{shown}, x]\n"), &mut problems);
    let root = root.unwrap_or_else(|| panic!("{shown}: {problems}"));
    let items = root.child("b").as_list().unwrap_or_default();
    [Some(root.child("a")), items.first()].map(|node| node?.as_text().map(str::to_owned))
}

#[test]
fn texts_that_look_like_other_yaml_are_quoted() {
    for (text, expected) in [
        ("word", "word"),
        ("a: b", "\"a: b\""),
        ("a #b", "\"a #b\""),
        ("- a", "\"- a\""),
        ("[a", "\"[a\""),
        ("a:", "\"a:\""),
        ("true", "\"true\""),
        ("", "\"\""),
        ("a\u{ffff}", "\"a\\U0000ffff\""),
    ] {
        assert_eq!(yaml_text(text), expected);
        assert_eq!(read_again(text), [Some(text.to_owned()), Some(text.to_owned())]);
    }
}

proptest! {
    #[test]
    fn every_text_is_read_again_as_it_was(text in any_text()) {
        prop_assert_eq!(read_again(&text), [Some(text.clone()), Some(text.clone())]);
    }
}

pub(super) fn printed(text: &str) -> String {
    let loaded = load("p.yaml", text);
    let document = loaded.document.expect("a document");
    print_yaml(&redacted(
        &document.root,
        &loaded.problems,
        SubstitutedValues::Shown,
    ))
}

#[test]
fn substituted_values_are_shown_except_those_of_secrets() {
    let shown = printed(
        "exporters:
  otlphttp:
    endpoint: ${env:WORD}
    pass_code: ${env:WORD}
    headers: {x: \"${env:WORD}\"}",
    );
    assert_eq!(
        shown,
        "exporters:\n  otlphttp:\n    endpoint: hunter2\n    pass_code: \"[REDACTED]\"\n    headers:\n      \
         x: \"[REDACTED]\"\n"
    );
}

#[test]
fn values_that_no_option_reads_are_masked_if_their_keys_are_suspicious() {
    let shown = printed(
        "receivers:
  nosuch: {routing_key: hunter2, plain: word, deep: [{tokens: [hunter2]}]}
  bad-type: {key: hunter2}
  nixl: {directories: [a], secrett: hunter2, compression: {key: hunter2}}
exporters: {otlphttp: {endpoint: e, keys: {a: hunter2}}}
unknown: {my_key: hunter2}",
    );
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(shown.contains("plain: word\n"), "{shown}");
}

#[test]
fn ids_that_sound_like_secrets_mask_nothing() {
    let shown = printed(
        "receivers: {nixl/token: {directories: [shown-a]}, nosuch/key: {plain: shown-b, my_key: hunter2}}
exporters: {otlphttp/api_key: {endpoint: shown-c, pass_code: hunter2, headers: {x: hunter2}}}
service:
  telemetry: {logs: {levels: {'receivers::nixl/token': shown-d}, token: hunter2}}
  pipelines: {metrics/token: {receivers: [nixl/token], exporters: [otlphttp/api_key], token: hunter2}}",
    );
    for value in [
        "shown-a",
        "shown-b",
        "shown-c",
        "shown-d",
        "- nixl/token",
        "- otlphttp/api_key",
    ] {
        assert!(shown.contains(value), "{value}: {shown}");
    }
    assert!(!shown.contains("hunter2"), "{shown}");
    assert_eq!(shown.matches("[REDACTED]").count(), 5, "{shown}");
}

#[test]
fn only_the_keys_of_a_section_are_ids() {
    let shown = printed(
        "receivers: [{token: hunter2}]
extensions: {password: hunter2}
exporters: {otlphttp: {receivers: {token: hunter2}}}
service: {token: hunter2, pipelines: {metrics: {token: {a: hunter2}}}}",
    );
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn a_text_with_the_url_of_a_user_is_masked_wherever_the_url_stands() {
    let shown = printed("exporters: {otlphttp: {endpoint: 'nats://a:1/x, nats://ada:hunter2@b'}}");
    assert!(shown.contains("endpoint: \"[REDACTED]\"\n"), "{shown}");
}

#[test]
fn an_item_of_a_list_begins_behind_its_dash() {
    let mut problems = Problems::default();
    let text = "{a: [{b: [x, {}], c: {d: 1}}, [[], [y, z]], ~], e: {f: []}}";
    let root = parse_text("l.yaml", text, &mut problems).expect("YAML");
    let printed = print_yaml(&root);
    let expected = "a:
  - b:
      - x
      - {}
    c:
      d: 1
  - - []
    - - y
      - z
  - null
e:
  f: []
";
    assert_eq!(printed, expected);
    let again = parse_text("l.yaml", &printed, &mut problems).expect("YAML");
    assert_eq!(again.to_json(), root.to_json());
}

#[test]
fn a_literal_dollar_is_printed_so_that_it_is_read_again() {
    let root = |text: &str| {
        let loader = Loader::default().text("d.yaml", text).env(|_| None);
        loader.root(&mut Problems::default()).expect("YAML")
    };
    let text = |root: &Node| root.child("a").as_text().map(str::to_owned);
    for (value, meaning) in [
        ("$1", "$1"),
        ("$$1", "$1"),
        ("$${x}", "${x}"),
        ("$$$${x}", "$${x}"),
        ("a$$$$b", "a$$b"),
        ("$", "$"),
    ] {
        let first = root(&format!("a: '{value}'"));
        assert_eq!(text(&first).as_deref(), Some(meaning));
        let shown = print_yaml(&redacted(&first, &Problems::default(), SubstitutedValues::Masked));
        assert_eq!(text(&root(&shown)).as_deref(), Some(meaning), "{shown}");
    }
}

#[test]
fn a_text_that_is_not_yaml_is_told_from_one_with_mistakes() {
    let is_read = |text: &str| {
        let loaded = Loader::default().text("r.yaml", text).load(&Known);
        assert!(loaded.problems.has_errors());
        loaded.is_read
    };
    assert!(is_read("receivers: {nosuch: }"));
    assert!(!is_read("receivers: [}"));
    assert!(!is_read("{a: 1, a: 2}"));
}

#[test]
fn a_tree_becomes_json_and_numbers_without_a_form_in_json_become_text() {
    let mut problems = Problems::default();
    let root = parse_text("j.yaml", "{a: [1, 2.5, true, ~, x, '1', .nan]}", &mut problems);
    let json = root.expect("YAML").to_json();
    assert_eq!(json.to_string(), r#"{"a":[1,2.5,true,null,"x","1",".nan"]}"#);
}
