// SPDX-License-Identifier: Apache-2.0

//! The limits of a table, and its statistics.

use std::time::Duration;

use crate::Future;
use crate::stream_tracker::{Collision, Rejection};

/// The limits of a table on size and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Output series; those beyond are added up in one with `otel.metric.overflow=true` a metric.
    pub series: usize,
    /// Output series of one metric name.
    pub series_per_metric: usize,
    /// Input streams (kinds of a source, points of a resource) of one source that get series of their own; see
    /// [`Table::shared_by_sources`](super::Table::shared_by_sources).
    pub streams_per_source: usize,
    /// Bytes of output series and input streams, estimated; new ones beyond go where those beyond `series` go.
    pub bytes: usize,
    /// Input streams of points that are remembered.
    pub streams: usize,
    /// Sources of events that are remembered.
    pub sources: usize,
    /// A series expires this long after its last source was alive; so does the state of a source of points.
    pub expiry: Duration,
    /// A source of points that is silent for this long is overdue.
    pub lease: Duration,
    /// A point out of order still counts if it is at most this much older than the newest of its stream.
    pub lateness: Duration,
    /// The policy for points from the future.
    pub future: Future,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            series: 100_000,
            series_per_metric: usize::MAX,
            streams_per_source: usize::MAX,
            bytes: usize::MAX,
            streams: 1_000_000,
            sources: 10_000,
            expiry: Duration::from_mins(5),
            lease: Duration::from_secs(90),
            lateness: Duration::from_mins(1),
            future: Future::default(),
        }
    }
}

impl Limits {
    /// Overflow series come on top of the cap: one for each metric, for at most 1,000 metrics.
    pub(super) fn series_with_overflow(&self) -> usize {
        const MAX_OVERFLOW_SERIES: usize = 1000;
        self.series.saturating_add(MAX_OVERFLOW_SERIES)
    }
}

/// The reason why an input stream went to an overflow series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Overflow {
    /// The table holds as many series as it may.
    Series,
    /// Its metric has as many series as it may.
    Metric,
    /// Its source has as many streams as it may.
    Source,
    /// The table takes as much memory as it may.
    Bytes,
}

impl Overflow {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 4] = [Self::Series, Self::Metric, Self::Source, Self::Bytes];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Series => "series",
            Self::Metric => "metric",
            Self::Source => "source",
            Self::Bytes => "bytes",
        }
    }
}

/// The contents of a table, and the input that it could not take in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Output series.
    pub series: usize,
    /// Bytes of output series and input streams, estimated.
    pub bytes: usize,
    /// Input streams of points.
    pub streams: usize,
    /// Sources of events.
    pub sources: usize,
    /// Input streams that went to an overflow series, by `Overflow as usize`.
    pub overflowed_streams: [u64; Overflow::ALL.len()],
    /// Output series that have gone because their sources had.
    pub expired_series: u64,
    /// Quantiles of summaries that were dropped, since quantiles do not add up.
    pub refused_quantiles: u64,
    /// Input streams that several processes report, by `Collision as usize`.
    pub colliding_streams: [u64; Collision::ALL.len()],
    /// Items not taken in, by `Rejection as usize`.
    pub rejected: [u64; Rejection::ALL.len()],
}
