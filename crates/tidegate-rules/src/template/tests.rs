// SPDX-License-Identifier: Apache-2.0

//! Templates from text to text.

use proptest::prelude::*;

use super::*;

fn vector() -> Vec<(Labels, SampleValue)> {
    let sample = |job: &str, value: f64| {
        let labels = [("__name__", "up"), ("job", job)].into_iter().collect();
        (labels, SampleValue::Float(value))
    };
    vec![sample("b", 2.0), sample("a", 1.0)]
}

fn expand(text: &str) -> Result<String, String> {
    let labels: Labels = [("instance", "node1.example.com:9100"), ("job", "node")]
        .into_iter()
        .collect();
    let external: Labels = [("region", "eu")].into_iter().collect();
    let data = TemplateData {
        labels: &labels,
        external_labels: &external,
        external_url: "http://gate.example/rules",
        value: 1234.5,
        now: 60_000,
    };
    let mut query = |text: &str| match text {
        "up" => Ok(vector()),
        "none" => Ok(Vec::new()),
        _ => Err("no such query".to_owned()),
    };
    Template::parse(text)?.expand(&data, &mut query)
}

#[test]
fn templates_of_rules_have_their_texts() {
    let table = [
        ("plain", "plain"),
        (
            "{{ $labels.instance }} of {{ .Labels.job }}",
            "node1.example.com:9100 of node",
        ),
        ("{{ $labels.missing }}|", "|"),
        ("{{ $value }} {{ .Value | humanize }}", "1234.5 1.234k"),
        ("{{ printf \"%.1f\" $value }}", "1234.5"),
        ("{{ $value | printf \"%.1f%%\" }}", "1234.5%"),
        ("{{ $externalLabels.region | toUpper }}", "EU"),
        (
            "{{ $externalURL }} {{ externalURL }} {{ pathPrefix }}",
            "http://gate.example/rules http://gate.example/rules /rules",
        ),
        (
            "{{ stripPort $labels.instance }} {{ $labels.instance | stripDomain }}",
            "node1.example.com node1:9100",
        ),
        ("{{ query \"up\" | first | value }}", "2"),
        ("{{ (query \"up\" | first).Labels.job }}", "b"),
        (
            "{{ with query \"none\" }}{{ . | first | value }}{{ else }}no{{ end }}",
            "no",
        ),
        (
            "{{ range query \"up\" | sortByLabel \"job\" }}{{ .Labels.job }}={{ .Value }};{{ end }}",
            "a=1;b=2;",
        ),
        (
            "{{ range $i, $s := query \"up\" }}{{ $i }}{{ label \"job\" $s }}{{ end }}",
            "0b1a",
        ),
        (
            "{{ if gt $value 1000.0 }}high{{ else if gt $value 1.0 }}low{{ else }}none{{ end }}",
            "high",
        ),
        (
            "{{ if and (eq $labels.job \"node\") (not false) }}yes{{ end }}",
            "yes",
        ),
        ("{{ if match \"^no\" $labels.job }}m{{ end }}", "m"),
        ("{{ reReplaceAll \"(.*)1(.*)\" \"${1}2$2\" \"a1b\" }}", "a2b"),
        ("{{ $x := 5 }}{{ $x = 6 }}{{ $x }}", "6"),
        (
            "{{ title \"some words\" }} {{ \"AB\" | toLower }}",
            "Some Words ab",
        ),
        (
            "{{ title \"kubelet.service it's 'quoted' a..b a-b _x 3d x. y\" }}",
            "Kubelet.service It's 'Quoted' A..B A-B _X 3D X. Y",
        ),
        (
            "{{ title \"node_load1 a:b ßa AB 日本a e\u{301}.b\" }}",
            "Node_load1 A:b Ssa AB 日本A E\u{301}.b",
        ),
        (
            "{{ humanizeDuration 3661 }} {{ 0.5 | humanizePercentage }}",
            "1h 1m 1s 50%",
        ),
        ("{{ humanizeTimestamp 0 }}", "1970-01-01 00:00:00 +0000 UTC"),
        ("{{ parseDuration \"1h\" }} {{ now }}", "3600 60"),
        ("{{ tableLink \"up\" }}", "/graph?g0.expr=up&g0.tab=1"),
        ("{{ (args 1 \"b\").arg1 }}", "b"),
        ("{{ range query \"up\" }}{{ .Value }}{{ break }}{{ end }}", "2"),
        ("{{ len (query \"up\") }} {{ index $labels \"job\" }}", "2 node"),
        ("{{ or \"\" \"x\" }}{{ and \"\" (query \"wrong\") }}", "x"),
    ];
    for (text, expected) in table {
        assert_eq!(expand(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let table = [
        ("{{ $value", "unclosed action"),
        ("{{ if true }}", "unexpected EOF"),
        ("{{ end }}", "unexpected {{end}}"),
        ("{{ nothing }}", "function \"nothing\" not defined"),
        ("{{ $nothing }}", "undefined variable"),
        (
            "{{ query \"none\" | first }}",
            "first() called on vector with no elements",
        ),
        ("{{ query \"wrong\" }}", "no such query"),
        (
            "{{ if gt $value 5 }}{{ end }}",
            "incompatible types for comparison",
        ),
        ("{{ humanize \"x\" }}", "invalid syntax"),
        ("{{ .Labels.job.x }}", "can't evaluate field x in type string"),
        ("{{ $value.x }}", "can't evaluate field x"),
        ("{{ $value 5 }}", "can't give argument to non-function"),
        ("{{ reReplaceAll \"(\" \"\" \"\" }}", "error parsing regexp"),
        ("{{ template \"x\" }}", "not supported"),
        ("{{ break }}", "outside"),
    ];
    for (text, expected) in table {
        let error = expand(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn steps_and_output_are_bounded() {
    let nested = "{{ range query \"up\" }}".repeat(18) + "x" + &"{{ end }}".repeat(18);
    assert!(expand(&nested).unwrap_err().contains("steps"));
    let doubled = "{{ $x := \"0123456789abcdef\" }}".to_owned() + &"{{ $x = print $x $x }}".repeat(20);
    assert!(expand(&doubled).unwrap_err().contains("bytes at most"));
    let wide = "{{ $x := printf \"%256s\" \"\" }}{{ $x = print".to_owned() + &" $x".repeat(200) + " }}";
    let equal = wide + "{{ if eq" + &" $x".repeat(1000) + " }}{{ end }}";
    assert!(expand(&equal).unwrap_err().contains("steps"));
    let deep = "{{ ".to_owned() + &"(".repeat(100) + "1" + &")".repeat(100) + " }}";
    assert!(expand(&deep).unwrap_err().contains("parentheses"));
    let blocks = "{{ if true }}".repeat(100) + &"{{ end }}".repeat(100);
    assert!(expand(&blocks).unwrap_err().contains("blocks"));
}

proptest! {
    #[test]
    fn no_template_panics(text in ".{0,80}") {
        drop(expand(&text));
        drop(expand(&format!("{{{{{text}}}}}")));
    }

    #[test]
    fn no_mixture_of_words_panics(words in proptest::collection::vec(
        prop::sample::select(vec![
            "{{", "}}", "{{-", "-}}", " ", "if", "else", "end", "range", "with", "$", "$x", ":=", "=", ".", ".Labels",
            "|", "(", ")", "query", "\"up\"", "first", "value", "printf", "\"%5.3d\"", "1", "-1.5e3", "$value",
            "humanize", "humanizeTimestamp", "slice", "\"äöü\"", "index", "args", "eq", "match", "\"(\"", "title",
            "stripDomain", "print", "break", "nil", "true", "/*", "*/", "'a'", "`x`", ",", "$i,",
        ]), 0..40)) {
        drop(expand(&words.join(" ")));
        drop(expand(&words.concat()));
    }
}
