//! Options of the `shm` receiver.

use std::time::Duration;

use tidegate_cells::Limits;

use super::MIN_POLL;
use crate::config::{Node, Problems};
use crate::receivers::globs::check_globs;

crate::options! {
    /// Options of the `shm` receiver.
    pub struct Config {
        /// Directories of cells; globs are allowed. What is in one directory is merged: give each service its own.
        /// Empty: the one that writers use when they are told none (`TIDEGATE_CELLS_DIR`, or the user's own).
        pub directories: Vec<String> = Vec::new(),
        /// How often the cells are looked at. A look costs a few system calls a process, and what has changed.
        pub poll_interval: Duration = Duration::from_millis(10),
        /// How often directories are listed and dead processes looked for.
        pub scan_interval: Duration = Duration::from_secs(1),
        /// Put what dead processes have counted into one file, and remove theirs. Needs the right to write there.
        pub fold: bool = true,
        /// How long the file of a dead process stays after its counts have been taken over.
        pub grace_period: Duration = Duration::from_secs(60),
        /// Files of a directory that are read.
        pub max_processes: usize = 4096,
        /// Series of a process that are read.
        pub max_series: usize = 200_000,
    }
    check = Config::check
}

impl Config {
    fn check(&self, at: &Node, cx: &mut Problems) {
        for (key, interval) in [
            ("poll_interval", self.poll_interval),
            ("scan_interval", self.scan_interval),
        ] {
            if interval < MIN_POLL {
                cx.at(at.child(key)).error("must be at least 1ms");
            }
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
