// SPDX-License-Identifier: Apache-2.0

//! Sources that fall silent, fail, leave and return.

use proptest::prelude::*;

use super::*;

#[test]
fn a_gauge_keeps_its_level_between_pushes_and_is_stale_after_its_cadence() {
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
    assert_eq!(scene.eval(last + 151 * SECOND), (Freshness::Stale, None));
    // A function over the window reads the level as well.
    let lone = Scene::of(Function::Avg, None);
    lone.gauge("a", NOW, 30.0);
    assert_eq!(lone.eval(NOW + 60 * SECOND), (Freshness::Fresh, Some(30.0)));
    assert_eq!(
        lone.eval(NOW + 91 * SECOND),
        (Freshness::Stale, None),
        "the lease until 3 pushes are seen"
    );
    let fixed = Scene::new(Declaration {
        lease: Some(Duration::from_secs(7)),
        ..declare(Function::Last, Across::Sum)
    });
    fixed.gauge("a", NOW, 1.0);
    assert_eq!(fixed.eval(NOW + 7 * SECOND), (Freshness::Fresh, Some(1.0)));
    assert_eq!(fixed.eval(NOW + 8 * SECOND), (Freshness::Stale, None));
}

#[test]
fn a_source_that_its_receiver_sees_is_fresh_in_silence_and_stale_in_death() {
    let lease = Arc::new(Lease::new(Duration::from_secs(5), NOW));
    let report = |scene: &Scene, name: &str, data: Data, now: u64, value: Value| {
        let points = [point("a", name, data, now, value)];
        scene.set.observe_leased(&points, &lease, now);
    };
    let depth = Scene::of(Function::Last, Across::Sum);
    let rate = Scene::of(Function::Rate, None);
    report(&depth, "depth", Data::Gauge, NOW, Value::Double(4.0));
    report(&rate, "depth", CUMULATIVE, NOW, Value::Int(10));
    // Other series of the source change, these don't.
    for second in 1..=60 {
        let now = NOW + second * SECOND;
        lease.touch(now);
        for scene in [&depth, &rate] {
            report(scene, "other", CUMULATIVE, now, Value::Int(second as i64));
            scene.composite.expire(now);
        }
    }
    let quiet = NOW + 1000 * SECOND;
    lease.touch(quiet);
    assert_eq!(depth.eval(quiet), (Freshness::Fresh, Some(4.0)));
    assert_eq!(rate.eval(quiet), (Freshness::Fresh, Some(0.0)));
    // A total that comes again adds nothing.
    report(&rate, "depth", CUMULATIVE, quiet, Value::Int(10));
    assert_eq!(rate.eval(quiet), (Freshness::Fresh, Some(0.0)));
    lease.suspend();
    for scene in [&depth, &rate] {
        let read = scene.read(quiet + SECOND);
        assert_eq!((read.state, read.value), (Freshness::Stale, None));
        assert_eq!((read.sources_expected, read.sources_reporting), (1, 0));
    }
    // What the receiver repeats of the dead changes nothing.
    report(&depth, "depth", Data::Gauge, quiet + SECOND, Value::Double(4.0));
    assert_eq!(depth.eval(quiet + SECOND), (Freshness::Stale, None));
    let back = quiet + 20 * SECOND;
    lease.touch(back);
    report(&depth, "depth", Data::Gauge, back, Value::Double(6.0));
    report(&rate, "depth", CUMULATIVE, back, Value::Int(30));
    assert_eq!(depth.eval(back), (Freshness::Fresh, Some(6.0)));
    let (state, gained) = rate.eval(back);
    assert!(
        state == Freshness::Fresh && gained.is_some_and(|rate| rate > 1.0),
        "{gained:?}"
    );
    // The last process dies, and takes its gauge along.
    report(&depth, "depth", Data::Gauge, back, Value::NoRecordedValue);
    lease.suspend();
    assert_eq!(depth.eval(back + SECOND), (Freshness::Stale, None));
    lease.end();
    assert_eq!(depth.eval(back + SECOND), (Freshness::Absent, None));
    // Another component reports under the same resource.
    depth.gauge("a", back + 2 * SECOND, 7.0);
    assert_eq!(depth.eval(back + 2 * SECOND), (Freshness::Fresh, Some(7.0)));
}

#[test]
fn a_source_is_expected_although_its_death_is_noticed_late() {
    let scene = Scene::of(Function::Last, Across::Sum);
    let leases = [(); 2].map(|()| Arc::new(Lease::new(Duration::from_secs(90), NOW)));
    let report = |pod: &str, lease: &Arc<Lease>, now: u64, value: Value| {
        let points = [point(pod, "depth", Data::Gauge, now, value)];
        scene.set.observe_leased(&points, lease, now);
    };
    for (pod, lease) in ["a", "b"].into_iter().zip(&leases) {
        report(pod, lease, NOW, Value::Double(4.0));
    }
    assert_eq!(scene.eval(NOW), (Freshness::Fresh, Some(8.0)));
    // The receiver looks every 30 s.
    let now = NOW + 30 * SECOND;
    leases[1].touch(now);
    report("a", &leases[0], now, Value::NoRecordedValue);
    leases[0].suspend();
    let answer = scene.read(now);
    assert_eq!((answer.state, answer.value), (Freshness::Partial, Some(4.0)));
    assert_eq!((answer.sources_expected, answer.sources_reporting), (2, 1));
}

