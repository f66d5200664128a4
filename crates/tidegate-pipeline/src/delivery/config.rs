//! `sending_queue` and `retry_on_failure`: the options of every pushing exporter, with the Collector's names.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::backoff::Backoff;
use super::machine::{Rules, Together};
use super::retry_on::RetryStatus;
use super::shape::Shape;
use super::temporality::TemporalityChoice;
use crate::batch::{Batching, Sizer};
use tidegate_config::{ByteSize, Node, Problems};

tidegate_config::choices! {
    /// What happens to a batch that finds the queue full.
    pub enum OnFull {
        /// The sender must come back later; every other destination of the same data waits with it.
        Refuse = "refuse",
        /// The batch is dropped here, and counted; other destinations take it.
        Drop = "drop",
    }
}

tidegate_config::choices! {
    /// When a queue with storage writes.
    pub enum StorageMode {
        /// Every batch before it is acknowledged: what was acknowledged survives the end of the process.
        Always = "always",
        /// What memory has no room for, and what is left at the stop.
        Spill = "spill",
    }
}

tidegate_config::options! {
    /// `sending_queue`.
    pub struct QueueConfig {
        /// Whether batches may wait behind those that are being sent. Without, at most `num_consumers` are held.
        pub enabled: bool = true,
        /// Requests under way at once.
        pub num_consumers: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9),
        /// How much may be held in memory: waiting, being sent, and waiting for a retry.
        pub queue_size: NonZeroUsize = NonZeroUsize::MIN.saturating_add(999),
        /// What `queue_size` counts.
        pub sizer: Sizer = Sizer::Requests,
        /// How many bytes of payload and kept headers may be held, whatever `sizer` counts.
        pub max_bytes: ByteSize = ByteSize::mib(256),
        /// What happens when the queue is full.
        pub on_full: OnFull = OnFull::Refuse,
        /// Whether a sender that finds the queue full waits for room instead of being told to come back.
        #[alias = "blocking"]
        pub block_on_overflow: bool = false,
        /// Whether a sender is answered only when its data is delivered, or is known not to be.
        pub wait_for_result: bool = false,
        /// Id of the storage extension that takes what memory does not hold; it must be in `service::extensions` too.
        pub storage: Option<String> = None,
        /// What is written there.
        pub storage_mode: StorageMode = StorageMode::Always,
        /// Largest request, before compression. A larger one is cut, and what is larger by itself is dropped. Without:
        /// 64 MiB, or what the vendor takes.
        pub max_request_size: Option<ByteSize> = None,
        /// Most items of a request. Without: any number, or what the vendor takes.
        pub max_request_items: Option<usize> = None,
        /// Whether a request that the peer refuses for what is in it (400, `INVALID_ARGUMENT`) is cut in halves until
        /// what is refused stands alone, so that the rest passes.
        pub isolate_refused: bool = true,
        /// Joins and cuts requests here; goes before a `batch` processor's settings.
        pub batch: Option<BatchConfig> = None,
    }
    check = QueueConfig::check
}

tidegate_config::options! {
    /// `sending_queue::batch`.
    pub struct BatchConfig {
        /// How long the first batch of a request may wait for others.
        pub flush_timeout: Duration = Duration::from_millis(200),
        /// A request of this size goes out at once.
        #[alias = "min_size_items"]
        pub min_size: usize = 8192,
        /// A larger request is cut; 0 = never.
        #[alias = "max_size_items"]
        pub max_size: usize = 0,
        /// What the sizes count.
        pub sizer: Sizer = Sizer::Items,
    }
    check = BatchConfig::check
}

tidegate_config::options! {
    /// `retry_on_failure`.
    pub struct RetryConfig {
        /// Whether a request that failed for the moment is sent again.
        pub enabled: bool = true,
        /// Delay before the first retry.
        pub initial_interval: Duration = Duration::from_secs(5),
        /// Each delay is drawn from `delay * (1 - factor)` to `delay * (1 + factor)`.
        pub randomization_factor: f64 = 0.5,
        /// Growth of the delay from one retry to the next.
        pub multiplier: f64 = 1.5,
        /// The delay does not grow beyond this.
        pub max_interval: Duration = Duration::from_secs(30),
        /// A request is dropped this long after its first attempt; 0 = never. Without: 5 minutes, never where the
        /// queue has storage.
        pub max_elapsed_time: Option<Duration> = None,
        /// Answers that are final by the protocol and are tried again all the same: HTTP statuses such as 401, or gRPC
        /// codes such as UNAUTHENTICATED.
        pub retry_on_status: Vec<RetryStatus> = Vec::new(),
    }
    check = RetryConfig::check
}

