// SPDX-License-Identifier: Apache-2.0

//! Composites in virtual time, which begins with the real one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_engine::UnixNanos;

use super::thread::{Job, callback_panics, run};
use super::*;
use crate::{Description, MetricsRegistry, Null, Prometheus};

const MS: UnixNanos = 1_000_000;

type RecordedChanges = Arc<Mutex<Vec<(f64, bool)>>>;

fn recorder() -> (RecordedChanges, impl Fn(&Change) + Send + Sync + 'static) {
    let recorded: RecordedChanges = Arc::default();
    let heard = recorded.clone();
    (recorded, move |change: &Change| {
        heard.lock().unwrap().push((change.value, change.is_crossed));
    })
}

/// Looks, and calls whom it has to.
fn turn(composite: &Composite, now: UnixNanos) {
    composite.turn(now, &mut |job| {
        run(job);
        true
    });
}

fn take(recorded: &RecordedChanges) -> Vec<(f64, bool)> {
    std::mem::take(&mut *recorded.lock().unwrap())
}

/// A composite that only we look at.
fn unattended(builder: CompositeBuilder) -> Composite {
    builder.unattended().build().unwrap()
}

#[test]
fn a_histogram_has_exact_extremes_from_its_first_value_on() {
    let registry = Prometheus::new();
    let latency = Description::new("latency", "").unit("s");
    let family = registry
        .histogram_family(&latency, &[("role", "decode")], &["model"])
        .unwrap();
    family.with(&["old"]).observe(100.0);
    let composite = unattended(composite("c").of(&family).by(["model"]).quantiles([0.5]));
    for value in [0.2, 0.4, 0.3] {
        family.with(&["a"]).observe(value);
        family.with(&["b"]).observe(value * 10.0);
    }
    let a = composite.get_for(&[("model", "a")]).unwrap();
    assert_eq!(
        (a.min, a.max, a.count, a.state),
        (Some(0.2), Some(0.4), 3.0, State::Fresh)
    );
    assert!((a.avg.unwrap() - 0.3).abs() < 1e-9 && a.value == a.avg);
    assert!((0.2..=0.4).contains(&a.quantile(0.5).unwrap()));
    let b = composite.get_for(&[("model", "b")]).unwrap();
    assert_eq!((b.min, b.max, b.count), (Some(2.0), Some(4.0), 3.0));
    // The composite does not contain values that were recorded before it was made.
    let old = composite.get_for(&[("model", "old")]).unwrap();
    assert_eq!((old.count, old.max, old.state), (0.0, None, State::Idle));
    // A second composite does not take anything from the first.
    let second = unattended(super::composite("d").of(&family));
    family.with(&["a"]).observe(9.0);
    assert_eq!(second.get().max, Some(9.0));
    assert_eq!(composite.get_for(&[("model", "a")]).unwrap().max, Some(9.0));
    assert_eq!(composite.get_for(&[("model", "a")]).unwrap().count, 4.0);
}

#[test]
fn exponential_histograms_and_single_handles_work_alike() {
    let registry = Prometheus::new();
    let handle = registry
        .exponential_histogram(&Description::new("e", ""), &[])
        .unwrap();
    let composite = unattended(composite("c").of(&handle).quantiles([0.0, 1.0]));
    for value in [1e-3, 1e6, 3.0] {
        handle.observe(value);
    }
    let all = composite.get();
    assert_eq!(
        (all.min, all.max, all.count, all.sum),
        (Some(1e-3), Some(1e6), 3.0, 1e6 + 3.001)
    );
}

#[test]
fn values_leave_the_window() {
    let registry = Prometheus::new();
    let handle = registry.histogram(&Description::new("h", ""), &[]).unwrap();
    let composite = unattended(
        composite("c")
            .of(&handle)
            .window(Duration::from_secs(1))
            .function(Function::Max),
    );
    let (recorded, callback) = recorder();
    let _subscription = composite.on_change(Trigger::changed(), callback).unwrap();
    let start = now();
    handle.observe(5.0);
    turn(&composite, start);
    handle.observe(3.0);
    turn(&composite, start + 500 * MS);
    turn(&composite, start + 900 * MS);
    turn(&composite, start + 1200 * MS);
    assert_eq!(take(&recorded), [(3.0, true)]);
    let mut at = start + 1200 * MS;
    while at < start + 2000 * MS {
        at += 50 * MS;
        turn(&composite, at);
    }
    // A missing value is not a change.
    assert_eq!(take(&recorded), []);
}

