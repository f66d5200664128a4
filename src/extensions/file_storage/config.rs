//! Options of the `file_storage` extension.

use std::time::Duration;

use crate::config::{ByteSize, Node, Problems, WithoutEffect};

/// Options of the Collector's storage that can mean nothing here.
const OF_BBOLT: &WithoutEffect = &[
    (
        "compaction",
        "disk space comes back by whole files of `segment_size`",
    ),
    (
        "timeout",
        "a directory that another process has locked is an error at once",
    ),
    ("recreate", "damaged records are left out and counted"),
    (
        "directory_permissions",
        "directories that are made are the gateway's alone",
    ),
];

crate::choices! {
    /// When written data is forced to the disk.
    pub(super) enum FsyncMode {
        /// Before anything is acknowledged.
        Always = "always" | "true",
        /// Every `fsync_interval`: a loss of power costs at most that much.
        Interval = "interval",
        /// When the kernel likes: the end of the process costs nothing, a loss of power may.
        Never = "never" | "false",
    }
}

crate::options! {
    /// Options of `file_storage`.
    pub(super) struct Config {
        /// Where; each component that keeps something has a directory of its own in it.
        pub directory: String = "/var/lib/tidegate/file_storage".to_owned(),
        /// Whether the directory is made if it is not there.
        pub create_directory: bool = false,
        /// When written data is forced to the disk.
        pub fsync: FsyncMode = FsyncMode::Interval,
        /// How often, with `fsync: interval`.
        pub fsync_interval: Duration = Duration::from_millis(100),
        /// How much all components together may keep; what does not fit is as if their queue were full.
        pub max_size: ByteSize = ByteSize::mib(10 << 10),
        /// Size of a file; disk space comes back by whole files.
        pub segment_size: ByteSize = ByteSize::mib(16),
    }
    accepted = OF_BBOLT;
    check = Config::check
}

/// Smaller files would mostly be headers; larger ones take long to scan after a restart.
const SEGMENT_SIZES: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 30;

impl Config {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.directory.is_empty() {
            cx.at(at.child("directory")).error("must not be empty");
        }
        if !SEGMENT_SIZES.contains(&self.segment_size.bytes()) {
            cx.at(at.child("segment_size"))
                .error("must be between 64KiB and 1GiB");
        }
        if self.max_size < self.segment_size {
            cx.at(at.child("max_size"))
                .error("must not be less than `segment_size`");
        }
        if self.fsync_interval.is_zero() {
            cx.at(at.child("fsync_interval"))
                .help("`fsync: always` is what forces every write")
                .error("must be greater than zero");
        }
    }
}
