// SPDX-License-Identifier: Apache-2.0

//! The delivery state machine: queue, batching, retries, splitting. It has no clock, socket or task. Callers pass
//! the time in, carry out the [`Action`]s, and report the outcomes of attempts.
//!
//! Every enqueued item is later named in exactly one `Delivered` or `Dropped`, or is still held.
//!
//! A request has one state at a time: *gathering* (joined with others), *ready* (first in, first out), *flying*
//! (an attempt is in progress) or *waiting* (for its retry, without a consumer).

mod action;
mod gather;
mod order;
mod retry;
mod split;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::backoff::{Backoff, CircuitBreaker};
use super::capacity::Permits;
use super::outcome::{Loss, Outcome};
use crate::batch::{Batching, Sizer, Trigger};
use crate::component::Reason;
pub use action::Action;
use gather::Gathering;
use order::Joined;
pub use order::Together;

/// Data that can be queued, joined and cut.
pub trait Load: Clone {
    /// Loads with equal batch keys may be joined. The key also selects the ledger that counts the items.
    type BatchKey: Clone + PartialEq;

    /// Its batch key.
    fn batch_key(&self) -> Self::BatchKey;
    /// The batching limits, if it may be joined.
    fn batching(&self) -> Option<Batching>;
    /// Its size.
    fn size(&self, sizer: Sizer) -> usize;
    /// Appends a load of the same batch key.
    fn join(&mut self, other: Self);
    /// The number of joined loads, including itself.
    fn parts(&self) -> usize;
    /// Cuts it into pieces of at most `max`, as far as possible. Each piece is filled before the next one. No
    /// piece is empty, and no item is lost. The range beside a piece names the parts in it.
    fn split(self, max: usize, sizer: Sizer) -> Vec<(Self, Range<usize>)>;
    /// The name of its first item, for logs.
    fn name(&self) -> String;
    /// Records that an attempt settled all but `items` items. The load and its next attempt know which items these
    /// are.
    fn shrink(&mut self, items: usize);

    /// Whether a previous run may have sent it. An ordered queue sends it unchanged and never joins it.
    fn is_alone(&self) -> bool {
        false
    }

    /// The number of items.
    fn items(&self) -> usize {
        self.size(Sizer::Items)
    }
}

/// The rules of a destination.
#[derive(Clone, Debug)]
pub struct DeliveryRules {
    /// The number of concurrent attempts; 1 if requests are ordered.
    pub consumers: usize,
    /// Whether requests keep the order of their arrival. One is sent at a time, and none overtakes a waiting
    /// retry.
    pub in_order: bool,
    /// The limits for joining ready requests.
    pub together: Option<Together>,
    /// The retry schedule; `None` = never.
    pub retry: Option<Backoff>,
    /// Whether to search for the bad items in a request that the peer refuses.
    pub isolate: bool,
    /// The largest request, in bytes.
    pub max_bytes: usize,
    /// The largest request, in items; at least 1.
    pub max_items: usize,
    /// Whether unsent requests are kept for the next run at the stop, instead of dropped.
    pub keeps: bool,
}

/// A request in one of the states.
struct PendingRequest<L> {
    load: L,
    permits: Permits,
    first_attempt: Option<Instant>,
    attempts: u32,
    /// The remaining attempts of the search that this piece belongs to. All pieces of a request share them.
    search: Option<Arc<AtomicU32>>,
    /// Whether it was cut off a larger request. Pieces are not joined again.
    is_piece: bool,
}

/// Splits a load into pieces, each with the permits of its batches. So a sender gets its answer when the last
/// piece of its batch is settled.
fn cut<L: Load>(load: L, permits: &Permits, max: usize, sizer: Sizer) -> Vec<(L, Permits)> {
    let is_apart = permits.len() == load.parts();
    let of = |parts: Range<usize>| match permits.get(parts) {
        Some(some) if is_apart => some.iter().cloned().collect(),
        _ => permits.clone(),
    };
    let pieces = load.split(max, sizer).into_iter();
    pieces.map(|(piece, parts)| (piece, of(parts))).collect()
}

impl<L> PendingRequest<L> {
    fn new(load: L, permits: Permits) -> Self {
        Self {
            load,
            permits,
            first_attempt: None,
            attempts: 0,
            search: None,
            is_piece: false,
        }
    }

    fn keep(self) -> Action<L>
    where
        L: Load,
    {
        Action::Kept {
            load: self.load,
            permits: self.permits,
        }
    }
}

