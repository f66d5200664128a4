// SPDX-License-Identifier: Apache-2.0

//! Explanations of series, and the largest sources of a table.

use super::*;

#[test]
fn a_series_says_who_feeds_it_since_when_and_how_far_it_can_be_trusted() {
    let table = table(vec![by("requests", &["zone"])]);
    let pod = |pod: &str| {
        series(
            "requests",
            COUNTER,
            &[("pod", pod)],
            &[("zone", "x"), ("pod", pod)],
        )
    };
    table.observe(&point(&pod("a"), NOW, NOW + 1, 5), NOW);
    table.observe(&point(&pod("b"), NOW + 3, NOW + 4, 7), NOW + 60 * SECOND);
    let mut shown = None;
    table.read(NOW, &mut |reading| shown = Some(reading.series.clone()));
    let shown = shown.unwrap();
    let explain = |after: u64| table.explain(&shown, NOW + after * SECOND, 10).unwrap();
    let both = explain(61);
    assert_eq!(
        (both.state, both.expected, both.reporting),
        (Freshness::Fresh, 2, 2)
    );
    assert_eq!(
        (both.value, both.rule, &*both.owner),
        (Value::Int(12), Some(0), "test")
    );
    let one = explain(100);
    assert_eq!(
        (one.state, one.expected, one.reporting),
        (Freshness::Partial, 2, 1)
    );
    let overdue = &one.sources[0];
    assert_eq!(overdue.attributes, attributes(&[("pod", "a")]));
    assert_eq!(
        (overdue.status, overdue.start, overdue.last_value),
        (SourceStatus::Overdue, NOW, Some(5.0))
    );
    assert_eq!(explain(200).state, Freshness::Stale);
    let other = series("requests", COUNTER, &[], &[("zone", "y")]);
    assert_eq!(table.explain(&other, NOW, 10), None);
}

#[test]
fn a_source_of_an_aggregated_series_lives_by_its_own_cadence() {
    let table = table(vec![by("requests", &["zone"])]);
    let say = |pod: &str, name: &str, second: u64| {
        let series = series(name, COUNTER, &[("pod", pod)], &[("zone", "x"), ("pod", pod)]);
        let now = NOW + second * SECOND;
        table.observe(&point(&series, NOW, now, second as i64), now);
    };
    for second in (0..=240).filter(|second| second % 2 == 0) {
        say("quick", "requests", second);
        if second % 120 == 0 {
            say("slow", "requests", second);
        }
    }
    let mut shown = None;
    table.read(NOW, &mut |reading| shown = Some(reading.series.clone()));
    let shown = shown.unwrap();
    let lives = |silent: u64| {
        let it = table.explain(&shown, NOW + (240 + silent) * SECOND, 10).unwrap();
        let alive = it
            .sources
            .iter()
            .filter(|source| source.status == SourceStatus::Alive);
        let alive: Vec<Attributes> = alive.map(|source| source.attributes.clone()).collect();
        (it.state, alive)
    };
    let [quick, slow] = ["quick", "slow"].map(|pod| attributes(&[("pod", pod)]));
    assert_eq!(lives(5).1.len(), 2);
    assert_eq!(lives(6), (Freshness::Partial, vec![slow.clone()]));
    assert_eq!(lives(300), (Freshness::Partial, vec![slow]));
    assert_eq!(lives(301), (Freshness::Stale, vec![]));
    // A point that no rule takes does not show that its source is alive.
    say("quick", "other", 244);
    assert_eq!(lives(6).1.len(), 1);
    say("quick", "requests", 246);
    assert!(lives(6).1.contains(&quick));
}

