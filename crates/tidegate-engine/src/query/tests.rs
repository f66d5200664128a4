//! Single rules of the language; whole queries are held against a real Prometheus by the tests of the gateway.

use proptest::prelude::*;

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
        Ok(Instant::Scalar(number)) => aggregate::show(number),
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
    let number = |number: f64| aggregate::show((number * 1e9).round() / 1e9);
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
        ("hits offset Inf", "is no duration"),
        ("hits offset - #[\n 1e300", "is no duration"),
        ("hits[0xFFFFFFFFFFFFFFFFFF]", "is no duration"),
        ("hits[1m:1e20]", "is no duration"),
        ("hits{job=\"[1e300\"}", ""),
        ("sum(", "unclosed left parenthesis"),
        ("hits + limit", ""),
        ("hits / on (zone) limit", "many-to-one matching must be explicit"),
        (
            "limit / on (zone) hits",
            "matching labels must be unique on one side",
        ),
        ("holt_winters(hits[1m], 0.5, 0.5)", "unknown function"),
        ("day_of_week()", "the function `day_of_week` is not supported"),
        (
            "label_replace(hits, \"job\", \"\", \"job\", \".*\")",
            "same labelset",
        ),
        ("sum_over_time({__name__=~\"hits|limit\",zone=\"x\"}[1m]) * 0", ""),
        ("limitk(1, hits)", "not supported"),
    ];
    let store = web();
    for (query, expected) in table {
        let answer = ask(&store, query);
        assert!(answer.contains(expected), "{query}: {answer}");
    }
    let costly = "max_over_time(max_over_time(max_over_time(hits[9000s:1s])[9000s:1s])[9000s:1s])";
    assert!(ask(&store, costly).contains("looks at more than"));
    let nested = format!("{}1{}", "(".repeat(3000), ")".repeat(3000));
    assert!(ask(&store, &nested).contains("nested too deeply"));
    let long = vec!["1"; 20_000].join("+");
    assert!(ask(&store, &long).contains("nested too deeply"));
    assert!(ask(&store, &" ".repeat(100_000)).contains("are allowed"));
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

/// Texts out of the words of the language.
fn text() -> impl Strategy<Value = String> {
    let words = [
        "sum",
        "rate",
        "hits",
        "limit",
        "(",
        ")",
        "[1m]",
        "[5m:10s]",
        "{job=\"a\"}",
        "{",
        "}",
        "by",
        "(zone)",
        "+",
        "-",
        "*",
        "/",
        "^",
        "%",
        "==",
        "bool",
        "and",
        "or",
        "unless",
        "on",
        "ignoring",
        "group_left",
        "offset",
        "5m",
        "@",
        "start()",
        "end()",
        "1",
        "0.5",
        "NaN",
        "Inf",
        "\"x\"",
        ",",
        "topk",
        "quantile",
        "histogram_quantile",
        "histogram_fraction",
        "histogram_avg",
        "one",
        "wide",
        "absent",
        "time()",
        "label_replace",
        "count_values",
        "le",
        "scalar",
        "vector",
        "timestamp",
        "-Inf",
        "1e308",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 1..14).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn no_text_is_too_strange(text in prop_oneof![text(), ".{0,40}"]) {
        if let Ok(query) = Query::parse(&text) {
            let mut store = web();
            store.extend(native_tests::recorded());
            let _ = query.instant(&store, 100 * SECOND);
            let _ = query.range(&store, 0, 100 * SECOND, 25 * SECOND);
        }
    }

    /// Between any two numbers of a range lies what the function says, in every order of steps.
    #[test]
    fn an_instant_is_a_step_of_a_range(at in 0i64..120, step in 1i64..50, query in prop::sample::select(vec![
        "hits", "rate(hits[30s])", "sum by (zone) (hits)", "max_over_time(sum(hits)[30s:7s])", "hits offset 20s", "absent(hits)",
    ])) {
        let store = web();
        let query = Query::parse(query).unwrap();
        let time = at * SECOND;
        let range = query.range(&store, time - 3 * step * SECOND, time, step * SECOND).unwrap();
        let here: Vec<_> = range
            .iter()
            .filter_map(|series| {
                let sample = series.samples.iter().find(|s| s.time == time)?;
                Some((series.labels.clone(), SampleValue::Float(sample.value)))
            })
            .collect();
        prop_assert_eq!(Instant::Vector(here), query.instant(&store, time).unwrap());
    }
}
