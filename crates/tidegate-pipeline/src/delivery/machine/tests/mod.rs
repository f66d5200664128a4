// SPDX-License-Identifier: Apache-2.0

//! The machine in virtual time, with loads whose every item has a number.

mod conservation;
mod drain;
mod gather;
mod order;
mod retry;
mod split;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::split::MAX_SEARCH;
use super::*;
use crate::batch::Signal;
use crate::delivery::capacity::QueueCapacity;
use crate::delivery::testing::opaque;

/// A run of numbered items with one batch key.
#[derive(Clone, Debug)]
struct Run {
    batch_key: u8,
    batching: Option<Batching>,
    items: Vec<u32>,
    /// How many items each push brought that is in it.
    parts: Vec<usize>,
    /// Which items attempts have left, where one settled some.
    left: Left,
    /// The number of remaining items that the machine knows of.
    count: Option<usize>,
    /// Whether a former run may have sent it.
    alone: bool,
}

/// Shared by a load and its attempts, as the notes of a real one are.
type Left = std::sync::Arc<parking_lot::Mutex<Option<Vec<u32>>>>;

impl Load for Run {
    type BatchKey = u8;

    fn batch_key(&self) -> u8 {
        self.batch_key
    }

    fn batching(&self) -> Option<Batching> {
        self.batching.clone()
    }

    fn size(&self, sizer: Sizer) -> usize {
        match sizer {
            Sizer::Requests => self.parts.len(),
            Sizer::Items => self.count.unwrap_or(self.items.len()),
            Sizer::Bytes => self.items.len() * 10,
        }
    }

    fn join(&mut self, other: Self) {
        assert_eq!(self.batch_key, other.batch_key);
        self.items.extend(other.items);
        self.parts.extend(other.parts);
    }

    fn name(&self) -> String {
        format!("item {}", self.items[0])
    }

    fn is_alone(&self) -> bool {
        self.alone
    }

    fn shrink(&mut self, items: usize) {
        assert_eq!(self.rest().len(), items, "what is left is what the attempt noted");
        self.count = Some(items);
    }

    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn split(self, max: usize, sizer: Sizer) -> Vec<(Self, Range<usize>)> {
        let max = match sizer {
            Sizer::Requests => usize::MAX,
            Sizer::Items => max,
            Sizer::Bytes => max / 10,
        };
        let of: Vec<usize> = (self.parts.iter().enumerate())
            .flat_map(|(part, items)| vec![part; *items])
            .collect();
        let max = max.max(1);
        let chunks = self.items.chunks(max).zip(of.chunks(max));
        chunks
            .map(|(chunk, of)| {
                let parts = of[0]..of[of.len() - 1] + 1;
                let items_of = |part| of.iter().filter(|other| **other == part).count();
                let piece = Self {
                    items: chunk.to_vec(),
                    parts: parts.clone().map(items_of).collect(),
                    left: Left::default(),
                    ..self.clone()
                };
                (piece, parts)
            })
            .collect()
    }
}

fn run(items: std::ops::Range<u32>) -> Run {
    Run {
        batch_key: 0,
        batching: None,
        parts: vec![items.len()],
        items: items.collect(),
        left: Left::default(),
        count: None,
        alone: false,
    }
}

impl Run {
    fn rest(&self) -> Vec<u32> {
        let left = self.left.lock().clone();
        left.unwrap_or_else(|| self.items.clone())
    }
}

fn batched(items: std::ops::Range<u32>, min_size: usize, max_size: usize) -> Run {
    let batching = Batching {
        timeout: ms(200),
        min_size,
        max_size,
        sizer: Sizer::Items,
        metrics: None,
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

/// A machine with a clock of its own, and the totals of its actions.
struct Bench {
    machine: Machine<Run>,
    start: Instant,
    now: Instant,
    delivered: usize,
    kept: Vec<u32>,
    /// Requests that were gathered, with their items.
    gathered: Vec<(Trigger, usize)>,
    dropped: BTreeMap<&'static str, usize>,
}

impl Bench {
    fn new(consumers: usize, retry: Option<Backoff>) -> Self {
        let now = Instant::now();
        Self {
            machine: Machine::new(
                DeliveryRules {
                    consumers,
                    in_order: false,
                    together: None,
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
            gathered: Vec::new(),
            dropped: BTreeMap::new(),
        }
    }

    fn at(&mut self, at_ms: u64) -> &mut Self {
        self.now = self.start + ms(at_ms);
        self
    }

    fn push(&mut self, load: Run) {
        self.machine.enqueue(self.now, load, Permits::new());
    }

    /// The attempts that are sent now, with their items.
    fn sends(&mut self) -> Vec<(u64, Vec<u32>)> {
        let mut sends = Vec::new();
        while let Some(action) = self.machine.poll(self.now) {
            match action {
                Action::Send { id, load, .. } => sends.push((id, load.items)),
                Action::Delivered { items, .. } => self.delivered += items,
                Action::Dropped { loss, .. } => {
                    *self.dropped.entry(loss.reason.name()).or_default() += loss.items;
                }
                Action::Kept { load, .. } => self.kept.extend(load.items),
                Action::Gathered { trigger, items, .. } => self.gathered.push((trigger, items)),
                Action::Retrying { .. } | Action::Noted { .. } | Action::Denied { .. } => {}
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
