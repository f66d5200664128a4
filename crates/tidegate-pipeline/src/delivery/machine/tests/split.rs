// SPDX-License-Identifier: Apache-2.0

//! Requests that are too large, or refused in part.

use super::*;

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
        let outcome = if items.len() > 2 || items.contains(&5) {
            Outcome::TooLarge { why: "413".into() }
        } else {
            Outcome::Done
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
fn no_request_exceeds_the_limit_and_a_larger_item_is_dropped_and_counted() {
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
            let outcome = if items.iter().any(|item| bad(*item)) {
                Outcome::Refused { why: "400".into() }
            } else {
                Outcome::Done
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
fn a_request_of_too_many_items_goes_in_as_few_pieces_as_possible() {
    let mut bench = Bench::new(9, None);
    bench.machine.rules.max_items = 10;
    bench.push(run(0..25));
    let sizes: Vec<_> = bench.sends().iter().map(|(_, items)| items.len()).collect();
    assert_eq!(sizes, [10, 10, 5]);
}
