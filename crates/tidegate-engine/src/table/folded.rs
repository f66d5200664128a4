// SPDX-License-Identifier: Apache-2.0

//! The retained state of counters whose streams have expired. The output series has their counts; this names the last
//! epoch of each, so that a late or repeated point of it adds nothing.

use std::collections::VecDeque;

use super::succession::TakenCells;
use super::targets::CellTarget;
use crate::UnixNanos;
use crate::key::{Key, KeyMap};

/// The last epoch of a forgotten stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoldedStream {
    pub(super) start: UnixNanos,
    /// The time of its last point.
    pub(super) time: UnixNanos,
    /// The overflow series that has its counts, if the table shows points as they come.
    pub(super) overflow: Option<CellTarget>,
}

/// The last epoch of each forgotten stream; the oldest names are given up for new ones.
#[derive(Clone, Debug)]
pub(super) struct Folded {
    /// Start of the epoch and time of its last point, by stream, with a number that identifies the entry of `order`.
    epochs: KeyMap<(UnixNanos, UnixNanos, u64)>,
    /// The overflow series that have the counts of some of these streams.
    overflow: KeyMap<CellTarget>,
    order: VecDeque<(Key, u64)>,
    next: u64,
    max: usize,
}

impl Folded {
    pub(super) fn new(max: usize) -> Self {
        Self {
            epochs: KeyMap::default(),
            overflow: KeyMap::default(),
            order: VecDeque::new(),
            next: 0,
            max,
        }
    }

    /// The same names for a table that has taken these cells over, from now on with another bound.
    pub(super) fn moved_to(self, cells: &TakenCells, max: usize) -> Self {
        let moved = self.overflow.into_iter().filter_map(|(stream, target)| {
            let cell = cells.get(&target.cell.to_bits())?.cell;
            Some((stream, CellTarget { cell, ..target }))
        });
        Self {
            overflow: moved.collect(),
            max,
            ..self
        }
    }

    pub(super) fn add(&mut self, stream: Key, folded: FoldedStream) {
        let FoldedStream {
            start,
            time,
            overflow,
        } = folded;
        self.next += 1;
        self.epochs.insert(stream, (start, time, self.next));
        if let Some(target) = overflow {
            self.overflow.insert(stream, target);
        }
        self.order.push_back((stream, self.next));
        while self.order.len() > self.max {
            let Some((oldest, number)) = self.order.pop_front() else {
                break;
            };
            if self.epochs.get(&oldest).is_some_and(|epoch| epoch.2 == number) {
                self.epochs.remove(&oldest);
                self.overflow.remove(&oldest);
            }
        }
    }

    /// The last epoch of a stream that has come back.
    pub(super) fn take(&mut self, stream: Key) -> Option<FoldedStream> {
        let (start, time, _) = self.epochs.remove(&stream)?;
        Some(FoldedStream {
            start,
            time,
            overflow: self.overflow.remove(&stream),
        })
    }
}
