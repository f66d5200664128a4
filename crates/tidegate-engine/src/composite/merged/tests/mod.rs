// SPDX-License-Identifier: Apache-2.0

//! Merged windows compared with the list of all observations of all producers.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod limits;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::composite::{Composite, Function};
use crate::{Added, AttributeFilter, Distribution, Feed, FeedKind, Grouping, OnStale, Pattern};

const SECOND: u64 = 1_000_000_000;
const NOW: UnixNanos = 1_700_000_000 * SECOND;
const LENGTH: u64 = SECOND;
const WINDOW: u64 = 10 * SECOND;

pub(in crate::composite) fn declare(function: Function) -> Declaration {
    Declaration {
        name: "c".into(),
        description: "".into(),
        metric: Pattern::parse("x").unwrap(),
        attributes: AttributeFilter::default(),
        expression: None,
        function,
        across: None,
        window: Duration::from_nanos(WINDOW),
        quantiles: [0.5, 0.99].into(),
        on_stale: OnStale::Error,
        grouping: Grouping::by(["model"]),
        max_groups: 2,
        lease: None,
    }
}

fn merged(function: Function) -> MergedWindows {
    MergedWindows::new(declare(function), WindowMergeLimits::default(), Arc::default()).unwrap()
}

fn run(producer: u8, epoch: u64) -> ProducerRun {
    let mut id = ProducerId::default();
    id.0[0] = producer;
    ProducerRun { producer: id, epoch }
}

fn group(model: &str) -> Attributes {
    [("model", model)].into_iter().collect()
}

/// A producer that observes.
struct Observer {
    composite: Composite,
    feed: Feed,
}

impl Observer {
    fn new(now: UnixNanos) -> Self {
        let composite = Composite::new(declare(Function::Avg));
        let feed = composite.feed("x", &group("m"), FeedKind::Observations, now);
        Self { composite, feed }
    }

    fn observe(&self, now: UnixNanos, value: f64) {
        let added = Added {
            count: 1.0,
            sum: value,
            min: value,
            max: value,
            last: value,
            distribution: Distribution::Last,
        };
        self.composite.add(&self.feed, now, &added);
    }

    fn page(&self, now: UnixNanos) -> Vec<SubWindow> {
        let mut all = Vec::new();
        self.composite
            .export(now, 0, &mut |_, sub_window| all.push(sub_window))
            .unwrap();
        all
    }
}

/// A page that a producer sent.
#[derive(Clone)]
struct Page {
    run: ProducerRun,
    sequence: u64,
    /// The number of observations of the run until then.
    observations: usize,
    sent: UnixNanos,
    sub_windows: Vec<SubWindow>,
}

impl Page {
    fn deliver(&self, to: &mut MergedWindows, now: UnixNanos) {
        to.beat(self.run, self.sent, now).unwrap();
        for sub_window in &self.sub_windows {
            to.take(self.run, self.sequence, &group("m"), sub_window, now)
                .unwrap();
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Observe { producer: u8, value: i32 },
    Wait { ms: u64 },
    Publish { producer: u8 },
    Deliver { page: Index },
    Restart { producer: u8 },
    Expire,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u8..3, -1000..1000i32).prop_map(|(producer, value)| Step::Observe { producer, value }),
        4 => (0u64..1500).prop_map(|ms| Step::Wait { ms }),
        4 => (0u8..3).prop_map(|producer| Step::Publish { producer }),
        6 => any::<Index>().prop_map(|page| Step::Deliver { page }),
        1 => (0u8..3).prop_map(|producer| Step::Restart { producer }),
        1 => Just(Step::Expire),
    ]
}

/// The producers, their pages, and all observations by run.
struct World {
    now: UnixNanos,
    skew: [i64; 3],
    epochs: [u64; 3],
    observers: Vec<Observer>,
    observations: BTreeMap<ProducerRun, Vec<(UnixNanos, f64)>>,
    pages: Vec<Page>,
    delivered: Vec<Page>,
}

impl World {
    fn new(skew: [i64; 3]) -> Self {
        Self {
            now: NOW,
            skew,
            epochs: [1; 3],
            observers: (0..3).map(|_| Observer::new(NOW)).collect(),
            observations: BTreeMap::new(),
            pages: Vec::new(),
            delivered: Vec::new(),
        }
    }

    fn clock_of(&self, producer: u8) -> UnixNanos {
        self.now
            .saturating_add_signed(self.skew[usize::from(producer)] * 1_000_000)
    }

    fn run_of(&self, producer: u8) -> ProducerRun {
        run(producer, self.epochs[usize::from(producer)])
    }

    fn act(&mut self, step: &Step, reader: &mut MergedWindows) {
        match step {
            Step::Wait { ms } => self.now += ms * 1_000_000,
            Step::Expire => reader.expire(self.now),
            Step::Observe { producer, value } => {
                let (now, run) = (self.clock_of(*producer), self.run_of(*producer));
                let value = f64::from(*value) / 10.0;
                self.observers[usize::from(*producer)].observe(now, value);
                self.observations.entry(run).or_default().push((now, value));
            }
            Step::Publish { producer } => {
                let (now, run) = (self.clock_of(*producer), self.run_of(*producer));
                self.pages.push(Page {
                    run,
                    sequence: self.pages.len() as u64,
                    observations: self.observations.get(&run).map_or(0, Vec::len),
                    sent: now,
                    sub_windows: self.observers[usize::from(*producer)].page(now),
                });
            }
            Step::Deliver { page } if !self.pages.is_empty() => {
                let page = page.get(&self.pages).clone();
                page.deliver(reader, self.now);
                self.delivered.push(page);
            }
            Step::Deliver { .. } => {}
            Step::Restart { producer } => {
                let at = usize::from(*producer);
                self.epochs[at] += 1;
                self.observers[at] = Observer::new(self.clock_of(*producer));
            }
        }
    }

