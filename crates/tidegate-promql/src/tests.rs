//! Single rules of the language. The tests of the gateway compare whole queries with a real Prometheus.

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
fn chains_of_operators_are_as_long_as_a_query_can_be() {
    let store = web();
    let sum = vec!["1"; 30_000].join("+");
    let begin = std::time::Instant::now();
    assert_eq!(ask(&store, &sum), "30000");
    let names: Vec<String> = (0..1500).map(|n| format!("hits{{job=\"j{n}\"}}")).collect();
    assert_eq!(
        ask(&store, &(names.join(" or ") + " or limit")),
        "__name__=limit,zone=x 100"
    );
    // The parser looks at each token once: seconds mean that it does not.
    assert!(
        begin.elapsed() < std::time::Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
    let powers = vec!["1"; 3000].join("^");
    assert!(ask(&store, &powers).contains("nested too deeply"));
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
fn a_deadline_and_another_look_back_are_kept() {
    let store = web();
    let query = Query::parse("hits{job=\"c\"} or limit").unwrap();
    let with = |patience: Patience| Options {
        patience,
        ..Options::default()
    };
    let late = with(Patience::until(std::time::Instant::now()));
    std::thread::sleep(std::time::Duration::from_millis(2));
    let answer = query.instant_with(&store, 100 * SECOND, &late);
    assert_eq!(answer.unwrap_err(), QueryError::Timeout);
    let gone = with(Patience::default());
    gone.patience.give_up();
    let answer = query.instant_with(&store, 100 * SECOND, &gone);
    assert_eq!(answer.unwrap_err(), QueryError::Canceled);
    let without_memory = with(Patience::default().unless(|| true));
    let answer = query.instant_with(&store, 100 * SECOND, &without_memory);
    assert_eq!(answer.unwrap_err(), QueryError::Memory);
    let with_memory = with(Patience::default().unless(|| false));
    assert!(query.instant_with(&store, 100 * SECOND, &with_memory).is_ok());
    let short = Options {
        look_back: 5 * SECOND,
        ..Options::default()
    };
    let (value, _) = query.instant_with(&store, 106 * SECOND, &short).unwrap();
    assert_eq!(value, Instant::Vector(Vec::new()));
}

#[test]
fn an_evaluation_ends_soon_after_its_reader_went() {
    use std::time::{Duration, Instant as Clock};
    // One series of some 19,000 samples and 8,641 windows of 10,800: seconds of work.
    let query = Query::parse("quantile_over_time(0.5, vector(1)[3h:1s])").unwrap();
    let patience = Patience::default();
    let options = Options {
        patience: patience.clone(),
        ..Options::default()
    };
    let reader = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        patience.give_up();
        Clock::now()
    });
    let answer = query.range_with(&web(), (0, 8640 * SECOND, SECOND), &options);
    let ended = Clock::now();
    assert_eq!(answer.unwrap_err(), QueryError::Canceled);
    let late = ended.saturating_duration_since(reader.join().unwrap());
    assert!(late < Duration::from_millis(500), "{late:?}");
}

