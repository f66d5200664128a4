// SPDX-License-Identifier: Apache-2.0

//! Sources of what a query selects, in time that passes.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{
    Attributes, EventKind, Events, Instrument, Lease, Schema, Source, SourceId, Table, UnixNanos, Value,
    Values,
};
use tidegate_promql::Query;

use super::super::View;
use super::super::tests::{SECOND, START, send, table, view};
use super::*;
use crate::catalog::testing::{self, point};
use tidegate_pipeline::component::Evaluate;

const A: [(&str, &str); 2] = [("service.name", "vllm"), ("service.instance.id", "a")];
const B: [(&str, &str); 2] = [("service.name", "vllm"), ("service.instance.id", "b")];

/// How many sources are selected and in time, how many are overdue, and how many targets failed.
fn count_sources(view: &Arc<View>, query: &str, now: UnixNanos) -> (usize, usize, usize) {
    let evaluation = view.evaluate(&Query::parse(query).unwrap(), now).unwrap();
    let is_due = |source: &&SelectedSource| now - source.seen <= source.lease;
    let due = evaluation.sources.iter().filter(is_due).count();
    (due, evaluation.sources.len() - due, evaluation.failed.len())
}

#[test]
fn a_source_is_overdue_by_its_own_cadence() {
    let (view, shared) = view();
    let table = table(&shared);
    for second in 0..30 {
        let now = START + second * SECOND;
        send(&table, &A, "waiting", (0, now), 5);
        send(&table, &A, "running", (0, now), 5);
        if second <= 20 {
            send(&table, &B, "waiting", (0, now), 7);
        }
        let overdue = usize::from(second > 25);
        let expected = (2 - overdue, overdue, 0);
        assert_eq!(
            count_sources(&view, "sum(waiting)", now),
            expected,
            "after {second} s"
        );
        assert_eq!(count_sources(&view, "sum(waiting) / sum(running)", now), expected);
        assert_eq!(
            count_sources(&view, "sum(waiting{instance=\"a\"})", now),
            (1, 0, 0)
        );
        assert_eq!(
            count_sources(&view, "sum(waiting{instance=\"c\"})", now),
            (0, 0, 0)
        );
        assert_eq!(count_sources(&view, "vector(1)", now), (0, 0, 0));
    }
}

#[test]
fn a_target_that_failed_is_found_by_its_job_and_instance() {
    let (view, shared) = view();
    let table = table(&shared);
    send(&table, &A, "waiting", (0, START), 5);
    send(&table, &A, "up", (0, START), 1);
    assert_eq!(count_sources(&view, "waiting", START), (1, 0, 0));
    // A rule has kept job and instance only, while `up` has all that discovery said.
    let full = [&A[..], &[("server.address", "a")]].concat();
    let now = START + SECOND;
    send(&table, &full, "up", (0, now), 0);
    let evaluation = view.evaluate(&Query::parse("waiting").unwrap(), now).unwrap();
    assert_eq!(evaluation.failed, HashSet::from([evaluation.sources[0].key]));
}

#[test]
fn a_source_of_events_that_is_idle_lives() {
    let (view, shared) = view();
    let table = table(&shared);
    let source = Source {
        id: SourceId::next(),
        resource: Arc::default(),
        scope: Arc::default(),
        attributes: [("agent_name", "a")].into_iter().collect(),
        lease: Arc::new(Lease::new(Duration::from_secs(5), START)),
    };
    let kind = EventKind {
        name: "xfers".into(),
        description: "".into(),
        unit: "".into(),
        instrument: Instrument::Counter,
        attributes: [("pod", "p")].into_iter().collect(),
    };
    let mut batch = Events {
        source: Arc::new(source),
        schema: Arc::new(Schema { kinds: vec![kind] }),
        kinds: vec![0],
        values: Values::U64(vec![1]),
        times: None,
        weights: None,
        observed: START,
    };
    for second in 0..60 {
        let now = START + second * SECOND;
        batch.source.lease.touch(now);
        batch.observed = now;
        if second < 10 {
            table.absorb(&batch);
        }
        table.expire(now);
        assert_eq!(
            count_sources(&view, "xfers_total", now),
            (1, 0, 0),
            "after {second} s"
        );
    }
}

