//! The machine in virtual time, with loads whose every item has a number.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::pieces::MAX_SEARCH;
use super::*;
use crate::batch::Signal;
use crate::delivery::room::Room;
use crate::delivery::testing::opaque;

/// A run of numbered items on a lane.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    lane: u8,
    batching: Option<Batching>,
    items: Vec<u32>,
    pushes: usize,
}

impl Load for Run {
    type Lane = u8;

    fn lane(&self) -> u8 {
        self.lane
    }

    fn batching(&self) -> Option<Batching> {
        self.batching
    }

    fn size(&self, sizer: Sizer) -> usize {
        match sizer {
            Sizer::Requests => self.pushes,
            Sizer::Items => self.items.len(),
            Sizer::Bytes => self.items.len() * 10,
        }
    }

    fn join(&mut self, other: Self) {
        assert_eq!(self.lane, other.lane);
        self.items.extend(other.items);
        self.pushes += other.pushes;
    }

    fn name(&self) -> String {
        format!("item {}", self.items[0])
    }

    fn split(self, max: usize, sizer: Sizer) -> Vec<Self> {
        let max = match sizer {
            Sizer::Requests => usize::MAX,
            Sizer::Items => max,
            Sizer::Bytes => max / 10,
        };
        let chunks = self.items.chunks(max.max(1));
        chunks
            .map(|chunk| Self {
                items: chunk.to_vec(),
                ..self.clone()
            })
            .collect()
    }
}

fn run(items: std::ops::Range<u32>) -> Run {
    Run {
        lane: 0,
        batching: None,
        items: items.collect(),
        pushes: 1,
    }
}

