// SPDX-License-Identifier: Apache-2.0

//! `sending_queue` and `retry_on_failure`: the options of every pushing exporter, with the Collector's names.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::backoff::Backoff;
use super::machine::{DeliveryRules, Together};
use super::retry_on::RetryStatus;
use super::shape::Shape;
use super::temporality::TemporalityChoice;
use crate::batch::{Batching, Sizer};
use tidegate_config::{ByteSize, Decode as _, Node, Problems};

tidegate_config::choices! {
    /// Treatment of a batch that arrives when the queue is full.
    pub enum OnFull {
        /// The gateway refuses the batch for all its destinations, and the sender must retry.
        Refuse = "refuse",
        /// This destination drops the batch and counts it; other destinations take it.
        Drop = "drop",
    }
}

tidegate_config::choices! {
    /// The batches that a queue with storage writes to disk.
    pub enum StorageMode {
        /// Every batch before its acknowledgement: acknowledged data survives the end of the process.
        Always = "always",
        /// Batches that do not fit in memory, and those that remain at the stop.
        Spill = "spill",
    }
}

tidegate_config::options! {
    /// `sending_queue`.
    pub struct QueueConfig {
        /// Batches wait in a queue behind those that are being sent. `false`: the exporter holds at most
        /// `num_consumers` batches.
        pub enabled: bool = true,
        /// The largest number of concurrent requests.
        pub num_consumers: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9),
        /// Capacity of the queue in units of `sizer`: waiting data, data being sent and data that waits for a retry.
        /// `on_full` says what happens at the limit.
        pub queue_size: NonZeroUsize = NonZeroUsize::MIN.saturating_add(999),
        /// Unit of `queue_size`.
        pub sizer: Sizer = Sizer::Requests,
        /// Capacity of the queue in bytes of payload and kept headers, with any `sizer`. `on_full` says what happens at
        /// the limit.
        pub max_bytes: ByteSize = ByteSize::mib(256),
        /// Treatment of a batch that arrives when the queue is full.
        pub on_full: OnFull = OnFull::Refuse,
        /// A sender waits for room when the queue is full. `false`: the gateway refuses the batch, and the sender must
        /// retry.
        #[alias = "blocking"]
        pub block_on_overflow: bool = false,
        /// The sender gets its answer only after its data is delivered or lost.
        pub wait_for_result: bool = false,
        /// Id of the storage extension to which the queue writes; it must be in `service::extensions` too. Unset: the
        /// queue is in memory only.
        pub storage: Option<String> = None,
        /// The batches that the queue writes to `storage`.
        pub storage_mode: StorageMode = StorageMode::Always,
        /// Largest size of a request, before compression. The exporter cuts a larger request, and drops a single item
        /// that is larger. Unset: 64 MiB, or the vendor's limit.
        pub max_request_size: Option<ByteSize> = None,
        /// Largest number of items of a request; the exporter cuts a larger one. Unset: no limit, or the vendor's.
        pub max_request_items: Option<usize> = None,
        /// The exporter cuts a request in halves if the peer refuses its content (400, `INVALID_ARGUMENT`). It repeats
        /// this until the refused items stand alone, so that the rest passes.
        pub isolate_refused: bool = true,
        /// Settings by which the queue joins and cuts requests; they override those of a `batch` processor.
        pub batch: Option<BatchConfig> = None,
    }
    check = QueueConfig::check
}

tidegate_config::options! {
    /// `sending_queue::batch`.
    pub struct BatchConfig {
        /// The longest time that the first batch of a request waits for others.
        pub flush_timeout: Duration = Duration::from_millis(200),
        /// The queue sends a request of this size, in units of `sizer`, at once.
        #[alias = "min_size_items"]
        pub min_size: usize = 8192,
        /// Largest size of a request in units of `sizer`; the queue cuts a larger one. 0 = no limit.
        #[alias = "max_size_items"]
        pub max_size: usize = 0,
        /// Unit of `min_size` and `max_size`.
        pub sizer: Sizer = Sizer::Items,
    }
    check = BatchConfig::check
}

