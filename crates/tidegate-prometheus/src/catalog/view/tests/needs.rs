// SPDX-License-Identifier: Apache-2.0

//! The past is as long as readers need it.

use super::*;

/// The time for which samples stay without a need, and with one.
const SPAN_MS: Millis = 60_000;
const NEEDED_MS: Millis = 600_000;

/// Samples of the gauge `level` that a query finds after so many seconds.
fn kept(view: &View, seconds: u64) -> f64 {
    let query = "count_over_time(level[1h])";
    ask(view, query, START + seconds * SECOND).unwrap_or_default()
}

#[test]
fn samples_stay_as_long_as_a_reader_needs_them() {
    let shared = context("extensions", "admin").shared;
    let view = View::of(&shared);
    let early = view.need_past(NEEDED_MS);
    let limits = HistoryLimits {
        interval_ms: 1000,
        span_ms: SPAN_MS,
        max_bytes: 256 << 20,
    };
    view.keep_past(KeptPast {
        follows_needs: true,
        ..KeptPast::fixed(limits)
    });
    let span = || view.past_limits().map(|limits| limits.span_ms);
    assert_eq!(span(), Some(NEEDED_MS), "the reader came before the past");
    drop(early);
    assert_eq!(span(), Some(SPAN_MS));
    let table = table(&shared);
    let run = |seconds: std::ops::Range<u64>| {
        for second in seconds {
            let now = START + second * SECOND;
            gauge(&table, "level", second as i64, now);
            record(&view, now);
        }
    };
    run(0..50);
    let (short, long) = (view.need_past(1000), view.need_past(NEEDED_MS));
    run(50..500);
    assert_eq!(kept(&view, 499), 500.0, "all samples are there");
    drop(short);
    run(500..501);
    assert_eq!(kept(&view, 500), 501.0, "the longest need counts");
    drop(long);
    run(501..502);
    let left = kept(&view, 501);
    assert!(
        (61.0..250.0).contains(&left),
        "only older samples have gone: {left}"
    );
}

#[test]
fn a_fixed_past_does_not_follow_needs() {
    let (view, _shared) = view();
    let _need = view.need_past(NEEDED_MS);
    assert_eq!(view.past_limits().map(|limits| limits.span_ms), Some(SPAN_MS));
}
