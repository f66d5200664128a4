// SPDX-License-Identifier: Apache-2.0

//! `${...}` in values.

use std::io::{self, Write};
use std::path::Path;

use crate::{Decode, Loader, Node, Problems, ScalarKind};

fn env(name: &str) -> Option<String> {
    let value = match name {
        "INT" => "8080",
        "ZEROS" => "0123",
        "BOOL" => "true",
        "EMPTY" => "",
        "STR" => "text",
        "HASH" => "pass # word",
        "JSON" => "{\"a\": 1}",
        "BAD" => "[not: yaml",
        "LIST" => "[1, two]",
        "REF" => "${env:INT}",
        "MIXED" => "<${env:STR}>",
        "NAME" => "INT",
        "DOLLARS" => "a$$b",
        "STAR" => "*abc",
        _ => return None,
    };
    Some(value.to_owned())
}

fn expand(value: &str) -> (Node, Problems) {
    let mut problems = Problems::default();
    let text = format!("v: {value}\n");
    let loader = Loader::default().text("s.yaml", text).env(env);
    let root = loader.root(&mut problems).expect("YAML");
    (root.child("v").clone(), problems)
}

#[test]
fn whole_values_keep_their_type_and_embedded_ones_are_strings() {
    let str = |text: &'static str| (ScalarKind::Str, text);
    let table = [
        ("${env:INT}", (ScalarKind::Int(8080), "8080")),
        ("${INT}", (ScalarKind::Int(8080), "8080")),
        ("\"${env:INT}\"", (ScalarKind::Int(8080), "8080")),
        ("${env:ZEROS}", (ScalarKind::Int(123), "0123")),
        ("${env:BOOL}", (ScalarKind::Bool(true), "true")),
        ("${env:STR}", str("text")),
        ("${env:HASH}", str("pass # word")),
        ("${env:BAD}", str("[not: yaml")),
        ("${env:STAR}", str("*abc")),
        ("${env:UNSET:-7}", (ScalarKind::Int(7), "7")),
        ("${env:EMPTY:-7}", (ScalarKind::Int(7), "7")),
        ("${UNSET:-a:-b}", str("a:-b")),
        ("\"${env:UNSET:-}\"", str("")),
        ("localhost:${env:INT}", str("localhost:8080")),
        ("a${env:UNSET:-b}c", str("abc")),
        ("a${env:EMPTY}c", str("ac")),
        ("${env:INT}${env:INT}", str("80808080")),
        ("${env:REF}", (ScalarKind::Int(8080), "8080")),
        ("${env:MIXED}", str("<text>")),
        ("x${env:MIXED}", str("x<text>")),
        ("${env:${env:NAME}}", (ScalarKind::Int(8080), "8080")),
        ("${env:${UNSET:-INT}}", (ScalarKind::Int(8080), "8080")),
        ("${env:UNSET:-${env:STR}}", str("text")),
        ("a$$b", str("a$b")),
        ("$${env:INT}", str("${env:INT}")),
        ("$$$${INT}", str("$${INT}")),
        ("costs $5", str("costs $5")),
        ("${env:DOLLARS}", str("a$b")),
        ("${yaml:1.5}", (ScalarKind::Float(1.5), "1.5")),
    ];
    for (value, (kind, text)) in table {
        let (node, problems) = expand(value);
        assert!(problems.is_empty(), "{value}: {problems}");
        let scalar = node.scalar().unwrap_or_else(|| panic!("{value}"));
        assert_eq!(scalar.kind, kind, "{value}");
        assert_eq!(node.as_text(), Some(text), "{value}");
    }
}

#[test]
fn an_empty_variable_is_null_without_a_word() {
    let (node, problems) = expand("${env:EMPTY}");
    assert!(node.is_null() && problems.is_empty());
}

#[test]
fn an_unset_variable_is_null_with_a_warning() {
    let (node, problems) = expand("${env:UNSET}");
    assert!(node.is_null() && !problems.has_errors());
    let expected = "s.yaml:1:4: warning: v: environment variable UNSET is not set; nothing stands in its place\n  \
                    1 | v: ${env:UNSET}\n    |    ^^^^^^^^^^^^\n  \
                    help: set it, or write `${env:UNSET:-default}`\n";
    assert_eq!(problems.to_string(), expected);
}