tidegate_config::options! {
    /// `retry_on_failure`.
    pub struct RetryConfig {
        /// The exporter sends a request again after a temporary failure. `false`: it drops the request.
        pub enabled: bool = true,
        /// Delay before the first retry.
        pub initial_interval: Duration = Duration::from_secs(5),
        /// Each delay is drawn from `delay * (1 - factor)` to `delay * (1 + factor)`.
        pub randomization_factor: f64 = 0.5,
        /// Factor by which the delay grows from one retry to the next.
        pub multiplier: f64 = 1.5,
        /// The longest delay between two attempts, before randomization.
        pub max_interval: Duration = Duration::from_secs(30),
        /// Time from the first attempt after which the exporter drops a request; 0 = no limit. Unset: 5 minutes, or no
        /// limit where the queue has storage.
        pub max_elapsed_time: Option<Duration> = None,
        /// Answers after which the exporter retries although the protocol calls them final: HTTP statuses such as 401,
        /// or gRPC codes such as UNAUTHENTICATED.
        pub retry_on_status: Vec<RetryStatus> = Vec::new(),
    }
    check = RetryConfig::check
}

impl QueueConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.wait_for_result && self.storage.is_some() {
            cx.at(at.child("wait_for_result"))
                .error("can't be combined with `storage`: data on disk counts as accepted");
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
        self.check_intervals(at, cx);
    }

    /// Names all intervals that are too long in one problem, with both ways out of it.
    fn check_intervals(&self, at: &Node, cx: &mut Problems) {
        let Some(limit) = self.max_elapsed_time.filter(|limit| !limit.is_zero()) else {
            return;
        };
        let intervals = [
            ("initial_interval", self.initial_interval),
            ("max_interval", self.max_interval),
        ];
        let longer = intervals.into_iter().filter(|(_, interval)| *interval > limit);
        let longer: Vec<_> = longer.collect();
        let Some(longest) = longer.iter().map(|(_, interval)| interval).max() else {
            return;
        };
        let named = longer.iter().map(|(name, interval)| {
            let is_default = at.get(name).is_none();
            let origin = if is_default { "default " } else { "" };
            format!("`{name}` ({origin}{})", interval.show())
        });
        let named = named.collect::<Vec<_>>().join(" and ");
        let shorter = longer
            .iter()
            .map(|(name, _)| format!("`{name}: {}`", limit.show()));
        let shorter = shorter.collect::<Vec<_>>().join(" and ");
        cx.at(at.child("max_elapsed_time"))
            .help(format!(
                "set `max_elapsed_time: {}` or more, or set {shorter}",
                longest.show()
            ))
            .error(format!("must not be less than {named}"));
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
const MAX_ELAPSED_TIME: Duration = Duration::from_mins(5);

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
    /// Whether requests keep the order of their arrival; see [`DeliveryRules::in_order`].
    pub in_order: bool,
    /// The limits for joining ready requests; see [`DeliveryRules::together`].
    pub together: Option<Together>,
}

impl Delivery {
    /// Requests go as they are, alone and in any order, without a time limit.
    pub const fn plain(queue: QueueConfig, retry: RetryConfig) -> Self {
        Self {
            queue,
            retry,
            timeout: None,
            temporality: TemporalityChoice::Preserve,
            refuses_falling: false,
            shape: Shape::NONE,
            in_order: false,
            together: None,
        }
    }

    pub(super) fn rules(&self) -> DeliveryRules {
        DeliveryRules {
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

#[cfg(test)]
mod tests {
    use tidegate_config::parse_text;

    use super::*;

    fn problems(retry: &str) -> String {
        let mut cx = Problems::default();
        let node = parse_text("a.yaml", retry, &mut cx).unwrap();
        RetryConfig::decode(&node, &mut cx);
        cx.to_string()
    }

    #[test]
    fn all_intervals_beyond_the_time_limit_are_one_problem_with_its_cure() {
        for (retry, message, help) in [
            (
                "max_elapsed_time: 3s",
                "must not be less than `initial_interval` (default 5s) and `max_interval` (default 30s)",
                "set `max_elapsed_time: 30s` or more, or set `initial_interval: 3s` and `max_interval: 3s`",
            ),
            (
                "max_elapsed_time: 5s",
                "must not be less than `max_interval` (default 30s)",
                "set `max_elapsed_time: 30s` or more, or set `max_interval: 5s`",
            ),
            (
                "{max_elapsed_time: 8s, max_interval: 8s, initial_interval: 1m}",
                "must not be less than `initial_interval` (1m)",
                "set `max_elapsed_time: 1m` or more, or set `initial_interval: 8s`",
            ),
        ] {
            let problems = problems(retry);
            assert_eq!(problems.matches("error: ").count(), 1, "{problems}");
            assert!(problems.contains(message), "{problems}");
            assert!(problems.contains(&format!("help: {help}")), "{problems}");
        }
        for cured in [
            "max_elapsed_time: 0s",
            "max_elapsed_time: 30s",
            "{max_elapsed_time: 3s, initial_interval: 3s, max_interval: 3s}",
        ] {
            assert_eq!(problems(cured), "");
        }
    }
}
