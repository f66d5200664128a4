// SPDX-License-Identifier: Apache-2.0

//! Levels of several processes under one identity: their sum, and the error of every other reduction.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::sync::Arc;
use std::time::Duration;

use super::{Across, Answer, Composite, CompositeSet, Declaration, Function};
use crate::*;

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 1_700_000_000 * SECOND;

const LEVEL: Data = Data::Sum {
    monotonic: false,
    temporality: Temporality::Cumulative,
};

/// A composite of the levels that processes of one identity report every second.
struct Scene {
    set: CompositeSet,
    composite: Arc<Composite>,
}

impl Scene {
    fn of(function: Function, across: Across) -> Self {
        let composite = Arc::new(Composite::new(Declaration {
            name: "derived".into(),
            description: "".into(),
            metric: Pattern::parse("depth").unwrap(),
            attributes: AttributeFilter::default(),
            expression: None,
            function,
            across: Some(across),
            quantiles: Arc::new([0.5]),
            on_stale: OnStale::Error,
            window: Duration::from_secs(10),
            grouping: Grouping::by::<&str>([]),
            max_groups: 3,
            lease: None,
        }));
        let set = CompositeSet::new(vec![composite.clone()]);
        Self { set, composite }
    }

    fn report_level(&self, process: u64, now: u64, level: i64) {
        let series = Series {
            resource: Arc::new(Resource {
                attributes: [("service.name", "llm")].into_iter().collect(),
                schema_url: "".into(),
            }),
            scope: Arc::default(),
            metric: Arc::new(Metric {
                name: "depth".into(),
                description: "".into(),
                unit: "".into(),
                data: LEVEL,
                metadata: Attributes::default(),
            }),
            attributes: Attributes::default(),
        };
        let point = Point {
            series: Arc::new(series),
            start: NOW - 100 * SECOND + process * SECOND,
            time: now + process,
            value: Value::Int(level),
            exemplars: Vec::new(),
        };
        self.set.observe_all(&[point], now);
    }

    /// Reports of `processes`, 100 each, every second of these.
    fn report(&self, processes: std::ops::Range<u64>, seconds: std::ops::Range<u64>) {
        for second in seconds {
            for process in processes.clone() {
                self.report_level(process, NOW + second * SECOND, 100);
            }
        }
    }

    fn read(&self, second: u64) -> Answer {
        self.composite.read(NOW + second * SECOND).remove(0)
    }
}

#[test]
fn levels_are_added_up() {
    let scene = Scene::of(Function::Last, Across::Sum);
    scene.report(0..3, 0..10);
    let answer = scene.read(9);
    assert_eq!((answer.value, answer.state), (Some(300.0), Freshness::Fresh));
    assert_eq!(answer.collision, None, "a sum is right");
}

#[test]
fn the_level_of_a_process_that_ends_is_taken_back() {
    let scene = Scene::of(Function::Last, Across::Sum);
    scene.report(0..3, 0..10);
    scene.report(0..2, 10..30);
    assert_eq!(scene.read(29).value, Some(200.0));
}

#[test]
fn a_restart_is_no_second_process() {
    let scene = Scene::of(Function::Last, Across::Count);
    scene.report(0..1, 0..10);
    scene.report(1..2, 10..20);
    let answer = scene.read(19);
    assert_eq!((answer.value, answer.state), (Some(1.0), Freshness::Fresh));
    assert_eq!(answer.collision, None);
    let sum = Scene::of(Function::Last, Across::Sum);
    sum.report(0..1, 0..10);
    sum.report(1..2, 10..20);
    assert_eq!(sum.read(19).value, Some(100.0));
}

#[test]
fn a_count_of_series_notes_that_one_stands_for_several() {
    for across in [
        Across::Count,
        Across::Avg,
        Across::Min,
        Across::Max,
        Across::Quantile(0.5),
    ] {
        let scene = Scene::of(Function::Last, across);
        scene.report(0..3, 0..10);
        let answer = scene.read(9);
        assert_eq!(answer.state, Freshness::Partial, "{across:?}");
        let why = answer.collision.unwrap();
        assert!(
            why.contains("(series: 1)") && why.contains("service.instance.id"),
            "{why}"
        );
        // One is left, which is what it says that it is.
        scene.report(2..3, 10..40);
        let answer = scene.read(39);
        assert_eq!(
            (answer.state, answer.collision),
            (Freshness::Fresh, None),
            "{across:?}"
        );
    }
}

#[test]
fn a_stale_group_has_no_statistics() {
    let scene = Scene::of(Function::Last, Across::Sum);
    scene.report(0..1, 0..10);
    let fresh = scene.read(9);
    assert_eq!((fresh.min, fresh.quantiles.len()), (Some(100.0), 1));
    let stale = scene.read(40);
    assert_eq!((stale.state, stale.value), (Freshness::Stale, None));
    assert_eq!(
        (stale.min, stale.max, stale.avg, stale.last),
        (None, None, None, None)
    );
    assert!(stale.quantiles.is_empty());
    assert_eq!((stale.sum, stale.count), (0.0, 0.0));
}
