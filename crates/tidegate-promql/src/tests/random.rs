// SPDX-License-Identifier: Apache-2.0

//! Queries at random.

use proptest::prelude::*;

use super::*;

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
