// SPDX-License-Identifier: Apache-2.0

//! The kinds of telemetry.

use std::fmt;

/// The kind of telemetry of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Signal {
    /// Metrics.
    Metrics,
    /// Traces.
    Traces,
    /// Logs.
    Logs,
}

impl Signal {
    /// All signals, in the order of every table of ours.
    pub const ALL: [Self; 3] = [Self::Metrics, Self::Traces, Self::Logs];

    /// `metrics`, `traces` or `logs`, as in pipeline ids.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Traces => "traces",
            Self::Logs => "logs",
        }
    }

    /// The name of the items that it counts: `metric_points`, `spans` or `log_records`, as in the Collector's own
    /// metrics.
    pub fn items(self) -> &'static str {
        match self {
            Self::Metrics => "metric_points",
            Self::Traces => "spans",
            Self::Logs => "log_records",
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
