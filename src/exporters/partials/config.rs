// SPDX-License-Identifier: Apache-2.0

//! Options of the `partials` exporter.

use std::time::Duration;

use tidegate_cluster::{PageLimits, ProducerName, SenderConfig};
use tidegate_engine::Limits;

use crate::component::Cluster;
use crate::config::{ByteSize, Node, Problems};

/// The shortest and the longest interval. A producer that is silent for 3 s counts as missing.
const INTERVALS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];

/// The most pages that wait for an answer of the store.
const IN_FLIGHT: usize = 16;

crate::options! {
    /// Options of the `partials` exporter.
    pub(super) struct PartialsExporterConfig {
        /// Id of the `cluster` extension.
        pub cluster: String = required,
        /// Name of this producer. No other gateway of the cluster has it, and it stays the same over restarts. Unset: the
        /// host name.
        pub producer: Option<String> = None,
        /// Interval at which changed pages and the heartbeat are sent, 100 ms to 2 s.
        pub interval: Duration = Duration::from_secs(1),
        /// Interval at which all pages are sent again. It heals what the store has lost.
        pub refresh: Duration = Duration::from_secs(30),
        /// Most bytes of pages per second, before compression. Further pages wait and are sent with newer values.
        pub max_bytes_per_second: ByteSize = ByteSize::mib(8),
        /// Most series of this producer, with those that have expired. Replicas refuse more than 100,000 by default.
        pub max_series: usize = 100_000,
        /// Publishes cumulative totals under the sender that reports them, and not under this gateway. Set it on all gateways
        /// behind a load balancer: a sender may then change its gateway and counts once. It applies to totals with a start
        /// time that no `aggregate` has added up.
        pub streams: bool = false,
    }
    check = PartialsExporterConfig::check
}

impl PartialsExporterConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let [shortest, longest] = INTERVALS;
        if !(shortest..=longest).contains(&self.interval) {
            cx.at(at.child("interval"))
                .error("must be between 100ms and 2s: a producer that is silent for 3s counts as missing");
        }
        if self.refresh < self.interval {
            cx.at(at.child("refresh"))
                .error("must not be less than `interval`");
        }
        for (name, is_zero) in [
            ("max_bytes_per_second", self.max_bytes_per_second.bytes() == 0),
            ("max_series", self.max_series == 0),
        ] {
            if is_zero {
                cx.at(at.child(name)).error("must be greater than 0");
            }
        }
        if let Some(Err(error)) = self.producer.as_deref().map(ProducerName::of_gateway) {
            cx.at(at.child("producer")).error(error.to_string());
        }
    }

    /// The limits of the table of data from no other table.
    pub(super) fn limits(&self) -> Limits {
        Limits {
            series: self.max_series,
            streams: Limits::default().streams.max(self.max_series),
            ..Limits::default()
        }
    }

    /// The options of the sender.
    pub(super) fn sender(&self, cluster: &Cluster, producer: ProducerName) -> SenderConfig {
        SenderConfig {
            cluster: cluster.name().to_owned(),
            producer,
            partitions: cluster.partitions(),
            // No reader compares rules yet.
            rules: 0,
            interval: self.interval,
            refresh: self.refresh,
            max_bytes_per_second: self.max_bytes_per_second.bytes(),
            max_series: self.max_series,
            max_body_bytes: PageLimits::default().max_body_bytes,
            max_in_flight: IN_FLIGHT,
            nonce: rand::random(),
        }
    }
}