/// The delivery state machine of one destination.
pub struct Machine<L: Load> {
    rules: DeliveryRules,
    gathering: Vec<Gathering<L>>,
    ready: VecDeque<PendingRequest<L>>,
    /// Sorted by due time. The number separates requests with equal times.
    waiting: BTreeMap<(Instant, u64), PendingRequest<L>>,
    flying: HashMap<u64, PendingRequest<L>>,
    breaker: CircuitBreaker,
    joined: Joined,
    settled: VecDeque<Action<L>>,
    /// A request was kept for the next run, so the later ones must be kept too to preserve the order.
    keeping: bool,
    next_id: u64,
    deadline: Option<Instant>,
    rng: SmallRng,
}

impl<L: Load> Machine<L> {
    /// An empty machine; `seed` feeds the jitter.
    pub fn new(rules: DeliveryRules, seed: u64) -> Self {
        Self {
            rules,
            gathering: Vec::new(),
            ready: VecDeque::new(),
            waiting: BTreeMap::new(),
            flying: HashMap::new(),
            breaker: CircuitBreaker::default(),
            joined: Joined::default(),
            settled: VecDeque::new(),
            keeping: false,
            next_id: 0,
            deadline: None,
            rng: SmallRng::seed_from_u64(seed),
        }
    }

    /// Enqueues a load, with the permits of its batches.
    pub fn enqueue(&mut self, now: Instant, load: L, permits: Permits) {
        match load.batching() {
            Some(batching) if self.deadline.is_none() && !self.goes_alone(&load) => {
                self.gather(now, batching, load, permits);
            }
            _ => self.ready.push_back(PendingRequest::new(load, permits)),
        }
    }

    /// The next action; `None` = no action before `wake_at`, the next `enqueue` or the next `finish`.
    pub fn poll(&mut self, now: Instant) -> Option<Action<L>> {
        self.flush_due(now);
        if self.is_hopeless(now) {
            self.abandon();
        }
        self.keep_ready();
        // A start may drop a load that is too large.
        let next = self.settled.pop_front().or_else(|| self.start(now));
        next.or_else(|| self.settled.pop_front())
    }

    /// The time at which `poll` has an action, if nothing else happens before.
    pub fn wake_at(&self, now: Instant) -> Option<Instant> {
        let flush = self.gathering.iter().filter_map(Gathering::due).min();
        let send = if self.flying.len() < self.consumers() {
            self.next_start(now)
        } else {
            None
        };
        flush.into_iter().chain(send).min()
    }

    /// Records the end of an attempt.
    pub fn finish(&mut self, now: Instant, id: u64, outcome: Outcome) {
        let Some(mut request) = self.flying.remove(&id) else {
            return;
        };
        let items = request.load.items();
        match outcome {
            Outcome::TimedOut { why } => {
                self.joined.timed_out(items);
                return self.retry(now, id, request, None, why);
            }
            Outcome::Retry { after, why } => return self.retry(now, id, request, after, why),
            Outcome::Done => self.deliver(&request.load, None),
            Outcome::Accepted { note } => {
                self.deliver(&request.load, None);
                self.settled.push_back(Action::Noted { items, note });
            }
            Outcome::Partly(loss) => self.deliver(&request.load, Some(loss)),
            Outcome::Parts(mut parts) => {
                if let Some(why) = parts.denied.take() {
                    let is_retried = parts.left.is_some();
                    self.settled.push_back(Action::Denied {
                        items,
                        is_retried,
                        why,
                    });
                }
                if let Some(left) = self.record_results(&mut request, parts) {
                    return self.retry(now, id, request, left.after, left.why);
                }
            }
            Outcome::Permanent { why } => self.drop_request(&request, Reason::Rejected, why),
            Outcome::Denied { retries, after, why } => {
                self.settled.push_back(Action::Denied {
                    items,
                    is_retried: retries,
                    why: why.clone(),
                });
                if retries {
                    return self.retry(now, id, request, after, why);
                }
                self.drop_request(&request, Reason::Rejected, why);
            }
            Outcome::Refused { why } => self.isolate(request, why),
            Outcome::TooLarge { why } => self.halve(request, why),
        }
        self.breaker.record_success(id);
        self.joined.answered(items);
    }

    /// Starts the drain, which ends at `deadline`. Nothing is gathered any more, and waiting retries are due at
    /// once. A later retry begins 2 s before the deadline at the latest, unless the peer asks for a longer delay. A retry
    /// that would begin after the deadline is dropped.
    pub fn drain(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
        for gathering in std::mem::take(&mut self.gathering) {
            let metrics = gathering.metrics();
            let requests = gathering.into_requests();
            self.count_gathered(metrics, Trigger::Timeout, &requests);
            self.ready.extend(requests);
        }
        let waiting = std::mem::take(&mut self.waiting).into_values();
        if self.rules.keeps {
            waiting.for_each(|request| self.keep(request));
        } else {
            waiting.rev().for_each(|request| self.ready.push_front(request));
        }
        self.breaker.reset(self.next_id);
    }

