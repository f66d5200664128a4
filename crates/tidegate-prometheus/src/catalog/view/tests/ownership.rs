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

/// The lease of a directory of cells.
fn lease() -> Arc<Lease> {
    Arc::new(Lease::new(Duration::from_secs(15), START))
}

#[test]
fn a_quiet_directory_keeps_its_series_while_its_receiver_sees_it_live() {
    let (view, shared) = view();
    let table = table(&shared);
    let (quiet, other) = (lease(), lease());
    for second in 0..120 {
        let now = START + second * SECOND;
        quiet.touch(now);
        other.touch(now);
        // It reports every 2 s, and then after a minute.
        if second % 2 == 0 && (second < 10 || second == 70) {
            send_leased(&table, &V1, Some(&quiet), "level", (0, now), 5);
        }
        if second % 2 == 0 {
            send_leased(&table, &V2, Some(&other), "level", (0, now), 7);
        }
        assert_eq!(ask(&view, "level", now), Some(5.0), "after {second} s");
    }
}

#[test]
fn a_directory_that_was_dead_gives_way_whatever_its_receiver_repeats() {
    let (view, shared) = view();
    let table = table(&shared);
    let (dead, other) = (lease(), lease());
    for second in 0..120 {
        let now = START + second * SECOND;
        match second {
            10 => dead.suspend(),
            11..60 => {}
            _ => dead.touch(now),
        }
        other.touch(now);
        for (resource, lease, value) in [(&V1, &dead, 5), (&V2, &other, 7)] {
            send_leased(&table, resource, Some(lease), "level", (0, now), value);
        }
        let expected = if second < 10 { 5.0 } else { 7.0 };
        assert_eq!(ask(&view, "level", now), Some(expected), "after {second} s");
    }
}

#[test]
fn a_quiet_directory_loses_no_series_to_a_resource_that_started_later() {
    let (view, shared) = view();
    let table = table(&shared);
    let lease = lease();
    send_leased(&table, &V1, Some(&lease), "req", (START - SECOND, START), 5);
    assert_eq!(ask(&view, "req_total", START), Some(5.0));
    let now = START + 30 * SECOND;
    lease.touch(now);
    send(&table, &V2, "req", (START + 20 * SECOND, now), 7);
    let (value, notes) = ask_with_notes(&view, "req_total", now);
    assert_eq!(value, Some(5.0));
    assert!(notes.collision().is_some(), "both live");
    lease.suspend();
    assert_eq!(
        ask_with_notes(&view, "req_total", now + SECOND),
        (Some(7.0), QueryWarnings::default())
    );
}
