// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn counters_and_histograms_are_compared_and_gauges_are_not() {
    let page = "# HELP a text\n# TYPE a counter\na{x=\"y z\"} 2\n# TYPE g gauge\ng 5\n\
                # TYPE h histogram\nh_bucket{le=\"+Inf\"} 3\nh_sum 1.5\nh_count 3\n\n";
    let mut seen = Counters::default();
    assert_eq!(seen.compare(page).unwrap(), None);
    let mut series: Vec<&str> = seen.0.keys().map(String::as_str).collect();
    series.sort_unstable();
    assert_eq!(
        series,
        ["a{x=\"y z\"}", "h_bucket{le=\"+Inf\"}", "h_count", "h_sum"]
    );
    assert_eq!(seen.compare(&page.replace("g 5", "g 1")).unwrap(), None);
}

#[test]
fn a_counter_that_falls_is_an_error_and_one_that_ends_is_named() {
    let page = |a: u64, b: &str| format!("# TYPE a counter\na {a}\n{b}");
    let mut seen = Counters::default();
    assert_eq!(seen.compare(&page(3, "a{x=\"y\"} 1\n")).unwrap(), None);
    assert_eq!(seen.compare(&page(4, "")).unwrap().as_deref(), Some("a{x=\"y\"}"));
    // It is named until it is there again.
    assert_eq!(seen.compare(&page(5, "")).unwrap().as_deref(), Some("a{x=\"y\"}"));
    assert_eq!(seen.compare(&page(5, "a{x=\"y\"} 1\n")).unwrap(), None);
    let error = seen.compare(&page(4, "a{x=\"y\"} 1\n")).unwrap_err();
    assert_eq!(error.to_string(), "`a` fell from 5 to 4");
    // So does one that came again with less.
    let error = seen.compare(&page(5, "a{x=\"y\"} 0\n")).unwrap_err();
    assert_eq!(error.to_string(), "`a{x=\"y\"}` fell from 1 to 0");
}
