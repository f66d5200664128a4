// SPDX-License-Identifier: Apache-2.0

//! Single rules of the language. The tests of the gateway compare whole queries with a real Prometheus.

mod limits;
mod random;

use super::*;

const SECOND: Millis = 1000;

/// Series in memory.
type Store = Vec<QuerySeries>;

pub(super) fn labels(text: &str) -> Labels {
    let pairs = text
        .split_whitespace()
        .map(|pair| pair.split_once('=').unwrap_or((NAME, pair)));
    pairs.collect()
}

/// Series by labels, a sample every ten seconds from 10 s on; `_` is none, `x` a stale marker.
fn store(series: &[(&str, &str)]) -> Store {
    let sample = |(at, text): (usize, &str)| {
        let value = match text {
            "_" => return None,
            "x" => f64::from_bits(Sample::STALE),
            number => number.parse().unwrap(),
        };
        let time = (at as Millis + 1) * 10 * SECOND;
        Some(Sample { time, value })
    };
    let series = series.iter().map(|(name, values)| {
        let samples = values.split_whitespace().enumerate().filter_map(sample);
        QuerySeries::of_floats(labels(name), samples.collect())
    });
    series.collect()
}

fn web() -> Store {
    store(&[
        ("hits job=a zone=x", "1 2 3 4 5 6 7 8 9 10"),
        ("hits job=b zone=x", "0 10 20 30 40 5 15 25 35 45"),
        ("hits job=c zone=y", "7 7 7 7 _ _ 7 7 x"),
        ("limit zone=x", "100 100 100 100 100 100 100 100 100 100"),
        ("wait_bucket le=0.1", "1 1 1 1 1 1 1 1 1 10"),
        ("wait_bucket le=1", "1 1 1 1 1 1 1 1 1 30"),
        ("wait_bucket le=+Inf", "1 1 1 1 1 1 1 1 1 40"),
    ])
}

/// The answer at 100 s as text.
pub(super) fn ask(store: &Store, query: &str) -> String {
    match Query::parse(query).and_then(|query| query.instant(store, 100 * SECOND)) {
        Err(error) => format!("{error}"),
        Ok(Instant::Scalar(number)) => show_number(number),
        Ok(Instant::String(text)) => format!("{text:?}"),
        Ok(Instant::Vector(vector)) => {
            let series = vector.iter().map(|(labels, value)| {
                let pairs: Vec<String> = labels
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                format!("{} {}", pairs.join(","), shown(value))
            });
            series.collect::<Vec<_>>().join("; ")
        }
        Ok(Instant::Matrix(series)) => format!("{} series", series.len()),
    }
}

fn shown(value: &SampleValue) -> String {
    let number = |number: f64| show_number((number * 1e9).round() / 1e9);
    match value {
        SampleValue::Float(value) => number(*value),
        SampleValue::Histogram(histogram) => {
            let buckets = histogram.buckets().into_iter();
            let buckets =
                buckets.map(|b| format!(" {}..{}:{}", number(b.lower), number(b.upper), number(b.count)));
            format!(
                "{} sum {}{}",
                number(histogram.count),
                number(histogram.sum),
                buckets.collect::<String>()
            )
        }
    }
}

