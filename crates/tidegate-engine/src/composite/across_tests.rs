// SPDX-License-Identifier: Apache-2.0

//! Series of several sources: their common value, and the liveness of each source.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

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

    fn say(&self, pod: &str, name: &str, data: Data, now: u64, value: Value) {
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
        let point = Point {
            series: Arc::new(series),
            start: if data == DELTA { now - SECOND } else { 0 },
            time: now,
            value,
            exemplars: Vec::new(),
        };
        self.set.observe_all(&[point], now);
    }

    fn gauge(&self, pod: &str, now: u64, value: f64) {
        self.say(pod, "depth", Data::Gauge, now, Value::Double(value));
    }

    fn total(&self, pod: &str, now: u64, value: i64) {
        self.say(pod, "depth", CUMULATIVE, now, Value::Int(value));
    }

    /// A good scrape, a failed one, or the end of the target.
    fn up(&self, pod: &str, now: u64, up: Option<bool>) {
        if up != Some(true) {
            self.say(pod, "depth", Data::Gauge, now, Value::NoRecordedValue);
        }
        let value = up.map_or(Value::NoRecordedValue, |up| Value::Int(i64::from(up)));
        self.say(pod, "up", Data::Gauge, now, value);
    }

    fn read(&self, now: u64) -> Answer {
        self.composite.read(now).remove(0)
    }

    fn told(&self, now: u64) -> (Freshness, Option<f64>) {
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
            let told = scene.told(NOW + 10);
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
            scene.told(NOW + 2 * SECOND),
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
        pooled.told(NOW + 30 * SECOND),
        (Freshness::Fresh, Some(0.0)),
        "it is known that nothing came: only sources of events are idle"
    );
}

#[test]
fn a_p99_over_scraped_histograms_is_that_of_the_fleet() {
    let data = Data::Histogram {
        temporality: Temporality::Cumulative,
    };
    let scene = Scene::of(Function::Quantile(0.99), None);
    let mut slow = Histogram::empty([0.1, 1.0, 10.0].into());
    let mut fast = slow.clone();
    for second in 0..3u64 {
        let now = NOW + second * SECOND;
        for (pod, histogram) in [("slow", &slow), ("fast", &fast)] {
            let value = Value::Histogram(Box::new(histogram.clone()));
            scene.say(pod, "depth", data, now, value);
        }
        (0..5).for_each(|_| slow.observe(5.0, 1));
        (0..95).for_each(|_| fast.observe(0.05, 1));
    }
    let value = scene.read(NOW + 2 * SECOND).value.unwrap();
    assert!(value > 4.0, "1 of 20 is slow: {value}");
}

/// A value beyond the outermost bounds is known only up to those bounds.
#[test]
fn quantiles_and_extremes_of_scraped_histograms_lie_in_their_buckets() {
    let data = Data::Histogram {
        temporality: Temporality::Cumulative,
    };
    let told = |function: Function, counts: [u64; 4], sum: f64| {
        let scene = Scene::of(function, None);
        for second in 0..3u64 {
            let mut histogram = Histogram::empty([0.1, 0.5, 1.0].into());
            histogram.counts = counts.map(|count| second * count).into();
            histogram.count = histogram.counts.iter().sum();
            histogram.sum = Some(second as f64 * sum);
            let value = Value::Histogram(Box::new(histogram));
            scene.say("a", "depth", data, NOW + second * SECOND, value);
        }
        scene.read(NOW + 2 * SECOND).value.unwrap()
    };
    let check = |counts: [u64; 4], sum: f64, expected: [(Function, f64); 4]| {
        for (function, value) in expected {
            let told = told(function, counts, sum);
            assert!((told - value).abs() < 0.01, "{counts:?} {function:?}: {told}");
        }
    };
    let quantile = Function::Quantile;
    check(
        [0, 90, 9, 1],
        40.0,
        [
            (quantile(0.95), 0.5 + 0.5 * 5.0 / 9.0),
            (quantile(1.0), 1.0),
            (Function::Min, 0.1),
            (Function::Max, 1.0),
        ],
    );
    check(
        [10, 20, 5, 5],
        13.0,
        [
            (quantile(0.05), 0.02),
            (quantile(0.5), 0.3),
            (quantile(0.95), 1.0),
            (Function::Min, 0.0),
        ],
    );
    // The mean is beyond the highest bound, and so is the largest.
    check(
        [0, 0, 0, 10],
        30.0,
        [
            (quantile(0.5), 1.0),
            (Function::Max, 3.0),
            (Function::Min, 1.0),
            (Function::Avg, 3.0),
        ],
    );
}

