//! How a destination's queue should join and cut what it sends: a wish that travels with the batches.

use std::time::Duration;

crate::choices! {
    /// What a size counts.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// How long the first batch of a request may wait for others; zero = not at all.
    pub timeout: Duration,
    /// A request of this size goes out at once.
    pub min_size: usize,
    /// A larger request is cut; zero = never.
    pub max_size: usize,
    /// What the sizes count.
    pub sizer: Sizer,
}
