// SPDX-License-Identifier: Apache-2.0

//! In order: nothing overtakes, whatever the peer does.

use super::*;
use crate::delivery::outcome::{Left as Rest, Parts};

/// Items of one series are those with the same remainder; parts of a request are made by series.
const SERIES: u32 = 5;

const TOGETHER: Together = Together {
    items: 12,
    bytes: 1_000,
};

fn in_order(retry: Option<Backoff>) -> Bench {
    let mut bench = Bench::new(3, retry);
    (bench.machine.rules.in_order, bench.machine.rules.together) = (true, Some(TOGETHER));
    bench
}

/// The loads that are sent now.
fn loads(bench: &mut Bench) -> Vec<(u64, Run)> {
    let mut sends = Vec::new();
    while let Some(action) = bench.machine.poll(bench.now) {
        match action {
            Action::Send { id, load, .. } => sends.push((id, load)),
            Action::Delivered { items, .. } => bench.delivered += items,
            Action::Dropped { loss, .. } => {
                *bench.dropped.entry(loss.reason.name()).or_default() += loss.items;
            }
            Action::Kept { load, .. } => bench.kept.extend(load.rest()),
            Action::Gathered { .. }
            | Action::Retrying { .. }
            | Action::Noted { .. }
            | Action::Denied { .. } => {}
        }
    }
    sends
}

/// The answer of a peer to a request: it accepts the series of `taken` and refuses those of `refused`. The rest has to
/// come again.
fn answer(load: &Run, taken: u32, refused: u32, log: &mut Vec<u32>) -> Outcome {
    let of = |mask: u32, item: u32| mask >> (item % SERIES) & 1 == 1;
    let rest = load.rest();
    let lost = rest.iter().filter(|item| of(refused, **item)).count();
    let mut left = rest;
    left.retain(|item| {
        let goes_in = of(taken, *item) && !of(refused, *item);
        log.extend(goes_in.then_some(*item));
        !goes_in && !of(refused, *item)
    });
    let items = left.len();
    *load.left.lock() = Some(left);
    let loss = Loss {
        items: lost,
        reason: Reason::Rejected,
        why: "bad".into(),
    };
    Outcome::Parts(Parts {
        denied: None,
        losses: vec![loss],
        left: (items > 0).then(|| Rest {
            items,
            after: None,
            why: "busy".into(),
        }),
    })
}

