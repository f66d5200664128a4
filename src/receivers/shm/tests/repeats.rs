// SPDX-License-Identifier: Apache-2.0

//! Series that are sent again although they did not change.

use crate::component::{Consumer, Entry, Flow, Refused};

use super::*;

/// More series than a look repeats, which is 4,096.
const MANY: usize = 4500;

/// Counts one for each of [`MANY`] models.
fn count_many(store: &Store) {
    let family = FamilySpec::new("requests", Kind::Counter).labels(["model"]);
    let family = store.family(&family).unwrap();
    for number in 0..MANY {
        family.with(&[&number.to_string()]).counter().unwrap().add(1);
    }
}

#[test]
fn unchanged_series_are_sent_again_at_an_interval_also_those_of_the_dead() {
    let mut scene = Scene::new("{refresh: 60s, grace_period: 0s}");
    let store = scene.process("a", "llm");
    count(&store, "a", 3);
    set(&store, "depth", GaugeMode::LiveSum, 4.0);
    scene.look();
    let sent = |scene: &Scene| scene.sent("requests").len();
    for _ in 0..29 {
        scene.look();
    }
    assert_eq!(sent(&scene), 1);
    scene.look();
    assert_eq!(scene.sent("requests"), [Value::Int(3), Value::Int(3)]);
    assert_eq!(scene.sent("depth"), [Value::Double(4.0), Value::Double(4.0)]);
    drop(store);
    scene.look();
    assert_eq!(scene.sent("depth").last(), Some(&Value::NoRecordedValue));
    for _ in 0..60 {
        scene.look();
    }
    assert_eq!(sent(&scene), 4, "its totals stay");
    assert!(scene.sent("requests").iter().all(|value| *value == Value::Int(3)));
    assert_eq!(scene.sent("depth").len(), 3, "it has ended");
}

#[test]
fn a_look_repeats_a_bounded_number_of_series() {
    let mut scene = Scene::new("{refresh: 10s}");
    let store = scene.process("a", "llm");
    count_many(&store);
    (0..5).for_each(|_| scene.look());
    assert_eq!(scene.sink.items(), MANY);
    scene.look();
    assert_eq!(scene.sink.items(), MANY + 4096);
    scene.look();
    assert_eq!(scene.sink.items(), 2 * MANY);
    scene.look();
    assert_eq!(scene.sink.items(), 2 * MANY);
}

/// A directory of a pod.
const POD: &str = "0f4b8a52-3c1d-4e6f-9a7b-0123456789ab";

#[test]
fn a_dead_pod_is_not_repeated_until_it_lives_again() {
    let mut scene = Scene::new("{refresh: 10s, fold: false}");
    let store = scene.process(POD, "llm");
    count(&store, "a", 3);
    (0..6).for_each(|_| scene.look());
    assert_eq!(scene.sent("requests").len(), 2, "it is repeated while it lives");
    drop(store);
    (0..12).for_each(|_| scene.look());
    assert_eq!(scene.sent("requests").len(), 2);
    let again = scene.process(POD, "llm");
    scene.look();
    assert_eq!(scene.sent("requests").len(), 3);
    count(&again, "a", 1);
    drop(again);
    scene.look();
    assert_eq!(scene.sent("requests").last(), Some(&Value::Int(4)));
}

#[test]
fn a_reload_does_not_repeat_dead_pods_and_a_restart_does() {
    let mut scene = Scene::new("{fold: false}");
    let store = scene.process(POD, "llm");
    count(&store, "a", 3);
    scene.look();
    scene.reload();
    scene.look();
    assert_eq!(scene.sent("requests"), [Value::Int(3), Value::Int(3)], "it lives");
    count(&store, "a", 1);
    drop(store);
    scene.reload();
    scene.sink.refuse(1);
    scene.look();
    assert_eq!(scene.sink.refusals_left(), 0);
    scene.reload();
    scene.look();
    assert_eq!(scene.sent("requests")[2..], [Value::Int(4)], "its last count");
    for _ in 0..2 {
        scene.reload();
        (0..2).for_each(|_| scene.look());
        assert_eq!(scene.sent("requests").len(), 3);
    }
    // A container runs while no receiver looks.
    let short = scene.process(POD, "llm");
    count(&short, "a", 2);
    drop(short);
    scene.reload();
    scene.look();
    assert_eq!(scene.sent("requests")[3..], [Value::Int(6)]);
    let again = scene.process(POD, "llm");
    scene.look();
    assert_eq!(scene.sent("requests").len(), 5, "it lives again");
    drop(again);
    scene.look();
    scene.base = context("receivers", "shm");
    scene.reload();
    scene.look();
    assert_eq!(scene.sent("requests").len(), 6, "after a restart");
}

