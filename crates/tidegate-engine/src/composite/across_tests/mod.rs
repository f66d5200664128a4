// SPDX-License-Identifier: Apache-2.0

//! Series of several sources: their common value, and the liveness of each source.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod histograms;
mod liveness;
mod silent;

use std::sync::Arc;
use std::time::Duration;

use super::{Across, Answer, Composite, CompositeSet, Declaration, Function};
use crate::*;

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 1_700_000_000 * SECOND;

const CUMULATIVE: Data = Data::Sum {
    monotonic: true,
    temporality: Temporality::Cumulative,
};
const DELTA: Data = Data::Sum {
    monotonic: true,
    temporality: Temporality::Delta,
};

fn declare(function: Function, across: impl Into<Option<Across>>) -> Declaration {
    Declaration {
        name: "derived".into(),
        description: "".into(),
        metric: Pattern::parse("depth").unwrap(),
        attributes: AttributeFilter::default(),
        expression: None,
        function,
        across: across.into(),
        quantiles: Arc::default(),
        on_stale: OnStale::Error,
        window: Duration::from_secs(10),
        grouping: Grouping::by::<&str>([]),
        max_groups: 3,
        lease: None,
    }
}

/// A point of a pod.
fn point(pod: &str, name: &str, data: Data, now: u64, value: Value) -> Point {
    let series = Series {
        resource: Arc::new(Resource {
            attributes: [("pod", pod)].into_iter().collect(),
            schema_url: "".into(),
        }),
        scope: Arc::default(),
        metric: Arc::new(Metric {
            name: name.into(),
            description: "".into(),
            unit: "".into(),
            data,
            metadata: Attributes::default(),
        }),
        attributes: [("model", "m")].into_iter().collect(),
    };
    Point {
        series: Arc::new(series),
        start: if data == DELTA { now - SECOND } else { 0 },
        time: now,
        value,
        exemplars: Vec::new(),
    }
}

/// A source of events that reports at `NOW`, with a lease of 5 s.
fn event_source(attributes: &[(&str, &str)]) -> Arc<Source> {
    Arc::new(Source {
        id: SourceId::next(),
        resource: Arc::default(),
        scope: Arc::default(),
        attributes: attributes.iter().copied().collect(),
        lease: Arc::new(Lease::new(Duration::from_secs(5), NOW)),
    })
}

/// A composite and the pods that feed it.
struct Scene {
    set: CompositeSet,
    composite: Arc<Composite>,
}

impl Scene {
    fn new(declaration: Declaration) -> Self {
        let composite = Arc::new(Composite::new(declaration));
        let set = CompositeSet::new(vec![composite.clone()]);
        Self { set, composite }
    }

    fn of(function: Function, across: impl Into<Option<Across>>) -> Self {
        Self::new(declare(function, across))
    }

    fn report(&self, pod: &str, name: &str, data: Data, now: u64, value: Value) {
        self.set.observe_all(&[point(pod, name, data, now, value)], now);
    }

    /// Values of the gauge `depth` of a source of events.
    fn events(&self, source: &Arc<Source>, values: &[u64]) {
        let kind = EventKind {
            name: "depth".into(),
            description: "".into(),
            unit: "".into(),
            instrument: Instrument::Gauge,
            attributes: Attributes::default(),
        };
        self.set.observe_events(&Events {
            source: source.clone(),
            schema: Arc::new(Schema { kinds: vec![kind] }),
            kinds: vec![0; values.len()],
            values: Values::U64(values.to_vec()),
            times: None,
            weights: None,
            observed: NOW,
        });
    }

    fn gauge(&self, pod: &str, now: u64, value: f64) {
        self.report(pod, "depth", Data::Gauge, now, Value::Double(value));
    }

    fn total(&self, pod: &str, now: u64, value: i64) {
        self.report(pod, "depth", CUMULATIVE, now, Value::Int(value));
    }

    /// A good scrape, a failed one, or the end of the target.
    fn up(&self, pod: &str, now: u64, up: Option<bool>) {
        if up != Some(true) {
            self.report(pod, "depth", Data::Gauge, now, Value::NoRecordedValue);
        }
        let value = up.map_or(Value::NoRecordedValue, |up| Value::Int(i64::from(up)));
        self.report(pod, "up", Data::Gauge, now, value);
    }

    fn read(&self, now: u64) -> Answer {
        self.composite.read(now).remove(0)
    }

    fn eval(&self, now: u64) -> (Freshness, Option<f64>) {
        let answer = self.read(now);
        (answer.state, answer.value)
    }
}

#[test]
fn the_depth_of_a_queue_is_that_of_all_pods() {
    let cases = [
        (Across::Sum, 100.0),
        (Across::Avg, 50.0),
        (Across::Max, 100.0),
        (Across::Min, 0.0),
        (Across::Count, 2.0),
        (Across::Quantile(0.9), 90.0),
    ];
    for (across, expected) in cases {
        let scene = Scene::of(Function::Last, across);
        for turn in 0..3 {
            scene.gauge("a", NOW + 2 * turn, 100.0);
            scene.gauge("b", NOW + 2 * turn + 1, 0.0);
            let told = scene.eval(NOW + 10);
            assert!(
                turn == 0 || told == (Freshness::Fresh, Some(expected)),
                "{across:?}: {told:?}"
            );
        }
        let answer = scene.read(NOW + 10);
        assert_eq!((answer.count, answer.sum, answer.max), (2.0, 100.0, Some(100.0)));
    }
}

