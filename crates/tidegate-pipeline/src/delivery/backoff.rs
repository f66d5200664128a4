// SPDX-License-Identifier: Apache-2.0

//! The times of retries: growing, jittered delays for a request, and a circuit breaker for the whole destination.

use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::SmallRng;

/// The shortest delay, so that an interval of zero does not make a busy loop.
const MIN_DELAY: Duration = Duration::from_millis(1);

/// The longest delay, so that no sum of times overflows.
const MAX_DELAY: Duration = Duration::from_hours(24);

/// The longest delay that a peer can impose on a destination.
const MAX_SERVER_DELAY: Duration = Duration::from_hours(1);

/// The retry schedule, with the Collector's parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    /// Delay before the first retry, before jitter.
    pub initial: Duration,
    /// Growth from one retry to the next.
    pub multiplier: f64,
    /// Each delay is drawn from `delay * (1 - jitter) ..= delay * (1 + jitter)`.
    pub jitter: f64,
    /// The delay stops growing at this value, before jitter.
    pub max: Duration,
    /// A request is dropped if its next retry would start this long after its first attempt; `None` = never.
    pub max_elapsed: Option<Duration>,
}

impl Backoff {
    /// The delay before retry number `retry` (1 = the first).
    pub fn delay(&self, retry: u32, rng: &mut SmallRng) -> Duration {
        let exponent = f64::from(retry.saturating_sub(1));
        let grown = self.initial.as_secs_f64() * self.multiplier.powf(exponent);
        let capped = grown.min(self.max.as_secs_f64());
        let factor = rng.random_range(1.0 - self.jitter..=1.0 + self.jitter);
        Duration::try_from_secs_f64(capped * factor)
            .unwrap_or(MAX_DELAY)
            .clamp(MIN_DELAY, MAX_DELAY)
    }
}

/// The delay that a peer asked for, within our limit.
pub fn server_delay(asked: Duration) -> Duration {
    asked.min(MAX_SERVER_DELAY)
}

/// The circuit breaker of a destination (OTLP: a client must slow down on UNAVAILABLE, 429 and 503).
///
/// One failed attempt proves little: after it, the breaker is half open, and attempts go one at a time. If the
/// next attempt fails too, the breaker opens. Nothing is sent for a growing delay, then one probe goes out. Any
/// success closes the breaker. A delay that the peer asks for opens it at once.
///
/// Attempts are numbered in the order of their start. `since` is the first number after the last failure. The
/// result of an earlier attempt is outdated and changes nothing.
#[derive(Debug, Default)]
pub(super) struct CircuitBreaker {
    failures: u32,
    since: u64,
    until: Option<Instant>,
}

impl CircuitBreaker {
    /// Records a failed attempt that will be retried. `next` is the number of the next attempt.
    pub(super) fn record_failure(&mut self, attempt: u64, next: u64, until: impl FnOnce(u32) -> Instant) {
        if attempt < self.since {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        self.since = next;
        if let Some(streak @ 1..) = self.failures.checked_sub(1) {
            self.until = Some(until(streak));
        }
    }

    /// Opens the breaker until `until`, because the peer asked for a delay.
    pub(super) fn hold_until(&mut self, until: Instant) {
        self.until = self.until.max(Some(until));
    }

    /// Records an attempt that the peer accepted, or answered with a final error.
    pub(super) fn record_success(&mut self, attempt: u64) {
        if attempt >= self.since {
            *self = Self {
                since: self.since,
                ..Self::default()
            };
        }
    }

    /// The end of the open state, if the breaker is open now.
    pub(super) fn open_until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| *until > now)
    }

    /// Whether another attempt may start beside those in flight.
    pub(super) fn allows(&self, now: Instant, in_flight: impl Iterator<Item = u64>) -> bool {
        let probing = self.failures > 0 && in_flight.max().is_some_and(|latest| latest >= self.since);
        self.open_until(now).is_none() && !probing
    }

    /// Closes the breaker and forgets all failures: the last attempts before the stop start at once.
    pub(super) fn reset(&mut self, next: u64) {
        *self = Self {
            since: next,
            ..Self::default()
        };
    }
}