    /// The values that a delivered page had in the window, by time.
    fn truth(&self) -> Vec<f64> {
        let begin = |at: UnixNanos| at / LENGTH * LENGTH + LENGTH - WINDOW;
        let mut all = Vec::new();
        for (run, observations) in &self.observations {
            for (at, (time, value)) in observations.iter().enumerate() {
                let is_of = |page: &&Page| page.run == *run && page.observations > at;
                let mut pages = self.delivered.iter().filter(is_of);
                let was_delivered = pages.any(|page| *time >= begin(page.sent));
                if was_delivered && *time >= begin(self.now) {
                    all.push(*value);
                }
            }
        }
        all.sort_by(f64::total_cmp);
        all
    }
}

fn check(answer: &Answer, truth: &[f64]) -> Result<(), TestCaseError> {
    prop_assert_eq!(answer.count, truth.len() as f64);
    let sum: f64 = truth.iter().sum();
    prop_assert!((answer.sum - sum).abs() < 1e-6, "{} for {sum}", answer.sum);
    prop_assert_eq!(
        (answer.min, answer.max),
        (truth.first().copied(), truth.last().copied())
    );
    prop_assert_eq!(answer.avg, (!truth.is_empty()).then(|| answer.sum / answer.count));
    prop_assert_eq!(answer.quantiles.is_empty(), truth.is_empty());
    for quantile in &answer.quantiles {
        let rank = (quantile.quantile * truth.len() as f64).ceil() as usize;
        let exact = truth[rank.clamp(1, truth.len()) - 1];
        let error = exact.abs() * 0.0111 + 1e-12;
        prop_assert!(
            (quantile.value - exact).abs() <= error,
            "{quantile:?} for {exact}"
        );
    }
    Ok(())
}

proptest! {
    /// In any order, with repetition, loss, restarts and clocks that differ.
    #[test]
    fn merged_windows_match_the_list_of_all_observations(
        steps in prop::collection::vec(step(), 1..100),
        skew in prop::array::uniform3(-2000i64..2000),
        order in any::<u64>(),
    ) {
        let mut world = World::new(skew);
        let mut reader = merged(Function::Avg);
        for step in &steps {
            world.act(step, &mut reader);
            // Values are null without a producer that reports.
            reader.beat(run(9, 1), world.now, world.now).unwrap();
            check(&reader.answers(world.now).remove(0), &world.truth())?;
        }
        // Another reader that gets each page once, in another order.
        let mut pages = world.delivered.clone();
        pages.sort_by_key(|page| (page.sequence.wrapping_mul(order | 1), page.sequence));
        pages.dedup_by_key(|page| page.sequence);
        let mut other = merged(Function::Avg);
        pages.iter().for_each(|page| page.deliver(&mut other, world.now));
        reader.expire(world.now);
        let [mine, theirs] = [&mut reader, &mut other].map(|reader| {
            reader.beat(run(9, 1), world.now, world.now).unwrap();
            let answer = reader.answers(world.now).remove(0);
            (answer.sum.to_bits(), answer.count, answer.min, answer.max, answer.quantiles, answer.last)
        });
        prop_assert_eq!(mine, theirs);
        prop_assert_eq!(reader.refusals(), WindowRefusals::default());
    }

    /// A window survives restarts: what a run saved counts in the next one, and is not exported again.
    #[test]
    fn a_restored_window_answers_as_if_there_had_been_no_restart(
        steps in prop::collection::vec((0u64..800, -1000..1000i32, prop::bool::weighted(0.1)), 1..40),
    ) {
        let steady = Observer::new(NOW);
        let mut restarted = Observer::new(NOW);
        let mut own: Vec<UnixNanos> = Vec::new();
        let mut now = NOW;
        for (ms, value, restarts) in steps {
            now += ms * 1_000_000;
            if restarts {
                let next = Observer::new(now);
                restarted.composite.save(0, now, &mut |attributes, _, saved, _| {
                    assert!(next.composite.restore(attributes, &saved, now));
                });
                restarted = next;
                own.clear();
            }
            own.push(now);
            for observer in [&steady, &restarted] {
                observer.observe(now, f64::from(value));
            }
            now += ms * 500_000;
            let [truth, answer] = [&steady, &restarted].map(|observer| observer.composite.read(now).remove(0));
            prop_assert_eq!(&answer.quantiles, &truth.quantiles);
            prop_assert_eq!(answer, truth);
            let begin = now / LENGTH * LENGTH + LENGTH - WINDOW;
            let exported: f64 = restarted.page(now).iter().map(|sub_window| sub_window.count).sum();
            prop_assert_eq!(exported, own.iter().filter(|time| **time >= begin).count() as f64);
        }
    }
}