#[derive(Clone, Debug)]
enum Step {
    Push(u8, u32),
    Answer { taken: u32, refused: u32 },
    Other(u8),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let masks = (0..1u32 << SERIES, 0..1u32 << SERIES);
    let step = prop_oneof![
        3 => (0..3u8, 1..15u32).prop_map(|(kind, items)| Step::Push(kind, items)),
        3 => masks.prop_map(|(taken, refused)| Step::Answer { taken, refused: refused & (taken >> 1) }),
        1 => (0..5u8).prop_map(Step::Other),
        2 => (0..9000u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..150)
}

proptest! {
    /// Items of a series arrive in the order in which they were pushed, each at most once; nothing is lost uncounted;
    /// items that are kept for the next run come after all delivered ones.
    #[test]
    fn items_of_a_series_arrive_in_order_and_once(steps in steps(), keeps: bool) {
        let mut bench = in_order(Some(Backoff { max_elapsed: Some(ms(20_000)), ..backoff() }));
        bench.machine.rules.keeps = keeps;
        let (mut flying, mut log) = (Vec::new(), Vec::new());
        let (mut next, mut clock) = (0u32, 0u64);
        for step in steps {
            match step {
                Step::Push(kind, items) => {
                    let range = next..next + items;
                    // One batch key: one sender's loads are joined by size, by time, or not at all in turn.
                    bench.push(if kind == 2 { batched(range, 4, 9) } else { run(range) });
                    if kind == 2 {
                        clock += 201;
                        bench.at(clock);
                    }
                    next += items;
                }
                Step::Answer { taken, refused } => {
                    if let Some((id, load)) = flying.pop() {
                        let outcome = answer(&load, taken, refused, &mut log);
                        bench.finish(id, outcome);
                    }
                }
                Step::Other(how) => {
                    if let Some((id, load)) = flying.pop() {
                        let load: Run = load;
                        let whole = || load.rest();
                        let outcome = match how {
                            0 => Outcome::permanent("no"),
                            1 => busy_for(3000),
                            2 => Outcome::TooLarge { why: String::new() },
                            3 => busy(),
                            _ => {
                                log.extend(whole());
                                Outcome::Done
                            }
                        };
                        // A load of which a part is settled is never cut.
                        let settled = load.left.lock().is_some();
                        bench.finish(id, if settled && how == 2 { busy() } else { outcome });
                    }
                }
                Step::Pass(ms) => {
                    clock += ms;
                    bench.at(clock);
                }
            }
            flying.extend(loads(&mut bench));
            prop_assert!(flying.len() <= 1, "one at a time");
            let settled = bench.delivered + bench.dropped.values().sum::<usize>();
            prop_assert_eq!(settled + bench.machine.held_items(), next as usize);
        }
        bench.machine.drain(bench.now + ms(5_000));
        for second in 0..12 {
            if let Some((id, load)) = flying.pop() {
                let outcome = answer(&load, 0b10110 >> (second % 3), 0, &mut log);
                bench.finish(id, outcome);
            }
            clock += 700;
            flying.extend(loads(bench.at(clock)));
        }
        bench.machine.abandon();
        loads(&mut bench);
        prop_assert!(bench.machine.is_empty());
        for series in 0..SERIES {
            let of_series = |items: &[u32]| items.iter().copied().filter(|item| item % SERIES == series).collect::<Vec<_>>();
            let (arrived, kept) = (of_series(&log), of_series(&bench.kept));
            prop_assert!(arrived.is_sorted_by(|a, b| a < b), "{arrived:?}");
            prop_assert!(kept.is_sorted_by(|a, b| a < b), "{kept:?}");
            prop_assert!(arrived.last() < kept.first() || kept.is_empty(), "{arrived:?} {kept:?}");
        }
        let dropped = bench.dropped.values().sum::<usize>();
        prop_assert_eq!(bench.delivered, log.len());
        prop_assert_eq!(bench.delivered + dropped + bench.kept.len(), next as usize);
    }
}

#[test]
fn what_is_ready_behind_a_request_goes_with_it() {
    let mut bench = in_order(Some(backoff()));
    bench.push(run(0..2));
    let (first, _) = bench.send();
    (1..8).for_each(|n| bench.push(run(n * 2..n * 2 + 2)));
    assert!(bench.sends().is_empty(), "one at a time");
    bench.finish(first, Outcome::Done);
    let (second, items) = bench.send();
    assert_eq!(items, (2..14).collect::<Vec<_>>(), "at most twelve");
    bench.finish(second, Outcome::Done);
    assert_eq!(bench.send().1, [14, 15]);
}

#[test]
fn waiting_batches_go_together_without_batch_settings() {
    let mut bench = Bench::new(2, Some(backoff()));
    bench.machine.rules.together = Some(TOGETHER);
    bench.push(run(0..2));
    let (first, _) = bench.send();
    bench.push(run(2..4));
    assert_eq!(
        bench.send().1,
        [2, 3],
        "as it came, while there is an attempt for it"
    );
    (2..5).for_each(|n| bench.push(run(n * 2..n * 2 + 2)));
    bench.push(batched(10..11, 1, 0));
    assert!(bench.sends().is_empty());
    bench.finish(first, Outcome::Done);
    let (second, items) = bench.send();
    assert_eq!(items, [4, 5, 6, 7, 8, 9]);
    bench.finish(second, Outcome::Done);
    assert_eq!(bench.send().1, [10], "of the size that was asked for");
}

#[test]
fn less_goes_together_after_a_timeout_and_more_again_with_every_answer() {
    let mut bench = Bench::new(1, Some(backoff()));
    bench.machine.rules.together = Some(Together {
        items: 1_000,
        bytes: 1 << 20,
    });
    (0..400).for_each(|n| bench.push(run(n * 10..n * 10 + 10)));
    let (first, items) = bench.send();
    assert_eq!(items.len(), 1_000);
    bench.finish(first, Outcome::TimedOut { why: "late".into() });
    let (second, items) = bench.send();
    assert_eq!(items.len(), 500, "half of what was late");
    bench.finish(second, Outcome::Done);
    let (third, items) = bench.send();
    assert_eq!(items.len(), 620, "an eighth more or so, in whole loads");
    bench.finish(third, Outcome::Done);
    let (fourth, items) = bench.at(1000).send();
    assert_eq!(items.len(), 1_000, "what was late comes again as it was");
    bench.finish(fourth, busy());
    assert_eq!(bench.send().1.len(), 740, "who is busy has answered");
}

#[test]
fn what_waits_for_its_retry_is_not_overtaken() {
    let mut bench = in_order(Some(backoff()));
    bench.push(run(0..2));
    let (first, _) = bench.send();
    bench.push(run(2..4));
    bench.finish(first, busy());
    assert!(bench.sends().is_empty());
    assert_eq!(bench.wake_ms(), Some(1000));
    let (again, items) = bench.at(1000).send();
    assert_eq!(items, [0, 1], "a retry is what was sent, not more");
    bench.finish(again, Outcome::Done);
    assert_eq!(bench.send().1, [2, 3]);
}

#[test]
fn lanes_are_not_joined() {
    let mut bench = in_order(None);
    bench.push(run(0..1));
    bench.push(Run {
        batch_key: 1,
        ..run(1..2)
    });
    let (first, items) = bench.send();
    assert_eq!(items, [0]);
    bench.finish(first, Outcome::Done);
    assert_eq!(bench.send().1, [1]);
}

#[test]
fn what_a_former_run_may_have_sent_goes_as_it_went() {
    let alone = |load: Run| Run { alone: true, ..load };
    let mut bench = in_order(None);
    bench.push(alone(run(0..1)));
    bench.push(alone(batched(1..2, 10, 0)));
    bench.push(run(2..3));
    bench.push(run(3..4));
    for expected in [vec![0], vec![1], vec![2, 3]] {
        let (id, items) = bench.send();
        assert_eq!(items, expected);
        bench.finish(id, Outcome::Done);
    }
}