#[test]
fn a_rate_is_partial_until_its_window_is_covered() {
    let counter = Prometheus::new()
        .counter(&Description::new("a", ""), &[])
        .unwrap();
    let composite = unattended(composite("c").of(&counter));
    let start = now();
    let state = |at| {
        counter.add(5);
        composite.all_at(at)[0].state
    };
    assert_eq!(state(start), State::Partial);
    assert_eq!(state(start + 5_000 * MS), State::Partial);
    assert_eq!(state(start + 10_000 * MS), State::Fresh);
}

#[test]
fn counters_have_increases_and_rates() {
    let registry = Prometheus::new();
    let counter = registry.counter(&Description::new("a", ""), &[]).unwrap();
    counter.add(1000);
    let composite = unattended(composite("c").of(&counter).function(Function::Sum));
    counter.add(5);
    counter.inc();
    let all = composite.get();
    assert_eq!(
        (all.value, all.sum, all.min, all.avg),
        (Some(6.0), 6.0, None, None)
    );
    let gauge = registry.gauge(&Description::new("b", ""), &[]).unwrap();
    let refused = |builder: CompositeBuilder| builder.build().unwrap_err();
    let name = || "x".to_owned();
    assert_eq!(refused(super::composite("x")), CompositeError::NoSource(name()));
    assert_eq!(
        refused(super::composite("x").of(&counter).of(&gauge)),
        CompositeError::Mixed(name())
    );
    let max = super::composite("x").of(&counter).function(Function::Max);
    assert_eq!(refused(max), CompositeError::OnlyIncreases(name()));
    let empty = super::composite("x").of(&gauge).window(Duration::ZERO);
    assert_eq!(refused(empty), CompositeError::EmptyWindow(name()));
    assert_eq!(
        refused(super::composite("x").of(&gauge).quantiles([1.5])),
        CompositeError::BadRank(name())
    );
}

#[test]
fn the_series_of_a_group_become_one_value() {
    let registry = Prometheus::new();
    let family = registry
        .gauge_family(&Description::new("queue", ""), &[], &["pod"])
        .unwrap();
    let of = |function, across| unattended(composite("c").of(&family).function(function).across(across));
    for (pod, depth) in [("a", 100.0), ("b", 0.0)] {
        family.with(&[pod]).set(depth);
    }
    for (across, expected) in [
        (Across::Sum, 100.0),
        (Across::Avg, 50.0),
        (Across::Min, 0.0),
        (Across::Max, 100.0),
        (Across::Count, 2.0),
        (Across::Quantile(0.75), 75.0),
    ] {
        let all = of(Function::Last, across).get();
        assert_eq!(
            (all.value, all.state),
            (Some(expected), State::Fresh),
            "{across:?}"
        );
        assert_eq!((all.min, all.max, all.count), (Some(0.0), Some(100.0), 2.0));
    }
    let peaks = of(Function::Max, Across::Sum);
    let start = now();
    turn(&peaks, start);
    family.with(&["a"]).set(1.0);
    family.with(&["b"]).set(7.0);
    turn(&peaks, start + 30 * MS);
    assert_eq!(peaks.get().value, Some(107.0), "the peak of each");
    // Without `across` two gauges make no value, and the error says what to do.
    let mixed = unattended(composite("mixed").of(&family)).get();
    let error = mixed.error.unwrap();
    assert_eq!(mixed.value, None);
    for part in ["`mixed` joins gauge series", "queue{pod", "set `across` to sum"] {
        assert!(error.contains(part), "{error}");
    }
    let by_pod = unattended(composite("c").of(&family).by(["pod"]));
    assert_eq!(by_pod.get_for(&[("pod", "b")]).unwrap().value, Some(7.0));
    assert_eq!(by_pod.get().error, None);
}

#[test]
fn counters_and_histograms_are_pooled_or_put_together_by_series() {
    let registry = Prometheus::new();
    let counters = registry
        .counter_family(&Description::new("served", ""), &[], &["pod"])
        .unwrap();
    let busiest = unattended(
        composite("busiest")
            .of(&counters)
            .function(Function::Sum)
            .across(Across::Max)
            .quantiles([0.0]),
    );
    let pooled = unattended(
        composite("all")
            .of(&counters)
            .function(Function::Sum)
            .across(Across::Pool),
    );
    counters.with(&["a"]).add(5);
    counters.with(&["b"]).add(3);
    let all = busiest.get();
    assert_eq!(
        (all.value, all.min, all.quantile(0.0)),
        (Some(5.0), Some(3.0), Some(3.0))
    );
    assert_eq!(pooled.get().value, Some(8.0));
    let latency = registry
        .histogram_family(&Description::new("latency", ""), &[], &["pod"])
        .unwrap();
    let slowest = unattended(composite("slowest").of(&latency).across(Across::Max));
    for (pod, values) in [("a", [1.0, 3.0]), ("b", [4.0, 6.0])] {
        values
            .iter()
            .for_each(|value| latency.with(&[pod]).observe(*value));
    }
    assert_eq!(slowest.get().value, Some(5.0), "of the means of the pods");
}

