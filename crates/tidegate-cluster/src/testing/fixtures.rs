// SPDX-License-Identifier: Apache-2.0

//! Series and options for tests.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{Attributes, Data, Metric, Series, Temporality};

use crate::{ProducerName, SenderConfig};

/// The data of a counter.
pub const COUNTER: Data = Data::Sum {
    monotonic: true,
    temporality: Temporality::Cumulative,
};

/// A series without attributes.
pub fn series(name: &str, data: Data) -> Series {
    Series {
        resource: Arc::default(),
        scope: Arc::default(),
        metric: Arc::new(Metric {
            name: name.into(),
            description: "".into(),
            unit: "".into(),
            data,
            metadata: Attributes::default(),
        }),
        attributes: Attributes::default(),
    }
}

/// A sender of small pages to one partition, with short intervals.
pub fn sender_config(cluster: &str, producer: ProducerName) -> SenderConfig {
    SenderConfig {
        cluster: cluster.to_owned(),
        producer,
        partitions: 1,
        rules: 0,
        interval: Duration::from_millis(100),
        refresh: Duration::from_secs(2),
        max_bytes_per_second: 1 << 20,
        max_series: 100,
        max_body_bytes: 1 << 20,
        max_in_flight: 4,
        nonce: 0,
    }
}
