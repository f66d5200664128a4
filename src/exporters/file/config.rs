// SPDX-License-Identifier: Apache-2.0

//! Options of the `file` exporter, with the Collector's names.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use crate::batch::Sizer;
use crate::config::{Node, Problems, WithoutEffect};
use crate::delivery::config::BatchConfig;
use crate::delivery::{Delivery, QueueConfig, RetryConfig, Speaks, TemporalityChoice};
use crate::net::FileMode;

/// Options of the Collector's exporter that can mean nothing here.
const OF_FILE: &WithoutEffect = &[(
    "group_by",
    "requests of all resources go to one file; name several exporters behind `filter` for several files",
)];

crate::options! {
    /// Options of the `file` exporter.
    pub struct FileExporterConfig {
        /// Path of the output file.
        pub path: PathBuf = required,
        /// Permission bits of new files. An existing file keeps its own.
        pub mode: FileMode = FileMode(0o600),
        /// Whether the exporter follows every symbolic link. Otherwise it follows only links of root or of the
        /// gateway's user.
        pub follow_links: bool = false,
        /// Whether the exporter appends to the file of an earlier run. Otherwise its first write truncates that file. After
        /// a reload it always appends.
        pub append: bool = false,
        /// `json`: one line of OTLP/JSON for each request. `proto`: framed OTLP. `csv`: raw events of metrics
        /// pipelines.
        pub format: FileFormat = FileFormat::Json,
        /// Compression of each request. Compressed requests are framed.
        pub compression: Compression = Compression::None,
        /// Longest time that requests are joined before one write. 0: each request is written at once.
        pub flush_interval: Duration = Duration::from_secs(1),
        /// Rotation of the file. Unset: no rotation.
        pub rotation: Option<Rotation> = None,
        /// Temporality of sums and histograms in the file.
        pub temporality: TemporalityChoice = TemporalityChoice::Preserve,
        /// Retries of failed writes, for example to a full disk.
        pub retry_on_failure: RetryConfig = RetryConfig::default(),
        /// Queue of batches that wait to be written.
        pub sending_queue: QueueConfig = QueueConfig::default(),
    }
    accepted = OF_FILE;
    check = FileExporterConfig::check
}

crate::options! {
    /// When a new file begins, and how many old files remain.
    pub struct Rotation {
        /// Size at which a new file begins, in MiB.
        pub max_megabytes: u64 = 100,
        /// Age at which a new file begins, in days. 0: no limit.
        pub max_days: u64 = 0,
        /// Most old files. The exporter removes the oldest ones. 0: no limit.
        pub max_backups: usize = 100,
        /// Must be `false`: names of old files contain their end in UTC.
        pub localtime: bool = false,
    }
    check = Rotation::check
}

crate::choices! {
    /// The format of the file.
    pub enum FileFormat {
        /// OTLP/JSON, one line for each request.
        Json = "json",
        /// OTLP. The length of each request precedes it (4 bytes, big-endian).
        Proto = "proto",
        /// `timestamp_us,category,event_name,value`: the header of NIXL's sample plugin.
        Csv = "csv",
    }
}

crate::choices! {
    /// The compression of each request.
    pub enum Compression {
        /// No compression.
        None = "none" | "",
        /// Zstandard.
        Zstd = "zstd",
    }
}

/// Gathered requests of this size are written before the interval is over.
const GATHER_BYTES: usize = 1 << 20;

impl FileExporterConfig {
    /// One writer, so that lines keep their order; gathering as `flush_interval` says unless the queue says otherwise.
    pub(super) fn delivery(&self) -> Delivery {
        let mut queue = self.sending_queue.clone();
        queue.num_consumers = NonZeroUsize::MIN;
        if queue.batch.is_none() && !self.flush_interval.is_zero() {
            queue.batch = Some(BatchConfig {
                flush_timeout: self.flush_interval,
                min_size: GATHER_BYTES,
                max_size: 0,
                sizer: Sizer::Bytes,
            });
        }
        Delivery {
            temporality: self.temporality,
            ..Delivery::plain(queue, self.retry_on_failure.clone())
        }
    }

    fn check(&self, at: &Node, cx: &mut Problems) {
        self.retry_on_failure.check_statuses(Speaks::Other, at, cx);
        if self.path.as_os_str().is_empty() {
            cx.at(at.child("path")).error("must not be empty");
        }
        if self.format == FileFormat::Csv && self.compression != Compression::None {
            cx.at(at.child("compression")).error("`csv` can't be compressed");
        }
    }
}

impl Rotation {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.max_megabytes == 0 {
            cx.at(at.child("max_megabytes"))
                .error("must be greater than zero");
        }
        if self.localtime {
            cx.at(at.child("localtime"))
                .help("times in UTC sort, also where clocks are put back")
                .error("names of old files are in UTC only");
        }
    }
}
