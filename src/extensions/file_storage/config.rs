// SPDX-License-Identifier: Apache-2.0

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
    ("recreate", "damaged records are dropped and counted"),
    (
        "directory_permissions",
        "directories that are made are the gateway's alone",
    ),
];

crate::choices! {
    /// The time at which written data is forced to the disk.
    pub(super) enum FsyncMode {
        /// Before each acknowledgement.
        Always = "always" | "true",
        /// Every `fsync_interval`. A power failure loses at most the data of one interval.
        Interval = "interval",
        /// As the kernel decides. A power failure may lose data; the end of the process loses none.
        Never = "never" | "false",
    }
}

crate::options! {
    /// Options of `file_storage`.
    pub(super) struct FileStorageConfig {
        /// Directory of the data. Each component with stored data has its own subdirectory.
        pub directory: String = "/var/lib/tidegate/file_storage".to_owned(),
        /// Whether the extension creates a missing directory.
        pub create_directory: bool = false,
        /// Time at which written data is forced to the disk.
        pub fsync: FsyncMode = FsyncMode::Interval,
        /// Interval of `fsync: interval`.
        pub fsync_interval: Duration = Duration::from_millis(100),
        /// Most data of all components together. Beyond it, components act as if their queue were full.
        pub max_size: ByteSize = ByteSize::mib(10 << 10),
        /// Size of one file, 64KiB to 1GiB. Disk space is freed by whole files.
        pub segment_size: ByteSize = ByteSize::mib(16),
    }
    accepted = OF_BBOLT;
    check = FileStorageConfig::check
}

/// Smaller files would mostly be headers; larger ones take long to scan after a restart.
const SEGMENT_SIZES: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 30;

impl FileStorageConfig {
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
                .help("`fsync: always` forces every write")
                .error("must be greater than zero");
        }
    }
}
