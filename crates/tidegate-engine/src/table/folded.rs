// SPDX-License-Identifier: Apache-2.0

//! The retained state of counters whose streams have expired. The output series has their counts; this names the last
//! epoch of each, so that a late or repeated point of it adds nothing.

use std::collections::VecDeque;

use crate::UnixNanos;
use crate::key::{Key, KeyMap};

/// The last epoch of each forgotten stream; the oldest names are given up for new ones.
#[derive(Clone, Debug)]
pub(super) struct Folded {
    /// Start of the epoch and time of its last point, by stream, with a number that identifies the entry of `order`.
    epochs: KeyMap<(UnixNanos, UnixNanos, u64)>,
    order: VecDeque<(Key, u64)>,
    next: u64,
    max: usize,
}

impl Folded {
    pub(super) fn new(max: usize) -> Self {
        Self {
            epochs: KeyMap::default(),
            order: VecDeque::new(),
            next: 0,
            max,
        }
    }

    /// The same names, from now on with another bound.
    pub(super) fn bounded_by(self, max: usize) -> Self {
        Self { max, ..self }
    }

    pub(super) fn add(&mut self, stream: Key, start: UnixNanos, time: UnixNanos) {
        self.next += 1;
        self.epochs.insert(stream, (start, time, self.next));
        self.order.push_back((stream, self.next));
        while self.order.len() > self.max {
            let Some((oldest, number)) = self.order.pop_front() else {
                break;
            };
            if self.epochs.get(&oldest).is_some_and(|epoch| epoch.2 == number) {
                self.epochs.remove(&oldest);
            }
        }
    }

    /// The last epoch of a stream that has come back.
    pub(super) fn take(&mut self, stream: Key) -> Option<(UnixNanos, UnixNanos)> {
        self.epochs.remove(&stream).map(|(start, time, _)| (start, time))
    }
}