#[test]
fn a_histogram_that_contradicts_itself_is_no_reason_to_panic() {
    let data = Data::Histogram {
        temporality: Temporality::Cumulative,
    };
    for across in [None, Some(Across::Max)] {
        let scene = Scene::of(Function::Quantile(0.99), across);
        let mut histogram = Histogram::empty([0.1, 1.0].into());
        for second in 0..3u64 {
            // All observations are at most 0.1, and their mean is 1.
            histogram.sum = Some(second as f64);
            (histogram.count, histogram.counts) = (second, vec![second, 0, 0]);
            let value = Value::Histogram(Box::new(histogram.clone()));
            scene.say("a", "depth", data, NOW + second * SECOND, value);
        }
        assert!(scene.read(NOW + 2 * SECOND).value.is_some());
    }
}

#[test]
fn gauges_that_would_be_mixed_make_no_value_and_the_error_names_the_choices() {
    let scene = Scene::of(Function::Max, None);
    scene.gauge("a", NOW, 3.0);
    assert_eq!(scene.told(NOW), (Freshness::Fresh, Some(3.0)), "one is not mixed");
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
    assert_eq!(scene.told(NOW + SECOND), (Freshness::Fresh, Some(4.0)));

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
    deltas.say("a", "depth", DELTA, NOW, Value::Int(3));
    deltas.say("b", "depth", DELTA, NOW, Value::Int(4));
    assert_eq!(deltas.told(NOW), (Freshness::Fresh, Some(7.0)));
}

#[test]
fn a_gauge_keeps_its_level_between_two_pushes_and_is_stale_after_its_cadence() {
    let scene = Scene::of(Function::Last, Across::Sum);
    for minute in 0..4 {
        scene.gauge("a", NOW + minute * 60 * SECOND, 30.0);
    }
    let last = NOW + 180 * SECOND;
    for after in [0, 11, 59, 149] {
        let answer = scene.read(last + after * SECOND);
        assert_eq!(
            (answer.state, answer.value),
            (Freshness::Fresh, Some(30.0)),
            "{after} s"
        );
        assert_eq!(answer.age, Some(Duration::from_secs(after)));
    }
    assert_eq!(scene.told(last + 151 * SECOND), (Freshness::Stale, None));
    // A function over the window reads the level as well.
    let lone = Scene::of(Function::Avg, None);
    lone.gauge("a", NOW, 30.0);
    assert_eq!(lone.told(NOW + 60 * SECOND), (Freshness::Fresh, Some(30.0)));
    assert_eq!(
        lone.told(NOW + 91 * SECOND),
        (Freshness::Stale, None),
        "the lease until 3 pushes are seen"
    );
    let fixed = Scene::new(Declaration {
        lease: Some(Duration::from_secs(7)),
        ..declare(Function::Last, Across::Sum)
    });
    fixed.gauge("a", NOW, 1.0);
    assert_eq!(fixed.told(NOW + 7 * SECOND), (Freshness::Fresh, Some(1.0)));
    assert_eq!(fixed.told(NOW + 8 * SECOND), (Freshness::Stale, None));
}

#[test]
fn a_failed_scrape_ends_the_source_at_once_and_discovery_lets_it_go() {
    let scene = Scene::of(Function::Last, Across::Sum);
    let all_up = |now| {
        for (pod, depth) in [("a", 20.0), ("b", 8.0)] {
            scene.gauge(pod, now, depth);
            scene.up(pod, now, Some(true));
        }
    };
    all_up(NOW);
    assert_eq!(scene.told(NOW), (Freshness::Fresh, Some(28.0)));
    scene.up("a", NOW + SECOND, Some(false));
    let answer = scene.read(NOW + SECOND);
    assert_eq!((answer.state, answer.value), (Freshness::Partial, Some(8.0)));
    assert_eq!((answer.sources_expected, answer.sources_reporting), (2, 1));
    scene.up("b", NOW + SECOND, Some(false));
    assert_eq!(scene.told(NOW + SECOND), (Freshness::Stale, None));
    // For as long as they are expected, and longer than anything is remembered.
    for second in (2..2000).step_by(15) {
        let now = NOW + second * SECOND;
        scene.up("a", now, Some(false));
        scene.up("b", now, Some(false));
        scene.composite.expire(now);
        assert_eq!(scene.told(now), (Freshness::Stale, None));
        assert!(!scene.read(now).has_left);
    }
    let back = NOW + 2000 * SECOND;
    all_up(back);
    assert_eq!(scene.told(back), (Freshness::Fresh, Some(28.0)));
    // A proper goodbye.
    scene.up("a", back + SECOND, None);
    assert_eq!(scene.told(back + SECOND), (Freshness::Fresh, Some(8.0)));
    scene.up("b", back + SECOND, None);
    let gone = scene.read(back + SECOND);
    assert_eq!(
        (gone.state, gone.value, gone.has_left),
        (Freshness::Absent, None, true)
    );
    scene.composite.expire(back + 2 * SECOND);
    assert!(scene.composite.groups().is_empty());
    assert_eq!(scene.composite.left(), [Attributes::default()]);
    all_up(back + 60 * SECOND);
    assert_eq!(scene.told(back + 60 * SECOND), (Freshness::Fresh, Some(28.0)));
    assert!(scene.composite.left().is_empty());
}

