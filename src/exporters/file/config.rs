//! Options of the `file` exporter, with the Collector's names.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use crate::batch::Sizer;
use crate::config::{Node, Problems, WithoutEffect};
use crate::delivery::config::BatchConfig;
use crate::delivery::{Delivery, QueueConfig, RetryConfig, Shape, Speaks, TemporalityChoice};
use crate::net::FileMode;

/// Options of the Collector's exporter that can mean nothing here.
const OF_FILE: &WithoutEffect = &[(
    "group_by",
    "requests of all resources go to one file; name several exporters behind `filter` for several files",
)];

crate::options! {
    /// Options of the `file` exporter.
    pub struct Config {
        /// The file.
        pub path: PathBuf = required,
        /// Permission bits of files that are made. A file that exists keeps its own.
        pub mode: FileMode = FileMode(0o600),
        /// Write through a symbolic link whoever owns it. Otherwise only through links of root or of the gateway's user.
        pub follow_links: bool = false,
        /// Go on where an existing file ends. Otherwise it is begun anew at every start.
        pub append: bool = false,
        /// `json`: a line of OTLP/JSON a request; `proto`: framed OTLP; `csv`: raw events of metrics pipelines.
        pub format: Format = Format::Json,
        /// Each request is compressed by itself and framed.
        pub compression: Compression = Compression::None,
        /// How long requests are gathered and then written as one; 0 = each at once.
        pub flush_interval: Duration = Duration::from_secs(1),
        /// When a new file is begun; unset: never.
        pub rotation: Option<Rotation> = None,
        /// What points of sums and histograms are to cover.
        pub temporality: TemporalityChoice = TemporalityChoice::Preserve,
        /// Retries, of a full disk say.
        pub retry_on_failure: RetryConfig = RetryConfig::default(),
        /// The queue.
        pub sending_queue: QueueConfig = QueueConfig::default(),
    }
    accepted = OF_FILE;
    check = Config::check
}

crate::options! {
    /// When a new file is begun, and how many old ones stay.
    pub struct Rotation {
        /// At this size, in MiB.
        pub max_megabytes: u64 = 100,
        /// At this age, in days; 0 = at no age.
        pub max_days: u64 = 0,
        /// Old files that stay; 0 = all.
        pub max_backups: usize = 100,
        /// Only `false`: names of old files say in UTC when they ended.
        pub localtime: bool = false,
    }
    check = Rotation::check
}

crate::choices! {
    /// What is written.
    pub enum Format {
        /// OTLP/JSON, a line a request.
        Json = "json",
        /// OTLP, each request behind its length (4 bytes, big-endian).
        Proto = "proto",
        /// `timestamp_us,category,event_name,value`: the header of NIXL's sample plugin.
        Csv = "csv",
    }
}

crate::choices! {
    /// How requests are compressed.
    pub enum Compression {
        /// As they are.
        None = "none" | "",
        /// Zstandard.
        Zstd = "zstd",
    }
}

/// Gathered requests of this size are written before the interval is over.
const GATHER_BYTES: usize = 1 << 20;

impl Config {
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
            queue,
            retry: self.retry_on_failure.clone(),
            timeout: None,
            temporality: self.temporality,
            refuses_falling: false,
            shape: Shape::NONE,
            in_order: false,
            together: None,
        }
    }

    fn check(&self, at: &Node, cx: &mut Problems) {
        self.retry_on_failure.check_statuses(Speaks::Other, at, cx);
        if self.path.as_os_str().is_empty() {
            cx.at(at.child("path")).error("must not be empty");
        }
        if self.format == Format::Csv && self.compression != Compression::None {
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
