// SPDX-License-Identifier: Apache-2.0

//! Several files and `--set`.

use super::Known;
use crate::{Loader, Node, Problems, print_redacted};

fn merged(texts: &[&str], sets: &[&str]) -> (Option<Node>, Problems) {
    let mut loader = Loader::default();
    for (i, text) in texts.iter().enumerate() {
        loader = loader.text(format!("{i}.yaml"), *text);
    }
    for set in sets {
        loader = loader.set(*set);
    }
    let mut problems = Problems::default();
    (loader.root(&mut problems), problems)
}

#[test]
fn maps_merge_deeply_and_everything_else_is_replaced() {
    let table: &[(&[&str], &[&str], &str)] = &[
        (
            &["a: {b: 1, c: 2}", "a: {c: 3, d: 4}"],
            &[],
            "a: {b: 1, c: 3, d: 4}",
        ),
        (&["a: [1, 2]", "a: [3]"], &[], "a: [3]"),
        (&["a: {b: 1}", "a: 5"], &[], "a: 5"),
        (&["a: 5", "a: {b: 1}"], &[], "a: {b: 1}"),
        (&["a: {b: 1}", "a:"], &[], "a: ~"),
        (&["a: {b: 1}", "a: {}"], &[], "a: {b: 1}"),
        (&["a: 1", "# nothing", "b: 2"], &[], "{a: 1, b: 2}"),
        (&["a: {b: 1}"], &["a.b=2", "a.c=x"], "a: {b: 2, c: x}"),
        (&["a: {b: 1}"], &["a.b=2", "a.b=3"], "a: {b: 3}"),
        (
            &["a: 1"],
            &["x::y.z::w=[1, {k: v}]"],
            "{a: 1, x: {y.z: {w: [1, {k: v}]}}}",
        ),
        (&["a: 1"], &["a="], "a: ~"),
        (&["a: 1"], &["b=x=y"], "{a: 1, b: x=y}"),
    ];
    for (texts, sets, expected) in table {
        let (root, problems) = merged(texts, sets);
        assert!(problems.is_empty(), "{texts:?} {sets:?}: {problems}");
        let mut cx = Problems::default();
        let expected = crate::parse_text("e", expected, &mut cx).expect("YAML");
        let root = root.expect("a tree");
        let shown = print_redacted(&root, &cx);
        assert_eq!(shown, print_redacted(&expected, &cx), "{texts:?} {sets:?}");
    }
}

#[test]
fn places_are_those_of_the_winner() {
    let (root, mut cx) = merged(&["a: {b: 1}", "\na: {b: 2}"], &["c.d=bad"]);
    let root = root.expect("a tree");
    cx.at(root.child("a").child("b")).error("here");
    cx.at(root.child("c").child("d")).error("and here");
    assert_eq!(
        cx.to_string(),
        "1.yaml:2:8: error: a::b: here\n  2 | a: {b: 2}\n    |        ^\n\
         --set:1:5: error: c::d: and here\n  1 | c.d=bad\n    |     ^^^\n"
    );
}

#[test]
fn malformed_set_arguments_are_shown() {
    let (_, problems) = merged(&["a: 1"], &["no equals", "a..b=1", "a.password={x"]);
    let shown = problems.to_string();
    assert!(shown.contains("--set:1:1: error: missing equal sign"), "{shown}");
    assert!(shown.contains("a key is empty"), "{shown}");
    assert!(shown.contains("not valid YAML"), "{shown}");
    assert!(shown.contains("a.password=[REDACTED]"), "{shown}");
}

#[test]
fn files_are_read_and_their_absence_is_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("c.yaml");
    std::fs::write(&path, "\u{feff}receivers: {otlp: }\n").expect("a file");
    let mut problems = Problems::default();
    let argument = format!("file:{}", path.display());
    let loader = Loader::default()
        .config(&argument)
        .config("yaml:exporters: {debug: }");
    let root = loader.root(&mut problems).expect("a tree");
    assert!(root.get("receivers").is_some() && root.get("exporters").is_some());

    let missing = dir.path().join("missing.yaml");
    let shown = Loader::default().file(&missing).load(&Known).problems.to_string();
    assert!(shown.starts_with("error: can't read "), "{shown}");
    assert!(!shown.contains("empty configuration"), "{shown}");
}

#[test]
fn a_file_too_large_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("big.yaml");
    std::fs::write(&path, "# ".repeat(3 << 20)).expect("a file");
    let shown = Loader::default().file(&path).load(&Known).problems.to_string();
    assert!(shown.contains("larger than"), "{shown}");
}