#[test]
fn queries_have_their_values() {
    let table = [
        ("1 + 2 * 3 ^ 2", "19"),
        ("-2 ^ 2", "-4"),
        ("\"text\"", "\"text\""),
        ("hits{job=\"a\"}", "__name__=hits,job=a,zone=x 10"),
        (
            "hits{job=~\"a|b\",zone!=\"y\"} > 20",
            "__name__=hits,job=b,zone=x 45",
        ),
        ("hits > bool 20", "job=a,zone=x 0; job=b,zone=x 1"),
        ("20 < hits", "__name__=hits,job=b,zone=x 45"),
        (
            "hits offset 30s",
            "__name__=hits,job=a,zone=x 7; __name__=hits,job=b,zone=x 15; __name__=hits,job=c,zone=y 7",
        ),
        ("hits{job=\"b\"} @ 50", "__name__=hits,job=b,zone=x 40"),
        ("sum(hits)", " 55"),
        ("sum by (zone) (hits @ 70)", "zone=x 22; zone=y 7"),
        ("sum without (job) (hits)", "zone=x 55"),
        ("count(hits @ 70)", " 3"),
        ("topk(1, hits)", "__name__=hits,job=b,zone=x 45"),
        ("bottomk(1, hits)", "__name__=hits,job=a,zone=x 10"),
        ("quantile(0.5, hits)", " 27.5"),
        ("count_values(\"v\", hits)", "v=10 1; v=45 1"),
        ("increase(hits{job=\"b\"}[50s])", "job=b,zone=x 45"),
        ("rate(hits{job=\"a\"}[1m])", "job=a,zone=x 0.1"),
        ("irate(hits{job=\"b\"}[1m])", "job=b,zone=x 1"),
        ("delta(hits{job=\"b\"}[50s])", "job=b,zone=x 50"),
        (
            "resets(hits[2m])",
            "job=a,zone=x 0; job=b,zone=x 1; job=c,zone=y 0",
        ),
        ("changes(hits{job=\"c\"}[2m])", "job=c,zone=y 0"),
        ("avg_over_time(hits{job=\"a\"}[30s])", "job=a,zone=x 9"),
        (
            "last_over_time(hits{job=\"c\"}[1m])",
            "__name__=hits,job=c,zone=y 7",
        ),
        ("quantile_over_time(0.5, hits{job=\"a\"}[30s])", "job=a,zone=x 9"),
        ("max_over_time(sum(hits)[30s:10s])", " 55"),
        ("sum_over_time(vector(1)[30s:10s])", " 3"),
        ("histogram_quantile(0.5, wait_bucket)", " 0.55"),
        (
            "hits / on (zone) group_left limit",
            "job=a,zone=x 0.1; job=b,zone=x 0.45",
        ),
        (
            "limit / on (zone) group_right () hits",
            "job=a,zone=x 10; job=b,zone=x 2.222222222",
        ),
        (
            "hits and on (zone) limit",
            "__name__=hits,job=a,zone=x 10; __name__=hits,job=b,zone=x 45",
        ),
        ("hits unless hits{job=\"a\"}", "__name__=hits,job=b,zone=x 45"),
        (
            "hits{job=\"a\"} or limit",
            "__name__=hits,job=a,zone=x 10; __name__=limit,zone=x 100",
        ),
        ("absent(nothing{job=\"a\",zone=~\"x\"})", "job=a 1"),
        ("absent(hits)", ""),
        ("absent_over_time(nothing{job=\"a\"}[5m])", "job=a 1"),
        ("scalar(limit)", "100"),
        ("scalar(hits)", "NaN"),
        ("vector(time())", " 100"),
        ("timestamp(hits{job=\"a\"} offset 15s)", "job=a,zone=x 80"),
        ("clamp(hits, 20, 40)", "job=a,zone=x 20; job=b,zone=x 40"),
        ("round(hits / 7, 0.5)", "job=a,zone=x 1.5; job=b,zone=x 6.5"),
        (
            "sort_desc(hits)",
            "__name__=hits,job=b,zone=x 45; __name__=hits,job=a,zone=x 10",
        ),
        (
            "label_replace(limit, \"z\", \"$1-$2\", \"zone\", \"(x)(.*)\")",
            "__name__=limit,z=x-,zone=x 100",
        ),
        (
            "label_join(limit, \"z\", \"/\", \"zone\", \"none\")",
            "__name__=limit,z=x/,zone=x 100",
        ),
        ("hits[30s]", "3 series"),
        ("hits{job=\"c\"}", ""),
    ];
    let store = web();
    for (query, expected) in table {
        assert_eq!(ask(&store, query), expected, "{query}");
    }
}