#[test]
fn the_merge_of_a_dead_pod_repeats_nothing_after_a_reload() {
    let mut scene = Scene::new("{grace_period: 0s}");
    for (label, mode) in [("a", GaugeMode::Max), ("b", GaugeMode::Min)] {
        let store = scene.process(POD, "llm");
        count(&store, label, 3);
        set(&store, label, mode, 0.1);
    }
    (0..4).for_each(|_| scene.look());
    let sent = scene.sink.items();
    assert_eq!(sent, 4);
    scene.reload();
    (0..2).for_each(|_| scene.look());
    assert_eq!(scene.sink.items(), sent);
}

#[test]
fn a_reload_that_reads_more_of_a_dead_pod_sends_it() {
    let mut scene = Scene::new("{fold: false, max_series: 1}");
    let store = scene.process(POD, "llm");
    count(&store, "a", 3);
    count(&store, "b", 4);
    drop(store);
    scene.look();
    assert!(scene.sent("requests").is_empty(), "its file has too many series");
    scene.reload_with("{fold: false}");
    scene.look();
    assert_eq!(scene.sent("requests"), [Value::Int(3), Value::Int(4)]);
}

#[test]
fn a_dead_process_without_room_is_sent_after_a_reload() {
    let mut scene = Scene::new("{fold: false}");
    let memory = scene.base.shared.memory.clone();
    let one = scene.process(POD, "llm");
    count(&one, "a", 3);
    scene.look();
    let limit = Limit::of(memory.reserved_bytes());
    memory.add_limit(limit);
    let other = scene.process(POD, "llm");
    count(&other, "a", 4);
    drop((one, other));
    scene.look();
    assert_eq!(scene.sent("requests"), [Value::Int(3)]);
    memory.remove_limit(limit);
    scene.reload();
    scene.look();
    assert_eq!(scene.sent("requests"), [Value::Int(3), Value::Int(7)]);
}

/// Refuses everything permanently.
struct Refuser;

impl Consumer for Refuser {
    fn admit(&self, _: &Batch, _: &mut Flow) -> Result<(), Refused> {
        Err(Refused::permanent("no"))
    }

    fn consume(&self, _: Batch, _: &mut Flow) {}
}

#[test]
fn what_was_refused_permanently_of_a_dead_pod_is_sent_after_a_reload() {
    let mut scene = Scene::new("{fold: false}");
    let store = scene.process(POD, "llm");
    count(&store, "a", 3);
    scene.look();
    count(&store, "a", 1);
    drop(store);
    scene.directories.entry = Entry::new(Signal::Metrics, Arc::new(Refuser), Arc::default());
    scene.look();
    assert_eq!(scene.sent("requests"), [Value::Int(3)]);
    for _ in 0..2 {
        scene.reload();
        scene.look();
        assert_eq!(scene.sent("requests"), [Value::Int(3), Value::Int(4)]);
    }
}

#[test]
fn a_round_ends_when_the_next_one_begins() {
    let mut scene = Scene::new("{refresh: 2s}");
    let store = scene.process("a", "llm");
    count_many(&store);
    scene.look();
    assert_eq!(scene.sink.items(), MANY);
    scene.look();
    assert_eq!(scene.sink.items(), MANY + 4096);
    for rounds in 1..4 {
        scene.look();
        assert_eq!(scene.sink.items(), MANY + 4096 + rounds * MANY);
    }
}

#[test]
fn repeats_that_wait_stay_due_when_a_series_comes() {
    let mut scene = Scene::new("{refresh: 10s, fold: false}");
    let store = scene.process("a", "llm");
    count(&store, "a", 3);
    (0..5).for_each(|_| scene.look());
    assert_eq!(scene.sent("requests"), [Value::Int(3)]);
    scene.sink.refuse(1);
    scene.look();
    assert_eq!(scene.sink.refusals_left(), 0);
    assert_eq!(scene.sent("requests").len(), 1);
    count(&store, "b", 1);
    scene.look();
    assert_eq!(scene.sent("requests")[1..], [Value::Int(3), Value::Int(1)]);
}

#[test]
fn a_round_that_goes_on_reaches_all_series_when_another_one_comes() {
    let mut scene = Scene::new("{refresh: 10s, fold: false}");
    let store = scene.process("a", "llm");
    count_many(&store);
    (0..6).for_each(|_| scene.look());
    assert_eq!(scene.sink.items(), MANY + 4096);
    // The numbers of all series that the round has not reached change.
    let family = FamilySpec::new("requests", Kind::Counter).labels(["model"]);
    let family = store.family(&family).unwrap();
    for number in 0..1000 {
        family.remove(&[&number.to_string()]);
    }
    scene.look();
    assert_eq!(scene.sink.items(), MANY + 4096 + 1000 + 404);
    scene.look();
    assert_eq!(scene.sink.items(), MANY + 4096 + 1000 + 404);
}
