// SPDX-License-Identifier: Apache-2.0

//! Caps, bounds of memory and overflow.

use super::*;

#[test]
fn a_cap_in_bytes_sends_new_series_to_overflow_and_room_comes_back() {
    let limits = Limits {
        bytes: 20_000,
        ..Limits::default()
    };
    let table = Table::new("test", vec![Rule::newest()], limits);
    let say = |pod: usize, now: u64| {
        let series = series("c", DELTA, &[], &[("pod", &format!("pod-{pod}"))]);
        table.observe(&point(&series, now, now + 1, 1), now);
    };
    (0..500).for_each(|pod| say(pod, NOW));
    let stats = table.stats();
    let overflowed = stats.overflowed_streams[Overflow::Bytes as usize];
    assert!(overflowed > 400 && overflowed < 500, "{stats:?}");
    let total: i64 = show(&table)
        .values()
        .map(|value| value.as_f64().unwrap() as i64)
        .sum();
    assert_eq!(total, 500, "nothing is lost");
    for second in (0..3000).step_by(100) {
        table.expire(NOW + second * SECOND);
    }
    assert_eq!((table.len(), table.stats().bytes), (0, 0));
    say(7, NOW + 3000 * SECOND);
    assert_eq!(
        table.stats().overflowed_streams[Overflow::Bytes as usize],
        overflowed
    );
}

#[test]
fn a_bound_that_changes_holds_where_no_cap_in_bytes_is_set() {
    let most = bounds(20_000);
    let table = |limits| Table::new("test", vec![Rule::newest()], limits).bounded_by(most.clone());
    let say = |table: &Table, pod: usize| {
        let series = series("c", DELTA, &[], &[("pod", &format!("pod-{pod}"))]);
        table.observe(&point(&series, NOW, NOW + 1, 1), NOW);
    };
    let overflowed = |table: &Table| table.stats().overflowed_streams[Overflow::Bytes as usize];
    let bounded = table(Limits::default());
    (0..500).for_each(|pod| say(&bounded, pod));
    let crowded = overflowed(&bounded);
    assert!(crowded > 400 && crowded < 500, "{crowded}");
    most.set_bytes(2_000_000);
    (500..600).for_each(|pod| say(&bounded, pod));
    assert_eq!(overflowed(&bounded), crowded);
    most.set_bytes(0);
    let configured = table(Limits {
        bytes: 2_000_000,
        ..Limits::default()
    });
    (0..500).for_each(|pod| say(&configured, pod));
    assert_eq!(overflowed(&configured), 0, "what is configured counts");
}

#[test]
fn a_tight_table_takes_points_of_known_series_only() {
    let bounds = bounds(2_000_000);
    let table = Table::new("test", vec![by("*", &["host"])], Limits::default()).bounded_by(bounds.clone());
    let mut times = NOW..;
    let mut observe = |host: &str, pod: &str, value: i64| {
        let series = series("c", DELTA, &[], &[("host", host), ("pod", pod)]);
        let (start, time) = (times.next().unwrap(), times.start);
        table.observe(&point(&series, start, time, value), NOW)
    };
    assert_eq!(observe("a", "1", 1), Outcome::Absorbed);
    bounds.set_tight(true);
    let limited = Outcome::Rejected(Rejection::Limit);
    assert_eq!(observe("a", "1", 2), Outcome::Absorbed);
    assert_eq!(observe("a", "2", 10), limited, "a new stream of a known series");
    assert_eq!(observe("b", "1", 10), limited, "a new series");
    let schema = Arc::new(Schema {
        kinds: vec![kind("c", Instrument::Counter), kind("new", Instrument::Counter)],
    });
    let known = source(&[("host", "a")], HOUR);
    assert_eq!(
        table.absorb(&events(&known, &schema, &[(0, 4), (1, 5)])).absorbed,
        2
    );
    assert_eq!(int(&table, "c{host=a}"), 7);
    assert_eq!(
        int(&table, "new{otel.metric.overflow=Bool(true)}"),
        5,
        "new series of events overflow"
    );
    assert_eq!(table.stats().series, 2);
    bounds.set_tight(false);
    assert_eq!(observe("b", "1", 10), Outcome::Absorbed);
    assert_eq!(int(&table, "c{host=b}"), 10);
}