impl QueueConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.wait_for_result && self.storage.is_some() {
            cx.at(at.child("wait_for_result"))
                .error("can't be combined with `storage`: what is on disk counts as taken");
        }
        if self.block_on_overflow && self.on_full == OnFull::Drop {
            cx.at(at.child("block_on_overflow"))
                .error("can't be combined with `on_full: drop`");
        }
        if self.storage.is_some() && !self.enabled {
            cx.at(at.child("storage")).error("needs `enabled: true`");
        }
        let Some(batch) = self.batch.as_ref().filter(|batch| batch.sizer == self.sizer) else {
            return;
        };
        if batch.min_size > self.queue_size.get() {
            cx.at(at.child("batch"))
                .error("`min_size` must be less than or equal to `queue_size`");
        }
    }

    /// The batching of the destination's own queue.
    pub fn batching(&self) -> Option<Batching> {
        self.batch.as_ref().map(|batch| Batching {
            timeout: batch.flush_timeout,
            min_size: batch.min_size,
            max_size: batch.max_size,
            sizer: batch.sizer,
            metrics: None,
        })
    }

    /// The capacity of the queue, and its unit.
    pub fn capacity(&self) -> (Sizer, usize) {
        if self.enabled {
            (self.sizer, self.queue_size.get())
        } else {
            (Sizer::Requests, self.num_consumers.get())
        }
    }
}

impl BatchConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.max_size != 0 && self.max_size < self.min_size {
            cx.at(at.child("max_size"))
                .error("`max_size` must be greater than or equal to `min_size`");
        }
    }
}

impl RetryConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if !(0.0..=1.0).contains(&self.randomization_factor) {
            cx.at(at.child("randomization_factor"))
                .error("must be between 0 and 1");
        }
        if !(1.0..=MAX_MULTIPLIER).contains(&self.multiplier) {
            cx.at(at.child("multiplier"))
                .error(format!("must be between 1 and {MAX_MULTIPLIER}"));
        }
        for (name, interval) in [
            ("initial_interval", self.initial_interval),
            ("max_interval", self.max_interval),
        ] {
            if self
                .max_elapsed_time
                .is_some_and(|max| !max.is_zero() && max < interval)
            {
                cx.at(at.child("max_elapsed_time"))
                    .error(format!("must not be less than `{name}`"));
            }
        }
    }

    /// The retry schedule, if retries are enabled. With `patient`, retries never end, because nothing is lost.
    pub fn backoff(&self, patient: bool) -> Option<Backoff> {
        let or_else = if patient { Duration::ZERO } else { MAX_ELAPSED_TIME };
        let max_elapsed = self.max_elapsed_time.unwrap_or(or_else);
        self.enabled.then(|| Backoff {
            initial: self.initial_interval,
            multiplier: self.multiplier,
            jitter: self.randomization_factor,
            max: self.max_interval,
            max_elapsed: Some(max_elapsed).filter(|time| !time.is_zero()),
        })
    }
}

/// Growth beyond this is probably a typing error.
const MAX_MULTIPLIER: f64 = 1000.0;

/// The default time limit of retries, as in the Collector.
const MAX_ELAPSED_TIME: Duration = Duration::from_secs(300);

/// "Clients MUST NOT send larger ones" (OTLP, 1.11).
const MAX_REQUEST_SIZE: ByteSize = ByteSize::mib(64);

/// All delivery options, as a destination needs them.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The queue.
    pub queue: QueueConfig,
    /// The retries.
    pub retry: RetryConfig,
    /// The time limit of one attempt; `None` = no limit.
    pub timeout: Option<Duration>,
    /// The temporality of points.
    pub temporality: TemporalityChoice,
    /// Whether the exporter refuses sums of deltas that may fall. They are not converted then.
    pub refuses_falling: bool,
    /// The changes to metrics before export.
    pub shape: Shape,
    /// Whether requests keep the order of their arrival; see [`Rules::in_order`].
    pub in_order: bool,
    /// The limits for joining ready requests; see [`Rules::together`].
    pub together: Option<Together>,
}

impl Delivery {
    pub(super) fn rules(&self) -> Rules {
        Rules {
            consumers: self.queue.num_consumers.get(),
            in_order: self.in_order,
            together: self.together,
            retry: self.retry.backoff(self.queue.storage.is_some()),
            keeps: self.queue.storage.is_some(),
            isolate: self.queue.isolate_refused,
            max_bytes: self.queue.max_request_size.unwrap_or(MAX_REQUEST_SIZE).as_usize(),
            max_items: self.queue.max_request_items.unwrap_or(usize::MAX).max(1),
        }
    }
}