#[test]
fn what_has_no_value_says_why() {
    let table = [
        ("hits offset Inf", "1:13: parse error: duration out of range"),
        (
            "hits offset - #[\n 1e300",
            "2:2: parse error: duration out of range",
        ),
        ("hits[0xFFFFFFFFFFFFFFFFFF]", "1:6: parse error:"),
        ("hits[1m:1e20]", "1:9: parse error: duration out of range"),
        ("hits{job=\"[1e300\"}", ""),
        ("sum(", "unclosed left parenthesis"),
        ("hits + limit", ""),
        ("hits / on (zone) limit", "many-to-one matching must be explicit"),
        (
            "limit / on (zone) hits",
            "matching labels must be unique on one side",
        ),
        ("holt_winters(hits[1m], 0.5, 0.5)", "unknown function"),
        (
            "info(hits)",
            "1:1: parse error: the function \"info\" is not supported",
        ),
        (
            "label_replace(hits, \"job\", \"\", \"job\", \".*\")",
            "same labelset",
        ),
        ("sum_over_time({__name__=~\"hits|limit\",zone=\"x\"}[1m]) * 0", ""),
        ("limit_ratio(0.5, hits)", "not supported"),
        ("hits > on (zone) limit", "many-to-one matching must be explicit"),
        (
            "label_replace(limit, \"\\xff\", \"\", \"\", \"\")",
            "invalid UTF-8",
        ),
    ];
    let store = web();
    for (query, expected) in table {
        let answer = ask(&store, query);
        assert!(answer.contains(expected), "{query}: {answer}");
    }
    let costly = "max_over_time(max_over_time(max_over_time(hits[9000s:1s])[9000s:1s])[9000s:1s])";
    assert!(ask(&store, costly).contains("reads more than"));
    let nested = format!("{}1{}", "(".repeat(3000), ")".repeat(3000));
    assert!(ask(&store, &nested).contains("nested too deeply"));
    let nested = "-".repeat(3000) + "1";
    assert!(ask(&store, &nested).contains("nested too deeply"));
    assert!(ask(&store, &" ".repeat(100_000)).contains("are allowed"));
}

#[test]
fn a_query_shows_itself() {
    for (query, shown) in [
        ("sum by(a)(x)", "sum by (a) (x)"),
        ("sum(x)without(a , b)", "sum without (a, b) (x)"),
        ("-x^2+( 1 )", "-x ^ 2 + (1)"),
        (
            "x{ b=\"\\\"\",a!~'c' }[90s]offset -1h@start()",
            "x{b=\"\\\"\",a!~\"c\"}[1m30s] @ start() offset -1h",
        ),
        ("rate(x[2d:]@1.5)", "rate(x[2d:] @ 1.500)"),
        ("a>bool on(x)group_left(y)b", "a > bool on (x) group_left (y) b"),
    ] {
        let parsed = Query::parse(query).unwrap().to_string();
        assert_eq!(parsed, shown);
        assert_eq!(Query::parse(&parsed).unwrap().to_string(), shown);
    }
}

#[test]
fn shares_of_classic_histograms_begin_at_zero() {
    let store = web();
    for (query, expected) in [
        ("histogram_fraction(0, 0.1, wait_bucket)", " 0.25"),
        ("histogram_fraction(0, 0.05, wait_bucket)", " 0.125"),
        ("histogram_fraction(-5, 1, wait_bucket)", " 0.75"),
        ("histogram_fraction(0.1, +Inf, wait_bucket)", " 0.75"),
        ("histogram_fraction(-Inf, +Inf, wait_bucket)", " 1"),
        ("histogram_fraction(0, 1, wait_bucket{le!=\"+Inf\"})", " NaN"),
        ("histogram_fraction(0, 1, hits)", ""),
    ] {
        assert_eq!(ask(&store, query), expected, "{query}");
    }
}

#[test]
fn type_and_unit_go_with_the_name() {
    let store = store(&[("hits __type__=counter __unit__=s job=a", "1 2 3 4 5 6 7 8 9 10")]);
    for query in [
        "-hits",
        "hits * 1",
        "rate(hits[1m])",
        "abs(hits)",
        "timestamp(hits)",
        "hits > bool 0",
    ] {
        assert!(
            ask(&store, query).starts_with("job=a "),
            "{query}: {}",
            ask(&store, query)
        );
    }
    assert!(ask(&store, "hits > 0").starts_with("__name__=hits,__type__=counter,__unit__=s,job=a "));
}