#[test]
fn sources_with_too_many_kinds_for_the_limit_wait_until_others_leave() {
    let most = bounds(100_000);
    let rules = vec![by("*", &[])];
    let table = Table::new("test", rules, Limits::default()).bounded_by(most);
    let kinds = (0..100).map(|number| kind(&format!("k{number}"), Instrument::Counter));
    let schema = Arc::new(Schema {
        kinds: kinds.collect(),
    });
    let absorbed = |source: &Arc<Source>| table.absorb(&events(source, &schema, &[(0, 1)])).absorbed;
    let sources: Vec<_> = (0..10).map(|_| source(&[], HOUR)).collect();
    let taken: Vec<_> = sources.iter().filter(|source| absorbed(source) == 1).collect();
    assert_eq!(taken.len(), 2, "50 kB are 166 kinds");
    assert_eq!(absorbed(taken[0]), 1, "one that is known goes on");
    assert_eq!(int(&table, "k0{}"), 3);
    taken.iter().for_each(|source| table.let_go(source.id));
    assert_eq!(absorbed(&sources[9]), 1);
    assert_eq!(int(&table, "k0{}"), 4);
}

#[test]
fn all_copies_of_long_names_and_labels_count_and_overflow_is_bounded() {
    const BOUND: usize = 4 << 20;
    let bounded = || Table::new("test", vec![Rule::newest()], Limits::default()).bounded_by(bounds(BOUND));
    let long = |number: usize| format!("{number}{}", "x".repeat(64 << 10));
    let (labels, names) = (bounded(), bounded());
    for number in 0..500 {
        let labelled = series("c", DELTA, &[], &[("pod", &long(number))]);
        labels.observe(&point(&labelled, NOW, NOW + 1, 1), NOW);
        let named = series(&long(number), DELTA, &[], &[]);
        names.observe(&point(&named, NOW, NOW + 1, 1), NOW);
    }
    // About 200 KiB each: 22, and a few that overflow.
    assert!((10..40).contains(&labels.len()), "{}", labels.len());
    assert!((10..40).contains(&names.len()), "{}", names.len());
}

#[test]
fn caps_send_what_is_beyond_them_to_an_overflow_series_and_lose_nothing() {
    let limits = Limits {
        series: 3,
        ..Limits::default()
    };
    let table = Table::new("test", vec![by("requests", &["user"])], limits);
    for user in 0..10 {
        let user = user.to_string();
        let counter = series("requests", COUNTER, &[], &[("user", &user)]);
        assert_eq!(
            table.observe(&point(&counter, NOW, NOW, 1), NOW),
            Outcome::Absorbed
        );
        table.observe(&point(&counter, NOW, NOW + 1, 3), NOW);
    }
    let all = show(&table);
    assert_eq!(all.len(), 4);
    assert_eq!(all["requests{otel.metric.overflow=Bool(true)}"], Value::Int(21));
    assert_eq!(table.stats().overflowed_streams, [7, 0, 0, 0]);
}

#[test]
fn one_crowded_source_or_metric_leaves_the_others_their_room() {
    let limits = Limits {
        streams_per_source: 2,
        ..Limits::default()
    };
    let table = Table::new("test", vec![Rule::newest()], limits);
    for user in ["a", "b", "c", "d"] {
        table.observe(
            &point(
                &series("m", COUNTER, &[("pod", "loud")], &[("user", user)]),
                NOW,
                NOW,
                2,
            ),
            NOW,
        );
    }
    table.observe(
        &point(
            &series("m", COUNTER, &[("pod", "quiet")], &[("user", "e")]),
            NOW,
            NOW,
            1,
        ),
        NOW,
    );
    let all = show(&table);
    assert_eq!(
        (all.len(), &all["m{otel.metric.overflow=Bool(true)}"]),
        (4, &Value::Int(4))
    );
    assert_eq!(all["m{user=e}"], Value::Int(1));

    let limits = Limits {
        series_per_metric: 1,
        ..Limits::default()
    };
    let table = Table::new("test", vec![Rule::newest()], limits);
    for (name, user) in [("m", "a"), ("m", "b"), ("n", "a")] {
        table.observe(
            &point(&series(name, COUNTER, &[], &[("user", user)]), NOW, NOW, 1),
            NOW,
        );
    }
    assert_eq!(show(&table).len(), 3);
}
