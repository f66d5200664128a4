// SPDX-License-Identifier: Apache-2.0

//! Options of the `nixl` receiver.

use std::time::Duration;

use crate::config::{Node, Problems};
use crate::receivers::globs::check_globs;

/// Below this a poll costs more than it gains.
const MIN_POLL_INTERVAL: Duration = Duration::from_micros(100);

crate::options! {
    /// Options of the `nixl` receiver.
    pub struct NixlConfig {
        /// Directories of ring files (`NIXL_TELEMETRY_DIR` of the agents). Globs are allowed, and directories may
        /// appear later.
        pub directories: Vec<String> = required,
        /// Globs of file names to read. The name of a file is that of the agent.
        pub include: Vec<String> = vec!["*".to_owned()],
        /// Globs of file names to ignore. Hidden files are always ignored.
        pub exclude: Vec<String> = Vec::new(),
        /// Longest time that an event of a quiet ring waits, at least 100us. Rings that fill up are read more
        /// often.
        pub poll_interval: Duration = Duration::from_millis(10),
        /// Interval at which directories are listed. Each change that the kernel reports causes a listing too.
        pub scan_interval: Duration = Duration::from_secs(1),
        /// Whether the receiver takes events out of the ring. It needs the uid of the agent. With `false` it
        /// peeks: other readers still get all events.
        pub consume: bool = true,
        /// Categories of events to read. Empty: all.
        pub categories: Vec<Category> = Vec::new(),
        /// Globs of NIXL event names to read, for example `agent_xfer_*`. Empty: all.
        pub events: Vec<String> = Vec::new(),
        /// Value of the attribute `hostname`. Empty: the name of this host.
        pub hostname: String = String::new(),
    }
    check = NixlConfig::check
}

crate::choices! {
    /// Categories of NIXL events.
    pub enum Category {
        /// Registration of memory.
        Memory = "MEMORY" | "memory",
        /// Bytes and requests.
        Transfer = "TRANSFER" | "transfer",
        /// Connections.
        Connection = "CONNECTION" | "connection",
        /// Back-end events.
        Backend = "BACKEND" | "backend",
        /// Errors by status.
        Error = "ERROR" | "error",
        /// Times.
        Performance = "PERFORMANCE" | "performance",
        /// The telemetry itself.
        System = "SYSTEM" | "system",
        /// Anything else.
        Custom = "CUSTOM" | "custom",
    }
}

impl NixlConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.directories.is_empty() {
            cx.at(at.child("directories"))
                .error("must name at least one directory");
        }
        if self.poll_interval < MIN_POLL_INTERVAL {
            cx.at(at.child("poll_interval")).error("must be at least 100us");
        }
        if self.scan_interval.is_zero() {
            cx.at(at.child("scan_interval"))
                .error("must be greater than zero");
        }
        for key in ["directories", "include", "exclude", "events"] {
            check_globs(at.child(key), cx);
        }
    }
}