/// A gauge of a resource ends.
fn end(table: &Table, resource: &[(&str, &str)], name: &str, now: UnixNanos) {
    let of = (resource.iter().copied().collect(), Attributes::default());
    let point = point(name, Data::Gauge, of, (0, now), Value::NoRecordedValue);
    table.observe(&point, now);
}

/// A target is scraped; `None`: the scrape fails.
fn scrape(table: &Table, target: &[(&str, &str)], waiting: Option<i64>, now: UnixNanos) {
    for point in testing::scrape(target, "waiting", waiting, now) {
        table.observe(&point, now);
    }
}

/// Of each selected level: how many sources report, and how many should.
fn counts(view: &View, query: &str, now: UnixNanos) -> Vec<(String, usize, usize)> {
    let query = Query::parse(query).unwrap();
    view.refresh(now, &view.selections_with_sources(&query));
    let levels = view.levels(&query, now);
    let mut incomplete = levels.clone();
    incomplete.retain(|level| level.reporting < level.expected);
    assert_eq!(view.levels_of_failed(&query, now), incomplete);
    let counts = levels.into_iter();
    counts
        .map(|level| (level.name, level.reporting, level.expected))
        .collect()
}

fn record(view: &View, now: UnixNanos) {
    view.record(now, Duration::ZERO, &mut |_| true);
}

fn of_waiting(reporting: usize, expected: usize) -> Vec<(String, usize, usize)> {
    vec![("waiting".to_owned(), reporting, expected)]
}

#[test]
fn a_target_that_loses_its_gauges_by_a_failed_scrape_is_missing_in_them() {
    let (view, shared) = view();
    let table = table(&shared);
    scrape(&table, &A, Some(5), START);
    scrape(&table, &B, Some(7), START);
    assert_eq!(counts(&view, "sum(waiting)", START), of_waiting(2, 2));
    let mut now = START + SECOND;
    scrape(&table, &A, None, now);
    for query in ["sum(waiting)", "waiting or vector(0)", "{__name__=~\"wait.*\"}"] {
        assert_eq!(counts(&view, query, now), of_waiting(1, 2), "{query}");
    }
    assert_eq!(counts(&view, "waiting{instance=\"b\"}", now), of_waiting(1, 1));
    // The failed scrape reports these itself.
    assert_eq!(counts(&view, "sum(up)", now), [("up".to_owned(), 2, 2)]);
    now += SECOND;
    scrape(&table, &B, None, now);
    assert_eq!(counts(&view, "sum(waiting)", now), of_waiting(0, 2));
    // Scrapes go on failing for longer than the table and the past keep anything.
    for _ in 0..60 {
        now += 10 * SECOND;
        for target in [&A, &B] {
            send(&table, target, "up", (0, now), 0);
        }
        table.expire(now);
        record(&view, now);
        assert_eq!(counts(&view, "sum(waiting)", now), of_waiting(0, 2));
    }
    now += SECOND;
    end(&table, &A, "up", now);
    assert_eq!(
        counts(&view, "sum(waiting)", now),
        of_waiting(0, 1),
        "one has left"
    );
    now += SECOND;
    scrape(&table, &B, Some(3), now);
    assert_eq!(counts(&view, "sum(waiting)", now), of_waiting(1, 1));
}

#[test]
fn gauges_of_failed_targets_take_a_quarter_of_the_memory_of_the_past() {
    const BOUND: usize = 20_000;
    let (view, shared) = view();
    view.bound_past(BOUND);
    let table = table(&shared);
    let scrape_all = |waiting, now| {
        for target in 0..50 {
            let instance = target.to_string();
            let target = [("service.name", "vllm"), ("service.instance.id", &*instance)];
            scrape(&table, &target, waiting, now);
        }
    };
    scrape_all(Some(5), START);
    assert_eq!(counts(&view, "waiting", START), of_waiting(50, 50));
    let mut now = START + SECOND;
    scrape_all(None, now);
    let shown = counts(&view, "waiting", now);
    assert!((5..50).contains(&shown[0].2), "{shown:?}");
    let bytes = view.state().shared.history.bytes();
    assert!(
        (BOUND / 8..=BOUND / 4).contains(&bytes),
        "{bytes} without samples"
    );
    now += SECOND;
    scrape_all(Some(5), now);
    now += 20 * SECOND;
    scrape_all(Some(5), now);
    record(&view, now);
    assert_eq!(view.state().shared.ended.bytes(), 0, "all are back");
}

