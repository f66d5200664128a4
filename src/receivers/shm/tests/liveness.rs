// SPDX-License-Identifier: Apache-2.0

//! The lease of a directory, by its processes.

use crate::component::{Consumer, Entry, Flow, Refused, unix_now};
use crate::receivers::shm::{directory::LEASE, rest};

use super::*;

#[test]
fn leases_hold_until_the_look_after_a_slow_one() {
    let [poll, minute] = [Duration::from_millis(10), Duration::from_mins(1)];
    let slow = Duration::from_millis(200);
    assert_eq!(rest(poll, Duration::from_millis(1)), poll);
    assert_eq!(rest(poll, slow), 3 * slow);
    for seconds in 1..10 {
        let look = Duration::from_secs(seconds);
        assert!(look + rest(poll, look) < LEASE, "{seconds} s");
        assert_eq!(rest(minute, look), minute);
    }
}

#[test]
fn the_lease_of_a_directory_is_that_of_its_processes() {
    let mut scene = Scene::new("{}");
    let [one, other] = [(); 2].map(|()| scene.process("a", "llm"));
    count(&one, "a", 3);
    scene.look();
    let lease = scene.lease();
    assert!(lease.is_alive(unix_now()));
    let sent = scene.sink.batches().len();
    for _ in 0..5 {
        let touched = lease.touched();
        scene.look();
        assert!(lease.touched() > touched, "it lives, and says nothing");
    }
    assert_eq!(scene.sink.batches().len(), sent);
    drop(one);
    scene.look();
    assert!(!lease.is_dead(), "another one lives");
    drop(other);
    scene.look();
    assert!(lease.is_dead() && !lease.is_ended());
    scene.look();
    assert!(lease.is_dead());
    // A process returns, and counts nothing yet.
    let sent = scene.sent("requests").len();
    let again = scene.process("a", "llm");
    scene.look();
    assert!(lease.is_alive(unix_now()));
    assert_eq!(scene.sent("requests")[sent..], [Value::Int(3)]);
    assert!(Arc::ptr_eq(&scene.lease(), &lease));
    drop(again);
    scene.look();
    std::fs::remove_dir_all(scene.root.path().join("a")).unwrap();
    scene.look();
    assert!(lease.is_ended());
    let new = scene.process("a", "llm");
    count(&new, "a", 1);
    scene.look();
    assert!(scene.lease().is_alive(unix_now()) && lease.is_ended());
}

/// Keeps whether the sources of batches are dead when the batches come: composites ignore those.
#[derive(Default)]
struct LeaseTaker(parking_lot::Mutex<Vec<bool>>);

impl LeaseTaker {
    /// Takes all further batches of a receiver.
    fn of(scene: &mut Scene) -> Arc<Self> {
        let taker = Arc::<Self>::default();
        scene.directories.entry = Entry::new(Signal::Metrics, taker.clone(), Arc::default());
        taker
    }
}

impl Consumer for LeaseTaker {
    fn admit(&self, batch: &Batch, _: &mut Flow) -> Result<(), Refused> {
        let lease = batch.lease.as_ref().unwrap();
        self.0.lock().push(lease.is_dead());
        Ok(())
    }

    fn consume(&self, _: Batch, _: &mut Flow) {}
}

#[test]
fn the_last_counts_of_a_process_are_sent_before_its_lease_ends() {
    let mut scene = Scene::new("{}");
    let store = scene.process("a", "llm");
    count(&store, "a", 3);
    scene.look();
    let lease = scene.lease();
    count(&store, "a", 4);
    drop(store);
    let taker = LeaseTaker::of(&mut scene);
    scene.look();
    assert_eq!(*taker.0.lock(), [false]);
    assert!(lease.is_dead());
}

#[test]
fn a_directory_dies_after_the_pipelines_have_taken_its_last_counts() {
    let mut scene = Scene::new("{}");
    let store = scene.process("a", "llm");
    count(&store, "a", 3);
    scene.look();
    let lease = scene.lease();
    count(&store, "a", 4);
    drop(store);
    scene.sink.refuse(1);
    scene.look();
    assert_eq!(scene.sink.refusals_left(), 0);
    assert!(!lease.is_dead());
    let taker = LeaseTaker::of(&mut scene);
    scene.look();
    assert_eq!(*taker.0.lock(), [false]);
    assert!(lease.is_dead());
}

