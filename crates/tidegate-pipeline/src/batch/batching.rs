// SPDX-License-Identifier: Apache-2.0

//! How a destination's queue should join and cut what it sends: a wish that travels with the batches.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Histogram};

tidegate_config::choices! {
    /// The unit of a size.
    pub enum Sizer {
        /// Pushes into the queue, whatever their size.
        Requests = "requests",
        /// Points, spans or log records.
        Items = "items",
        /// Bytes of payload.
        Bytes = "bytes",
    }
}

/// Wishes of a `batch` processor or of a destination's own `sending_queue::batch`. Batches with equal wishes may be joined.
#[derive(Clone, Debug)]
pub struct Batching {
    /// How long the first batch of a request waits for others; zero: it does not wait.
    pub timeout: Duration,
    /// A request of this size is sent at once.
    pub min_size: usize,
    /// A larger request is split; zero: requests are not split.
    pub max_size: usize,
    /// The unit in which the sizes count.
    pub sizer: Sizer,
    /// Counts the requests that follow these limits. Equality ignores it.
    pub metrics: Option<Arc<BatchMetrics>>,
}

impl PartialEq for Batching {
    fn eq(&self, other: &Self) -> bool {
        let wishes = |of: &Self| (of.timeout, of.min_size, of.max_size, of.sizer);
        wishes(self) == wishes(other)
    }
}

impl Eq for Batching {}

/// Why a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// It is large enough, or does not wait.
    Size,
    /// Its time to wait is over, or the gateway stops.
    Timeout,
}

/// The metrics of a `batch` processor. The queues of the exporters below make its requests, and count them
/// here.
pub struct BatchMetrics {
    /// Requests that were large enough.
    pub full: Counter,
    /// Requests whose time to wait was over.
    pub late: Counter,
    /// Items of each.
    pub items: Histogram,
    /// Bytes of each, at the detailed level only.
    pub bytes: Option<Histogram>,
}

impl BatchMetrics {
    /// Counts a request.
    pub fn count(&self, trigger: Trigger, items: usize) {
        match trigger {
            Trigger::Size => self.full.increment(1),
            Trigger::Timeout => self.late.increment(1),
        }
        self.items.record(items as f64);
    }
}

impl fmt::Debug for BatchMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchMetrics").finish_non_exhaustive()
    }
}