#[test]
fn a_target_that_failed_and_then_left_has_left() {
    let scene = Scene::of(Function::Last, Across::Sum);
    scene.gauge("a", NOW, 1.0);
    scene.up("a", NOW, Some(true));
    scene.up("a", NOW + SECOND, Some(false));
    assert!(!scene.read(NOW + SECOND).has_left);
    scene.say("a", "up", Data::Gauge, NOW + 2 * SECOND, Value::NoRecordedValue);
    assert!(scene.read(NOW + 2 * SECOND).has_left);
    // A silent source has not left.
    let pushing = Scene::of(Function::Last, Across::Sum);
    pushing.gauge("a", NOW, 1.0);
    let late = NOW + 3600 * SECOND;
    pushing.composite.expire(late);
    assert!(!pushing.read(late).has_left && pushing.composite.left().is_empty());
}

#[test]
fn a_series_that_its_living_source_leaves_out_is_stale() {
    let scene = Scene::of(Function::Last, Across::Sum);
    for second in 0..4 {
        scene.gauge("a", NOW + second * SECOND, 5.0);
        scene.gauge("b", NOW + second * SECOND, 2.0);
    }
    let last = NOW + 3 * SECOND;
    // It still sends, but not the selected metric.
    for second in 1..=3 {
        scene.say("a", "other", Data::Gauge, last + second * SECOND, Value::Int(1));
        scene.gauge("b", last + second * SECOND, 2.0);
    }
    assert_eq!(
        scene.told(last + 3 * SECOND),
        (Freshness::Fresh, Some(7.0)),
        "the third is not over"
    );
    assert_eq!(scene.told(last + 4 * SECOND), (Freshness::Partial, Some(2.0)));
    scene.gauge("a", last + 4 * SECOND, 6.0);
    assert_eq!(scene.told(last + 4 * SECOND), (Freshness::Fresh, Some(8.0)));
    // Deltas are left out while nothing happens.
    let deltas = Scene::of(Function::Sum, None);
    for second in 0..20 {
        let name = if second < 4 { "depth" } else { "other" };
        deltas.say("a", name, DELTA, NOW + second * SECOND, Value::Int(1));
    }
    assert_eq!(deltas.told(NOW + 19 * SECOND), (Freshness::Idle, Some(0.0)));
}

#[test]
fn gauges_of_event_sources_keep_their_level_until_the_source_ends() {
    let scene = Scene::of(Function::Last, Across::Sum);
    let sources = ["a", "b"].map(|pod| {
        Arc::new(Source {
            id: SourceId::next(),
            resource: Arc::default(),
            scope: Arc::default(),
            attributes: [("pod", pod)].into_iter().collect(),
            lease: Arc::new(Lease::new(Duration::from_secs(5), NOW)),
        })
    });
    let kind = Kind {
        name: "depth".into(),
        description: "".into(),
        unit: "".into(),
        instrument: Instrument::Gauge,
        attributes: Attributes::default(),
    };
    let schema = Arc::new(Schema { kinds: vec![kind] });
    for (source, values) in sources.iter().zip([vec![9, 4], vec![3]]) {
        scene.set.observe_events(&Events {
            source: source.clone(),
            schema: schema.clone(),
            kinds: vec![0; values.len()],
            values: Values::U64(values),
            times: None,
            weights: None,
            observed: NOW,
        });
    }
    let later = NOW + 60 * SECOND;
    sources.iter().for_each(|source| source.lease.touch(later));
    assert_eq!(scene.told(later), (Freshness::Fresh, Some(7.0)));
    sources[0].lease.end();
    assert_eq!(scene.told(later), (Freshness::Fresh, Some(3.0)));
    assert_eq!(scene.told(later + 6 * SECOND), (Freshness::Stale, None));
}