#[test]
fn what_gauges_can_not_be_is_refused_as_by_the_gateway() {
    let registry = Prometheus::new();
    let gauge = registry.gauge(&Description::new("queue", ""), &[]).unwrap();
    let level = registry
        .up_down_counter(&Description::new("level", ""), &[])
        .unwrap();
    let of = || composite("depth").of(&gauge);
    let refused = |builder: CompositeBuilder| builder.build().unwrap_err().to_string();
    assert_eq!(
        refused(of().across(Across::Pool)),
        "composite `depth`: `across: pool` mixes the samples of the gauge `queue`; set `across` to sum, avg, min, max, \
         count or quantile"
    );
    for (function, word) in [
        (Function::Sum, "sum"),
        (Function::Count, "count"),
        (Function::Rate, "rate"),
    ] {
        for builder in [of(), of().across(Across::Sum), composite("depth").of(&level)] {
            let why = refused(builder.function(function));
            assert!(
                why.starts_with(&format!(
                    "composite `depth`: `function: {word}` adds up the samples of the gauge"
                )),
                "{why}"
            );
        }
    }
    let rank = refused(of().across(Across::Quantile(1.5)));
    assert_eq!(rank, "composite `depth`: ranks must be between 0 and 1");
}

#[test]
fn a_gauge_has_a_mean_over_time_and_exact_extremes() {
    let registry = Prometheus::new();
    let gauge = registry.gauge(&Description::new("g", ""), &[]).unwrap();
    gauge.set(2.0);
    let composite = unattended(composite("c").of(&gauge));
    let start = now();
    for at in 0..50 {
        // Set often or not: a value counts as long as it lasts.
        if at == 25 {
            (0..100).for_each(|_| gauge.set(4.0));
        }
        turn(&composite, start + at * 20 * MS);
    }
    gauge.set(50.0);
    gauge.set(4.0);
    let all = composite.get();
    assert_eq!((all.min, all.max, all.last), (Some(2.0), Some(50.0), Some(4.0)));
    assert!((all.avg.unwrap() - 3.0).abs() < 0.1, "{all:?}");
}

#[test]
fn thresholds_keep_their_hysteresis_and_their_distance_by_group() {
    let registry = Prometheus::new();
    let family = registry
        .gauge_family(&Description::new("g", ""), &[], &["model"])
        .unwrap();
    let [a, b] = ["a", "b"].map(|model| family.with(&[model]));
    let composite = unattended(composite("c").of(&family).by(["model"]).function(Function::Last));
    let (recorded, callback) = recorder();
    let trigger = Trigger::above(10.0)
        .hysteresis(2.0)
        .min_interval(Duration::from_millis(100));
    let subscription = composite.on_change(trigger, callback).unwrap();
    let start = now();
    let set = |at_ms: u64, of_a: f64, of_b: f64| {
        a.set(of_a);
        b.set(of_b);
        turn(&composite, start + at_ms * MS);
        take(&recorded)
    };
    assert_eq!(set(0, 5.0, 5.0), []);
    assert_eq!(set(10, 11.0, 5.0), [(11.0, true)]);
    assert_eq!(set(20, 9.0, 12.0), [(12.0, true)], "9 is not 2 below");
    assert_eq!(set(50, 7.0, 12.0), [], "too early");
    assert_eq!(
        set(120, 7.0, 12.0),
        [(7.0, false)],
        "it still holds when the time is over"
    );
    assert_eq!(set(130, 11.0, 12.0), [], "too early again");
    assert_eq!(set(140, 7.0, 12.0), []);
    assert_eq!(set(500, 7.0, 1.0), [(1.0, false)]);
    drop(subscription);
    assert_eq!(set(900, 99.0, 99.0), []);
    let refused = composite.on_change(Trigger::above(f64::NAN), |_| ());
    assert_eq!(refused.unwrap_err(), CompositeError::BadTrigger);
}

