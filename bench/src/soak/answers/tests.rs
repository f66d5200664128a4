// SPDX-License-Identifier: Apache-2.0

use super::*;

/// From and to these milliseconds after `start`.
fn period(start: Instant, begin: u64, end: u64) -> Period {
    Period {
        begin: start + Duration::from_millis(begin),
        end: start + Duration::from_millis(end),
    }
}

#[test]
fn a_request_that_is_open_while_a_reload_runs_is_during_reloads() {
    let start = Instant::now();
    let reloads = [period(start, 100, 130), period(start, 700, 720)];
    // Each request with whether it is during a reload.
    let table = [
        (0, 5, false),
        // At the start of a reload, inside it, and at its end.
        (95, 102, true),
        (105, 108, true),
        (128, 140, true),
        (140, 180, false),
        // Longer than the reload.
        (690, 725, true),
        (730, 736, false),
    ];
    for (begin, end, is_during) in table {
        let times = AnswerTimes::sort(&[period(start, begin, end)], &reloads);
        let counts = (times.during.len(), times.outside.len());
        let expected = if is_during { (1, 0) } else { (0, 1) };
        assert_eq!(counts, expected, "from {begin} ms to {end} ms");
    }
    let requests = table.map(|(begin, end, _)| period(start, begin, end));
    let times = AnswerTimes::sort(&requests, &reloads);
    assert_eq!(times.during, [7.0, 3.0, 12.0, 35.0]);
    assert_eq!(times.outside, [5.0, 40.0, 6.0]);
}

#[test]
fn without_reloads_all_answers_are_outside() {
    let start = Instant::now();
    let times = AnswerTimes::sort(&[period(start, 0, 5), period(start, 5, 12)], &[]);
    assert!(times.during.is_empty(), "{times:?}");
    assert_eq!(times.outside, [5.0, 7.0]);
}

#[test]
fn the_bound_holds_for_the_answers_during_reloads_and_no_other() {
    let mut times = AnswerTimes {
        during: vec![3.0; 200],
        outside: vec![80.0],
    };
    times.during.push(60.0);
    assert!(times.check(50.0).is_ok());
    times.during.extend([60.5; 4]);
    let error = times.check(50.0).expect_err("the p99 is too long").to_string();
    assert_eq!(
        error,
        "the p99 of answers during reloads is 60.5 ms, and 50 ms is the most"
    );
}

#[test]
fn a_run_without_an_answer_during_reloads_fails() {
    let times = AnswerTimes {
        during: Vec::new(),
        outside: vec![3.0],
    };
    assert!(times.check(50.0).is_err());
}

#[test]
fn figures_of_a_set_have_its_count_and_its_quantiles() {
    assert_eq!(figures(&[]), "none");
    assert_eq!(
        figures(&[4.0, 1.0, 2.0]),
        "3, p50 2.00 ms, p99 4.00 ms, max 4.0 ms"
    );
}