#[test]
fn a_gauge_that_ended_before_the_scrapes_failed_is_not_missing() {
    for keeps_past in [true, false] {
        let (view, shared) = view();
        let table = table(&shared);
        let attend = |now| {
            if keeps_past {
                record(&view, now);
            } else {
                view.attend(now);
            }
        };
        scrape(&table, &A, Some(5), START);
        assert_eq!(counts(&view, "waiting", START), of_waiting(1, 1));
        let mut now = START + SECOND;
        end(&table, &A, "waiting", now);
        assert!(counts(&view, "waiting", now).is_empty());
        for _ in 0..20 {
            now += SECOND;
            send(&table, &A, "up", (0, now), 1);
            attend(now);
        }
        now += SECOND;
        send(&table, &A, "up", (0, now), 0);
        assert!(counts(&view, "waiting", now).is_empty());
    }
}

/// Two targets that were scraped, and a query that has read both.
fn two_scraped() -> (Arc<View>, Arc<Table>, Query) {
    let (view, shared) = view();
    let table = table(&shared);
    scrape(&table, &A, Some(5), START);
    scrape(&table, &B, Some(7), START);
    let query = Query::parse("sum(waiting)").unwrap();
    view.refresh(START, &view.selections_with_sources(&query));
    (view, table, query)
}

/// How many sources of the gauge report, and how many should, as of the last read.
fn counts_read(view: &View, query: &Query, now: UnixNanos) -> Vec<(usize, usize)> {
    let levels = view.levels(query, now).into_iter();
    levels.map(|level| (level.reporting, level.expected)).collect()
}

#[test]
fn a_scrape_that_fails_between_two_reads_is_found() {
    let (view, table, query) = two_scraped();
    let now = START + SECOND;
    scrape(&table, &A, None, now);
    // It has read `up` before, and reads the gauges now.
    view.refresh(now, &query.selections());
    assert_eq!(counts_read(&view, &query, now), [(1, 2)]);
    let now = now + SECOND;
    scrape(&table, &B, None, now);
    view.refresh(now, &query.selections());
    let evaluation = view.sources_of(&query, now);
    assert_eq!((evaluation.sources.len(), evaluation.failed.len()), (0, 2));
}

#[test]
fn a_target_that_is_back_between_two_reads_is_missing_in_the_first() {
    let (view, table, query) = two_scraped();
    let now = START + SECOND;
    scrape(&table, &A, None, now);
    view.refresh(now, &view.selections_with_sources(&query));
    // The gauges that were read do not have it.
    scrape(&table, &A, Some(6), now + SECOND);
    assert_eq!(counts_read(&view, &query, now + SECOND), [(1, 2)]);
}

#[test]
fn a_target_of_two_resources_is_alive_while_one_of_them_is() {
    let (view, shared) = view();
    let table = table(&shared);
    let leases = [(); 2].map(|()| Arc::new(Lease::new(Duration::from_secs(15), START)));
    for (version, lease) in ["1", "2"].into_iter().zip(&leases) {
        let resource = [("service.name", "llm"), ("service.version", version)];
        let zone = [("zone", version)].into_iter().collect();
        let of = (resource.into_iter().collect(), zone);
        let point = point("waiting", Data::Gauge, of, (0, START), Value::Int(1));
        let mut session = table.session(START).of_leased(Some(lease.clone()));
        session.observe(&point);
    }
    let query = Query::parse("waiting").unwrap();
    for (lease, reporting) in leases.iter().zip([1, 0]) {
        lease.suspend();
        view.refresh(START, &view.selections_with_sources(&query));
        assert_eq!(counts_read(&view, &query, START), [(reporting, 1)]);
    }
}

/// A directory of cells reports a gauge; `None`: the gauge ends.
fn report(table: &Table, directory: &[(&str, &str)], lease: &Arc<Lease>, value: Option<i64>, now: UnixNanos) {
    let of = (directory.iter().copied().collect(), Attributes::default());
    let value = value.map_or(Value::NoRecordedValue, Value::Int);
    let point = point("waiting", Data::Gauge, of, (0, now), value);
    let mut session = table.session(now).of_leased(Some(lease.clone()));
    session.observe(&point);
}