#[test]
fn live_gauges_end_after_the_death_of_their_directory() {
    let mut scene = Scene::new("{}");
    let store = scene.process("a", "llm");
    count(&store, "a", 3);
    set(&store, "depth", GaugeMode::LiveSum, 4.0);
    scene.look();
    let lease = scene.lease();
    count(&store, "a", 4);
    drop(store);
    scene.sink.refuse(1);
    scene.look();
    assert_eq!(scene.sink.refusals_left(), 0);
    assert_eq!(scene.sent("depth"), [Value::Double(4.0)]);
    assert!(!lease.is_dead(), "its last counts wait");
    let taker = LeaseTaker::of(&mut scene);
    scene.look();
    assert_eq!(*taker.0.lock(), [false, true], "counts, then ends");
}

#[test]
fn a_refused_end_does_not_come_after_the_next_values_of_its_series() {
    let mut scene = Scene::new("{fold: false}");
    let store = scene.process("a", "llm");
    count(&store, "a", 3);
    scene.look();
    let family = FamilySpec::new("requests", Kind::Counter).labels(["model"]);
    store.family(&family).unwrap().remove(&["a"]);
    drop(store);
    scene.sink.refuse(1);
    scene.look();
    assert_eq!(scene.sink.refusals_left(), 0);
    let short = scene.process("a", "llm");
    count(&short, "a", 5);
    drop(short);
    (0..2).for_each(|_| scene.look());
    assert_eq!(scene.sent("requests"), [Value::Int(3), Value::Int(5)]);
}

#[test]
fn a_process_that_no_look_has_seen_alive_counts_for_a_living_source() {
    let mut scene = Scene::new("{}");
    let store = scene.process("a", "llm");
    count(&store, "a", 3);
    scene.look();
    drop(store);
    scene.look();
    let lease = scene.lease();
    assert!(lease.is_dead());
    let taker = LeaseTaker::of(&mut scene);
    let short = scene.process("a", "llm");
    count(&short, "a", 4);
    drop(short);
    // The merge of its file changes no count.
    (0..3).for_each(|_| scene.look());
    assert_eq!(*taker.0.lock(), [false]);
    assert!(lease.is_dead());
}

#[test]
fn a_process_that_has_run_during_a_reload_counts_for_a_living_source() {
    let pod = "0f4b8a52-3c1d-4e6f-9a7b-0123456789ab";
    let mut scene = Scene::new("{fold: false}");
    let store = scene.process(pod, "llm");
    count(&store, "a", 3);
    scene.look();
    drop(store);
    (0..2).for_each(|_| scene.look());
    let lease = scene.lease();
    assert!(lease.is_dead());
    // Nothing has run in the first reload.
    for has_run in [false, true] {
        let touched = lease.touched();
        scene.reload();
        let taker = LeaseTaker::of(&mut scene);
        (0..2).for_each(|_| scene.look());
        let sent = if has_run { vec![false] } else { Vec::new() };
        assert_eq!(*taker.0.lock(), sent);
        assert!(lease.is_dead());
        assert_eq!(lease.touched() > touched, has_run);
        let short = scene.process(pod, "llm");
        count(&short, "a", 4);
        drop(short);
    }
}

#[test]
fn a_reload_goes_on_with_the_lease_of_a_directory() {
    let mut scene = Scene::new("{fold: false}");
    let store = scene.process("a", "llm");
    count(&store, "a", 3);
    scene.look();
    let lease = scene.lease();
    let term = lease.term_ns();
    scene.reload_with("{fold: false, poll_interval: 10s}");
    let touched = lease.touched();
    scene.look();
    assert!(Arc::ptr_eq(&scene.lease(), &lease) && lease.touched() > touched);
    assert_eq!(lease.term_ns(), 2 * term, "three polls");
    drop(store);
    scene.look();
    assert!(lease.is_dead());
    // Its death does not become younger.
    let touched = lease.touched();
    scene.reload();
    scene.look();
    assert!(Arc::ptr_eq(&scene.lease(), &lease) && lease.is_dead());
    assert_eq!(lease.touched(), touched);
    // It goes while nobody looks.
    std::fs::remove_dir_all(scene.root.path().join("a")).unwrap();
    scene.reload();
    scene.look();
    assert!(lease.is_ended());
}

#[test]
fn a_directory_that_dies_in_a_reload_sends_its_last_counts_before() {
    let mut scene = Scene::new("{fold: false}");
    let store = scene.process("a", "llm");
    count(&store, "a", 3);
    scene.look();
    let lease = scene.lease();
    count(&store, "a", 4);
    drop(store);
    scene.reload();
    scene.sink.refuse(1);
    scene.look();
    assert_eq!(scene.sink.refusals_left(), 0);
    scene.reload();
    let taker = LeaseTaker::of(&mut scene);
    scene.look();
    assert_eq!(*taker.0.lock(), [false]);
    assert!(lease.is_dead() && !lease.is_ended());
}
