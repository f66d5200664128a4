//! Requests in the order of their arrival: one at a time, and none overtakes one that waits for its retry.
//! What goes side by side then are the parts of one request (by series, say), which the attempt makes.

use std::time::Instant;

use super::{Action, Load, Machine, Request};
use crate::batch::Sizer;
use crate::delivery::outcome::{Left, Parts};

/// How much of what is ready, because no attempt could take it, goes out together: a destination that lags
/// catches up, and one that doesn't gets requests as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Together {
    /// Most items.
    pub items: usize,
    /// Most bytes.
    pub bytes: usize,
}

/// Items that requests may be joined to besides: what was too much for the peer's time limit is joined to
/// half as much, and each answer in time lets a little more go together. What timed out may have arrived and
/// comes again whole, so the less of it the better.
#[derive(Debug)]
pub(super) struct Joined(usize);

/// What an answer in time adds: from nothing to the 8,192 of most destinations in 64 answers.
const MORE: usize = 128;

impl Default for Joined {
    fn default() -> Self {
        Self(usize::MAX)
    }
}

impl Joined {
    /// A request of so many items was not answered in time.
    pub(super) fn timed_out(&mut self, items: usize) {
        self.0 = self.0.min(items / 2);
    }

    /// One was, in time.
    pub(super) fn answered(&mut self, items: usize) {
        self.0 = self.0.max(items.saturating_add(MORE));
    }
}

impl<L: Load> Machine<L> {
    /// Attempts under way at once.
    pub(super) fn consumers(&self) -> usize {
        if self.rules.in_order {
            1
        } else {
            self.rules.consumers
        }
    }

    /// Nothing that is ready may start before what waits.
    pub(super) fn is_blocked(&self) -> bool {
        self.rules.in_order && !self.waiting.is_empty()
    }

    /// The next request to start.
    pub(super) fn take(&mut self, now: Instant) -> Option<Request<L>> {
        let due = self.take_due(now);
        match due {
            None if self.is_blocked() => None,
            None => self.ready.pop_front(),
            due => due,
        }
    }

    /// What a former run may have sent is not mixed with what it has not: a peer that has one sample of a
    /// request already may refuse all of it.
    pub(super) fn goes_alone(&self, load: &L) -> bool {
        self.rules.in_order && load.is_alone()
    }

    /// Joins what is ready behind a request that was never sent, unless somebody has said what requests are
    /// to be like.
    pub(super) fn join_following(&mut self, request: &mut Request<L>) {
        let Some(together) = self.rules.together else {
            return;
        };
        let is_free = |request: &Request<L>| {
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

    /// In order, what comes behind something that was kept is kept too.
    pub(super) fn keep_behind(&mut self) {
        if self.keeping && self.rules.in_order && self.flying.is_empty() {
            let behind = std::mem::take(&mut self.ready);
            self.settled.extend(behind.into_iter().map(Request::keep));
        }
    }

    /// Records the results of the parts of a request. Returns the rest that is to be retried.
    pub(super) fn settle(&mut self, request: &mut Request<L>, parts: Parts) -> Option<Left> {
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