#[test]
fn a_change_that_could_not_be_reported_is_reported_later() {
    let gauge = Prometheus::new().gauge(&Description::new("g", ""), &[]).unwrap();
    let composite = unattended(composite("c").of(&gauge).function(Function::Last));
    let (recorded, callback) = recorder();
    let _subscription = composite.on_change(Trigger::above(1.0), callback).unwrap();
    gauge.set(2.0);
    let start = now();
    composite.turn(start, &mut |_: Job| false);
    assert_eq!(take(&recorded), []);
    turn(&composite, start + 50 * MS);
    assert_eq!(take(&recorded), [(2.0, true)]);
}

#[test]
fn a_callback_that_panics_stops_no_other() {
    let gauge = Prometheus::new().gauge(&Description::new("g", ""), &[]).unwrap();
    let composite = unattended(composite("c").of(&gauge).function(Function::Last));
    let (recorded, callback) = recorder();
    let _first = composite
        .on_change(Trigger::changed(), |_| panic!("of the test"))
        .unwrap();
    let _second = composite.on_change(Trigger::changed(), callback).unwrap();
    let (start, before) = (now(), callback_panics());
    for at in 0..4u32 {
        gauge.set(f64::from(at));
        turn(&composite, start + u64::from(at) * 50 * MS);
    }
    assert_eq!(take(&recorded).len(), 3);
    assert_eq!(callback_panics() - before, 3);
}

#[test]
fn a_series_that_ends_leaves_its_group() {
    let registry = Prometheus::new();
    let family = registry
        .histogram_family(&Description::new("h", ""), &[], &["model"])
        .unwrap();
    let composite = unattended(composite("c").of(&family).by(["model"]));
    family.with(&["a"]).observe(1.0);
    assert_eq!(composite.get().state, State::Fresh);
    family.remove(&["a"]);
    turn(&composite, now() + 60_000 * MS);
    assert_eq!(composite.get().state, State::Absent);
    // Extremes are not kept without a watcher.
    let handle = registry.histogram(&Description::new("i", ""), &[]).unwrap();
    let composite = unattended(super::composite("d").of(&handle));
    let side = crate::Instrument::side(&handle).unwrap().0.clone();
    assert!(side.watched.is_watched());
    drop(composite);
    assert!(!side.watched.is_watched());
}

#[test]
fn watchers_are_shown_what_is_new_and_nothing_else() {
    let gauge = Prometheus::new().gauge(&Description::new("g", ""), &[]).unwrap();
    let composite = unattended(composite("c").of(&gauge).function(Function::Last));
    let watcher = composite.watch();
    assert_eq!(watcher.wait(Duration::ZERO), None);
    gauge.set(7.0);
    turn(&composite, now());
    let shown = watcher.wait(Duration::ZERO).unwrap();
    assert_eq!(shown[0].value, Some(7.0));
    assert_eq!(watcher.wait(Duration::from_millis(1)), None);
}

#[test]
fn of_a_registry_that_keeps_nothing_nothing_is_known() {
    let registry = Null::new();
    let counter = registry.counter(&Description::new("a", ""), &[]).unwrap();
    let family = registry
        .gauge_family(&Description::new("b", ""), &[], &["c"])
        .unwrap();
    let of_family = unattended(composite("c").of(&family).by(["c"]));
    family.with(&["d"]).set(5.0);
    assert_eq!(of_family.get().state, State::Absent);
    assert_eq!(unattended(composite("c").of(&counter)).get().state, State::Absent);
    let _subscription = counter
        .on_change(Trigger::above(1.0), |_| panic!("never"))
        .unwrap();
}

#[test]
fn the_threads_of_the_process_look_and_call() {
    let registry = Prometheus::new();
    let gauge = registry.gauge(&Description::new("g", ""), &[]).unwrap();
    let (sender, receiver) = std::sync::mpsc::sync_channel(16);
    let send = sender.clone();
    let _plain = gauge
        .on_change(Trigger::above(10.0), move |change| {
            let _ = send.send(("plain", change.value));
        })
        .unwrap();
    let composite = registry
        .composite("c")
        .of(&gauge)
        .function(Function::Max)
        .build()
        .unwrap();
    let watcher = composite.watch();
    let _composed = composite
        .on_change(Trigger::above(10.0), move |change| {
            let _ = sender.send(("composite", change.value));
        })
        .unwrap();
    gauge.set(11.0);
    let soon = Duration::from_secs(60);
    let mut heard = [
        receiver.recv_timeout(soon).unwrap(),
        receiver.recv_timeout(soon).unwrap(),
    ];
    heard.sort_by_key(|(who, _)| *who);
    assert_eq!(heard, [("composite", 11.0), ("plain", 11.0)]);
    assert!(watcher.wait(soon).is_some());
}
