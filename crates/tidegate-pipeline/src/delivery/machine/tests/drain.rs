// SPDX-License-Identifier: Apache-2.0

//! The end: items that are sent, dropped or kept.

use super::*;

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

/// Answers all attempts of this moment, until none is left.
fn answer_all(bench: &mut Bench, outcome: fn() -> Outcome) {
    loop {
        let sends = bench.sends();
        if sends.is_empty() {
            return;
        }
        for (id, _) in sends {
            bench.finish(id, outcome());
        }
    }
}

/// A drain of 6.5 s towards a peer that is busy for 4 s. By the schedule, the next probe would come after 7 s.
fn busy_until_the_last_attempts() -> Bench {
    let mut bench = Bench::new(2, Some(backoff()));
    (0..3).for_each(|n| bench.push(run(n..n + 1)));
    bench.machine.drain(bench.start + ms(6_500));
    for second in 0..5 {
        answer_all(bench.at(second * 1000), busy);
    }
    assert_eq!(bench.wake_ms(), Some(4500));
    assert!(bench.at(4499).sends().is_empty());
    assert!(bench.dropped.is_empty(), "{:?}", bench.dropped);
    bench.at(4500);
    bench
}

#[test]
fn what_would_wait_beyond_a_drain_has_one_last_attempt_before_its_end() {
    let mut bench = busy_until_the_last_attempts();
    answer_all(&mut bench, || Outcome::Done);
    assert!(bench.machine.is_empty());
    assert_eq!((bench.delivered, bench.dropped.len()), (3, 0));
}

#[test]
fn a_drain_ends_when_the_last_attempt_fails() {
    let mut bench = busy_until_the_last_attempts();
    let (id, _) = bench.send();
    bench.finish(id, busy());
    bench.sends();
    assert!(bench.machine.is_empty());
    assert_eq!(bench.dropped, [("shutdown", 3)].into());
}

#[test]
fn a_delay_that_the_peer_asks_for_is_not_shortened_by_a_drain() {
    let mut bench = Bench::new(1, Some(backoff()));
    bench.push(run(0..1));
    bench.machine.drain(bench.start + ms(7_000));
    let (id, _) = bench.send();
    bench.finish(id, busy_for(8_000));
    bench.sends();
    assert!(bench.machine.is_empty());
    assert_eq!(bench.dropped, [("shutdown", 1)].into());
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
