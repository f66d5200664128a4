// SPDX-License-Identifier: Apache-2.0

//! Nothing is lost and nothing happens too early, whatever the peer does.

use std::collections::HashSet;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Push {
        batch_key: u8,
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
        3 => (0..2u8, 1..15u32, sizes).prop_map(|(batch_key, items, batch)| Step::Push { batch_key, items, batch }),
        3 => (any::<usize>(), 0..12u8).prop_map(|(which, how)| Step::Finish { which, how }),
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
        7 => Outcome::TimedOut { why: String::new() },
        8 => Outcome::Accepted { note: String::new() },
        9 | 10 => Outcome::Denied {
            retries: how == 9,
            after: None,
            why: String::new(),
        },
        _ => Outcome::Done,
    }
}

/// A push of `step`, with items numbered from `next`; equal batch keys have equal wishes.
fn load(batch_key: u8, items: std::ops::Range<u32>, batch: Option<(usize, usize)>) -> Run {
    let (min, max) = batch.unwrap_or((1, 0));
    let load = match batch {
        Some(_) => batched(items, min, if max < min { 0 } else { max }),
        None => run(items),
    };
    Run { batch_key, ..load }
}

proptest! {
    /// Conservation: every item that went in is delivered, dropped or held at every step, and after a drain nothing is
    /// held but what is kept; no attempt carries an item that another attempt under way carries too.
    #[test]
    fn in_is_out_plus_dropped_plus_held(steps in steps(), consumers in 1..4usize, key_batch in prop::option::of((1..20usize, 0..20usize)), keeps: bool) {
        let mut bench = Bench::new(consumers, Some(backoff()));
        bench.machine.rules.keeps = keeps;
        let mut flying: Vec<(u64, Vec<u32>)> = Vec::new();
        let (mut next, mut clock) = (0u32, 0u64);
        for step in steps {
            match step {
                Step::Push { batch_key, items, batch } => {
                    let batch = if batch_key == 0 { None } else { batch.and(key_batch) };
                    bench.push(load(batch_key + 2 * u8::from(batch.is_some()), next..next + items, batch));
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
                bench.finish(id, outcome((n % 11) as u8, items.len()));
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

    /// A push gets its answer when the last of its items is settled, not before and not later. The answer is a failure
    /// only if one of its own items failed. This holds however pushes are joined and split.
    #[test]
    fn a_push_is_answered_with_its_own_last_item(
        pushes in prop::collection::vec((1..15u32, 0..600u64, any::<usize>(), 0..4u8), 1..40),
        min in 1..20usize,
        more in 0..10usize,
        max_items in prop::option::of(1..10usize),
    ) {
        let forever = Backoff { max_elapsed: None, ..backoff() };
        let mut bench = Bench::new(3, Some(forever));
        bench.machine.rules.max_items = max_items.unwrap_or(usize::MAX);
        let capacity = QueueCapacity::new(Sizer::Requests, usize::MAX, usize::MAX, Default::default());
        let mut waiting = Vec::new();
        let mut flying: Vec<(u64, Vec<u32>)> = Vec::new();
        let (mut settled, mut failed) = (HashSet::new(), HashSet::new());
        let (mut next, mut clock) = (0, 0);
        // After the last push everything else is answered.
        let end = (0..400).map(|_| (0, 1000, 0, 0));
        for (items, pass, which, how) in pushes.into_iter().chain(end) {
            if items > 0 {
                let mut permit = capacity.reserve(&opaque(Signal::Logs, b"x", 1)).unwrap();
                let (answer, answered) = tokio::sync::oneshot::channel();
                permit.answer_to(answer);
                let permits = [Arc::new(permit)].into_iter().collect();
                bench.machine.enqueue(bench.now, batched(next..next + items, min, min + more), permits);
                waiting.push((next..next + items, answered, None));
                next += items;
            }
            flying.extend(bench.sends());
            if !flying.is_empty() {
                let (id, items) = flying.swap_remove(which % flying.len());
                let outcome = match how {
                    0 | 1 => Outcome::Done,
                    2 => Outcome::permanent("no"),
                    _ => busy(),
                };
                if how < 3 {
                    settled.extend(items.iter().copied());
                }
                if how == 2 {
                    failed.extend(items);
                }
                bench.finish(id, outcome);
            }
            clock += pass;
            flying.extend(bench.at(clock).sends());
            for (items, answered, answer) in &mut waiting {
                if answer.is_none() {
                    *answer = answered.try_recv().ok();
                }
                let is_settled = items.clone().all(|item| settled.contains(&item));
                prop_assert_eq!(answer.is_some(), is_settled);
                if let Some(answer) = answer {
                    prop_assert_eq!(answer.is_err(), items.clone().any(|item| failed.contains(&item)));
                }
            }
        }
        prop_assert_eq!(settled.len(), next as usize, "all of it comes to its end");
        prop_assert_eq!(capacity.used(), 0);
    }
}
