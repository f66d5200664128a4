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
            "{{ range $i, $s := query \"none\" }}{{ else }}{{ len $i }}{{ len $s }}{{ end }}",
            "00",
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
        (
            "{{ parseDuration \"1h\" }} {{ parseDuration \"-30m\" }} {{ now }}",
            "3600 -1800 60",
        ),
        ("{{ tableLink \"up\" }}", "/graph?g0.expr=up&g0.tab=1"),
        ("{{ urlQueryEscape \"a b&c\" }}", "a+b%26c"),
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
fn times_have_the_methods_of_go() {
    let table = [
        ("{{ $value | toTime }}", "1970-01-01 00:20:34.5 +0000 UTC"),
        (
            "{{ toTime \"12\" }} {{ toTime -0.0015 }}",
            "1970-01-01 00:00:12 +0000 UTC 1969-12-31 23:59:59.999 +0000 UTC",
        ),
        ("{{ (toTime 1796061600).Format \"2006-01-02\" }}", "2026-11-30"),
        (
            "{{ \"15:04\" | (toTime 60).UTC.Format | printf \"%s!\" }}",
            "00:01!",
        ),
        (
            "{{ $t := toTime 1796061600.128 }}{{ $t.Unix }} {{ $t.UnixMilli }} {{ $t.UnixMicro }} {{ $t.UnixNano }}",
            "1796061600 1796061600128 1796061600128000 1796061600128000000",
        ),
        (
            "{{ with toTime 1796061600.5 }}{{ .Year }} {{ .Month }} {{ .Day }} {{ .Weekday }} {{ .YearDay }}{{ end }}",
            "2026 November 30 Monday 334",
        ),
        (
            "{{ with toTime 3723.5 }}{{ .Hour }} {{ .Minute }} {{ .Second }} {{ .Nanosecond }}{{ end }}",
            "1 2 3 500000000",
        ),
        (
            "{{ $t := toTime 1796061600 }}{{ printf \"%02d %s %q\" $t.Month $t.Month $t.Weekday }}",
            "11 November \"Monday\"",
        ),
        (
            "{{ $t := toTime 1796061600 }}{{ eq $t.Month 11 }} {{ eq $t.Weekday.String \"Monday\" }}",
            "true true",
        ),
        (
            "{{ (toTime 60).Before (toTime 61) }} {{ (toTime 60).After (toTime 61) }} {{ (toTime 60).Equal (toTime 60) }}",
            "true false true",
        ),
        (
            "{{ (toTime 60).Sub (toTime 30) }} {{ ((toTime 60).Sub (toTime 30)).Seconds }}",
            "30s 30",
        ),
        (
            "{{ (\"-30m\" | parseDuration | toDuration | (now | toTime).Add).UnixMilli }}",
            "-1740000",
        ),
        (
            "{{ (toTime 9000000000).Sub (toTime -9000000000) }}",
            "2562047h47m16.854775807s",
        ),
        (
            "{{ printf \"%.10s|%30v|\" (toTime 60) (toTime 60) }} {{ (args (toTime 60)).arg0.Unix }}",
            "1970-01-01| 1970-01-01 00:01:00 +0000 UTC| 60",
        ),
        (
            "{{ print (toTime 60) (toTime 60).Month }} {{ if toTime 0 }}yes{{ end }}",
            "1970-01-01 00:01:00 +0000 UTC January yes",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(expand(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn durations_have_the_methods_of_go() {
    let table = [
        (
            "{{ 0 | toDuration }} {{ 5400 | toDuration }} {{ toDuration \"1800\" }} {{ 61.25 | toDuration }}",
            "0s 1h30m0s 30m0s 1m1.25s",
        ),
        (
            "{{ -0.5 | toDuration }} {{ -5400.25 | toDuration }} {{ 90061 | toDuration }}",
            "-500ms -1h30m0.25s 25h1m1s",
        ),
        (
            "{{ 1e-8 | toDuration }} {{ 1.5e-6 | toDuration }} {{ 0.0015025 | toDuration }} {{ 0.999999999 | toDuration }}",
            "10ns 1.5\u{b5}s 1.5025ms 999.999999ms",
        ),
        (
            "{{ with toDuration 5400.25 }}{{ .Hours }} {{ .Minutes }} {{ .Seconds }} {{ .Milliseconds }} {{ . }}{{ end }}",
            "1.5000694444444445 90.00416666666666 5400.25 5400250 1h30m0.25s",
        ),
        (
            "{{ (0.0000015 | toDuration).Nanoseconds }} {{ (0.0000015 | toDuration).Microseconds }} {{ (toDuration -0.0019).Milliseconds }}",
            "1500 1 -1",
        ),
        (
            "{{ (90 | toDuration).Round (toDuration 60) }} {{ (toDuration 89).Round (toDuration 60) }} {{ (toDuration -90).Round (toDuration 60) }}",
            "2m0s 1m0s -2m0s",
        ),
        (
            "{{ (toDuration -119).Truncate (toDuration 60) }} {{ (toDuration 90.4).Round 1000000000 }} {{ (toDuration 90).Round 0 }}",
            "-1m0s 1m30s 1m30s",
        ),
        (
            "{{ (toDuration 8e9).Round (toDuration 5e9) }} {{ (toDuration -90).Abs }} {{ (toDuration 90).String | toUpper }}",
            "2562047h47m16.854775807s 1m30s 1M30S",
        ),
        (
            "{{ printf \"%s %8v|%q %.1f\" (toDuration 60) (toDuration 60) (toDuration 60) (toDuration 60).Seconds }}",
            "1m0s     1m0s|\"1m0s\" 60.0",
        ),
        (
            "{{ printf \"%d\" (toDuration 60).Abs }} {{ humanizeDuration (toDuration 5400).Abs }}",
            "60000000000 1h 30m 0s",
        ),
        (
            "{{ lt (toDuration 1).Abs (toDuration 2).Abs }} {{ if toDuration 0 }}yes{{ end }}{{ if (toDuration 0).Abs }}no{{ end }}",
            "true yes",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(expand(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn templates_use_defined_templates() {
    let table = [
        (
            "{{ define \"x\" }}of {{ .Labels.job }}{{ end }}[{{ template \"x\" . }}]",
            "[of node]",
        ),
        (
            "{{ template `x` $value }}{{ define `x` }}{{ . }} {{ $ }}{{ end }}",
            "1234.5 1234.5",
        ),
        (
            "{{ define \"x\" }}{{ .arg0 }} {{ .arg1.Labels.job }}{{ end }}{{ template \"x\" args 5 . }}",
            "5 node",
        ),
        (
            "{{ define \"x\" }}{{ range . }}{{ .Value }};{{ end }}{{ end }}{{ template \"x\" query \"up\" }}",
            "2;1;",
        ),
        (
            "{{ define \"x\" }}{{ . }}|{{ .Labels.job }}|{{ if .Labels }}yes{{ end }}{{ end }}{{ template \"x\" }}",
            "<no value>|<no value>|",
        ),
        (
            "{{ define \"x\" }}{{ $y := 5 }}{{ $y }}{{ end }}{{ $y := 6 }}{{ template \"x\" }}{{ $y }}",
            "56",
        ),
        ("{{ define \"x\" -}}  a  {{- end }}|{{ template \"x\" }}|", "|a|"),
        ("{{ if false }}{{ template \"y\" }}{{ end }}ok", "ok"),
        (
            "{{ block \"x\" . }}{{ .Labels.job }}{{ end }} {{ template \"x\" . }}",
            "node node",
        ),
        (
            "{{ range query \"up\" }}{{ block \"x\" . }}{{ .Value }};{{ end }}{{ break }}{{ end }}",
            "2;",
        ),
        (
            "{{ define \"x\" }}{{ block \"y\" . }}c{{ end }}{{ end }}{{ template \"x\" }}{{ template \"y\" }}",
            "cc",
        ),
        (
            "{{ define \"x\" }} {{ end }}{{ define \"x\" }}b{{ end }}{{ define \"x\" }}{{/* c */}}{{ end }}{{ template \"x\" }}",
            "b",
        ),
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
        ("{{ $x = 5 }}", "undefined variable \"$x\""),
        ("{{ $x := $x }}", "undefined variable \"$x\""),
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
        ("{{ $labels.job 5 }}", "job is not a method but has arguments"),
        ("{{ template \"x\" }}", "template \"x\" not defined"),
        ("{{ template x }}", "in template clause"),
        ("{{ template }}", "missing name in template clause"),
        (
            "{{ define \"x\" }}a{{ end }}{{ define \"x\" }}b{{ end }}",
            "multiple definition of template \"x\"",
        ),
        ("{{ define \"x\" . }}{{ end }}", "in define clause"),
        ("{{ define \"x\" }}a", "unexpected EOF"),
        (
            "{{ define \"x\" }}a{{ else }}{{ end }}",
            "unexpected {{else}} in define clause",
        ),
        (
            "{{ if true }}{{ define \"x\" }}{{ end }}{{ end }}",
            "unexpected {{define}}",
        ),
        ("{{ block \"x\" }}a{{ end }}", "missing value for block clause"),
        (
            "{{ range query \"up\" }}{{ block \"x\" . }}{{ break }}{{ end }}{{ end }}",
            "outside",
        ),
        ("{{ toTime \"NaN\" }}", "value is NaN or Inf"),
        ("{{ toTime 1e300 }}", "overflows int64"),
        ("{{ toDuration \"NaN\" }}", "cannot be represented as a duration"),
        ("{{ toDuration true }}", "can't convert bool to float"),
        (
            "{{ (toTime 60).Local }}",
            "time.Time has no method Local with 0 arguments",
        ),
        (
            "{{ (toTime 60).Format }}",
            "time.Time has no method Format with 0 arguments",
        ),
        ("{{ (toTime 60).Format 5 }}", "expected string; got int"),
        (
            "{{ (toTime 60).Add $value }}",
            "expected time.Duration; got float64",
        ),
        (
            "{{ (toDuration 60).Sub 5 }}",
            "time.Duration has no method Sub with 1 argument",
        ),
        (
            "{{ (toTime 60).Month.Next }}",
            "time.Month has no method Next with 0 arguments",
        ),
        (
            "{{ lt (toDuration 1) (toDuration 2) }}",
            "incompatible types for comparison",
        ),
        ("{{ break }}", "outside"),
    ];
    for (text, expected) in table {
        let error = expand(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn variables_exist_until_the_end_of_their_block() {
    // Go's parser accepts these templates too.
    let accepted = [
        "{{ $ }}{{ $labels }}{{ $externalLabels }}{{ $externalURL }}{{ $value }}",
        "{{ define \"x\" }}{{ $ }}{{ $x := 1 }}{{ $x }}{{ end }}{{ $value }}",
        "{{ if true }}{{ $x := 1 }}{{ if true }}{{ $x }}{{ end }}{{ $x }}{{ end }}",
        "{{ if true }}{{ $x := 1 }}{{ else }}{{ $x }}{{ end }}",
        "{{ if $x := true }}{{ $x }}{{ else }}{{ $x }}{{ end }}",
        "{{ if false }}{{ else if $x := true }}{{ $x }}{{ end }}",
        "{{ with $x := 1 }}{{ $x }}{{ end }}",
        "{{ range $i, $x := query \"up\" }}{{ $i }}{{ $x }}{{ else }}{{ $i }}{{ $x }}{{ end }}",
        "{{ if true }}{{ $x := 1 }}{{ block \"y\" $value }}{{ $ }}{{ end }}{{ $x }}{{ end }}",
        "{{ define \"y\" }}{{ end }}{{ template \"y\" $x := 5 }}{{ $x }}",
        "{{ block \"y\" $x := 5 }}{{ end }}{{ $x }}",
        "{{ $ := 5 }}{{ $ }}",
        "{{ $x = 5 }}{{ $x }}",
        "{{ $x := $x }}",
        "{{/* $x */}}",
    ];
    for text in accepted {
        assert_eq!(Template::parse(text).err(), None, "{text}");
    }
    // The message names the unknown variable `$x`.
    let refused = [
        "{{ $x }}{{ $x := 1 }}",
        "{{ $x.a }}",
        "{{ print 1 (print $x) }}",
        "{{ 1 | print $x }}",
        "{{ template \"y\" $x }}",
        "{{ if false }}{{ $x }}{{ end }}",
        "{{ if true }}{{ $x := 1 }}{{ end }}{{ $x }}",
        "{{ if $x := true }}{{ end }}{{ $x }}",
        "{{ if false }}{{ else if $x := true }}{{ end }}{{ $x }}",
        "{{ with $x := 1 }}{{ end }}{{ $x }}",
        "{{ range $x, $y := query \"up\" }}{{ end }}{{ $x }}",
        "{{ range $x := query \"up\" }}{{ end }}{{ $x }}",
        "{{ define \"y\" }}{{ $x := 1 }}{{ end }}{{ $x }}",
        "{{ $x := 1 }}{{ define \"y\" }}{{ $x }}{{ end }}",
        "{{ block \"y\" $x := 5 }}{{ $x }}{{ end }}",
        "{{ define \"y\" }}{{ if true }}{{ block \"z\" . }}{{ $x }}{{ end }}{{ end }}{{ end }}",
    ];
    for text in refused {
        let error = Template::parse(text).err().unwrap_or_default();
        assert!(error.contains("undefined variable \"$x\""), "{text}: {error}");
    }
}

#[test]
fn the_error_of_an_unknown_variable_lists_the_known_ones() {
    let table = [
        (
            "{{ $y := 1 }}{{ $val }}",
            "error parsing template: undefined variable \"$val\" \
(known here: $, $externalLabels, $externalURL, $labels, $value, $y)",
        ),
        (
            "{{ define \"x\" }}{{ $value }}{{ end }}",
            "error parsing template: undefined variable \"$value\" (known here: $); a defined template has only `$` and `.` \
from its caller: write `{{ template \"name\" . }}`, and `.Value` for `$value`",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(Template::parse(text).err().as_deref(), Some(expected), "{text}");
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

#[test]
fn calls_of_templates_are_bounded() {
    let endless = "{{ define \"x\" }}a{{ template \"x\" . }}{{ end }}{{ template \"x\" . }}";
    let error = expand(endless).unwrap_err();
    assert!(
        error.contains("more than 100 levels of blocks and templates"),
        "{error}"
    );
    // Each template uses the next one twice.
    let mut doubled = "{{ define \"t20\" }}x{{ end }}{{ template \"t0\" }}".to_owned();
    for at in 0..20 {
        let next = format!("{{{{ template \"t{}\" }}}}", at + 1);
        doubled += &format!("{{{{ define \"t{at}\" }}}}{next}{next}{{{{ end }}}}");
    }
    assert!(expand(&doubled).unwrap_err().contains("steps"));
    let line = "x".repeat(10_000);
    let long = format!("{{{{ define \"x\" }}}}{line}{{{{ end }}}}") + &"{{ template \"x\" }}".repeat(7);
    assert!(expand(&long).unwrap_err().contains("bytes at most"));
    let layout = "{{ (toTime 36000).Format \"".to_owned() + &"3".repeat(40_000) + "\" }}";
    assert!(expand(&layout).unwrap_err().contains("bytes at most"));
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
            "stripDomain", "print", "break", "nil", "true", "/*", "*/", "'a'", "`x`", ",", "$i,", "define", "template",
            "block", "toTime", "toDuration", ".Format", ".Add", ".Round", ".Month", "\"2006 .999\"", "9e9",
        ]), 0..40)) {
        drop(expand(&words.join(" ")));
        drop(expand(&words.concat()));
    }
}
