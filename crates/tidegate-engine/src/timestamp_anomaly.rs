// SPDX-License-Identifier: Apache-2.0

//! Timestamp anomalies: streams whose points are older than their newest, or too far ahead of the clock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::Series;
use crate::streams::lock;

/// An anomaly of the timestamps of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TimestampAnomaly {
    /// Its points are older than its newest one and are refused: its value is stale.
    Behind,
    /// Its points are too far ahead of the gateway's clock and are refused: its value is stale.
    Ahead,
    /// Its sender's clock was set back: the stream continues by the new clock.
    Reanchored,
}

impl TimestampAnomaly {
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

/// Counts of the streams with each anomaly, and an output series of the latest such stream.
#[derive(Debug, Default)]
pub struct TimestampAnomalies {
    counts: [AtomicU64; TimestampAnomaly::ALL.len()],
    latest: Mutex<Option<(TimestampAnomaly, Arc<Series>)>>,
}

impl TimestampAnomalies {
    /// Counts a stream with this anomaly. `series` is one of its output series.
    pub(crate) fn note(&self, anomaly: TimestampAnomaly, series: Option<&Arc<Series>>) {
        self.counts[anomaly as usize].fetch_add(1, Relaxed);
        if let Some(series) = series {
            *lock(&self.latest) = Some((anomaly, series.clone()));
        }
    }

    /// The number of streams that had this anomaly, with repetitions.
    pub fn count(&self, anomaly: TimestampAnomaly) -> u64 {
        self.counts[anomaly as usize].load(Relaxed)
    }

    /// The output series of the latest stream with an anomaly since the last call.
    pub fn take_latest(&self) -> Option<(TimestampAnomaly, Arc<Series>)> {
        lock(&self.latest).take()
    }
}

#[cfg(test)]
mod tests;
