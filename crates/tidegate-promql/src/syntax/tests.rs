// SPDX-License-Identifier: Apache-2.0

//! Errors with their positions, and string literals as Go reads them. The tests of the gateway compare whole queries
//! with a real Prometheus.

use super::text::unquoted;
use super::*;

#[test]
fn errors_say_where_and_what() {
    for (query, wrong) in [
        ("", "unknown position: parse error: no expression found in input"),
        ("foo bar", "1:5: parse error: unexpected identifier \"bar\""),
        (
            "foo\n+ bar baz",
            "2:7: parse error: unexpected identifier \"baz\"",
        ),
        (
            "sum(foo) by job",
            "1:13: parse error: unexpected identifier \"job\" in grouping opts, expected \"(\"",
        ),
        (
            "ln(-1)",
            "1:4: parse error: expected type instant vector in call to function \"ln\", got scalar",
        ),
        (
            "rate(foo)",
            "1:6: parse error: expected type range vector in call to function \"rate\", got instant vector",
        ),
        (
            "foo[5m x]",
            "1:8: parse error: unexpected character: 'x', expected ':'",
        ),
    ] {
        let shown = parse(query).unwrap_err().shown(query);
        assert_eq!(shown, wrong, "{query}");
    }
}

#[test]
fn texts_are_unquoted_as_in_go() {
    for (quoted, text) in [
        (r#""a\"b\n""#, Some("a\"b\n")),
        (r"'\x41\101\u00e9\U0001F600'", Some("AA\u{e9}\u{1F600}")),
        (r"`\n`", Some("\\n")),
        (r"'\xc3\xa9'", Some("\u{e9}")),
        (r"'\xff'", None),
    ] {
        assert_eq!(unquoted(quoted).as_deref(), text, "{quoted}");
    }
}

#[test]
fn the_tree_of_a_chain_is_as_deep_as_the_chain_is_long() {
    let text = vec!["1"; 20_000].join("+");
    let tree = json(&parse(&text).unwrap());
    let count = |part: &str| tree.matches(part).count();
    assert_eq!(count("\"binaryExpr\""), 19_999);
    assert_eq!((count("{"), count("\"rhs\"")), (count("}"), 19_999));
    let quoted = json(&parse("\"a\\\"\\\\\\n\\x01\"").unwrap());
    assert_eq!(quoted, r#"{"type":"stringLiteral","val":"a\"\\\u000a\u0001"}"#);
}

/// The longest texts that a query may have, on a stack that has room for the depth that is allowed and no more.
#[test]
fn no_text_makes_a_tree_deeper_than_the_limit() {
    let nested = |open: &str, close: &str, levels: usize| open.repeat(levels) + "x" + &close.repeat(levels);
    let texts = [
        nested("", "[1:]", 16_000),
        nested("(", "[1:])", 10_000),
        nested("(", ")[1:]", 10_000),
        nested("-", "", 60_000),
        nested("(", ")", 30_000),
        nested("abs(", ")", 10_000),
        nested("sum(", ")", 10_000),
        nested("1+(", ")", 10_000),
        nested("2^", "", 30_000),
    ];
    let parses = move || texts.map(|text| parse(&text).map(drop).unwrap_err().shown(&text));
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(parses);
    let errors = thread.unwrap().join().unwrap();
    assert_eq!(
        errors[0],
        "1:1: parse error: subquery is only allowed on instant vector, got matrix instead"
    );
    for error in &errors[3..] {
        assert!(error.contains("nested too deeply"), "{error}");
    }
}

#[test]
fn as_many_levels_are_allowed_as_the_error_and_the_docs_say() {
    let nested = |open: &str, levels: usize| open.repeat(levels) + "x" + &")".repeat(levels);
    for (open, allowed) in [("(", 149), ("abs(", 149), ("sum(", 149), ("1+(", 74), ("-(", 74)] {
        assert!(parse(&nested(open, allowed)).is_ok(), "{open}");
        let text = nested(open, allowed + 1);
        let error = parse(&text).map(drop).unwrap_err().shown(&text);
        assert!(error.contains("150 levels are allowed"), "{open}: {error}");
    }
}
