// SPDX-License-Identifier: Apache-2.0

//! When what is gathered goes out.

use super::*;
use crate::batch::BatchMetrics;

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
fn no_more_attempts_than_consumers_and_first_in_first_out() {
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
fn requests_are_filled_by_splitting_what_comes() {
    let mut bench = Bench::new(99, None);
    let mut sent = Vec::new();
    for n in 0..10 {
        bench.push(batched(n * 60..(n + 1) * 60, 100, 100));
        sent.extend(bench.sends().into_iter().map(|(_, items)| items));
    }
    assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [100; 6]);
    assert_eq!(sent.concat(), (0..600).collect::<Vec<_>>());
    assert_eq!(bench.wake_ms(), None, "nothing is left");

    for n in 0..3 {
        bench.push(batched(n * 10..(n + 1) * 10, 25, 25));
    }
    assert_eq!(bench.send().1.len(), 25);
    assert!(bench.at(199).sends().is_empty());
    assert_eq!(bench.at(200).send().1.len(), 5);
}

#[test]
fn loads_of_different_lanes_are_not_joined() {
    let mut bench = Bench::new(9, None);
    bench.push(batched(0..1, 10, 0));
    bench.push(Run {
        batch_key: 1,
        ..batched(1..2, 10, 0)
    });
    assert_eq!(bench.at(200).sends().len(), 2);
}

#[test]
fn the_processor_counts_each_request_once_by_what_sent_it() {
    let metrics = Arc::new(BatchMetrics {
        full: metrics::Counter::noop(),
        late: metrics::Counter::noop(),
        items: metrics::Histogram::noop(),
        bytes: None,
    });
    let counted = |items, min_size, max_size, timeout_ms| {
        let mut load = batched(items, min_size, max_size);
        let batching = load.batching.as_mut().unwrap();
        (batching.metrics, batching.timeout) = (Some(metrics.clone()), ms(timeout_ms));
        load
    };
    let mut bench = Bench::new(9, Some(backoff()));
    bench.push(counted(0..25, 10, 10, 200));
    let sent = bench.sends();
    assert_eq!(bench.gathered, [(Trigger::Size, 10), (Trigger::Size, 10)]);
    bench.finish(sent[0].0, busy());
    bench.at(200).sends();
    assert_eq!(bench.gathered[2..], [(Trigger::Timeout, 5)]);
    bench.at(5000).sends();
    assert_eq!(bench.gathered.len(), 3, "a retry is not another request");
    bench.push(counted(25..26, 10, 10, 0));
    bench.sends();
    assert_eq!(bench.gathered[3..], [(Trigger::Size, 1)], "nothing to wait for");
    bench.push(counted(26..28, 10, 10, 200));
    let deadline = bench.now + ms(1000);
    bench.machine.drain(deadline);
    bench.sends();
    assert_eq!(
        bench.gathered[4..],
        [(Trigger::Timeout, 2)],
        "the stop does not wait"
    );
}
