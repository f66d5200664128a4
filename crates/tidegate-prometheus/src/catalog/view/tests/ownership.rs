// SPDX-License-Identifier: Apache-2.0

//! Several series with one name and labels: which one a query sees, and the warnings about the others.

use super::*;

#[test]
fn of_two_series_with_one_name_and_labels_the_first_counts_until_it_goes() {
    let (view, shared) = view();
    let (one, two) = (table(&shared), table(&shared));
    gauge(&one, "level", 1, START);
    assert_eq!(ask(&view, "level", START), Some(1.0));
    gauge(&two, "level", 2, START);
    assert_eq!(ask(&view, "sum(level)", START), Some(1.0));
    assert_eq!(ask(&view, "count({__name__=~\"level.*\"})", START), Some(1.0));
    put(&one, "level", Data::Gauge, Value::NoRecordedValue, START + 1);
    assert_eq!(ask(&view, "level", START + 1), Some(2.0));
    shared.tables.remove(&two);
    assert_eq!(ask(&view, "level", START + 2), None);
    assert_eq!(view.series_count(), 0);
}

const V1: [(&str, &str); 2] = [("service.name", "shop"), ("service.version", "1")];
const V2: [(&str, &str); 2] = [("service.name", "shop"), ("service.version", "2")];

#[test]
fn a_successor_takes_the_series_at_once_and_its_past_goes_on() {
    let (view, shared) = view();
    let table = table(&shared);
    for second in 0..4 {
        let now = START + second * SECOND;
        send(&table, &V1, "req", (START - SECOND, now), 5);
        record(&view, now);
    }
    let now = START + 5 * SECOND;
    send(&table, &V2, "req", (START + 4 * SECOND, now), 7);
    let (value, notes) = ask_with_notes(&view, "req_total", now);
    assert_eq!(value, Some(7.0));
    assert_eq!(
        notes,
        QueryWarnings::default(),
        "the old one has not reported since"
    );
    record(&view, now);
    assert_eq!(
        ask(&view, "count_over_time(req_total[10s])", now),
        Some(5.0),
        "one series with one past"
    );
    // The old one is quiet after its lease.
    let now = START + 60 * SECOND;
    send(&table, &V2, "req", (START + 4 * SECOND, now), 9);
    assert_eq!(
        ask_with_notes(&view, "req_total", now),
        (Some(9.0), QueryWarnings::default())
    );
}

#[test]
fn while_both_live_the_first_keeps_the_series_and_every_answer_says_so() {
    let (view, shared) = view();
    let table = table(&shared);
    for second in 0..10 {
        let now = START + second * SECOND;
        send(&table, &V1, "level", (0, now), 5);
        send(&table, &V2, "level", (0, now + 1), 7);
        let (value, notes) = ask_with_notes(&view, "sum(level)", now + 2);
        assert_eq!(value, Some(5.0));
        let expected = "metric \"level\": 1 series is omitted: another living series has the same name and labels; it differs in service.version: make one of these a label";
        assert_eq!(notes.warnings(), [expected]);
        assert_eq!(notes.collision().as_deref(), Some(expected));
        let (_, notes) = ask_with_notes(&view, "sum(level) / count(level)", now + 2);
        assert_eq!(
            notes.warnings(),
            [expected],
            "one series, however often it is asked for"
        );
        assert_eq!(ask_with_notes(&view, "sum(other)", now + 2).1.collision(), None);
    }
    // The first goes quiet: it has pushed every second, so 5 s are enough.
    let now = START + 14 * SECOND;
    send(&table, &V2, "level", (0, now), 8);
    assert_eq!(ask(&view, "level", now), Some(5.0), "2.5 intervals, 5 s at least");
    let now = START + 15 * SECOND;
    send(&table, &V2, "level", (0, now), 9);
    assert_eq!(
        ask_with_notes(&view, "level", now),
        (Some(9.0), QueryWarnings::default())
    );
}
