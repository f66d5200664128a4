//! Options of the `nixl_mp` receiver.

use std::time::Duration;

use crate::config::{Node, Problems};
use crate::receivers::globs::check_globs;

crate::options! {
    /// Options of the `nixl_mp` receiver.
    pub struct Config {
        /// Directories in which stores appear (`NIXL_TELEMETRY_MULTIPROC_DIR` of the agents); globs are allowed.
        pub directories: Vec<String> = required,
        /// Only files whose name matches one of these globs.
        pub include: Vec<String> = vec!["nixl.*.mmap".to_owned()],
        /// Files whose name matches one of these globs are left alone.
        pub exclude: Vec<String> = Vec::new(),
        /// How often a store is looked at; one that has not changed costs a memory access.
        pub poll_interval: Duration = Duration::from_millis(10),
        /// How often the directories are listed, besides at every change that the kernel reports.
        pub scan_interval: Duration = Duration::from_secs(1),
        /// A store that stands still for this long is asked whether its agent still holds the lock.
        pub liveness_interval: Duration = Duration::from_secs(1),
    }
    check = Config::check
}

impl Config {
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
