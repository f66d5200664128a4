// SPDX-License-Identifier: Apache-2.0

//! Options of the `nixl_mp` receiver.

use std::time::Duration;

use crate::config::{Node, Problems};
use crate::receivers::globs::check_globs;

crate::options! {
    /// Options of the `nixl_mp` receiver.
    pub struct NixlMpConfig {
        /// Directories of stores (`NIXL_TELEMETRY_MULTIPROC_DIR` of the agents). Globs are allowed.
        pub directories: Vec<String> = required,
        /// Globs of file names to read.
        pub include: Vec<String> = vec!["nixl.*.mmap".to_owned()],
        /// Globs of file names to ignore.
        pub exclude: Vec<String> = Vec::new(),
        /// Interval at which the receiver reads stores. An unchanged store costs one memory access.
        pub poll_interval: Duration = Duration::from_millis(10),
        /// Interval at which directories are listed. Each change that the kernel reports causes a listing too.
        pub scan_interval: Duration = Duration::from_secs(1),
        /// Time without change after which the receiver checks whether the agent of a store still holds its lock.
        pub liveness_interval: Duration = Duration::from_secs(1),
    }
    check = NixlMpConfig::check
}

impl NixlMpConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.directories.is_empty() {
            cx.at(at.child("directories"))
                .error("must name at least one directory");
        }
        let intervals = [
            ("poll_interval", self.poll_interval),
            ("scan_interval", self.scan_interval),
            ("liveness_interval", self.liveness_interval),
        ];
        for (key, interval) in intervals {
            if interval.is_zero() {
                cx.at(at.child(key)).error("must be greater than zero");
            }
        }
        for key in ["directories", "include", "exclude"] {
            check_globs(at.child(key), cx);
        }
    }
}
