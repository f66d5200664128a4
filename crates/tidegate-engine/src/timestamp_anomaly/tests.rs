// SPDX-License-Identifier: Apache-2.0

//! A sender whose clock steps: every value is right, or is not called fresh.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use crate::stream_tracker::Rejection;
use crate::*;

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 1_700_000_000 * SECOND;
const HOUR: i64 = 3600;

const fn sum(monotonic: bool, temporality: Temporality) -> Data {
    Data::Sum {
        monotonic,
        temporality,
    }
}

const COUNTER: Data = sum(true, Temporality::Cumulative);
const LEVEL: Data = sum(false, Temporality::Cumulative);
const DELTA: Data = sum(true, Temporality::Delta);

fn series(name: &str, data: Data) -> Arc<Series> {
    Arc::new(Series {
        resource: Arc::default(),
        scope: Arc::default(),
        metric: Arc::new(Metric {
            name: name.into(),
            description: "".into(),
            unit: "".into(),
            data,
            metadata: Attributes::default(),
        }),
        attributes: Attributes::default(),
    })
}

fn composite(metric: &str, function: Function, across: Option<Across>) -> Arc<Composite> {
    Arc::new(Composite::new(Declaration {
        name: "derived".into(),
        description: "".into(),
        metric: Pattern::parse(metric).unwrap(),
        attributes: AttributeFilter::default(),
        expression: None,
        function,
        across,
        quantiles: Arc::default(),
        on_stale: OnStale::Error,
        window: Duration::from_secs(10),
        grouping: Grouping::by::<&str>([]),
        max_groups: 3,
        lease: None,
    }))
}

/// A sender of four series, and the receivers of its points.
struct Scene {
    tables: [Table; 2],
    composites: [Arc<Composite>; 3],
    set: CompositeSet,
    interval: u64,
    now: u64,
    /// The offset of the sender's clock in seconds; positive: ahead.
    offset: i64,
    /// The gateway makes the times itself, by its wall clock.
    is_scraped: bool,
    stepped: u64,
    pushes: i64,
    said: u64,
}

impl Scene {
    fn new(interval: u64) -> Self {
        let added = Rule {
            grouping: Grouping::by::<&str>([]),
            ..Rule::new(Pattern::parse("*").unwrap())
        };
        let composites = [
            composite("gauge", Function::Last, Some(Across::Sum)),
            composite("counter", Function::Rate, None),
            composite("delta", Function::Rate, None),
        ];
        let table = |rule| Table::new("test", vec![rule], Limits::default());
        Self {
            tables: [table(Rule::newest()), table(added)],
            set: CompositeSet::new(composites.to_vec()),
            composites,
            interval,
            now: NOW,
            offset: 0,
            is_scraped: false,
            stepped: 0,
            pushes: 0,
            said: 0,
        }
    }

    fn step_to(&mut self, offset: i64) {
        (self.offset, self.stepped) = (offset, self.now);
    }

    fn push(&mut self) {
        self.now += self.interval;
        self.pushes += 1;
        let time = if self.is_scraped {
            clock::wall(self.now)
        } else {
            self.now.checked_add_signed(self.offset * SECOND as i64).unwrap()
        };
        let start = |data: Data| {
            if data == DELTA {
                time - self.interval
            } else {
                NOW - SECOND
            }
        };
        let all = [
            ("counter", COUNTER),
            ("level", LEVEL),
            ("gauge", Data::Gauge),
            ("delta", DELTA),
        ];
        let points: Vec<Point> = all
            .into_iter()
            .map(|(name, data)| Point {
                series: series(name, data),
                start: if data == Data::Gauge { 0 } else { start(data) },
                time,
                value: Value::Int(if data == DELTA { 1 } else { self.pushes }),
                exemplars: Vec::new(),
            })
            .collect();
        for table in &self.tables {
            for point in &points {
                table.observe(point, self.now);
            }
        }
        self.set.observe_all(&points, self.now);
        self.said = time;
    }

    fn explain(&self, table: usize, name: &str, data: Data) -> Option<SeriesExplanation> {
        self.tables[table].explain(&series(name, data), self.now, 1)
    }

    /// Whether the second push since the step has come, so that all clocks can know of it.
    fn is_known(&self) -> bool {
        self.now - self.stepped > (2 * self.interval).max(SECOND + self.interval)
    }

    /// Whether a lease has passed since the step, and what it takes to see it.
    fn is_settled(&self) -> bool {
        self.now - self.stepped > (3 * self.interval).max(5 * SECOND) + 2 * self.interval.max(SECOND)
    }

    fn check(&self) {
        let is_refused = self.offset > 600;
        for table in 0..2 {
            for (name, data) in [("counter", COUNTER), ("level", LEVEL), ("gauge", Data::Gauge)] {
                let Some(it) = self.explain(table, name, data) else {
                    continue;
                };
                let value = it.value.as_f64().unwrap();
                let is_right = value == self.pushes as f64;
                let at = format!(
                    "{name} of table {table}: {value} of {} {:?}",
                    self.pushes, it.state
                );
                assert!(
                    is_right || it.state != Freshness::Fresh || !self.is_known(),
                    "{at}"
                );
                assert!(value <= self.pushes as f64, "{at}: counted twice");
                if self.is_settled() {
                    assert_eq!(is_right, !is_refused, "{at} at offset {}", self.offset);
                    // A clock that time has caught up with is not known to be slow: its points are old.
                    let is_old = self.offset < 0 && it.state == Freshness::Idle;
                    let is_trusted = it.state == Freshness::Fresh || is_old;
                    assert_eq!(is_trusted, !is_refused, "{at} at offset {}", self.offset);
                }
            }
        }
        let [gauge, counter, delta] = [0, 1, 2].map(|at| self.composites[at].read(self.now).remove(0));
        let is_right = gauge.value == Some(self.pushes as f64);
        let at = format!("gauge: {:?} of {} {:?}", gauge.value, self.pushes, gauge.state);
        assert!(
            is_right || gauge.state != Freshness::Fresh || !self.is_known(),
            "{at}"
        );
        if self.is_settled() {
            for answer in [&gauge, &counter] {
                assert_eq!(
                    answer.state == Freshness::Fresh,
                    !is_refused,
                    "{answer:?} at {}",
                    self.offset
                );
            }
            assert!(
                !is_refused || !matches!(delta.state, Freshness::Fresh | Freshness::Idle),
                "{delta:?}"
            );
        }
    }
}

