// SPDX-License-Identifier: Apache-2.0

//! Events with times of their own: a wrong time blocks nothing, and counts.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::{
    Attributes, EventKind, Freshness, Instrument, Lease, Limits, Pattern, Rejection, Resource, Rule, Schema,
    Scope, SeriesExplanation, Source, SourceId, SourceStatus, Table, TimestampAnomaly, Value, Values,
};

const SECOND: u64 = 1_000_000_000;
const NOW: UnixNanos = 1_700_000_000 * SECOND;
const TOMORROW: u64 = 86_400 * SECOND;

const GAUGE: u16 = 0;
const COUNTER: u16 = 1;

fn source() -> Arc<Source> {
    Arc::new(Source {
        id: SourceId::next(),
        resource: Arc::new(Resource::default()),
        scope: Arc::new(Scope::default()),
        attributes: Attributes::default(),
        lease: Arc::new(Lease::new(Duration::from_mins(1), NOW)),
    })
}

fn schema() -> Arc<Schema> {
    let kind = |name: &str, instrument| EventKind {
        name: name.into(),
        description: "".into(),
        unit: "".into(),
        instrument,
        attributes: Attributes::default(),
    };
    Arc::new(Schema {
        kinds: vec![
            kind("depth", Instrument::Gauge),
            kind("hits", Instrument::Counter),
        ],
    })
}

/// A source, a table and what it shows.
struct Scene {
    source: Arc<Source>,
    schema: Arc<Schema>,
    table: Table,
}

impl Scene {
    fn new(action: FutureAction, pattern: &str) -> Self {
        let limits = Limits {
            future: Future {
                action,
                ..Future::default()
            },
            ..Limits::default()
        };
        let rule = Rule::new(Pattern::parse(pattern).unwrap());
        Self {
            source: source(),
            schema: schema(),
            table: Table::new("t", vec![rule], limits),
        }
    }

    fn events(&self, observed: UnixNanos, events: &[(u16, u64, UnixNanos)]) -> Events {
        self.source.lease.touch(observed);
        Events {
            source: self.source.clone(),
            schema: self.schema.clone(),
            kinds: events.iter().map(|event| event.0).collect(),
            values: Values::U64(events.iter().map(|event| event.1).collect()),
            times: Some(events.iter().map(|event| event.2).collect()),
            weights: None,
            observed,
        }
    }

    fn explain(&self, kind: u16, now: UnixNanos) -> SeriesExplanation {
        let name = &self.schema.kinds[usize::from(kind)].name;
        let mut found = None;
        self.table.read(now, &mut |reading| {
            if reading.series.metric.name == *name {
                found = Some(reading.series.clone());
            }
        });
        self.table.explain(&found.unwrap(), now, 9).unwrap()
    }
}

#[test]
fn an_event_from_tomorrow_is_refused_and_holds_no_gauge_up() {
    let scene = Scene::new(FutureAction::Refuse, "regex:.*");
    let batch = scene.events(
        NOW,
        &[
            (GAUGE, 5, NOW),
            (GAUGE, 99, NOW + TOMORROW),
            (COUNTER, 3, NOW),
            (COUNTER, 1, u64::MAX),
        ],
    );
    let absorbed = scene.table.absorb(&batch);
    assert_eq!((absorbed.absorbed, absorbed.future, absorbed.invalid), (2, 2, 0));
    assert_eq!(scene.table.stats().rejected[Rejection::Future as usize], 2);
    let gauge = scene.explain(GAUGE, NOW);
    assert_eq!((gauge.value, gauge.time), (Value::Int(5), NOW));
    assert_eq!(scene.explain(COUNTER, NOW).value, Value::Int(3));
    // It is said that something is wrong, once.
    assert_eq!(
        (gauge.state, gauge.sources[0].status),
        (Freshness::Stale, SourceStatus::Stalled)
    );
    scene
        .table
        .absorb(&scene.events(NOW + 1, &[(GAUGE, 98, NOW + TOMORROW)]));
    assert_eq!(
        scene.table.timestamp_anomalies().count(TimestampAnomaly::Ahead),
        1
    );
    let later = NOW + 10 * SECOND;
    let absorbed = scene.table.absorb(&scene.events(later, &[(GAUGE, 6, later)]));
    assert_eq!((absorbed.absorbed, absorbed.future), (1, 0));
    let gauge = scene.explain(GAUGE, later);
    assert_eq!(
        (gauge.value, gauge.time, gauge.state),
        (Value::Int(6), later, Freshness::Fresh)
    );
}