#[test]
fn what_is_to_be_said_of_an_answer_comes_with_it() {
    let store = web();
    let query = Query::parse("rate(hits[1m])\n+ quantile(2, hits)").unwrap();
    let (_, notes) = query
        .instant_with(&store, 100 * SECOND, &Options::default())
        .unwrap();
    assert_eq!(
        notes.warnings,
        ["PromQL warning: quantile value should be between 0 and 1, got 2 (2:12)"]
    );
    assert_eq!(
        notes.infos,
        [
            "PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: \"hits\" (1:6)"
        ]
    );
}

#[test]
fn a_rate_is_that_of_prometheus_to_the_last_bit() {
    let store = store(&[("hits", "100 100 100 100 100 100 100 100 100 135")]);
    let query = Query::parse("rate(hits[1m])").unwrap();
    let Ok(Instant::Vector(vector)) = query.instant(&store, 100 * SECOND) else {
        panic!("a rate is a vector");
    };
    assert_eq!(vector[0].1.float(), Some(0.700_000_000_000_000_1));
}

#[test]
fn a_range_is_a_value_a_step_and_bounded() {
    let store = web();
    let query = Query::parse("sum(rate(hits{zone=\"x\"}[20s]))").unwrap();
    let all = query
        .range(&store, 30 * SECOND, 100 * SECOND, 35 * SECOND)
        .unwrap();
    assert_eq!(all.len(), 1);
    let values: Vec<_> = all[0]
        .samples
        .iter()
        .map(|s| (s.time / SECOND, (s.value * 1e9).round() / 1e9))
        .collect();
    assert_eq!(values, [(30, 1.1), (65, 0.6), (100, 1.1)]);
    assert!(query.range(&store, 0, 100, 0).is_err());
    assert!(query.range(&store, 100, 0, 1).is_err());
    assert!(matches!(
        query.range(&store, 0, 12_000, 1),
        Err(QueryError::TooMuch(_))
    ));
}

#[test]
fn a_matcher_lists_the_values_that_it_accepts() {
    let of = |matcher: &str| {
        let query = Query::parse(&format!("up{{pod{matcher}}}")).unwrap();
        let selection = query.selection().unwrap();
        let matcher = selection.matchers.iter().find(|matcher| matcher.name() == "pod");
        matcher.unwrap().values()
    };
    let listed = |values: &[&str]| Some(values.iter().map(|value| (*value).to_owned()).collect());
    assert_eq!(of("=\"a|b\""), listed(&["a|b"]));
    assert_eq!(of("=~\"a|b-1|\""), listed(&["", "a", "b-1"]));
    assert_eq!(of("=~`10\\.0\\.0\\.1:80|a b`"), listed(&["10.0.0.1:80", "a b"]));
    for pattern in [
        "a.b", "(a|b)", "a?", "[ab]", "a{2}", "\\\\d", "^a", "a+", "a*", "a$",
    ] {
        assert_eq!(of(&format!("=~\"{pattern}\"")), None, "{pattern}");
    }
    assert_eq!((of("!=\"a\""), of("!~\"a\"")), (None, None));
}

#[test]
fn what_is_refused_is_refused_in_the_words_of_the_documentation() {
    let page = include_str!("../../../docs/queries.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| refused | `"));
    let rows: Vec<(&str, &str)> = rows
        .filter_map(|row| row.strip_suffix("` |")?.split_once("` | `"))
        .collect();
    assert!(rows.len() > 10, "{rows:?}");
    let said = rows
        .iter()
        .map(|(query, _)| (*query, Query::parse(query).unwrap_err().to_string()));
    let said: Vec<(&str, String)> = said.collect();
    let written: Vec<_> = rows
        .iter()
        .map(|(query, error)| (*query, (*error).to_owned()))
        .collect();
    assert_eq!(said, written);
}