/// The offset that the clock of a sender steps to.
fn offset() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(0),
        Just(24 * HOUR),
        Just(-2 * HOUR),
        Just(-24 * HOUR),
        Just(540),
        -700i64..700,
    ]
}

proptest! {
    #[test]
    fn whatever_the_clock_of_a_sender_does_its_values_are_right_or_not_fresh(
        interval in prop_oneof![Just(SECOND / 2), Just(SECOND), Just(10 * SECOND), Just(60 * SECOND)],
        steps in prop::collection::vec((offset(), 1u64..30), 1..8),
    ) {
        let mut scene = Scene::new(interval);
        for _ in 0..5 {
            scene.push();
        }
        for (offset, pushes) in steps {
            scene.step_to(offset);
            for _ in 0..pushes {
                scene.push();
                scene.check();
            }
        }
    }
}

proptest! {
    #[test]
    fn whatever_the_clock_of_the_gateway_does_values_are_right_or_not_fresh(
        interval in prop_oneof![Just(SECOND), Just(10 * SECOND)],
        is_scraped in any::<bool>(),
        steps in prop::collection::vec((offset(), 1u64..30), 1..8),
    ) {
        let mut scene = Scene { is_scraped, ..Scene::new(interval) };
        for _ in 0..5 {
            scene.push();
        }
        for (ahead, pushes) in steps {
            clock::set_ahead(ahead * SECOND as i64);
            scene.stepped = scene.now;
            for _ in 0..pushes {
                scene.push();
                scene.check();
                scene.tables.iter().for_each(|table| table.expire(scene.now));
                scene.set.expire(scene.now);
            }
        }
        clock::set_ahead(0);
    }
}

#[test]
fn a_clock_that_was_set_back_is_followed_after_a_lease_and_counted_once() {
    let mut scene = Scene::new(SECOND);
    let anomalies = |scene: &Scene| {
        TimestampAnomaly::ALL.map(|anomaly| scene.tables[1].timestamp_anomalies().count(anomaly))
    };
    (0..5).for_each(|_| scene.push());
    scene.step_to(-HOUR);
    (0..4).for_each(|_| scene.push());
    let counter = |scene: &Scene| scene.explain(1, "counter", COUNTER).unwrap();
    let before = counter(&scene);
    assert_eq!((before.value, before.state), (Value::Int(5), Freshness::Stale));
    assert_eq!(before.sources[0].status, SourceStatus::Stalled);
    (0..2).for_each(|_| scene.push());
    let after = counter(&scene);
    assert_eq!(
        (after.value, after.state, after.time),
        (Value::Int(11), Freshness::Fresh, scene.said)
    );
    // Deltas overlap what was counted: they stay out, and the series says so.
    let delta = scene.explain(1, "delta", COUNTER).unwrap();
    assert_eq!((delta.value, delta.state), (Value::Int(5), Freshness::Stale));
    assert_eq!(anomalies(&scene), [4, 0, 3]);
    assert_eq!(
        scene.tables[1]
            .timestamp_anomalies()
            .take_latest()
            .map(|(anomaly, _)| anomaly),
        Some(TimestampAnomaly::Reanchored)
    );
    assert_eq!(scene.tables[1].timestamp_anomalies().take_latest(), None);
}

#[test]
fn what_was_on_the_way_for_long_is_no_clock_that_was_set_back() {
    let table = Table::new("test", vec![Rule::newest()], Limits::default());
    let (counter, gauge) = (series("counter", COUNTER), series("gauge", Data::Gauge));
    let say = |series: &Arc<Series>, time: u64, value: u64, now: u64| {
        let point = Point {
            series: series.clone(),
            start: NOW - SECOND,
            time,
            value: Value::Int(value as i64),
            exemplars: Vec::new(),
        };
        table.observe(&point, now)
    };
    for second in 0..1000 {
        say(&counter, NOW + second * SECOND, second, NOW + second * SECOND);
        say(&gauge, NOW + second * SECOND, second, NOW + second * SECOND);
    }
    // The first 600 seconds come again: of the gauge ten times as fast, with other values.
    for second in 0..600 {
        let now = NOW + (1000 + second) * SECOND;
        assert_ne!(
            say(&counter, NOW + second * SECOND, second, now),
            Outcome::Rejected(Rejection::Limit)
        );
        say(
            &gauge,
            NOW + second * SECOND,
            5_000,
            NOW + (1000 + second / 10) * SECOND,
        );
    }
    let mut values = Vec::new();
    table.read(NOW, &mut |reading| values.push(reading.value.clone()));
    assert_eq!(values, [Value::Int(999), Value::Int(999)]);
    assert_eq!(table.timestamp_anomalies().count(TimestampAnomaly::Reanchored), 0);
}
