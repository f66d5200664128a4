//! Options of the `batch` processor, as in the Collector.

use std::time::Duration;

use crate::batch::{Batching, Sizer};
use crate::config::{Node, Problems};

crate::options! {
    /// Options of `batch`.
    pub(super) struct Config {
        /// How long the first batch of a request may wait for others; 0 = not at all.
        pub timeout: Duration = Duration::from_millis(200),
        /// A request of so many points, spans or log records goes out at once.
        pub send_batch_size: usize = 8192,
        /// A request with more of them is cut; 0 = never.
        pub send_batch_max_size: usize = 0,
    }
    check = Config::check
}

impl Config {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.send_batch_max_size != 0 && self.send_batch_max_size < self.send_batch_size {
            cx.at(at.child("send_batch_max_size"))
                .error("send_batch_max_size must be greater than or equal to send_batch_size");
        }
    }

    pub(super) fn batching(&self) -> Batching {
        Batching {
            timeout: self.timeout,
            min_size: self.send_batch_size,
            max_size: self.send_batch_max_size,
            sizer: Sizer::Items,
        }
    }
}
