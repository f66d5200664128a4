//! Options of the `nixl` receiver.

use std::time::Duration;

use crate::config::{Node, Problems};
use crate::receivers::globs::check_globs;

/// Below this a poll costs more than what it finds.
const MIN_POLL_INTERVAL: Duration = Duration::from_micros(100);

crate::options! {
    /// Options of the `nixl` receiver.
    pub struct Config {
        /// Directories in which ring files appear (`NIXL_TELEMETRY_DIR` of the agents); globs are allowed, and what they match may come later.
        pub directories: Vec<String> = required,
        /// Only files whose name (the agent's name) matches one of these globs.
        pub include: Vec<String> = vec!["*".to_owned()],
        /// Files whose name matches one of these globs are left alone; hidden files always are.
        pub exclude: Vec<String> = Vec::new(),
        /// How long an event of a quiet ring waits at most; rings that fill up are looked at more often.
        pub poll_interval: Duration = Duration::from_millis(10),
        /// How often the directories are listed, besides at every change that the kernel reports.
        pub scan_interval: Duration = Duration::from_secs(1),
        /// Take the events out of the ring (needs the agent's uid). `false` peeks: other readers still get everything.
        pub consume: bool = true,
        /// Only events of these categories (empty: all).
        pub categories: Vec<Category> = Vec::new(),
        /// Only events whose NIXL name matches one of these globs (`agent_xfer_*`; empty: all).
        pub events: Vec<String> = Vec::new(),
        /// Value of the attribute `hostname`; this host's name when empty.
        pub hostname: String = String::new(),
    }
    check = Config::check
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

impl Config {
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
