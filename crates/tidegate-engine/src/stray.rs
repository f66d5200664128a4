//! Streams whose points are not taken: what they say lies behind their newest point, or too far ahead of the clock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::Series;
use crate::streams::lock;

/// What is wrong with the times of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Stray {
    /// Its points lie behind its newest one: its value stands still, and is stale.
    Behind,
    /// Its points lie too far ahead of the gateway's clock: its value stands still, and is stale.
    Ahead,
    /// Its sender's clock was set back: the stream goes on by the new clock.
    Reanchored,
}

impl Stray {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 3] = [Self::Behind, Self::Ahead, Self::Reanchored];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Behind => "behind",
            Self::Ahead => "ahead",
            Self::Reanchored => "reanchored",
        }
    }
}

/// The streams that went astray, counted, and an output series of the latest.
#[derive(Debug, Default)]
pub struct Strays {
    counts: [AtomicU64; Stray::ALL.len()],
    latest: Mutex<Option<(Stray, Arc<Series>)>>,
}

impl Strays {
    pub(crate) fn note(&self, stray: Stray, series: Option<&Arc<Series>>) {
        self.counts[stray as usize].fetch_add(1, Relaxed);
        if let Some(series) = series {
            *lock(&self.latest) = Some((stray, series.clone()));
        }
    }

    /// How often a stream went astray in this way.
    pub fn count(&self, stray: Stray) -> u64 {
        self.counts[stray as usize].load(Relaxed)
    }

    /// The output series of the stream that went astray last, since this was asked.
    pub fn take_latest(&self) -> Option<(Stray, Arc<Series>)> {
        lock(&self.latest).take()
    }
}

#[cfg(test)]
mod tests;
