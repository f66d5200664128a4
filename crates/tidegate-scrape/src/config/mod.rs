// SPDX-License-Identifier: Apache-2.0

//! Options of the `prometheus` receiver. `config` is the scraping part of Prometheus's own configuration.

pub mod allocator;
pub mod discovery;
pub mod http;
pub mod kubernetes;
pub mod operator;
mod refused;
pub mod scrape;
pub mod units;

use std::num::NonZeroUsize;

use allocator::TargetAllocatorConfig;
use operator::PrometheusCrConfig;
use scrape::{GlobalConfig, ScrapeConfig};
use tidegate_config::{ByteSize, Node, Problems};

/// Enough for ten thousand targets that answer at once; targets that don't answer hold a place for `scrape_timeout`.
const MAX_CONCURRENT_SCRAPES: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");

tidegate_config::options! {
    /// Options of the `prometheus` receiver.
    pub struct PrometheusReceiverConfig {
        /// Configuration of Prometheus: `global` and `scrape_configs`. Required without other sources of jobs.
        pub config: PrometheusConfig = PrometheusConfig::default(),
        /// Jobs from objects of the Prometheus operator.
        pub prometheus_cr: PrometheusCrConfig = PrometheusCrConfig::default(),
        /// Jobs and targets from the target allocator of the OpenTelemetry operator.
        pub target_allocator: Option<TargetAllocatorConfig> = None,
        /// Whether all jobs have `extra_scrape_metrics`.
        #[alias = "report_extra_metrics"]
        pub report_extra_scrape_metrics: bool = false,
        /// Most concurrent scrapes. Further ones wait.
        pub max_concurrent_scrapes: NonZeroUsize = MAX_CONCURRENT_SCRAPES,
        /// Most bytes of all pages in memory, compressed and decompressed. A scrape that exceeds it fails.
        pub max_buffered_size: ByteSize = ByteSize::mib(512),
    }
    refused = refused::RECEIVER;
    check = PrometheusReceiverConfig::check
}

tidegate_config::options! {
    /// The scrape configuration of Prometheus.
    pub struct PrometheusConfig {
        /// Defaults of all jobs.
        pub global: GlobalConfig = GlobalConfig::default(),
        /// Scrape jobs. Required without other sources of jobs.
        pub scrape_configs: Vec<ScrapeConfig> = Vec::new(),
    }
    refused = refused::PROMETHEUS;
    check = PrometheusConfig::check
}

impl PrometheusReceiverConfig {
    /// A receiver has jobs, or a source of jobs.
    fn check(&self, at: &Node, cx: &mut Problems) {
        let has_source = self.prometheus_cr.enabled || self.target_allocator.is_some();
        if has_source || !self.config.scrape_configs.is_empty() {
            return;
        }
        let Some(config) = at.get("config").filter(|config| !config.is_null()) else {
            cx.at(at)
                .help("add the configuration of Prometheus, `prometheus_cr` or `target_allocator`")
                .error("`config` must be specified");
            return;
        };
        match config.get("scrape_configs") {
            None => cx.at(config).error("`scrape_configs` must be specified"),
            Some(list) => cx.at(list).error("must have at least one job"),
        }
    }
}

impl PrometheusConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let nodes = at.child("scrape_configs").as_list().unwrap_or_default();
        for (index, (job, node)) in self.scrape_configs.iter().zip(nodes).enumerate() {
            let before = &self.scrape_configs[..index];
            if before.iter().any(|other| other.job_name == job.job_name) {
                let message = format!("found multiple scrape configs with job name {:?}", job.job_name);
                cx.at(node.child("job_name")).error(message);
            }
            job.check_with(&self.global, node, cx);
        }
    }
}

#[cfg(test)]
mod tests;