#[test]
fn a_source_with_a_lease_is_alive_in_silence_and_overdue_in_death() {
    let table = table(vec![Rule::newest()]);
    let lease = Arc::new(Lease::new(Duration::from_secs(5), NOW));
    let series = series("depth", Data::Gauge, &[("pod", "a")], &[]);
    let mut session = table.session(NOW).of_leased(Some(lease.clone()));
    assert_eq!(session.observe(&point(&series, 0, NOW, 4)), Outcome::Absorbed);
    drop(session);
    let quiet = NOW + 1000 * SECOND;
    lease.touch(quiet);
    let explain = || table.explain(&series, quiet, 10).unwrap();
    let it = explain();
    assert_eq!((it.state, it.reporting), (Freshness::Fresh, 1));
    assert_eq!(
        (it.sources[0].status, it.sources[0].seen),
        (SourceStatus::Alive, quiet)
    );
    lease.suspend();
    let it = explain();
    assert_eq!((it.state, it.expected, it.reporting), (Freshness::Stale, 1, 0));
    assert_eq!(it.sources[0].status, SourceStatus::Overdue);
    assert!(
        table
            .lease_of(&series.resource)
            .is_some_and(|lease| lease.is_dead())
    );
    // It reports by itself from now on.
    table.observe(&point(&series, 0, quiet, 5), quiet);
    assert_eq!(explain().state, Freshness::Fresh);
    assert!(table.lease_of(&series.resource).is_none());
}

#[test]
fn what_is_repeated_of_the_dead_leaves_the_lease_of_a_living_source() {
    let table = table(vec![Rule::newest()]);
    let [alive, dead] = [(); 2].map(|()| Arc::new(Lease::new(Duration::from_secs(5), NOW)));
    // Two directories of cells with one resource.
    let [depth, length] = ["depth", "length"].map(|name| series(name, Data::Gauge, &[("pod", "a")], &[]));
    let report = |series: &Arc<Series>, lease: &Arc<Lease>, now: UnixNanos| {
        let mut session = table.session(now).of_leased(Some(lease.clone()));
        assert_eq!(session.observe(&point(series, 0, now, 4)), Outcome::Absorbed);
    };
    let is_that = |lease: &Arc<Lease>| {
        let known = table.lease_of(&depth.resource);
        known.is_some_and(|known| Arc::ptr_eq(&known, lease))
    };
    dead.suspend();
    report(&length, &dead, NOW);
    assert!(is_that(&dead));
    report(&depth, &alive, NOW + 1);
    report(&length, &dead, NOW + 2);
    assert!(is_that(&alive));
    assert_eq!(
        table.explain(&depth, NOW + 2, 10).unwrap().state,
        Freshness::Fresh
    );
    alive.suspend();
    report(&length, &dead, NOW + 3);
    assert!(is_that(&dead));
    // Its receiver has stopped, and nobody ends its lease.
    alive.touch(NOW + 4);
    report(&depth, &alive, NOW + 4);
    report(&length, &dead, NOW + 5 * SECOND);
    assert!(is_that(&alive));
    report(&length, &dead, NOW + 6 * SECOND);
    assert!(is_that(&dead));
}

#[test]
fn holdings_name_the_largest_sources() {
    let table = Arc::new(table(vec![Rule::newest()]));
    for pod in 0..20 {
        for code in 0..=pod % 3 {
            let (pod, code) = (pod.to_string(), code.to_string());
            let series = series(
                "requests",
                COUNTER,
                &[("job", "api")],
                &[("pod", &pod), ("code", &code)],
            );
            table.observe(&point(&series, NOW, NOW + 1, 1), NOW);
        }
    }
    table.observe(
        &point(&series("up", Data::Gauge, &[("job", "b")], &[]), 0, NOW, 1),
        NOW,
    );
    let all = holdings(std::slice::from_ref(&table), 2);
    let named = all.sources.iter().map(|count| (&*count.name, count.count));
    assert_eq!(named.collect::<Vec<_>>(), [("job=api", 39), ("job=b", 1)]);
    assert_eq!(all.bytes, table.bytes());
    assert_eq!(holdings(std::slice::from_ref(&table), 1).sources.len(), 1);
    // A table in front of it that takes nothing of this feeds nothing.
    let before = Arc::new(self::table(vec![by("other", &["pod"])]));
    let passed = series(
        "requests",
        COUNTER,
        &[("job", "api")],
        &[("pod", "0"), ("code", "0")],
    );
    assert_eq!(
        before.observe(&point(&passed, NOW, NOW + 1, 1), NOW),
        Outcome::Unmatched
    );
    assert_eq!(holdings(&[before, table], 2).sources, all.sources);
}
