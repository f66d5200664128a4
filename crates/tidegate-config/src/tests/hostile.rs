// SPDX-License-Identifier: Apache-2.0

//! Texts that want to crash the parser or keep it busy.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::load;

/// Generous for a debug build on a busy machine; the attacks would take minutes.
const QUICK: Duration = Duration::from_secs(20);

fn refused_quickly(text: &str, why: &str) {
    let begin = Instant::now();
    let shown = load("h.yaml", text).problems.to_string();
    assert!(begin.elapsed() < QUICK, "took {:?}", begin.elapsed());
    assert!(shown.contains(why), "{shown}");
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        let copies = vec![format!("*a{}", i - 1); 10].join(", ");
        bomb += &format!("a{i}: &a{i} [{copies}]\n");
    }
    refused_quickly(&bomb, "values after aliases are expanded");
}

#[test]
fn aliases_can_not_nest_deeper_than_brackets() {
    let mut tower = String::from("a0: &a0 [x]\n");
    for i in 1..60 {
        tower += &format!("a{i}: &a{i} [*a{}]\n", i - 1);
    }
    refused_quickly(&tower, "nested deeper than");
}

#[test]
fn deep_nesting_is_refused() {
    refused_quickly(&"[".repeat(200_000), "not valid YAML");
    refused_quickly(&"{a: ".repeat(200_000), "not valid YAML");
    refused_quickly(&"- ".repeat(200_000), "not valid YAML");
}

#[test]
fn an_alias_inside_its_own_value_is_refused() {
    refused_quickly("a: &a [*a]", "an alias inside the value that it stands for");
}

#[test]
fn two_documents_in_a_file_are_refused() {
    refused_quickly("a: 1\n---\nb: 2\n", "a second YAML document");
}

#[test]
fn a_flood_of_problems_is_cut() {
    let keys: String = (0..5_000).map(|i| format!("k{i}: 1\n")).collect();
    refused_quickly(&keys, "more problems");
}

#[test]
fn variables_that_multiply_are_stopped() {
    let begin = Instant::now();
    let env = |name: &str| {
        let level: u32 = name.strip_prefix('V')?.parse().ok()?;
        Some(format!("${{V{0}}}${{V{0}}}", level + 1))
    };
    let loader = crate::Loader::default().text("h.yaml", "a: ${V0}").env(env);
    let shown = loader.load(&super::Known).problems.to_string();
    assert!(begin.elapsed() < QUICK, "took {:?}", begin.elapsed());
    assert!(shown.contains("too many further references"), "{shown}");
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        let _ = load("p.yaml", &text).problems.to_string();
    }

    #[test]
    fn text_of_yaml_pieces_never_panics(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "receivers", "service", "pipelines", "nixl", "headers", "password", ": ", ":",
                "\n", "\n  ", "\n    ", "- ", "[", "]", "{", "}", ", ", "&a ", "*a", "<<: ", "|\n",
                ">\n", "\"", "'", "${env:WORD}", "${", "}", "$$", ":-", "!!str ", "# ", "~", "1e9",
                "0x", "\t", "\u{feff}", "\u{e9}", "---\n", "? ", "%YAML 1.2\n",
            ]),
            0..40,
        )
    ) {
        let text = pieces.concat();
        let shown = load("p.yaml", &text).problems.to_string();
        prop_assert!(!shown.contains("hunter2"));
    }

    #[test]
    fn arbitrary_set_arguments_never_panic(argument in any::<String>()) {
        let loader = crate::Loader::default().text("a", "a: 1").set(argument);
        let _ = loader.load(&super::Known).problems.to_string();
    }
}
