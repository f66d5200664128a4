// SPDX-License-Identifier: Apache-2.0

//! Options of the `memory_limiter` processor, as in the Collector.

use std::time::Duration;

use crate::component::Limit;
use crate::config::{Node, Problems, WithoutEffect};

/// A mebibyte, in bytes.
const MIB: u64 = 1 << 20;

/// The default share of the limit for spikes, in percent.
const DEFAULT_SPIKE_PERCENT: u64 = 20;

crate::options! {
    /// Options of `memory_limiter`.
    pub(super) struct MemoryLimiterConfig {
        /// Interval of measurements. It must be set, as in the Collector. Between two measurements, the gateway
        /// adds the memory that it takes itself.
        pub check_interval: Duration = Duration::ZERO,
        /// Most memory of the process, in MiB.
        pub limit_mib: u64 = 0,
        /// Most memory of the process, in percent of the memory of the machine or container.
        pub limit_percentage: u64 = 0,
        /// Distance of the soft limit below the limit, in MiB. 0: a fifth of the limit. Above the soft limit, the
        /// gateway refuses new series and data for queues. It takes points of known series up to the limit.
        pub spike_limit_mib: u64 = 0,
        /// The same distance, in percent of the memory of the machine or container.
        pub spike_limit_percentage: u64 = 0,
    }
    accepted = OF_GO;
    check = MemoryLimiterConfig::check
}

const NO_COLLECTOR: &str = "there is no garbage collector to run";

/// Options of the Collector's processor that have no effect here.
const OF_GO: &WithoutEffect = &[
    ("min_gc_interval_when_soft_limited", NO_COLLECTOR),
    ("min_gc_interval_when_hard_limited", NO_COLLECTOR),
    ("max_gc_interval_when_soft_limited", NO_COLLECTOR),
    ("max_gc_interval_when_hard_limited", NO_COLLECTOR),
];

impl MemoryLimiterConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.check_interval.is_zero() {
            cx.at(at.child("check_interval"))
                .help("1s is usual: `check_interval: 1s`")
                .error("'check_interval' must be greater than zero");
        }
        if self.limit_mib == 0 && self.limit_percentage == 0 {
            cx.at(at)
                .error("'limit_mib' or 'limit_percentage' must be greater than zero");
        }
        if self.limit_mib != 0 && self.spike_limit_mib >= self.limit_mib {
            cx.at(at.child("spike_limit_mib"))
                .error("'spike_limit_mib' must be smaller than 'limit_mib'");
        }
        self.check_percentages(at, cx);
    }

    fn check_percentages(&self, at: &Node, cx: &mut Problems) {
        for (key, percent) in [
            ("limit_percentage", self.limit_percentage),
            ("spike_limit_percentage", self.spike_limit_percentage),
        ] {
            if percent > 100 {
                cx.at(at.child(key)).error("must be between 0 and 100");
            }
        }
        let by_percent = self.limit_mib == 0 && self.limit_percentage != 0;
        if by_percent && self.spike_limit_percentage >= self.limit_percentage {
            cx.at(at.child("spike_limit_percentage"))
                .error("'spike_limit_percentage' must be smaller than 'limit_percentage'");
        }
    }

    /// The limits on a machine with `total` bytes. MiB override percentages.
    pub(super) fn limits(&self, total: u64) -> Limit {
        let percent = |percent: u64| total / 100 * percent;
        let (limit, spike) = match self.limit_mib {
            0 => (
                percent(self.limit_percentage),
                percent(self.spike_limit_percentage),
            ),
            mib => (mib.saturating_mul(MIB), self.spike_limit_mib.saturating_mul(MIB)),
        };
        let spike = match spike {
            0 => limit / 100 * DEFAULT_SPIKE_PERCENT,
            spike => spike,
        };
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Limit {
            soft: bytes(limit.saturating_sub(spike)),
            hard: bytes(limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::testing::options;

    #[test]
    fn the_soft_limit_leaves_room_for_spikes() {
        let table = [
            ("{check_interval: 1s, limit_mib: 100}", 80, 100),
            (
                "{check_interval: 1s, limit_mib: 100, spike_limit_mib: 30}",
                70,
                100,
            ),
            ("{check_interval: 1s, limit_percentage: 50}", 400, 500),
            (
                "{check_interval: 1s, limit_percentage: 50, spike_limit_percentage: 10}",
                400,
                500,
            ),
            (
                "{check_interval: 1s, limit_mib: 100, limit_percentage: 50}",
                80,
                100,
            ),
        ];
        for (text, mib, hard) in table {
            let limits = options::<MemoryLimiterConfig>(text).unwrap().limits(1000 * MIB);
            assert_eq!(limits.soft.div_ceil(1 << 20), mib, "{text}");
            assert_eq!(limits.hard.div_ceil(1 << 20), hard, "{text}");
        }
    }

    #[test]
    fn every_contradiction_is_named() {
        let table = [
            ("{limit_mib: 1}", "'check_interval' must be greater than zero"),
            (
                "{check_interval: 1s}",
                "'limit_mib' or 'limit_percentage' must be greater than zero",
            ),
            (
                "{check_interval: 1s, limit_mib: 5, spike_limit_mib: 5}",
                "'spike_limit_mib' must be smaller than 'limit_mib'",
            ),
            (
                "{check_interval: 1s, limit_percentage: 101}",
                "must be between 0 and 100",
            ),
            (
                "{check_interval: 1s, limit_percentage: 50, spike_limit_percentage: 50}",
                "'spike_limit_percentage' must be smaller",
            ),
        ];
        for (text, expected) in table {
            let error = options::<MemoryLimiterConfig>(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
