// SPDX-License-Identifier: Apache-2.0

//! Options of the `batch` processor, as in the Collector.

use std::time::Duration;

use http::HeaderName;

use crate::batch::{Batching, Sizer};
use crate::config::{Node, Problems};

crate::options! {
    /// Options of `batch`.
    pub(super) struct BatchProcessorConfig {
        /// Longest time that the first batch of a request waits for others. 0: it does not wait.
        pub timeout: Duration = Duration::from_millis(200),
        /// Points, spans or log records at which a request is sent at once.
        pub send_batch_size: usize = 8192,
        /// Most points, spans or log records of a request. A larger one is split. 0: no limit.
        pub send_batch_max_size: usize = 0,
        /// Headers that stay with the data, of those that the receiver keeps (`include_metadata`). Batches with
        /// different values are never joined. Empty: all headers.
        pub metadata_keys: Vec<String> = Vec::new(),
        /// Most combinations of values of `metadata_keys`. Data with further ones is rejected. 0: no limit.
        pub metadata_cardinality_limit: usize = 0,
    }
    check = BatchProcessorConfig::check
}

impl BatchProcessorConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        for name in &self.metadata_keys {
            if HeaderName::try_from(name).is_err() {
                cx.at(at.child("metadata_keys"))
                    .error(format!("{name:?} is not a header name"));
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
