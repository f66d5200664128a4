// SPDX-License-Identifier: Apache-2.0

//! Options of the `shm` receiver.

use std::time::Duration;

use tidegate_cells::Limits;

use super::MIN_POLL;
use crate::config::{Node, Problems};
use crate::receivers::globs::check_globs;

crate::options! {
    /// Options of the `shm` receiver.
    pub struct ShmConfig {
        /// Directories of cells. Globs are allowed. The receiver merges all processes of a directory, so each
        /// service needs its own. Empty: the default of the writers (`TIDEGATE_CELLS_DIR`, or else the user's
        /// directory).
        pub directories: Vec<String> = Vec::new(),
        /// Interval of reads, at least 1ms. A read costs a few system calls for each process, and the changes.
        pub poll_interval: Duration = Duration::from_millis(10),
        /// Interval at which the receiver lists directories and looks for dead processes.
        pub scan_interval: Duration = Duration::from_secs(1),
        /// Interval at which the receiver sends all series again, also those that did not change. Exporters drop series that
        /// they do not receive: let their `metric_expiration` be at least twice as long. Below 10m.
        pub refresh: Duration = Duration::from_secs(60),
        /// Whether the receiver merges the counts of dead processes into one file and removes their files. It
        /// needs write permission.
        pub fold: bool = true,
        /// Time that the file of a dead process remains after the merge.
        pub grace_period: Duration = Duration::from_secs(60),
        /// Most files of a directory. The receiver does not read further ones.
        pub max_processes: usize = 4096,
        /// Most series of a process. The receiver does not read a process with more.
        pub max_series: usize = 200_000,
    }
    check = ShmConfig::check
}

/// After this time without data, composites forget a series. Exporters of deltas forget it after an hour, and would then
/// count its total again.
const REFRESH_LIMIT: Duration = Duration::from_mins(10);

impl ShmConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        for (key, interval) in [
            ("poll_interval", self.poll_interval),
            ("scan_interval", self.scan_interval),
            ("refresh", self.refresh),
        ] {
            if interval < MIN_POLL {
                cx.at(at.child(key)).error("must be at least 1ms");
            }
        }
        if self.refresh >= REFRESH_LIMIT {
            cx.at(at.child("refresh"))
                .error("must be below 10m, after which composites forget a series without data");
        }
        for (key, limit) in [
            ("max_processes", self.max_processes),
            ("max_series", self.max_series),
        ] {
            if limit == 0 {
                cx.at(at.child(key)).error("must be greater than zero");
            }
        }
        check_globs(at.child("directories"), cx);
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            max_files: self.max_processes,
            max_series: self.max_series,
            ..Limits::default()
        }
    }
}
