// SPDX-License-Identifier: Apache-2.0

//! Options of the `partials` receiver.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_cluster::{ProducerName, ReaderConfig};
use tidegate_engine::{Limits, MergedLimits};

use super::nodes::ExpectFrom;
use crate::component::{Cluster, Shared};
use crate::config::{Node, Problems};
use crate::processors::composite::config::CompositeConfig;

crate::options! {
    /// Options of the `partials` receiver.
    pub(super) struct PartialsReceiverConfig {
        /// Id of the `cluster` extension.
        pub cluster: String = required,
        /// Longest time for which the replica may be behind the store. After that, it answers no reader until it has
        /// caught up.
        pub max_lag: Duration = Duration::from_secs(5),
        /// Whether the replica asks the store for its newest messages before each answer to a reader of metrics, and
        /// shows them. A reader that moves to another replica sees no counter fall. If the store does not answer within
        /// `max_lag`, the reader gets 503. Not with `direct`.
        pub linearizable_reads: bool = false,
        /// Names of producers that should report even if they never have. While one is missing, the replica is
        /// `partial`. All others with a run that has not ended should report anyway.
        pub expect: Vec<String> = Vec::new(),
        /// DaemonSet of Kubernetes whose nodes should report too. A node is the producer with its name.
        pub expect_from: Option<ExpectFrom> = None,
        /// Interval at which the merged series are pushed to exporters that can't read tables.
        pub interval: Duration = Duration::from_secs(1),
        /// Most merged series of all producers together.
        pub max_series: usize = 1_000_000,
        /// Most series of one producer.
        pub max_series_per_producer: usize = 100_000,
        /// Most producers that the replica follows at a time.
        pub max_producers: usize = 10_000,
        /// Composites that the replica merges from the windows of all producers. The producers declare the same ones, in
        /// a `composite` processor. `expr`, `across`, `function: last` and webhooks are not possible here.
        pub composites: Vec<CompositeConfig> = Vec::new(),
    }
    check = PartialsReceiverConfig::check
}

impl PartialsReceiverConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        for (name, is_zero) in [
            ("max_lag", self.max_lag.is_zero()),
            ("interval", self.interval.is_zero()),
            ("max_series", self.max_series == 0),
            ("max_series_per_producer", self.max_series_per_producer == 0),
            ("max_producers", self.max_producers == 0),
        ] {
            if is_zero {
                cx.at(at.child(name)).error("must be greater than 0");
            }
        }
        let nodes = at.child("expect").as_list().unwrap_or_default();
        for (name, node) in self.expect.iter().zip(nodes) {
            if let Err(error) = ProducerName::new(name) {
                cx.at(node).error(error.to_string());
            }
        }
        self.check_composites(at, cx);
    }

    fn check_composites(&self, at: &Node, cx: &mut Problems) {
        let nodes = at.child("composites").as_list().unwrap_or_default();
        let mut names = BTreeSet::new();
        for (composite, node) in self.composites.iter().zip(nodes) {
            if !names.insert(&composite.name) {
                cx.at(node.child("name"))
                    .error(format!("`{}` is declared twice", composite.name));
            }
            let declaration = composite.declaration(&Shared::default());
            if let Some(Err(error)) = declaration.ok().map(|declared| declared.check_shareable()) {
                cx.at(node).error(error.to_string());
            }
            if composite.thresholds.iter().any(|one| one.webhook.is_some()) {
                cx.at(node.child("thresholds"))
                    .help("put the webhook at one of the producers, or watch the admin API")
                    .error("each replica would call the webhook");
            }
        }
    }

    /// The expected producers.
    pub(super) fn expected(&self) -> BTreeSet<ProducerName> {
        let names = self.expect.iter();
        // The check has refused names that are not valid.
        names.filter_map(|name| ProducerName::new(name).ok()).collect()
    }

    /// The limits of the table that readers see.
    pub(super) fn limits(&self) -> Limits {
        Limits {
            series: self.max_series,
            streams: Limits::default().streams.max(self.max_series),
            ..Limits::default()
        }
    }

    /// The options of the reader.
    pub(super) fn reader(&self, cluster: &Cluster) -> ReaderConfig {
        ReaderConfig {
            partitions: cluster.partitions(),
            merged: MergedLimits {
                max_series: self.max_series,
                max_producers: self.max_producers,
                max_series_per_producer: self.max_series_per_producer,
                ..MergedLimits::default()
            },
            max_lag: self.max_lag,
            ..ReaderConfig::new(cluster.name())
        }
    }
}
