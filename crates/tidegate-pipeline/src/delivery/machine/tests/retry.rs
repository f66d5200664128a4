// SPDX-License-Identifier: Apache-2.0

//! Back-off, throttling, and an outage.

use super::*;

#[test]
fn retries_back_off_and_hold_no_consumer() {
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
        // The success of another request keeps the circuit breaker closed.
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
fn a_delay_that_the_peer_asks_for_silences_the_whole_destination() {
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
fn an_hour_of_outage_holds_at_most_the_queue_and_counts_every_loss() {
    const CAPACITY: usize = 100;
    let shared = Arc::new(crate::component::Shared::default());
    let capacity = QueueCapacity::new(Sizer::Requests, CAPACITY, 1 << 20, shared.clone());
    let mut bench = Bench::new(4, Some(backoff()));
    let (mut pushed, mut refused, mut flying) = (0, 0, Vec::new());
    for tick in 0..36_000 {
        bench.at(tick * 100);
        let batch = opaque(Signal::Logs, b"0123456789", 1);
        match capacity.reserve(&batch) {
            Ok(mut permit) => {
                permit.fit(&batch);
                let permits = [Arc::new(permit)].into_iter().collect();
                bench.machine.enqueue(bench.now, run(pushed..pushed + 1), permits);
                pushed += 1;
            }
            Err(_) => refused += 1,
        }
        for (id, _) in std::mem::take(&mut flying) {
            bench.finish(id, busy());
        }
        flying = bench.sends();
        let held = bench.machine.held_items();
        assert!(
            held <= CAPACITY && shared.memory.reserved_bytes() <= CAPACITY * 10,
            "{held}"
        );
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
    assert_eq!(shared.memory.reserved_bytes(), 0);
    assert_eq!(
        bench.delivered + bench.dropped["retries_exhausted"],
        pushed as usize
    );
}
