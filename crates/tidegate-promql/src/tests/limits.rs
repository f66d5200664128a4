// SPDX-License-Identifier: Apache-2.0

//! Bounds of queries, and what ends an evaluation.

use std::time::Duration;

use super::*;

/// The time that this thread has had a processor. Other work of the machine does not count.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = stat.split(' ').next().unwrap().parse().unwrap();
    Duration::from_nanos(nanoseconds)
}

#[test]
fn chains_of_operators_are_as_long_as_a_query_can_be() {
    let store = web();
    let sum = vec!["1"; 30_000].join("+");
    let begin = processor_time();
    assert_eq!(ask(&store, &sum), "30000");
    let names: Vec<String> = (0..1500).map(|n| format!("hits{{job=\"j{n}\"}}")).collect();
    assert_eq!(
        ask(&store, &(names.join(" or ") + " or limit")),
        "__name__=limit,zone=x 100"
    );
    // The parser looks at each token once: seconds mean that it does not.
    let took = processor_time().saturating_sub(begin);
    assert!(took < Duration::from_secs(5), "{took:?}");
    let powers = vec!["1"; 3000].join("^");
    assert!(ask(&store, &powers).contains("nested too deeply"));
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
    std::thread::sleep(Duration::from_millis(2));
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    /// The check at which the reader goes.
    const LAST: usize = 100;
    // 8,641 windows of 10,800 samples. Each of them is enough work for a check.
    let query = Query::parse("quantile_over_time(0.5, vector(1)[3h:1s])").unwrap();
    let (patience, checks) = (Patience::default(), Arc::<AtomicUsize>::default());
    let (reader, counted) = (patience.clone(), checks.clone());
    let options = Options {
        patience: patience.unless(move || {
            if counted.fetch_add(1, Relaxed) + 1 == LAST {
                reader.give_up();
            }
            false
        }),
        ..Options::default()
    };
    let answer = query.range_with(&web(), (0, 8640 * SECOND, SECOND), &options);
    assert_eq!(answer.unwrap_err(), QueryError::Canceled);
    assert_eq!(checks.load(Relaxed), LAST, "it ends at the next check");
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
    // Plain texts are not patterns, and one that comes again is compiled once.
    let listed: Vec<_> = (0..2_000).map(|number| format!("{number:08}-pod")).collect();
    Query::parse(&format!("hits{{pod=~\"{}\"}}", listed.join("|"))).unwrap();
    Query::parse(&sum(300, &|_| matcher(1))).unwrap();
    let long = format!("hits{{zone=~\"{}\"}}", "\\\\w".repeat(10_000));
    let refused = Query::parse(&long).unwrap_err().to_string();
    assert!(refused.contains("expression too large"), "{refused}");
    let endless = Query::parse("hits{zone=~\"(\\\\pL{200}){40}\"}").unwrap_err();
    assert!(endless.to_string().contains("expression too large"), "{endless}");
}
