// SPDX-License-Identifier: Apache-2.0

//! Sources of what a query selects, in time that passes as count_sources.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{EventKind, Events, Instrument, Lease, Schema, Source, SourceId, UnixNanos, Values};
use tidegate_promql::Query;

use super::super::View;
use super::super::tests::{SECOND, START, send, table, view};
use super::*;
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
