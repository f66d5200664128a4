// SPDX-License-Identifier: Apache-2.0

//! Answers in two sets: those to requests that were open while a reload ran, and all others.

use std::time::{Duration, Instant};

use crate::BenchError;
use crate::stats::Samples;

/// The time of a request or of a reload, from its start to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    begin: Instant,
    end: Instant,
}

impl Period {
    /// From `begin` to now.
    pub(super) fn since(begin: Instant) -> Self {
        Self {
            begin,
            end: Instant::now(),
        }
    }

    pub(super) fn length(self) -> Duration {
        self.end.saturating_duration_since(self.begin)
    }
}

/// The times of answers in milliseconds.
#[derive(Debug, Default, PartialEq)]
pub(super) struct AnswerTimes {
    /// Of requests that were open while a reload ran, for any part of it.
    pub(super) during: Vec<f64>,
    /// Of all others.
    pub(super) outside: Vec<f64>,
}

impl AnswerTimes {
    /// Sorts requests into the sets. `reloads` are in the order of time, and no two of them overlap.
    pub(super) fn sort(requests: &[Period], reloads: &[Period]) -> Self {
        let mut times = Self::default();
        for request in requests {
            let next = reloads.partition_point(|reload| reload.end < request.begin);
            let is_during = reloads
                .get(next)
                .is_some_and(|reload| reload.begin <= request.end);
            let set = if is_during {
                &mut times.during
            } else {
                &mut times.outside
            };
            set.push(request.length().as_secs_f64() * 1000.0);
        }
        times
    }

    /// Fails if the p99 of the answers during reloads is above `limit_ms`. Without any such answer, the run shows nothing,
    /// and fails too.
    pub(super) fn check(&self, limit_ms: f64) -> Result<(), BenchError> {
        if self.during.is_empty() {
            return Err("no request was open during a reload: run for more minutes".into());
        }
        let p99 = Samples::new(self.during.iter().copied()).quantile(0.99);
        if p99 > limit_ms {
            return Err(format!(
                "the p99 of answers during reloads is {p99:.1} ms, and {limit_ms} ms is the most"
            )
            .into());
        }
        Ok(())
    }
}

/// The number of answers of a set, and their times.
pub(super) fn figures(times_ms: &[f64]) -> String {
    if times_ms.is_empty() {
        return "none".to_owned();
    }
    let times = Samples::new(times_ms.iter().copied());
    format!(
        "{}, p50 {:.2} ms, p99 {:.2} ms, max {:.1} ms",
        times.count(),
        times.median(),
        times.quantile(0.99),
        times.max()
    )
}

#[cfg(test)]
mod tests;
