// SPDX-License-Identifier: Apache-2.0

//! Ordered requests: one is sent at a time, and none overtakes one that waits for its retry. Concurrency then
//! exists only within a request: an attempt sends its parts, for example series, side by side.

use std::time::Instant;

use super::{Action, Load, Machine, PendingRequest};
use crate::batch::Sizer;
use crate::delivery::outcome::{Left, Parts};

/// The limits for joining ready requests that no attempt could take yet. A slow destination catches up, and a fast
/// one gets requests as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Together {
    /// The largest joined request, in items.
    pub items: usize,
    /// The largest joined request, in bytes.
    pub bytes: usize,
}

/// A further limit on joined requests, in items. It halves when a request exceeds the time limit, and each answer
/// in time raises it a little. A request that timed out may have arrived and goes out again whole, so it should be
/// small.
#[derive(Debug)]
pub(super) struct Joined(usize);

/// The increase after an answer in time: 64 answers raise the limit from 0 to 8,192, the default of most
/// destinations.
const MORE: usize = 128;

impl Default for Joined {
    fn default() -> Self {
        Self(usize::MAX)
    }
}

impl Joined {
    /// Records a request of `items` items without an answer in time.
    pub(super) fn timed_out(&mut self, items: usize) {
        self.0 = self.0.min(items / 2);
    }

    /// Records a request of `items` items with an answer in time.
    pub(super) fn answered(&mut self, items: usize) {
        self.0 = self.0.max(items.saturating_add(MORE));
    }
}

impl<L: Load> Machine<L> {
    /// The number of concurrent attempts.
    pub(super) fn consumers(&self) -> usize {
        if self.rules.in_order {
            1
        } else {
            self.rules.consumers
        }
    }

    /// Whether a waiting retry blocks all ready requests.
    pub(super) fn is_blocked(&self) -> bool {
        self.rules.in_order && !self.waiting.is_empty()
    }

    /// Takes the next request to start.
    pub(super) fn take(&mut self, now: Instant) -> Option<PendingRequest<L>> {
        let due = self.take_due(now);
        match due {
            None if self.is_blocked() => None,
            None => self.ready.pop_front(),
            due => due,
        }
    }

    /// Whether the load must not be joined. A previous run may have sent it, and a peer may refuse a whole request
    /// for one sample that it already has.
    pub(super) fn goes_alone(&self, load: &L) -> bool {
        self.rules.in_order && load.is_alone()
    }

    /// Joins ready requests to one that was never sent, unless options define the size of requests.
    pub(super) fn join_following(&mut self, request: &mut PendingRequest<L>) {
        let Some(together) = self.rules.together else {
            return;
        };
        let is_free = |request: &PendingRequest<L>| {
            let is_fresh = request.attempts == 0 && !request.is_piece && !request.load.is_alone();
            is_fresh && (self.rules.in_order || request.load.batching().is_none())
        };
        let max_items = together.items.min(self.rules.max_items).min(self.joined.0);
        let max_bytes = together.bytes.min(self.rules.max_bytes);
        let (mut items, mut bytes) = (request.load.items(), request.load.size(Sizer::Bytes));
        while let Some(next) = self.ready.front() {
            (items, bytes) = (items + next.load.items(), bytes + next.load.size(Sizer::Bytes));
            let fits = items <= max_items && bytes <= max_bytes;
            if !fits
                || !is_free(request)
                || !is_free(next)
                || next.load.batch_key() != request.load.batch_key()
            {
                return;
            }
            let Some(next) = self.ready.pop_front() else {
                return;
            };
            request.load.join(next.load);
            request.permits.extend(next.permits);
        }
    }

    /// Keeps the later requests too when an ordered request is kept.
    pub(super) fn keep_ready(&mut self) {
        if self.keeping && self.rules.in_order && self.flying.is_empty() {
            let later = std::mem::take(&mut self.ready);
            self.settled.extend(later.into_iter().map(PendingRequest::keep));
        }
    }

    /// Records the results of the parts of a request. Returns the rest that is to be retried.
    pub(super) fn record_results(&mut self, request: &mut PendingRequest<L>, parts: Parts) -> Option<Left> {
        let mut rest = request.load.items();
        let left = parts.left.map(|left| Left {
            items: left.items.min(rest),
            ..left
        });
        rest -= left.as_ref().map_or(0, |left| left.items);
        for mut loss in parts.losses {
            loss.items = loss.items.min(rest);
            rest -= loss.items;
            if loss.items > 0 {
                let batch_key = request.load.batch_key();
                self.settled.push_back(Action::Dropped { batch_key, loss });
            }
        }
        let batch_key = request.load.batch_key();
        self.settled.push_back(Action::Delivered {
            batch_key,
            items: rest,
        });
        let left = left.filter(|left| left.items > 0)?;
        request.load.shrink(left.items);
        Some(left)
    }
}
