// SPDX-License-Identifier: Apache-2.0

//! Retries after a delay, up to the end of the schedule or of the drain.

use std::time::{Duration, Instant};

use super::{Action, Load, Machine, PendingRequest};
use crate::component::Reason;
use crate::delivery::backoff::{Backoff, server_delay};

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
        let rng = &mut self.rng;
        self.breaker
            .record_failure(id, self.next_id, |streak| now + backoff.delay(streak, rng));
        let asked = after.map(server_delay);
        if let Some(asked) = asked {
            self.breaker.hold_until(now + asked);
        }
        let own = backoff.delay(request.attempts, &mut self.rng);
        let delay = own.max(asked.unwrap_or_default());
        match self.give_up(now + delay, &request, &backoff) {
            Some(Reason::Shutdown) => self.stop_trying(request, why),
            Some(reason) => self.drop_request(&request, reason, why),
            None => self.wait(now, delay, request, why),
        }
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

    fn wait(&mut self, now: Instant, delay: Duration, request: PendingRequest<L>, why: String) {
        self.settled.push_back(Action::Retrying {
            items: request.load.items(),
            delay,
            why,
        });
        self.waiting.insert((now + delay, self.next_id), request);
        self.next_id += 1;
    }
}