    /// Keeps the requests that can't be sent before the stop.
    pub fn keep_what_is_left(&mut self) {
        self.rules.keeps = true;
    }

    /// Gives up all requests, including those in flight. They are kept, or counted as lost by the shutdown.
    pub fn abandon(&mut self) {
        let gathering = std::mem::take(&mut self.gathering);
        let requests = (std::mem::take(&mut self.flying).into_values())
            .chain(std::mem::take(&mut self.waiting).into_values())
            .chain(std::mem::take(&mut self.ready))
            .chain(gathering.into_iter().flat_map(Gathering::into_requests))
            .collect::<Vec<_>>();
        for request in requests {
            self.stop_trying(request, "the gateway stopped first".into());
        }
    }

    /// Gives up a request that is too late for this run.
    fn stop_trying(&mut self, request: PendingRequest<L>, why: String) {
        if self.rules.keeps {
            self.keep(request);
        } else {
            self.drop_request(&request, Reason::Shutdown, why);
        }
    }

    fn keep(&mut self, request: PendingRequest<L>) {
        self.settled.push_back(request.keep());
        self.keeping = true;
    }

    /// Whether it holds no request and no pending action.
    pub fn is_empty(&self) -> bool {
        self.gathering.is_empty()
            && self.ready.is_empty()
            && self.waiting.is_empty()
            && self.flying.is_empty()
            && self.settled.is_empty()
    }

    /// The end of the drain, if it drains.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Items that are neither delivered nor dropped yet.
    pub fn held_items(&self) -> usize {
        let gathering = self.gathering.iter().map(Gathering::items);
        let requests = (self.ready.iter())
            .chain(self.waiting.values())
            .chain(self.flying.values());
        gathering
            .chain(requests.map(|request| request.load.items()))
            .sum()
    }

    fn start(&mut self, now: Instant) -> Option<Action<L>> {
        let free = self.flying.len() < self.consumers();
        if !free || !self.breaker.allows(now, self.flying.keys().copied()) {
            return None;
        }
        let mut request = loop {
            let request = self.take(now)?;
            if request.load.items() > self.rules.max_items {
                let max = self.rules.max_items;
                let pieces = cut(request.load, &request.permits, max, Sizer::Items);
                self.requeue_pieces(pieces, request.search.as_ref());
            } else if request.load.size(Sizer::Bytes) > self.rules.max_bytes {
                self.cut(request);
            } else {
                break request;
            }
        };
        self.join_following(&mut request);
        request.first_attempt.get_or_insert(now);
        request.attempts = request.attempts.saturating_add(1);
        let is_first = request.attempts == 1;
        let (id, load) = (self.next_id, request.load.clone());
        self.next_id += 1;
        self.flying.insert(id, request);
        Some(Action::Send { id, load, is_first })
    }

    fn take_due(&mut self, now: Instant) -> Option<PendingRequest<L>> {
        let first = self.waiting.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// The earliest start of the next attempt, given a free consumer; `None` = only after another event.
    fn next_start(&self, now: Instant) -> Option<Instant> {
        let due = if self.ready.is_empty() || self.is_blocked() {
            self.waiting.first_key_value()?.0.0
        } else {
            now
        };
        let closes = self.breaker.open_until(now).unwrap_or(now);
        let at = due.max(closes);
        self.breaker.allows(at, self.flying.keys().copied()).then_some(at)
    }

    /// Whether no attempt can start before the deadline of the drain.
    fn is_hopeless(&self, now: Instant) -> bool {
        let open_until = self.breaker.open_until(now);
        // Kept requests need not be tried to the last moment, because the next run continues with them.
        let too_late = |deadline| open_until > Some(deadline) || (self.rules.keeps && open_until > Some(now));
        self.flying.is_empty() && self.deadline.is_some_and(too_late)
    }

    fn deliver(&mut self, load: &L, loss: Option<Loss>) {
        let lost = loss.as_ref().map_or(0, |loss| loss.items.min(load.items()));
        self.settled.push_back(Action::Delivered {
            batch_key: load.batch_key(),
            items: load.items() - lost,
        });
        if let Some(loss) = loss.filter(|_| lost > 0) {
            let loss = Loss { items: lost, ..loss };
            self.settled.push_back(Action::Dropped {
                batch_key: load.batch_key(),
                loss,
            });
        }
    }

    fn drop_request(&mut self, request: &PendingRequest<L>, reason: Reason, why: String) {
        self.drop_load(&request.load, &request.permits, reason, why);
    }

    fn drop_load(&mut self, load: &L, permits: &Permits, reason: Reason, why: String) {
        permits.iter().for_each(|permit| permit.fail(reason, &why));
        let items = load.items();
        self.settled.push_back(Action::Dropped {
            batch_key: load.batch_key(),
            loss: Loss { items, reason, why },
        });
    }
}