/// An action of a pod.
#[derive(Clone, Copy, Debug)]
enum Step {
    Say(i8),
    Fail,
    Leave,
    Silence,
}

proptest! {
    /// The sum over pods is what a list of who lives says, whatever happens in whatever order.
    #[test]
    fn the_sum_over_pods_equals_a_model(
        steps in prop::collection::vec(
            (
                0usize..3,
                prop_oneof![
                    5 => any::<i8>().prop_map(Step::Say),
                    1 => Just(Step::Fail),
                    1 => Just(Step::Leave),
                    1 => Just(Step::Silence),
                ],
                0u64..30,
            ),
            1..60,
        ),
    ) {
        const LEASE: u64 = 40;
        let scene = Scene::new(Declaration {
            lease: Some(Duration::from_secs(LEASE)),
            ..declare(Function::Last, Across::Sum)
        });
        // Level, when it was last heard of, whether it failed.
        let mut pods: [Option<(Option<f64>, u64, bool)>; 3] = [None; 3];
        let mut now = NOW;
        for (pod, step, seconds) in steps {
            now += seconds * SECOND + 1;
            let name = ["a", "b", "c"][pod];
            match step {
                Step::Say(value) => {
                    let value = f64::from(value);
                    scene.gauge(name, now, value);
                    pods[pod] = Some((Some(value), now, false));
                }
                Step::Fail => {
                    scene.up(name, now, Some(false));
                    if let Some((level, heard, failed)) = &mut pods[pod] {
                        (*level, *heard, *failed) = (None, now, true);
                    }
                }
                Step::Leave => {
                    scene.up(name, now, None);
                    pods[pod] = None;
                }
                Step::Silence => {}
            }
            scene.composite.expire(now);
            let expected = pods.iter().flatten().count();
            let is_alive = |heard: u64| now - heard <= LEASE * SECOND;
            let live = pods.iter().flatten().filter(|(_, heard, failed)| is_alive(*heard) && !failed);
            let levels: Vec<f64> = live.filter_map(|(level, ..)| *level).collect();
            let answer = scene.read(now);
            let state = match (expected, levels.len()) {
                (0, _) => Freshness::Absent,
                (_, 0) => Freshness::Stale,
                (expected, live) if live < expected => Freshness::Partial,
                _ => Freshness::Fresh,
            };
            let sum = (!levels.is_empty()).then(|| levels.iter().sum::<f64>());
            prop_assert_eq!((answer.state, answer.value), (state, sum), "{:?}", pods);
            prop_assert_eq!((answer.sources_expected, answer.sources_reporting), (expected, levels.len()));
        }
    }
}

#[test]
fn series_without_a_place_make_the_value_partial() {
    let mut scene = Scene::of(Function::Last, Across::Sum);
    let mut composite = Composite::new(declare(Function::Last, Across::Sum));
    composite.inputs.streams = crate::streams::Streams::new(2, 600 * SECOND);
    scene.composite = Arc::new(composite);
    scene.set = CompositeSet::new(vec![scene.composite.clone()]);
    for pod in ["a", "b"] {
        scene.say(pod, "depth", Data::Gauge, NOW, Value::Double(1.0));
    }
    let whole = &scene.composite.read(NOW)[0];
    assert_eq!((whole.value, whole.state), (Some(2.0), Freshness::Fresh));
    assert!(scene.composite.shortfalls().is_empty());
    scene.say("c", "depth", Data::Gauge, NOW, Value::Double(1.0));
    let partial = &scene.composite.read(NOW)[0];
    assert_eq!((partial.value, partial.state), (Some(2.0), Freshness::Partial));
    assert!(
        partial
            .collision
            .as_deref()
            .is_some_and(|why| why.starts_with("series are left out"))
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
    scene.say("a", "depth", Data::Gauge, NOW, Value::Double(1.0));
    let stale = &scene.composite.read(NOW + 20 * SECOND)[0];
    assert_eq!(stale.state, Freshness::Stale);
    assert!(stale.sum.is_sign_positive(), "{}", stale.sum);
}