fn batched(items: std::ops::Range<u32>, min_size: usize, max_size: usize) -> Run {
    let batching = Batching {
        timeout: ms(200),
        min_size,
        max_size,
        sizer: Sizer::Items,
    };
    Run {
        batching: Some(batching),
        ..run(items)
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// No jitter: tests can name instants.
fn backoff() -> Backoff {
    Backoff {
        initial: ms(1000),
        multiplier: 2.0,
        jitter: 0.0,
        max: ms(8000),
        max_elapsed: Some(ms(60_000)),
    }
}

/// A machine with a clock of its own, and its books.
struct Bench {
    machine: Machine<Run>,
    start: Instant,
    now: Instant,
    delivered: usize,
    kept: Vec<u32>,
    dropped: BTreeMap<&'static str, usize>,
}

impl Bench {
    fn new(consumers: usize, retry: Option<Backoff>) -> Self {
        let now = Instant::now();
        Self {
            machine: Machine::new(
                Rules {
                    consumers,
                    retry,
                    isolate: true,
                    max_bytes: 100_000,
                    max_items: usize::MAX,
                    keeps: false,
                },
                7,
            ),
            start: now,
            now,
            delivered: 0,
            kept: Vec::new(),
            dropped: BTreeMap::new(),
        }
    }

    fn at(&mut self, at_ms: u64) -> &mut Self {
        self.now = self.start + ms(at_ms);
        self
    }

    fn push(&mut self, load: Run) {
        self.machine.enqueue(self.now, load, Charge::new());
    }

    /// What is sent now: attempts with their items.
    fn sends(&mut self) -> Vec<(u64, Vec<u32>)> {
        let mut sends = Vec::new();
        while let Some(action) = self.machine.poll(self.now) {
            match action {
                Action::Send { id, load } => sends.push((id, load.items)),
                Action::Delivered { items, .. } => self.delivered += items,
                Action::Dropped { loss, .. } => {
                    *self.dropped.entry(loss.reason.name()).or_default() += loss.items;
                }
                Action::Kept { load, .. } => self.kept.extend(load.items),
                Action::Retrying { .. } => {}
            }
        }
        sends
    }

    /// The one attempt that starts now.
    fn send(&mut self) -> (u64, Vec<u32>) {
        let sends = self.sends();
        assert_eq!(sends.len(), 1, "{sends:?}");
        sends.into_iter().next().unwrap()
    }

    fn finish(&mut self, id: u64, outcome: Outcome) {
        self.machine.finish(self.now, id, outcome);
    }

    fn wake_ms(&self) -> Option<u64> {
        let at = self.machine.wake_at(self.now)?;
        Some(u64::try_from((at - self.start).as_millis()).unwrap())
    }
}

fn busy() -> Outcome {
    Outcome::retry("busy")
}

fn busy_for(delay_ms: u64) -> Outcome {
    Outcome::Retry {
        after: Some(ms(delay_ms)),
        why: "busy".into(),
    }
}

#[test]
fn without_batching_a_load_goes_out_at_once() {
    let mut bench = Bench::new(1, None);
    bench.push(run(0..3));
    let (id, items) = bench.send();
    assert_eq!(items, [0, 1, 2]);
    bench.finish(id, Outcome::Done);
    assert!(bench.sends().is_empty());
    assert_eq!(bench.delivered, 3);
    assert!(bench.machine.is_empty());
}

#[test]
fn c9_no_more_attempts_than_consumers_and_first_in_first_out() {
    let mut bench = Bench::new(2, None);
    (0..4).for_each(|n| bench.push(run(n..n + 1)));
    let first = bench.sends();
    assert_eq!(first, [(0, vec![0]), (1, vec![1])]);
    assert_eq!(bench.wake_ms(), None);
    bench.finish(1, Outcome::Done);
    assert_eq!(bench.send(), (2, vec![2]));
}

#[test]
fn a_small_load_waits_for_the_timeout_and_a_full_request_does_not() {
    let mut bench = Bench::new(9, None);
    bench.push(batched(0..3, 10, 0));
    assert!(bench.sends().is_empty());
    assert_eq!(bench.wake_ms(), Some(200));
    bench.at(150).push(batched(3..5, 10, 0));
    assert!(bench.sends().is_empty());
    assert_eq!(bench.at(200).send().1, [0, 1, 2, 3, 4]);

    bench.at(300).push(batched(5..11, 10, 0));
    bench.at(301).push(batched(11..15, 10, 0));
    assert_eq!(bench.send().1, (5..15).collect::<Vec<_>>());
}

#[test]
fn a_full_request_is_cut_and_its_small_rest_goes_on_gathering() {
    let mut bench = Bench::new(9, None);
    bench.push(batched(0..25, 10, 10));
    let sent: Vec<_> = bench.sends().into_iter().map(|(_, items)| items.len()).collect();
    assert_eq!(sent, [10, 10]);
    assert_eq!(bench.wake_ms(), Some(200));
    bench.at(100).push(batched(25..30, 10, 10));
    assert_eq!(bench.send().1, (20..30).collect::<Vec<_>>());
}

#[test]
fn loads_of_different_lanes_are_not_joined() {
    let mut bench = Bench::new(9, None);
    bench.push(batched(0..1, 10, 0));
    bench.push(Run {
        lane: 1,
        ..batched(1..2, 10, 0)
    });
    assert_eq!(bench.at(200).sends().len(), 2);
}

#[test]
fn c5_retries_back_off_and_hold_no_consumer() {
    let mut bench = Bench::new(1, Some(backoff()));
    bench.push(run(0..1));
    bench.push(run(1..2));
    let (id, _) = bench.send();
    bench.finish(id, busy());
    let (other, items) = bench.send();
    assert_eq!(items, [1], "the consumer is free while the first one waits");
    bench.finish(other, Outcome::Done);
    assert!(bench.sends().is_empty());
    for due in [1000, 3000, 7000, 15_000, 23_000] {
        assert_eq!(bench.wake_ms(), Some(due));
        assert!(bench.at(due - 1).sends().is_empty());
        let (id, items) = bench.at(due).send();
        assert_eq!(items, [0]);
        bench.finish(id, busy());
        // Somebody else's success keeps the destination's own gate out of this.
        bench.push(run(9..10));
        let (other, _) = bench.send();
        bench.finish(other, Outcome::Done);
        bench.sends();
    }
}

#[test]
fn a_request_is_given_up_when_its_next_retry_would_come_too_late() {
    let retry = Backoff {
        max_elapsed: Some(ms(2500)),
        ..backoff()
    };
    let mut bench = Bench::new(1, Some(retry));
    bench.push(run(0..4));
    let (id, _) = bench.send();
    bench.finish(id, busy());
    let (id, _) = bench.at(1000).send();
    bench.finish(id, busy());
    assert!(bench.sends().is_empty());
    assert_eq!(bench.dropped, [("retries_exhausted", 4)].into());
    assert!(bench.machine.is_empty());
}

#[test]
fn without_retry_a_failure_is_final() {
    let mut bench = Bench::new(1, None);
    bench.push(run(0..4));
    let (id, _) = bench.send();
    bench.finish(id, busy());
    bench.sends();
    assert_eq!(bench.dropped, [("retries_exhausted", 4)].into());
}

#[test]
fn c6_a_delay_that_the_peer_asks_for_silences_the_whole_destination() {
    let mut bench = Bench::new(4, Some(backoff()));
    bench.push(run(0..1));
    let (id, _) = bench.send();
    bench.finish(id, busy_for(5000));
    bench.push(run(1..2));
    assert!(bench.sends().is_empty());
    assert_eq!(bench.wake_ms(), Some(5000));
    let probe = bench.at(5000).send();
    assert!(bench.sends().is_empty(), "one probe at a time");
    bench.finish(probe.0, Outcome::Done);
    assert_eq!(bench.sends().len(), 1);
}

#[test]
fn a_dead_peer_gets_one_probe_per_delay_however_much_is_queued() {
    let mut bench = Bench::new(10, Some(backoff()));
    (0..100).for_each(|n| bench.push(run(n..n + 1)));
    let mut attempts = 0;
    for second in 0..60 {
        for (id, _) in bench.at(second * 1000).sends() {
            attempts += 1;
            bench.finish(id, busy());
        }
    }
    assert!((11..=25).contains(&attempts), "{attempts} attempts");
    let revived = bench.at(70_000).send();
    bench.finish(revived.0, Outcome::Done);
    assert_eq!(bench.sends().len(), 10, "all consumers work again");
}

#[test]
fn the_fate_of_attempts_that_began_before_the_failure_is_old_news() {
    let mut bench = Bench::new(3, Some(backoff()));
    (0..4).for_each(|n| bench.push(run(n..n + 1)));
    assert_eq!(bench.sends().len(), 3);
    (0..3).for_each(|id| bench.finish(id, busy()));
    assert_eq!(
        bench.send().1,
        [3],
        "three failures of one moment count once: a probe follows at once"
    );
}

#[test]
fn partial_success_is_booked_and_not_repeated() {
    let mut bench = Bench::new(1, Some(backoff()));
    bench.push(run(0..5));
    let (id, _) = bench.send();
    let loss = Loss {
        items: 2,
        reason: Reason::Rejected,
        why: "bad name".into(),
    };
    bench.finish(id, Outcome::Partly(loss));
    assert!(bench.sends().is_empty());
    assert_eq!((bench.delivered, &bench.dropped), (3, &[("rejected", 2)].into()));
}

#[test]
fn a_peer_cannot_reject_more_than_it_was_sent() {
    let mut bench = Bench::new(1, None);
    bench.push(run(0..5));
    let (id, _) = bench.send();
    let loss = Loss {
        items: usize::MAX,
        reason: Reason::Rejected,
        why: String::new(),
    };
    bench.finish(id, Outcome::Partly(loss));
    bench.sends();
    assert_eq!((bench.delivered, &bench.dropped), (0, &[("rejected", 5)].into()));
}

#[test]
fn too_large_is_halved_until_it_passes_and_one_item_too_large_is_dropped() {
    let mut bench = Bench::new(1, Some(backoff()));
    bench.push(run(0..8));
    let mut passed = Vec::new();
    while let Some((id, items)) = bench.sends().pop() {
        let outcome = match items.len() > 2 || items.contains(&5) {
            true => Outcome::TooLarge { why: "413".into() },
            false => Outcome::Done,
        };
        if outcome == Outcome::Done {
            passed.push(items);
        }
        bench.finish(id, outcome);
    }
    assert_eq!(passed, [vec![0, 1], vec![2, 3], vec![4], vec![6, 7]]);
    assert_eq!((bench.delivered, &bench.dropped), (7, &[("rejected", 1)].into()));
}

#[test]
fn c1_no_request_is_larger_than_the_limit_and_what_is_by_itself_is_dropped_and_counted() {
    // An item has ten bytes here.
    let mut bench = Bench::new(9, None);
    bench.machine.rules.max_bytes = 35;
    bench.push(run(0..7));
    let sends = bench.sends();
    assert!(sends.iter().all(|(_, items)| items.len() <= 3), "{sends:?}");
    sends
        .into_iter()
        .for_each(|(id, _)| bench.finish(id, Outcome::Done));
    bench.sends();
    assert_eq!(bench.delivered, 7);
    bench.machine.rules.max_bytes = 9;
    bench.push(run(0..2));
    assert!(bench.sends().is_empty());
    assert_eq!(bench.dropped, [("limit", 2)].into());
    assert!(bench.machine.is_empty());
}

/// How many attempts it takes a peer that refuses these items to get all others.
fn refused(bench: &mut Bench, items: std::ops::Range<u32>, bad: impl Fn(u32) -> bool) -> usize {
    bench.push(run(items));
    let mut attempts = 0;
    loop {
        let sends = bench.sends();
        if sends.is_empty() {
            return attempts;
        }
        for (id, items) in sends {
            attempts += 1;
            let outcome = match items.iter().any(|item| bad(*item)) {
                true => Outcome::Refused { why: "400".into() },
                false => Outcome::Done,
            };
            bench.finish(id, outcome);
        }
    }
}

#[test]
fn a_refused_item_costs_itself_and_not_the_batch_it_came_in() {
    let mut bench = Bench::new(2, None);
    let attempts = refused(&mut bench, 0..8192, |item| item == 5000);
    assert_eq!((bench.delivered, bench.dropped["rejected"]), (8191, 1));
    assert_eq!(attempts, 1 + 2 * 13, "two a level");
}

#[test]
fn a_peer_that_refuses_everything_is_not_asked_for_every_item() {
    let mut bench = Bench::new(2, None);
    let attempts = refused(&mut bench, 0..8192, |_| true);
    assert_eq!((bench.delivered, bench.dropped["rejected"]), (0, 8192));
    assert_eq!(attempts, 1 + MAX_SEARCH as usize);
    assert!(bench.machine.is_empty());
}

#[test]
fn a_drain_flushes_at_once_and_drops_what_can_only_come_too_late() {
    let mut bench = Bench::new(9, Some(backoff()));
    bench.push(batched(0..3, 10, 0));
    bench.push(run(3..4));
    let (id, _) = bench.send();
    bench.finish(id, busy());
    bench.machine.drain(bench.start + ms(500));
    bench.push(batched(4..5, 10, 0));
    let mut sends = bench.sends();
    assert_eq!(sends.len(), 3, "{sends:?}");
    let last = sends.pop().unwrap();
    bench.finish(last.0, busy());
    sends
        .into_iter()
        .for_each(|(id, _)| bench.finish(id, Outcome::Done));
    bench.sends();
    assert!(bench.machine.is_empty());
    assert_eq!(bench.delivered + bench.dropped["shutdown"], 5);
}

#[test]
fn a_drain_towards_a_dead_peer_ends_early() {
    let mut bench = Bench::new(2, Some(backoff()));
    (0..100).for_each(|n| bench.push(run(n..n + 1)));
    bench.machine.drain(bench.start + ms(900));
    for _ in 0..3 {
        for (id, _) in bench.sends() {
            bench.finish(id, busy());
        }
    }
    bench.sends();
    assert!(
        bench.machine.is_empty(),
        "the next probe would come after the deadline"
    );
    assert_eq!(bench.dropped, [("shutdown", 100)].into());
}

#[test]
fn an_unknown_attempt_is_ignored() {
    let mut bench = Bench::new(1, None);
    bench.push(run(0..1));
    let (id, _) = bench.send();
    bench.machine.abandon();
    bench.finish(id, Outcome::Done);
    bench.sends();
    assert_eq!((bench.delivered, &bench.dropped), (0, &[("shutdown", 1)].into()));
}

#[derive(Clone, Debug)]
enum Step {
    Push {
        lane: u8,
        items: u32,
        batch: Option<(usize, usize)>,
    },
    Finish {
        which: usize,
        how: u8,
    },
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let sizes = prop::option::of((1..20usize, 0..20usize));
    let step = prop_oneof![
        3 => (0..2u8, 1..15u32, sizes).prop_map(|(lane, items, batch)| Step::Push { lane, items, batch }),
        3 => (any::<usize>(), 0..9u8).prop_map(|(which, how)| Step::Finish { which, how }),
        1 => (0..5000u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..120)
}

fn outcome(how: u8, items: usize) -> Outcome {
    match how {
        0 => Outcome::permanent("no"),
        1 => busy(),
        2 => busy_for(3000),
        3 => Outcome::TooLarge { why: String::new() },
        4 => Outcome::Refused { why: String::new() },
        5 => Outcome::Partly(Loss {
            items: items / 2,
            reason: Reason::Invalid,
            why: String::new(),
        }),
        _ => Outcome::Done,
    }
}

/// A push of `step`, with items numbered from `next`; equal lanes have equal wishes.
fn load(lane: u8, items: std::ops::Range<u32>, batch: Option<(usize, usize)>) -> Run {
    let (min, max) = batch.unwrap_or((1, 0));
    let load = match batch {
        Some(_) => batched(items, min, if max < min { 0 } else { max }),
        None => run(items),
    };
    Run { lane, ..load }
}

proptest! {
    /// Conservation: what went in is delivered, dropped or held at every step, and after a drain nothing is held but
    /// what is kept;
    /// no attempt carries an item that another attempt under way carries too.
    #[test]
    fn in_is_out_plus_dropped_plus_held(steps in steps(), consumers in 1..4usize, lane_batch in prop::option::of((1..20usize, 0..20usize)), keeps: bool) {
        let mut bench = Bench::new(consumers, Some(backoff()));
        bench.machine.rules.keeps = keeps;
        let mut flying: Vec<(u64, Vec<u32>)> = Vec::new();
        let (mut next, mut clock) = (0u32, 0u64);
        for step in steps {
            match step {
                Step::Push { lane, items, batch } => {
                    let batch = if lane == 0 { None } else { batch.and(lane_batch) };
                    bench.push(load(lane + 2 * u8::from(batch.is_some()), next..next + items, batch));
                    next += items;
                }
                Step::Finish { which, how } if !flying.is_empty() => {
                    let (id, items) = flying.swap_remove(which % flying.len());
                    bench.finish(id, outcome(how, items.len()));
                }
                Step::Finish { .. } => {}
                Step::Pass(ms) => {
                    clock += ms;
                    bench.at(clock);
                }
            }
            flying.extend(bench.sends());
            prop_assert!(flying.len() <= consumers);
            let mut in_flight: Vec<_> = flying.iter().flat_map(|(_, items)| items.clone()).collect();
            let count = in_flight.len();
            in_flight.sort_unstable();
            in_flight.dedup();
            prop_assert_eq!(in_flight.len(), count);
            let settled = bench.delivered + bench.dropped.values().sum::<usize>();
            prop_assert_eq!(settled + bench.machine.held_items(), next as usize);
        }
        bench.machine.drain(bench.now + ms(10_000));
        for second in 0..12 {
            clock += 1000;
            for (n, (id, items)) in std::mem::take(&mut flying).into_iter().enumerate() {
                bench.finish(id, outcome((n % 8) as u8, items.len()));
            }
            flying.extend(bench.at(clock).sends());
            prop_assert!(second < 11 || flying.len() <= consumers);
        }
        bench.machine.abandon();
        bench.sends();
        prop_assert!(bench.machine.is_empty());
        let dropped = bench.dropped.values().sum::<usize>();
        prop_assert_eq!(bench.delivered + dropped + bench.kept.len(), next as usize);
        let nothing_wrong = if keeps { !bench.dropped.contains_key("shutdown") } else { bench.kept.is_empty() };
        prop_assert!(nothing_wrong);
        let kept = bench.kept.len();
        bench.kept.sort_unstable();
        bench.kept.dedup();
        prop_assert_eq!(bench.kept.len(), kept, "nothing is kept twice");
    }

    /// `wake_at` tells the truth: when it names no earlier time, nothing happens before it.
    #[test]
    fn nothing_happens_before_the_named_time(items in 1..30u32, min in 1..20usize, wait_ms in 0..10_000u64) {
        let mut bench = Bench::new(1, Some(backoff()));
        bench.push(batched(0..items, min, 0));
        if let Some((id, _)) = bench.sends().pop() {
            bench.finish(id, busy_for(wait_ms));
            bench.sends();
        }
        let wake = bench.wake_ms().expect("something is held");
        prop_assert!(bench.at(wake.saturating_sub(1)).sends().is_empty() || wake == 0);
        prop_assert_eq!(bench.at(wake).sends().len(), 1);
    }
}

#[test]
fn with_storage_a_drain_keeps_what_the_peer_does_not_take_at_once() {
    let mut bench = Bench::new(1, Some(backoff()));
    bench.machine.rules.keeps = true;
    (0..4).for_each(|n| bench.push(run(n..n + 1)));
    bench.push(batched(4..6, 10, 0));
    let (first, _) = bench.send();
    bench.finish(first, busy());
    let (second, items) = bench.send();
    bench.machine.drain(bench.now + ms(60_000));
    assert!(bench.sends().is_empty());
    assert_eq!(
        (&*items, &*bench.kept),
        (&[1][..], &[0][..]),
        "what waits is kept, what flies is waited for"
    );
    bench.finish(second, Outcome::Done);
    let mut attempts = 0;
    while let Some((id, _)) = bench.sends().pop() {
        bench.finish(id, busy());
        attempts += 1;
    }
    assert!(
        bench.machine.is_empty() && attempts <= 3,
        "nothing is tried twice"
    );
    bench.kept.sort_unstable();
    assert_eq!(bench.kept, [0, 2, 3, 4, 5]);
    assert_eq!((bench.delivered, bench.dropped.len()), (1, 0));
}

#[test]
fn with_storage_what_is_given_up_is_kept() {
    let mut bench = Bench::new(1, Some(backoff()));
    bench.machine.rules.keeps = true;
    (0..3).for_each(|n| bench.push(run(n..n + 1)));
    bench.send();
    bench.machine.abandon();
    bench.sends();
    bench.kept.sort_unstable();
    assert_eq!(bench.kept, [0, 1, 2]);
}

#[test]
fn a_request_of_too_many_items_goes_in_as_few_pieces_as_possible() {
    let mut bench = Bench::new(9, None);
    bench.machine.rules.max_items = 10;
    bench.push(run(0..25));
    let sizes: Vec<_> = bench.sends().iter().map(|(_, items)| items.len()).collect();
    assert_eq!(sizes, [10, 10, 5]);
}

#[test]
fn an_hour_of_outage_holds_no_more_than_the_queue_and_loses_nothing_uncounted() {
    const ROOM: usize = 100;
    let shared = Arc::new(crate::component::Shared::default());
    let room = Room::new(Sizer::Requests, ROOM, 1 << 20, shared.clone());
    let mut bench = Bench::new(4, Some(backoff()));
    let (mut pushed, mut refused, mut flying) = (0, 0, Vec::new());
    for tick in 0..36_000 {
        bench.at(tick * 100);
        let batch = opaque(Signal::Logs, b"0123456789", 1);
        match room.reserve(&batch) {
            Ok(mut reservation) => {
                reservation.fit(&batch);
                let charge = [Arc::new(reservation)].into_iter().collect();
                bench.machine.enqueue(bench.now, run(pushed..pushed + 1), charge);
                pushed += 1;
            }
            Err(_) => refused += 1,
        }
        for (id, _) in std::mem::take(&mut flying) {
            bench.finish(id, busy());
        }
        flying = bench.sends();
        let held = bench.machine.held_items();
        assert!(held <= ROOM && shared.memory.held_bytes() <= ROOM * 10, "{held}");
        assert_eq!(held + bench.dropped.values().sum::<usize>(), pushed as usize);
    }
    assert!(refused > 0 && bench.dropped["retries_exhausted"] > 0);
    // The peer is back.
    for second in 0..60 {
        for (id, _) in std::mem::take(&mut flying) {
            bench.finish(id, Outcome::Done);
        }
        flying = bench.at(3_600_000 + second * 1000).sends();
    }
    assert!(bench.machine.is_empty());
    assert_eq!(shared.memory.held_bytes(), 0);
    assert_eq!(
        bench.delivered + bench.dropped["retries_exhausted"],
        pushed as usize
    );
}