#[test]
fn the_gauge_of_a_dead_source_is_missing_until_it_returns_or_leaves() {
    let (view, shared) = view();
    let table = table(&shared);
    let term = Duration::from_secs(15);
    let leases = [(); 2].map(|()| Arc::new(Lease::new(term, START)));
    let [of_a, of_b] = &leases;
    report(&table, &A, of_a, Some(5), START);
    report(&table, &B, of_b, Some(7), START);
    assert_eq!(counts(&view, "waiting", START), of_waiting(2, 2));
    let mut now = START + SECOND;
    of_b.touch(now);
    report(&table, &A, of_a, None, now);
    of_a.suspend();
    assert_eq!(counts(&view, "waiting", now), of_waiting(1, 2));
    let query = Query::parse("sum(waiting) or vector(0)").unwrap();
    let evaluation = view.sources_of(&query, now);
    assert_eq!((evaluation.sources.len(), evaluation.failed.len()), (1, 1));
    // For longer than the table remembers a gauge.
    for _ in 0..50 {
        now += 10 * SECOND;
        of_b.touch(now);
        report(&table, &B, of_b, Some(7), now);
        table.expire(now);
        record(&view, now);
        assert_eq!(counts(&view, "waiting", now), of_waiting(1, 2));
    }
    now += SECOND;
    report(&table, &B, of_b, None, now);
    of_b.suspend();
    assert_eq!(counts(&view, "waiting", now), of_waiting(0, 2));
    of_a.touch(now);
    report(&table, &A, of_a, Some(6), now);
    assert_eq!(counts(&view, "waiting", now), of_waiting(1, 2), "one is back");
    of_b.end();
    assert_eq!(
        counts(&view, "waiting", now),
        of_waiting(1, 1),
        "the other one has left"
    );
    report(&table, &A, of_a, None, now + SECOND);
    of_a.suspend();
    now += 601 * SECOND;
    record(&view, now);
    assert_eq!(counts(&view, "waiting", now), [], "nobody expects it any more");
}

#[test]
fn what_a_receiver_repeats_of_a_dead_source_is_no_report() {
    let (view, shared) = view();
    let table = table(&shared);
    let lease = Arc::new(Lease::new(Duration::from_secs(15), START));
    report(&table, &A, &lease, Some(5), START);
    // Another resource of this job and instance, which pushes.
    let pushed = [A[0], A[1], ("service.version", "2")];
    send(&table, &pushed, "running", (0, START), 1);
    lease.suspend();
    let now = START + 300 * SECOND;
    report(&table, &A, &lease, Some(5), now);
    for (query, is_dead) in [("waiting", true), ("waiting + running", false)] {
        let query = Query::parse(query).unwrap();
        view.refresh(now, &view.selections_with_sources(&query));
        let sources = view.sources_of(&query, now).sources;
        let found: Vec<_> = sources
            .iter()
            .map(|source| (source.seen, source.is_dead))
            .collect();
        assert_eq!(found, [(START, is_dead)]);
    }
}

#[test]
fn a_gauge_that_outlives_its_source_is_expected_for_ten_minutes() {
    let (view, shared) = view();
    let table = table(&shared);
    let leases = [(); 2].map(|()| Arc::new(Lease::new(Duration::from_secs(15), START)));
    let [of_a, of_b] = &leases;
    report(&table, &A, of_a, Some(5), START);
    report(&table, &B, of_b, Some(7), START);
    of_a.suspend();
    let query = Query::parse("sum(waiting)").unwrap();
    let counts = |second: u64| {
        let now = START + second * SECOND;
        view.refresh(now, &view.selections_with_sources(&query));
        counts_read(&view, &query, now)
    };
    for second in (0..=660).step_by(60) {
        let now = START + second * SECOND;
        of_b.touch(now);
        report(&table, &A, of_a, Some(5), now);
        let expected = if second <= 600 { 2 } else { 1 };
        assert_eq!(counts(second), [(1, expected)], "after {second} s");
    }
    of_b.suspend();
    assert_eq!(counts(660), [(0, 1)]);
    assert_eq!(counts(1261), [(0, 2)], "only the dead have a value");
}