#[test]
fn an_error_of_the_same_option_has_the_unset_variable_as_its_cause() {
    let (node, mut problems) = expand("a${env:UNSET}b${env:UNSET_TOO}");
    problems.at(&node).error("not a number");
    let found: Vec<_> = problems.sorted().iter().map(|one| one.message.clone()).collect();
    let expected =
        "not a number; environment variable UNSET is not set; environment variable UNSET_TOO is not set";
    assert_eq!(found, [expected]);
    let help = problems.sorted()[0].help.clone();
    assert_eq!(help.as_deref(), Some("set it, or write `${env:UNSET:-default}`"));
}

#[test]
fn a_default_that_is_not_needed_is_not_looked_at() {
    let (_, problems) = expand("${env:INT:-${env:UNSET}}");
    assert!(problems.is_empty(), "{problems}");
}

#[test]
fn collections_come_whole_and_strings_take_their_text() {
    let (node, mut cx) = expand("${env:LIST}");
    assert_eq!(node.as_list().map(<[Node]>::len), Some(2));
    assert_eq!(String::decode(&node, &mut cx).as_deref(), Some("[1, two]"));
    let (node, mut cx) = expand("${env:JSON}");
    assert_eq!(String::decode(&node, &mut cx).as_deref(), Some("{\"a\": 1}"));
    let (_, problems) = expand("x ${env:LIST}");
    assert!(
        problems
            .to_string()
            .contains("can't stand inside a longer string")
    );
}

#[test]
fn files_give_scalars_and_subtrees() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    write!(file, "grpc:\n  endpoint: \"0.0.0.0:${{env:INT}}\"\nlist: [1]\n").expect("written");
    let (node, problems) = expand(&format!("${{file:{}}}", file.path().display()));
    assert!(problems.is_empty(), "{problems}");
    let endpoint = node.child("grpc").child("endpoint");
    assert_eq!(endpoint.as_str(), Some("0.0.0.0:8080"));
    assert_eq!(endpoint.path().to_string(), "v::grpc::endpoint");
    assert_eq!((endpoint.span().line, endpoint.span().column), (1, 4));
}

#[test]
fn the_newline_at_the_end_of_a_file_is_not_part_of_a_secret() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    writeln!(file, "s3cr:et").expect("written");
    let (node, _) = expand(&format!("Bearer ${{file:{}}}", file.path().display()));
    assert_eq!(node.as_text(), Some("Bearer s3cr:et"));
}

#[test]
fn a_reader_reads_configurations_and_references() {
    let read = |path: &Path| match path.to_str() {
        Some("a.yaml") => Ok("{v: '${file:b}', w: '${file:c}'}".to_owned()),
        Some("b") => Ok("8080".to_owned()),
        _ => Err(io::Error::other("not for us")),
    };
    let mut problems = Problems::default();
    let loader = Loader::default().file("a.yaml").file("d.yaml").reader(read);
    let root = loader.root(&mut problems).unwrap();
    assert_eq!(root.child("v").scalar().unwrap().text, "8080");
    let said = problems.to_string();
    assert!(said.contains("can't read d.yaml: not for us"), "{said}");
    assert!(said.contains("can't read this file: not for us"), "{said}");
}

#[test]
fn an_unset_variable_in_a_map_of_strings_is_an_empty_string() {
    let mut problems = Problems::default();
    let root = Loader::default()
        .text("s.yaml", "{a: '${env:UNSET}', b: x}")
        .env(|_| None)
        .root(&mut problems)
        .unwrap();
    let map = crate::Ordered::<String>::decode(&root, &mut problems).unwrap();
    assert_eq!(
        (map.get("a").unwrap().as_str(), map.get("b").unwrap().as_str()),
        ("", "x")
    );
    let secrets = crate::Ordered::<crate::Secret>::decode(&root, &mut problems).unwrap();
    assert_eq!(secrets.get("a").unwrap().expose(), "");
    assert!(!problems.has_errors() && problems.to_string().contains("UNSET is not set"));
}

#[test]
fn a_short_form_on_the_command_line_is_nested() {
    let mut problems = Problems::default();
    let root = Loader::default()
        .config("yaml:exporters::debug::verbosity: detailed")
        .config("yaml:{exporters::debug::sampling_initial: 5, exporters::nop: }")
        .root(&mut problems)
        .unwrap();
    let debug = root.get("exporters").unwrap().get("debug").unwrap();
    let of = |key: &str| debug.get(key).unwrap().scalar().unwrap().text.clone();
    assert_eq!(
        (of("verbosity"), of("sampling_initial")),
        ("detailed".into(), "5".into())
    );
    assert!(root.get("exporters").unwrap().get("nop").is_some());
    assert!(problems.is_empty(), "{problems}");
}
