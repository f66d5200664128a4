//! Options of the `batch` processor, as in the Collector.

use std::time::Duration;

use http::HeaderName;

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
        /// Of the headers that a receiver keeps (`include_metadata`), only these; batches that differ in one are never
        /// joined. Empty: all.
        pub metadata_keys: Vec<String> = Vec::new(),
        /// Most different values of `metadata_keys` together; data with further ones is rejected. 0: any number.
        pub metadata_cardinality_limit: usize = 0,
    }
    check = Config::check
}

impl Config {
    fn check(&self, at: &Node, cx: &mut Problems) {
        for name in &self.metadata_keys {
            if HeaderName::try_from(name).is_err() {
                cx.at(at.child("metadata_keys"))
                    .error(format!("{name:?} is no header name"));
            }
        }
        if self.send_batch_max_size != 0 && self.send_batch_max_size < self.send_batch_size {
            cx.at(at.child("send_batch_max_size"))
                .error("send_batch_max_size must be greater than or equal to send_batch_size");
        }
    }

    /// The names of the headers to keep; `None`: all.
    pub(super) fn kept(&self) -> Option<Vec<HeaderName>> {
        let names = self.metadata_keys.iter();
        // Bad names were reported, and no request has them.
        let names = names.filter_map(|name| HeaderName::try_from(name).ok()).collect();
        (!self.metadata_keys.is_empty()).then_some(names)
    }

    pub(super) fn batching(&self) -> Batching {
        Batching {
            timeout: self.timeout,
            min_size: self.send_batch_size,
            max_size: self.send_batch_max_size,
            sizer: Sizer::Items,
            metrics: None,
        }
    }
}
