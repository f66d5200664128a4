// SPDX-License-Identifier: Apache-2.0

//! A running job: the combination of its own options and `global`.

use std::sync::Arc;

use super::config::PrometheusReceiverConfig;
use super::config::http::HttpOptions;
use super::config::scrape::{Escaping, GlobalConfig, Protocol, ScrapeConfig};
use super::labels::Labels;
use super::relabel::{Rule, Validation};
use tidegate_prometheus::duration::PromDuration;
use tidegate_prometheus::model::Resolution;

/// The default limit of a page in bytes: a hundred times the size from large exporters.
const BODY_SIZE_LIMIT_BYTES: usize = 256 << 20;

/// One of `scrape_configs`, resolved.
pub(super) struct Job {
    pub(super) name: Arc<str>,
    pub(super) interval: PromDuration,
    pub(super) timeout: PromDuration,
    pub(super) protocols: Vec<Protocol>,
    pub(super) fallback: Option<Protocol>,
    pub(super) validation: Validation,
    pub(super) escaping: Escaping,
    pub(super) metrics_path: String,
    pub(super) scheme: String,
    pub(super) params: Vec<(String, Vec<String>)>,
    pub(super) honor_labels: bool,
    pub(super) honor_timestamps: bool,
    pub(super) track_timestamps_staleness: bool,
    pub(super) enable_compression: bool,
    pub(super) native_histograms: bool,
    pub(super) classic_histograms_too: bool,
    pub(super) extra_metrics: bool,
    pub(super) limits: Limits,
    pub(super) http: HttpOptions,
    pub(super) relabel: Vec<Rule>,
    pub(super) metric_relabel: Vec<Rule>,
    pub(super) external_labels: Labels,
}

/// Limits of a page; `None`: there is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    /// A page of this size or larger fails; see [`Limits::body_bytes`].
    pub(super) body: Option<usize>,
    pub(super) samples: Option<usize>,
    pub(super) targets: Option<usize>,
    pub(super) labels: Option<usize>,
    pub(super) label_name_bytes: Option<usize>,
    pub(super) label_value_bytes: Option<usize>,
    pub(super) native_buckets: Option<usize>,
    /// The finest schema of native histograms.
    pub(super) native_schema: i32,
}

/// The limit of the job, or of `global`; 0 means unset.
fn limit(job: u64, global: u64) -> Option<usize> {
    let said = [job, global].into_iter().find(|limit| *limit > 0)?;
    Some(usize::try_from(said).unwrap_or(usize::MAX))
}

impl Limits {
    fn of(job: &ScrapeConfig, global: &GlobalConfig) -> Self {
        let factor = job.native_histogram_min_bucket_factor;
        Self {
            body: limit(job.body_size_limit.0, global.body_size_limit.0),
            samples: limit(job.sample_limit, global.sample_limit),
            targets: limit(job.target_limit, global.target_limit),
            labels: limit(job.label_limit, global.label_limit),
            label_name_bytes: limit(job.label_name_length_limit, global.label_name_length_limit),
            label_value_bytes: limit(job.label_value_length_limit, global.label_value_length_limit),
            native_buckets: limit(job.native_histogram_bucket_limit, 0),
            native_schema: Resolution::schema_of_factor(factor),
        }
    }

    /// The size from which a page fails, in bytes. By default one page must not take all memory.
    pub(super) fn body_bytes(&self, memory_limit: usize) -> usize {
        self.body
            .unwrap_or_else(|| BODY_SIZE_LIMIT_BYTES.min(memory_limit / 8))
    }
}

impl Job {
    /// Creates a job from its options.
    pub(super) fn new(job: &ScrapeConfig, config: &PrometheusReceiverConfig) -> Self {
        let global = &config.config.global;
        let or_global = |job: Option<bool>, global| job.unwrap_or(global);
        Self {
            name: job.job_name.as_str().into(),
            interval: job.interval(global),
            timeout: job.timeout(global),
            protocols: job.protocols(global),
            fallback: job.fallback_scrape_protocol,
            validation: job.validation(global),
            escaping: job.escaping(global),
            metrics_path: job.metrics_path.clone(),
            scheme: job.scheme.clone(),
            params: job.params.0.clone(),
            honor_labels: job.honor_labels,
            honor_timestamps: job.honor_timestamps,
            track_timestamps_staleness: job.track_timestamps_staleness,
            enable_compression: job.enable_compression,
            native_histograms: job.native_histograms(global),
            classic_histograms_too: or_global(
                job.always_scrape_classic_histograms,
                global.always_scrape_classic_histograms,
            ),
            extra_metrics: config.report_extra_scrape_metrics
                || or_global(job.extra_scrape_metrics, global.extra_scrape_metrics),
            limits: Limits::of(job, global),
            http: job.http(),
            relabel: job.relabel_configs.clone(),
            metric_relabel: job.metric_relabel_configs.clone(),
            external_labels: global
                .external_labels
                .iter()
                .map(|(name, value)| (name, value.0.as_str()))
                .collect(),
        }
    }

    /// The `Accept` header: the formats with falling weights, then any other.
    pub(super) fn accept(&self) -> String {
        /// A tenth more than there are formats, as Prometheus counts.
        const HIGHEST: usize = 6;
        let formats = self.protocols.iter().enumerate().map(|(at, protocol)| {
            let escaping = match protocol {
                Protocol::Text100 | Protocol::OpenMetrics100 => format!(";escaping={}", self.escaping),
                _ => String::new(),
            };
            format!("{}{escaping};q=0.{}", media_type(*protocol), HIGHEST - at)
        });
        let anything = format!("*/*;q=0.{}", HIGHEST - self.protocols.len());
        formats.chain([anything]).collect::<Vec<_>>().join(",")
    }
}

/// The media type of a format.
fn media_type(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Proto => {
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
        }
        Protocol::Text004 => "text/plain;version=0.0.4",
        Protocol::Text100 => "text/plain;version=1.0.0",
        Protocol::OpenMetrics001 => "application/openmetrics-text;version=0.0.1",
        Protocol::OpenMetrics100 => "application/openmetrics-text;version=1.0.0",
    }
}