#[test]
fn an_event_from_tomorrow_gets_its_arrival_time_if_the_policy_says_so() {
    let scene = Scene::new(FutureAction::Arrival, "regex:.*");
    let batch = scene.events(NOW, &[(GAUGE, 5, NOW), (GAUGE, 7, NOW + TOMORROW)]);
    let absorbed = scene.table.absorb(&batch);
    assert_eq!((absorbed.absorbed, absorbed.future), (2, 0));
    let gauge = scene.explain(GAUGE, NOW);
    assert_eq!(
        (gauge.value, gauge.time, gauge.state),
        (Value::Int(7), NOW, Freshness::Fresh)
    );
}

#[test]
fn what_no_rule_takes_passes_whatever_its_time() {
    let scene = Scene::new(FutureAction::Refuse, "hits");
    let batch = scene.events(NOW, &[(GAUGE, 5, NOW + TOMORROW), (COUNTER, 1, NOW)]);
    let absorbed = scene.table.absorb(&batch);
    assert_eq!((absorbed.absorbed, absorbed.future), (1, 0));
    assert_eq!(absorbed.unmatched.unwrap().times, Some(vec![NOW + TOMORROW]));
}

/// Events have the times of the machine's clock. After it is set back, the next event is the newest.
#[test]
fn a_gauge_goes_on_when_the_clock_of_the_machine_is_set_back() {
    for with_times in [true, false] {
        let scene = Scene::new(FutureAction::Refuse, "regex:.*");
        let push = |now: UnixNanos, value| {
            let time = clock::wall(now);
            let mut events = scene.events(now, &[(GAUGE, value, time), (COUNTER, 1, time)]);
            events.times = events.times.filter(|_| with_times);
            scene.table.absorb(&events);
            (scene.explain(GAUGE, now), scene.explain(COUNTER, now))
        };
        push(NOW, 5);
        clock::set_ahead(-(TOMORROW as i64));
        let (gauge, counter) = push(NOW + SECOND, 6);
        assert_eq!(gauge.value, Value::Int(6));
        assert_eq!(counter.value, Value::Int(2));
        let wall = NOW + SECOND - TOMORROW;
        assert_eq!((gauge.time, counter.time), (wall, wall));
        clock::set_ahead(0);
    }
}

#[test]
fn the_later_clock_counts_for_an_hour_after_a_step_then_the_wall_clock() {
    const HOUR: UnixNanos = 3_600_000_000_000;
    let tolerance = nanos(Future::default().tolerance);
    let latest = |now| Future::default().latest(now) - tolerance;
    let began = 100 * HOUR;
    assert_eq!(latest(began), began);
    // Set back by ten hours.
    clock::set_ahead_at(-10 * HOUR.cast_signed(), began);
    assert_eq!(latest(began), began);
    assert_eq!(latest(began + HOUR - 1), began + HOUR - 1);
    assert_eq!(latest(began + HOUR), began - 9 * HOUR);
    // Set forward.
    clock::set_ahead_at(HOUR.cast_signed(), began + 2 * HOUR);
    assert_eq!(latest(began + 2 * HOUR), began + 3 * HOUR);
    assert_eq!(latest(began + 9 * HOUR), began + 10 * HOUR);
}
