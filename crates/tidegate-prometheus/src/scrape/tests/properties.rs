// SPDX-License-Identifier: Apache-2.0

//! Properties that hold for all pages.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tidegate_engine::{Point, Series, Value};
use tidegate_exposition::Format;

use super::*;

/// Lines that are right, and a few that are not.
fn lines() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec![
        "a 1",
        "a{b=\"c\"} 2",
        "a{b=\"c\",} 3",
        "b 4",
        "h_bucket{le=\"1\"} 1",
        "h_bucket{le=\"1.0\"} 2",
        "h_sum 4",
        "h_bucket{le=\"+Inf\"} 3",
        "h_count 3",
        "h_count 7",
        "h_count NaN",
        "s_count 1",
        "s{quantile=\"0.5\"} 2",
        "s{quantile=\"x\"} 2",
        "s_sum 3",
        "s_created 1600000000",
        "drop 1",
        "target_info{region=\"a\"} 1",
        "target_info{region=\"b\"} 1",
        "1",
        "a{",
        "a{x=\"1\",x=\"2\"} 1",
    ]);
    // Pages that fail should be few.
    let line = (line, 0..20u8).prop_map(|(line, luck)| match line {
        "1" | "a{" | "a{x=\"1\",x=\"2\"} 1" if luck > 0 => "b 4",
        line => line,
    });
    let types = "# TYPE a gauge\n# TYPE h histogram\n# TYPE s summary\n";
    prop::collection::vec(line, 0..12).prop_map(move |lines| types.to_owned() + &lines.join("\n") + "\n")
}

proptest! {
    /// Earlier pages change only the ends of series: exactly those series end that were there before and are not any
    /// more.
    #[test]
    fn a_page_becomes_the_same_whatever_was_before(pages in prop::collection::vec(lines(), 1..6)) {
        let mut known = decoder();
        let mut alive: BTreeSet<Series> = BTreeSet::new();
        for (scrape, page) in (0u64..).zip(&pages) {
            let (mut points, mut fresh) = (Vec::new(), Vec::new());
            let outcome = known.page(Format::Text, page.as_bytes(), at(scrape), &mut points);
            let other = decoder().page(Format::Text, page.as_bytes(), at(scrape), &mut fresh);
            prop_assert_eq!(outcome.is_ok(), other.is_ok());
            if outcome.is_err() {
                known.end(at(scrape), &mut points);
            }
            let (ended, points): (Vec<Point>, Vec<Point>) =
                points.into_iter().partition(|point| point.value == Value::NoRecordedValue);
            prop_assert_eq!(&points, &fresh);
            let series = |points: &[Point]| points.iter().map(|point| Series::clone(&point.series)).collect();
            let now: BTreeSet<Series> = series(&points);
            let gone: BTreeSet<Series> = alive.difference(&now).cloned().collect();
            prop_assert_eq!(ended.len(), gone.len());
            prop_assert_eq!(series(&ended), gone);
            alive = now;
        }
    }
}

/// Bytes that the formats give a meaning to, and others.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        6 => prop::sample::select(vec![
            "a", "a_total", "a_bucket", "_sum", "_count", "_created", "{", "}", "{le=\"1\"}", "{quantile=\"0.5\"}", " ",
            "\n", "# TYPE a ", "# HELP a ", "# UNIT a_total total\n", "# EOF", " # {x=\"y\"} 1", "counter\n",
            "histogram\n", "summary\n", "1", "-1", "NaN", "1e30", " 1700000000000", "target_info{", "x=\"y\"", ",",
        ]).prop_map(|token| token.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(token, 0..32).prop_map(|tokens| tokens.concat())
}

proptest! {
    /// A page counts or does not, whatever the decoder knows of it.
    #[test]
    fn a_page_that_is_known_counts_as_it_did_before(page in hostile(), format in prop::sample::select(vec![
        Format::Text, Format::OpenMetrics, Format::Protobuf,
    ])) {
        let mut decoder = ScrapeDecoder::new(settings(), Box::new(Honest));
        let mut points = Vec::new();
        let first = decoder.page(format, &page, at(0), &mut points);
        let second = decoder.page(format, &page, at(1), &mut points);
        match (first, second) {
            (Ok(first), Ok(second)) => prop_assert_eq!((first.samples, 0), (second.samples, second.series_added)),
            (Err(first), Err(second)) => prop_assert_eq!(first.failure, second.failure),
            (first, second) => prop_assert!(false, "{:?}, then {:?}", first, second),
        }
        decoder.end(at(2), &mut points);
        for point in &points {
            match &point.value {
                Value::Histogram(histogram) => prop_assert!(histogram.is_sound()),
                Value::ExponentialHistogram(histogram) => prop_assert!(histogram.is_sound()),
                _ => {}
            }
        }
    }
}
