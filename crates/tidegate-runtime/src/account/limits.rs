// SPDX-License-Identifier: Apache-2.0

//! The limits of the gateway's memory.

use super::measure;

/// The default limit while no memory limiter runs, in percent of the machine's or the container's memory.
const DEFAULT_LIMIT_PERCENT: u64 = 80;

/// The default limit in bytes; `None` if the system does not report its memory.
pub fn default_limit() -> Option<usize> {
    let total = measure::total_bytes().ok()?;
    usize::try_from(total / 100 * DEFAULT_LIMIT_PERCENT).ok()
}

/// The part of the memory that a request may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ceiling {
    /// Up to the soft limit: the request stays in memory until it is delivered.
    #[default]
    Soft,
    /// Up to the hard limit: tables take its points in, and it is gone.
    Hard,
}

/// The limits of a memory limiter, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// From here on, requests that stay in memory are refused, and new series.
    pub soft: usize,
    /// From here on, everything is refused.
    pub hard: usize,
}

impl Limit {
    /// The same for all data.
    pub fn of(bytes: usize) -> Self {
        Self {
            soft: bytes,
            hard: bytes,
        }
    }
}

/// All limits in effect.
#[derive(Debug, Default)]
pub(super) struct Limits {
    /// The limits of all memory limiters that run.
    pub(super) of_limiters: Vec<Limit>,
    /// The limit while none runs.
    pub(super) default: Option<usize>,
}

impl Limits {
    pub(super) fn least(&self) -> Limit {
        let of_limiters = self.of_limiters.iter().copied().reduce(|least, limit| Limit {
            soft: least.soft.min(limit.soft),
            hard: least.hard.min(limit.hard),
        });
        of_limiters.unwrap_or(Limit::of(self.default.unwrap_or(usize::MAX)))
    }
}