#[test]
fn series_are_charged_at_steps_where_they_have_no_sample() {
    let series = |n: usize| {
        let sample = Sample { time: 0, value: 1.0 };
        QuerySeries::of_floats(labels(&format!("m n={n}")), vec![sample])
    };
    let store: Vec<_> = (0..1000).map(series).collect();
    let nested = "max_over_time(max_over_time(count(m)[10m:1s])[10m:1s])";
    let answer = Query::parse(nested).unwrap().instant(&store, 86_400 * SECOND);
    // None of the series has a sample there: 1,000 of them at 1,200 steps are more than the tests' 200,000.
    let error = answer.unwrap_err().to_string();
    assert_eq!(error, "the query reads more than 200000 samples");
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

/// Each level makes the label ten times as long, from ten bytes.
#[test]
fn labels_that_functions_make_are_bounded_and_count() {
    let store = web();
    let grown = |levels: usize, wrap: &dyn Fn(String) -> String| {
        let first = "label_replace(vector(1), \"a\", \"xxxxxxxxxx\", \"\", \"\")".to_owned();
        let query = (0..levels).fold(first, |inner, _| wrap(inner));
        let options = Options {
            max_samples: 10_000,
            ..Options::default()
        };
        let asked = Query::parse(&format!("count({query})")).unwrap();
        asked.instant_with(&store, 0, &options).map(drop)
    };
    let ten = |text: &str| text.repeat(10);
    let join = |inner: String| format!("label_join({inner}, \"a\", \"\"{})", ten(", \"a\""));
    let replace = |inner: String| {
        format!(
            "label_replace({inner}, \"a\", \"{}\", \"a\", \"(.*)\")",
            ten("${1}")
        )
    };
    for (function, wrap) in [
        ("label_join", &join as &dyn Fn(String) -> String),
        ("label_replace", &replace),
    ] {
        assert_eq!(grown(3, wrap), Ok(()));
        for levels in [4, 40] {
            let refused = grown(levels, wrap).unwrap_err().to_string();
            let expected = format!("{function}() makes a label value of more than 65536 bytes");
            assert!(refused.contains(&expected), "{refused}");
        }
    }
    let many = "label_replace(vector(1), \"a\", \"$$1 $ $1 ${1}\", \"\", \"(.*)\")";
    let Ok(Instant::Vector(vector)) = Query::parse(many).unwrap().instant(&store, 0) else {
        panic!("it is a vector");
    };
    assert_eq!(vector[0].0.get("a"), "$1 $  ");
    // At letters of more than one byte.
    let long = (0..4).fold(
        "label_replace(vector(1), \"a\", \"xxxxxxxxxx\", \"\", \"\")".to_owned(),
        |inner, at| if at < 3 { join(inner) } else { inner },
    );
    let many = format!(
        "label_replace({long}, \"a\", \"\u{e9}{}\", \"a\", \"(.*)\")",
        "$1\u{e9}".repeat(9_000)
    );
    let refused = Query::parse(&many)
        .unwrap()
        .instant(&store, 0)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("more than 65536 bytes"), "{refused}");
}

#[test]
fn patterns_of_a_query_are_bounded_together() {
    let store = web();
    let costly = |number: usize| format!("\\\\pL{}{number}|i", "\\\\pL".repeat(20));
    let options = Options {
        max_samples: 100_000,
        ..Options::default()
    };
    let replace = |number: usize| {
        format!(
            "label_replace(vector(1), \"a\", \"\", \"\", \"{}\")",
            costly(number)
        )
    };
    let sum = |count: usize, one: &dyn Fn(usize) -> String| {
        let terms: Vec<_> = (0..count).map(one).collect();
        terms.join(" + ")
    };
    let one = Query::parse(&sum(1, &replace)).unwrap();
    one.instant_with(&store, 0, &options).unwrap();
    let many = Query::parse(&sum(50, &replace)).unwrap();
    let refused = many.instant_with(&store, 0, &options).unwrap_err();
    assert!(matches!(refused, QueryError::TooMuch(_)), "{refused}");
    let matcher = |number: usize| format!("hits{{zone=~\"{}\"}}", costly(number));
    Query::parse(&sum(1, &matcher)).unwrap();
    let refused = Query::parse(&sum(300, &matcher)).unwrap_err().to_string();
    assert!(refused.contains("too large together"), "{refused}");
    // Texts alone are no patterns, and one that comes again is compiled once.
    let listed: Vec<_> = (0..2_000).map(|number| format!("{number:08}-pod")).collect();
    Query::parse(&format!("hits{{pod=~\"{}\"}}", listed.join("|"))).unwrap();
    Query::parse(&sum(300, &|_| matcher(1))).unwrap();
    let long = format!("hits{{zone=~\"{}\"}}", "\\\\w".repeat(10_000));
    let refused = Query::parse(&long).unwrap_err().to_string();
    assert!(refused.contains("expression too large"), "{refused}");
    let endless = Query::parse("hits{zone=~\"(\\\\pL{200}){40}\"}").unwrap_err();
    assert!(endless.to_string().contains("expression too large"), "{endless}");
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

    /// The value at an instant is that of the same step of a range.
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