#[test]
fn the_function_reduces_each_series_over_the_window() {
    let cases = [
        (Function::Max, 9.0 + 4.0),
        (Function::Min, 1.0 + 4.0),
        (Function::Avg, 5.0 + 4.0),
        (Function::Last, 5.0 + 4.0),
    ];
    for (function, expected) in cases {
        let scene = Scene::of(function, Across::Sum);
        for (second, value) in [1.0, 9.0, 5.0].into_iter().enumerate() {
            scene.gauge("a", NOW + second as u64 * SECOND, value);
        }
        scene.gauge("b", NOW, 4.0);
        assert_eq!(
            scene.eval(NOW + 2 * SECOND),
            (Freshness::Fresh, Some(expected)),
            "{function:?}"
        );
    }
    let quantile = Scene::of(Function::Quantile(1.0), Across::Max);
    quantile.gauge("a", NOW, 9.0);
    quantile.gauge("a", NOW + SECOND, 3.0);
    quantile.gauge("b", NOW + SECOND, 8.0);
    assert_eq!(quantile.read(NOW + SECOND).value, Some(9.0), "of all samples");
}

#[test]
fn increments_of_scraped_counters_are_pooled_or_put_together_by_series() {
    let (pooled, by_series) = (
        Scene::of(Function::Sum, None),
        Scene::of(Function::Rate, Across::Max),
    );
    for scene in [&pooled, &by_series] {
        for second in 0..=5i64 {
            let now = NOW + second as u64 * SECOND;
            scene.total("a", now, 1000 + 10 * second);
            scene.total("b", now, 5 * second);
        }
    }
    let now = NOW + 5 * SECOND;
    assert_eq!(
        pooled.read(now).value,
        Some(75.0),
        "what was counted before is not an increment"
    );
    let rate = by_series.read(now).value.unwrap();
    assert!((rate - 50.0 / 9.9).abs() < 0.1, "{rate}");
    // Nothing happens: that is known, as long as the sources live.
    for second in 6..=30u64 {
        pooled.total("a", NOW + second * SECOND, 1050);
        pooled.total("b", NOW + second * SECOND, 25);
    }
    assert_eq!(
        pooled.eval(NOW + 30 * SECOND),
        (Freshness::Fresh, Some(0.0)),
        "it is known that nothing came: only sources of events are idle"
    );
}

#[test]
fn mixed_gauges_make_no_value_and_the_error_names_the_choices() {
    let scene = Scene::of(Function::Max, None);
    scene.gauge("a", NOW, 3.0);
    assert_eq!(scene.eval(NOW), (Freshness::Fresh, Some(3.0)), "one is not mixed");
    scene.gauge("b", NOW, 4.0);
    let answer = scene.read(NOW);
    let error = answer.error.clone().unwrap();
    assert_eq!(answer.value, None);
    for part in [
        "`across`",
        "sum, avg, min, max, count or quantile",
        "pod=a",
        "pod=b",
    ] {
        assert!(error.contains(part), "{part} not in {error}");
    }
    assert_eq!(scene.composite.error(NOW), Some(error));
    let mut shown = 0;
    scene.composite.show(NOW, &mut |_| shown += 1);
    assert_eq!(shown, 0);
    // One of them goes: the other is alone.
    scene.up("a", NOW + SECOND, None);
    assert_eq!(scene.eval(NOW + SECOND), (Freshness::Fresh, Some(4.0)));

    for (function, across) in [
        (Function::Max, Some(Across::Pool)),
        (Function::Sum, None),
        (Function::Count, Some(Across::Sum)),
        (Function::Rate, Some(Across::Max)),
    ] {
        let scene = Scene::of(function, across);
        scene.gauge("a", NOW, 3.0);
        let answer = scene.read(NOW);
        assert_eq!(answer.value, None, "{function:?} {across:?}");
        assert!(
            answer.error.unwrap().contains("`depth`"),
            "{function:?} {across:?}"
        );
    }
    let deltas = Scene::of(Function::Sum, Across::Pool);
    deltas.report("a", "depth", DELTA, NOW, Value::Int(3));
    deltas.report("b", "depth", DELTA, NOW, Value::Int(4));
    assert_eq!(deltas.eval(NOW), (Freshness::Fresh, Some(7.0)));
}

#[test]
fn series_without_a_place_make_the_value_partial() {
    let mut scene = Scene::of(Function::Last, Across::Sum);
    let mut composite = Composite::new(declare(Function::Last, Across::Sum));
    composite.inputs.streams = crate::streams::Streams::new(2, 600 * SECOND);
    scene.composite = Arc::new(composite);
    scene.set = CompositeSet::new(vec![scene.composite.clone()]);
    for pod in ["a", "b"] {
        scene.report(pod, "depth", Data::Gauge, NOW, Value::Double(1.0));
    }
    let whole = &scene.composite.read(NOW)[0];
    assert_eq!((whole.value, whole.state), (Some(2.0), Freshness::Fresh));
    assert!(scene.composite.shortfalls().is_empty());
    scene.report("c", "depth", Data::Gauge, NOW, Value::Double(1.0));
    let partial = &scene.composite.read(NOW)[0];
    assert_eq!((partial.value, partial.state), (Some(2.0), Freshness::Partial));
    assert!(
        partial
            .collision
            .as_deref()
            .is_some_and(|why| why.starts_with("series are omitted"))
    );
    assert_eq!(
        (
            scene.composite.unseen_points(),
            scene.composite.shortfalls().len()
        ),
        (1, 1)
    );
}

#[test]
fn the_sum_of_nothing_is_not_negative() {
    let scene = Scene::new(Declaration {
        lease: Some(Duration::from_secs(1)),
        ..declare(Function::Last, Across::Sum)
    });
    scene.report("a", "depth", Data::Gauge, NOW, Value::Double(1.0));
    let stale = &scene.composite.read(NOW + 20 * SECOND)[0];
    assert_eq!(stale.state, Freshness::Stale);
    assert!(stale.sum.is_sign_positive(), "{}", stale.sum);
}