#[test]
fn a_gauge_that_ends_long_after_its_source_has_died_stays_ended() {
    let lease = Arc::new(Lease::new(Duration::from_secs(5), NOW));
    let scene = Scene::of(Function::Last, Across::Sum);
    let report = |now: u64, value: Value| {
        let points = [point("a", "depth", Data::Gauge, now, value)];
        scene.set.observe_leased(&points, &lease, now);
    };
    report(NOW, Value::Double(4.0));
    lease.suspend();
    let late = NOW + 60 * SECOND;
    report(late, Value::NoRecordedValue);
    let read = scene.read(late);
    assert_eq!((read.state, read.value), (Freshness::Stale, None));
    assert_eq!((read.sources_expected, read.sources_reporting), (1, 0));
    let back = late + SECOND;
    lease.touch(back);
    assert_eq!(scene.eval(back), (Freshness::Absent, None));
    report(back, Value::Double(6.0));
    assert_eq!(scene.eval(back), (Freshness::Fresh, Some(6.0)));
}

#[test]
fn a_dead_source_whose_gauge_is_called_up_has_not_left() {
    let lease = Arc::new(Lease::new(Duration::from_secs(5), NOW));
    let scene = Scene::of(Function::Last, Across::Sum);
    let report = |name: &str, value: Value| {
        let points = [point("a", name, Data::Gauge, NOW, value)];
        scene.set.observe_leased(&points, &lease, NOW);
    };
    report("depth", Value::Double(4.0));
    report("up", Value::Double(1.0));
    assert_eq!(scene.eval(NOW), (Freshness::Fresh, Some(4.0)));
    lease.suspend();
    report("up", Value::NoRecordedValue);
    let answer = scene.read(NOW);
    assert_eq!((answer.state, answer.has_left), (Freshness::Stale, false));
    assert_eq!((answer.sources_expected, answer.sources_reporting), (1, 0));
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
    assert_eq!(scene.eval(NOW), (Freshness::Fresh, Some(28.0)));
    scene.up("a", NOW + SECOND, Some(false));
    let answer = scene.read(NOW + SECOND);
    assert_eq!((answer.state, answer.value), (Freshness::Partial, Some(8.0)));
    assert_eq!((answer.sources_expected, answer.sources_reporting), (2, 1));
    scene.up("b", NOW + SECOND, Some(false));
    assert_eq!(scene.eval(NOW + SECOND), (Freshness::Stale, None));
    // For as long as they are expected, and longer than anything is remembered.
    for second in (2..2000).step_by(15) {
        let now = NOW + second * SECOND;
        scene.up("a", now, Some(false));
        scene.up("b", now, Some(false));
        scene.composite.expire(now);
        assert_eq!(scene.eval(now), (Freshness::Stale, None));
        assert!(!scene.read(now).has_left);
    }
    let back = NOW + 2000 * SECOND;
    all_up(back);
    assert_eq!(scene.eval(back), (Freshness::Fresh, Some(28.0)));
    // The source ends itself.
    scene.up("a", back + SECOND, None);
    assert_eq!(scene.eval(back + SECOND), (Freshness::Fresh, Some(8.0)));
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
    assert_eq!(scene.eval(back + 60 * SECOND), (Freshness::Fresh, Some(28.0)));
    assert!(scene.composite.left().is_empty());
}

#[test]
fn a_target_that_failed_and_then_left_has_left() {
    let scene = Scene::of(Function::Last, Across::Sum);
    scene.gauge("a", NOW, 1.0);
    scene.up("a", NOW, Some(true));
    scene.up("a", NOW + SECOND, Some(false));
    assert!(!scene.read(NOW + SECOND).has_left);
    scene.report("a", "up", Data::Gauge, NOW + 2 * SECOND, Value::NoRecordedValue);
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
        scene.report("a", "other", Data::Gauge, last + second * SECOND, Value::Int(1));
        scene.gauge("b", last + second * SECOND, 2.0);
    }
    assert_eq!(
        scene.eval(last + 3 * SECOND),
        (Freshness::Fresh, Some(7.0)),
        "the third is not over"
    );
    assert_eq!(scene.eval(last + 4 * SECOND), (Freshness::Partial, Some(2.0)));
    scene.gauge("a", last + 4 * SECOND, 6.0);
    assert_eq!(scene.eval(last + 4 * SECOND), (Freshness::Fresh, Some(8.0)));
    // Deltas are omitted while nothing happens.
    let deltas = Scene::of(Function::Sum, None);
    for second in 0..20 {
        let name = if second < 4 { "depth" } else { "other" };
        deltas.report("a", name, DELTA, NOW + second * SECOND, Value::Int(1));
    }
    assert_eq!(deltas.eval(NOW + 19 * SECOND), (Freshness::Idle, Some(0.0)));
}

#[test]
fn gauges_of_event_sources_keep_their_level_until_the_source_ends() {
    let scene = Scene::of(Function::Last, Across::Sum);
    let sources = ["a", "b"].map(|pod| event_source(&[("pod", pod)]));
    scene.events(&sources[0], &[9, 4]);
    scene.events(&sources[1], &[3]);
    let later = NOW + 60 * SECOND;
    sources.iter().for_each(|source| source.lease.touch(later));
    assert_eq!(scene.eval(later), (Freshness::Fresh, Some(7.0)));
    sources[0].lease.end();
    assert_eq!(scene.eval(later), (Freshness::Fresh, Some(3.0)));
    assert_eq!(scene.eval(later + 6 * SECOND), (Freshness::Stale, None));
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
    /// The sum over pods equals that of a list of living pods, for any events in any order.
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
