// SPDX-License-Identifier: Apache-2.0

//! Retries after a delay, up to the end of the schedule or of the drain. A drain shortens delays, so that what waits has
//! one last attempt before its end.

use std::time::{Duration, Instant};

use super::{Action, Load, Machine, PendingRequest};
use crate::component::Reason;
use crate::delivery::backoff::{Backoff, server_delay};

/// The time before the end of a drain at which the last attempts begin. It is enough for an answer, and for what waits
/// behind the first one.
const LAST_ATTEMPTS: Duration = Duration::from_secs(2);

impl<L: Load> Machine<L> {
    pub(super) fn retry(
        &mut self,
        now: Instant,
        id: u64,
        request: PendingRequest<L>,
        after: Option<Duration>,
        why: String,
    ) {
        let Some(backoff) = self.rules.retry.clone() else {
            return self.drop_request(&request, Reason::RetriesExhausted, why);
        };
        let last = self.last_attempts(now);
        let capped = |due: Instant| last.map_or(due, |last| due.min(last));
        let rng = &mut self.rng;
        self.breaker.record_failure(id, self.next_id, |streak| {
            capped(now + backoff.delay(streak, rng))
        });
        let asked = after.map(server_delay);
        if let Some(asked) = asked {
            self.breaker.hold_until(now + asked);
        }
        let own = capped(now + backoff.delay(request.attempts, &mut self.rng));
        let due = own.max(now + asked.unwrap_or_default());
        match self.give_up(due, &request, &backoff) {
            Some(Reason::Shutdown) => self.stop_trying(request, why),
            Some(reason) => self.drop_request(&request, reason, why),
            None => self.wait(now, due, request, why),
        }
    }

    /// When the last attempts before the stop begin. `None` without a drain, and from that time on. Kept requests need
    /// none, because the next run or the successor continues with them.
    fn last_attempts(&self, now: Instant) -> Option<Instant> {
        let last = self.deadline?.checked_sub(LAST_ATTEMPTS)?;
        (!self.rules.keeps && now < last).then_some(last)
    }

    /// The reason why a retry at `due` would be too late, or `None`.
    fn give_up(&self, due: Instant, request: &PendingRequest<L>, backoff: &Backoff) -> Option<Reason> {
        let elapsed = due.duration_since(request.first_attempt.unwrap_or(due));
        if self
            .deadline
            .is_some_and(|deadline| self.rules.keeps || due > deadline)
        {
            return Some(Reason::Shutdown);
        }
        let exhausted = backoff.max_elapsed.is_some_and(|max| elapsed > max);
        exhausted.then_some(Reason::RetriesExhausted)
    }

    fn wait(&mut self, now: Instant, due: Instant, request: PendingRequest<L>, why: String) {
        self.settled.push_back(Action::Retrying {
            items: request.load.items(),
            delay: due.duration_since(now),
            why,
        });
        self.waiting.insert((due, self.next_id), request);
        self.next_id += 1;
    }
}
