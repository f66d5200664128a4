// SPDX-License-Identifier: Apache-2.0

//! A job of `scrape_configs`, and the common options of jobs, `global`.

use super::discovery::{DnsSdConfig, FileSdConfig, HttpSdConfig, StaticConfig};
use super::http::http_options;
use super::kubernetes::KubernetesSdConfig;
use super::refused;
use super::units::{PromBytes, ScalarText};
use crate::relabel::{Rule, Validation};
use tidegate_config::{Node, Ordered, Problems};
use tidegate_prometheus::duration::PromDuration;

tidegate_config::choices! {
    /// An exposition format.
    pub enum Protocol {
        /// Delimited `io.prometheus.client.MetricFamily` messages. Only this format has native histograms.
        Proto = "PrometheusProto",
        /// Text 0.0.4.
        Text004 = "PrometheusText0.0.4",
        /// Text 1.0.0, with UTF-8 names.
        Text100 = "PrometheusText1.0.0",
        /// OpenMetrics 0.0.1.
        OpenMetrics001 = "OpenMetricsText0.0.1",
        /// OpenMetrics 1.0.0.
        OpenMetrics100 = "OpenMetricsText1.0.0",
    }
}

tidegate_config::choices! {
    /// The escaping of names with characters other than letters, digits and underscores.
    pub enum Escaping {
        /// No escaping.
        AllowUtf8 = "allow-utf-8",
        /// `_` replaces other characters.
        Underscores = "underscores",
        /// Dots have their own escape sequence.
        Dots = "dots",
        /// Every character has its own escape sequence.
        Values = "values",
    }
}

tidegate_config::options! {
    /// Defaults of all jobs.
    pub struct GlobalConfig {
        /// Interval of scrapes.
        pub scrape_interval: PromDuration = PromDuration::seconds(60),
        /// Longest duration of a scrape. Default: 10s, or the interval if that is shorter.
        pub scrape_timeout: PromDuration = PromDuration::default(),
        /// Accepted formats, in order of preference.
        pub scrape_protocols: Option<Vec<Protocol>> = None,
        /// Labels for every point. A point keeps its own label of the same name.
        pub external_labels: Ordered<ScalarText> = Ordered::default(),
        /// Default of the job option of the same name.
        pub body_size_limit: PromBytes = PromBytes::default(),
        /// Default of the job option of the same name.
        pub sample_limit: u64 = 0,
        /// Default of the job option of the same name.
        pub target_limit: u64 = 0,
        /// Default of the job option of the same name.
        pub label_limit: u64 = 0,
        /// Default of the job option of the same name.
        pub label_name_length_limit: u64 = 0,
        /// Default of the job option of the same name.
        pub label_value_length_limit: u64 = 0,
        /// Default of the job option of the same name.
        pub metric_name_validation_scheme: Option<Validation> = None,
        /// Default of the job option of the same name.
        pub metric_name_escaping_scheme: Option<Escaping> = None,
        /// Default of the job option of the same name.
        pub scrape_native_histograms: bool = false,
        /// Default of the job option of the same name.
        pub always_scrape_classic_histograms: bool = false,
        /// Default of the job option of the same name.
        pub extra_scrape_metrics: bool = false,
    }
    refused = refused::GLOBAL;
    accepted = refused::GLOBAL_WITHOUT_EFFECT;
    check = GlobalConfig::check
}

http_options! {
    /// A job: targets with common scrape options.
    pub struct ScrapeConfig {
        /// Value of the label `job`.
        pub job_name: String = required,
        /// Interval of scrapes. Unset: that of `global`.
        pub scrape_interval: PromDuration = PromDuration::default(),
        /// Longest duration of a scrape. Unset: that of `global`.
        pub scrape_timeout: PromDuration = PromDuration::default(),
        /// Accepted formats, in order of preference. Unset: those of `global`.
        pub scrape_protocols: Option<Vec<Protocol>> = None,
        /// Format of a page without a known `Content-Type`. Unset: the scrape fails.
        pub fallback_scrape_protocol: Option<Protocol> = None,
        /// Whether native histograms are scraped. The receiver then prefers the protobuf format.
        pub scrape_native_histograms: Option<bool> = None,
        /// Whether the classic buckets of native histograms are scraped too.
        #[alias = "scrape_classic_histograms"]
        pub always_scrape_classic_histograms: Option<bool> = None,
        /// HTTP path of the page.
        pub metrics_path: String = "/metrics".to_owned(),
        /// Parameters of the URL.
        pub params: Ordered<Vec<String>> = Ordered::default(),
        /// `http` or `https`.
        pub scheme: String = "http".to_owned(),
        /// Whether labels of the page win over labels of the target with the same name.
        pub honor_labels: bool = false,
        /// Whether timestamps of the page count.
        pub honor_timestamps: bool = true,
        /// Whether series with their own timestamps are marked as stale too when they disappear.
        pub track_timestamps_staleness: bool = false,
        /// Whether the receiver asks for compressed pages.
        pub enable_compression: bool = true,
        /// Size of a decompressed page from which its scrape fails. 0: 256 MiB.
        pub body_size_limit: PromBytes = PromBytes::default(),
        /// Most samples of a page after relabelling. A scrape with more fails. 0: no limit.
        pub sample_limit: u64 = 0,
        /// Most labels of a series. A scrape with a series of more labels fails. 0: no limit.
        pub label_limit: u64 = 0,
        /// Longest label name. A scrape with a longer one fails. 0: no limit.
        pub label_name_length_limit: u64 = 0,
        /// Longest label value. A scrape with a longer one fails. 0: no limit.
        pub label_value_length_limit: u64 = 0,
        /// Most targets of the job. With more, all its scrapes fail. 0: no limit.
        pub target_limit: u64 = 0,
        /// Most buckets of a native histogram. The receiver reduces the resolution of a larger one, or else the
        /// scrape fails. 0: no limit.
        pub native_histogram_bucket_limit: u64 = 0,
        /// Smallest growth factor of buckets. The receiver reduces the resolution of a native histogram until it
        /// has this factor. 0: unchanged.
        pub native_histogram_min_bucket_factor: f64 = 0.0,
        /// Rules for valid names.
        pub metric_name_validation_scheme: Option<Validation> = None,
        /// Escaping of names that the receiver asks for.
        pub metric_name_escaping_scheme: Option<Escaping> = None,
        /// Whether scrapes add `scrape_timeout_seconds`, `scrape_sample_limit` and `scrape_body_size_bytes`.
        pub extra_scrape_metrics: Option<bool> = None,
        /// Fixed targets.
        pub static_configs: Vec<StaticConfig> = Vec::new(),
        /// Targets from files.
        pub file_sd_configs: Vec<FileSdConfig> = Vec::new(),
        /// Targets from HTTP services.
        pub http_sd_configs: Vec<HttpSdConfig> = Vec::new(),
        /// Targets from DNS.
        pub dns_sd_configs: Vec<DnsSdConfig> = Vec::new(),
        /// Targets from the API of Kubernetes.
        pub kubernetes_sd_configs: Vec<KubernetesSdConfig> = Vec::new(),
        /// Rules for the labels of targets.
        pub relabel_configs: Vec<Rule> = Vec::new(),
        /// Rules for the labels of samples.
        pub metric_relabel_configs: Vec<Rule> = Vec::new(),
    }
    refused = refused::JOB;
    accepted = refused::JOB_WITHOUT_EFFECT;
    check = ScrapeConfig::check
}

/// The default of the scrape timeout.
const DEFAULT_TIMEOUT: PromDuration = PromDuration::seconds(10);

impl GlobalConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        check_protocols(self.scrape_protocols.as_deref(), at, cx);
        if self.scrape_interval.is_zero() {
            cx.at(at.child("scrape_interval"))
                .error("must be greater than zero");
        } else if self.scrape_timeout > self.scrape_interval {
            cx.at(at.child("scrape_timeout"))
                .error("global scrape timeout greater than scrape interval");
        }
    }

    fn timeout(&self) -> PromDuration {
        if self.scrape_timeout.is_zero() {
            DEFAULT_TIMEOUT.min(self.scrape_interval)
        } else {
            self.scrape_timeout
        }
    }

    fn validation(&self) -> Validation {
        self.metric_name_validation_scheme.unwrap_or(Validation::Utf8)
    }
}

fn check_protocols(protocols: Option<&[Protocol]>, at: &Node, cx: &mut Problems) {
    let Some(protocols) = protocols else { return };
    let at = at.child("scrape_protocols");
    if protocols.is_empty() {
        cx.at(at).error("scrape_protocols cannot be empty");
    }
    let nodes = at.as_list().unwrap_or_default();
    for (index, (protocol, node)) in protocols.iter().zip(nodes).enumerate() {
        if protocols[..index].contains(protocol) {
            cx.at(node)
                .error(format!("duplicated protocol {protocol} in scrape_protocols"));
        }
    }
}

impl ScrapeConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        self.check_http(at, cx);
        check_protocols(self.scrape_protocols.as_deref(), at, cx);
        if self.job_name.is_empty() {
            cx.at(at.child("job_name")).error("job_name is empty");
        }
        if !matches!(self.scheme.as_str(), "http" | "https") {
            cx.at(at.child("scheme")).error("expected http or https");
        }
        if self.relabel_configs.is_empty() {
            self.check_static_targets(at, cx);
        }
    }

    /// Reports a URL instead of an address, a frequent mistake.
    fn check_static_targets(&self, at: &Node, cx: &mut Problems) {
        let groups = at.child("static_configs").as_list().unwrap_or_default();
        for group in groups {
            let targets = group.child("targets").as_list().unwrap_or_default();
            for target in targets
                .iter()
                .filter(|target| target.as_text().is_some_and(|text| text.contains('/')))
            {
                let shown = target.shown();
                cx.at(target)
                    .help("write host:port; the path goes to `metrics_path`, https to `scheme`")
                    .error(format!("{shown} is not a valid hostname"));
            }
        }
    }

    /// Checks that need the options of `global`.
    pub(crate) fn check_with(&self, global: &GlobalConfig, at: &Node, cx: &mut Problems) {
        if self.scrape_timeout > self.interval(global) {
            let message = format!(
                "scrape timeout greater than scrape interval for scrape config with job name {:?}",
                self.job_name
            );
            cx.at(at.child("scrape_timeout")).error(message);
        }
        let validation = self.validation(global);
        if self.escaping(global) == Escaping::AllowUtf8 && validation == Validation::Legacy {
            cx.at(at.child("metric_name_escaping_scheme"))
                .error("utf8 metric names requested but validation scheme is not set to UTF8");
        }
        let lists = [
            ("relabel_configs", &self.relabel_configs),
            ("metric_relabel_configs", &self.metric_relabel_configs),
        ];
        for (key, rules) in lists {
            let nodes = at.child(key).as_list().unwrap_or_default();
            for (rule, node) in rules.iter().zip(nodes) {
                rule.check_names(validation, node, cx);
            }
        }
    }

    /// The scrape interval.
    pub fn interval(&self, global: &GlobalConfig) -> PromDuration {
        if self.scrape_interval.is_zero() {
            global.scrape_interval
        } else {
            self.scrape_interval
        }
    }

    /// The scrape timeout.
    pub fn timeout(&self, global: &GlobalConfig) -> PromDuration {
        if self.scrape_timeout.is_zero() {
            global.timeout().min(self.interval(global))
        } else {
            self.scrape_timeout
        }
    }

    /// The validation of names.
    pub fn validation(&self, global: &GlobalConfig) -> Validation {
        self.metric_name_validation_scheme
            .unwrap_or_else(|| global.validation())
    }

    /// The escaping of names: the configured one that fits the validation scheme.
    pub fn escaping(&self, global: &GlobalConfig) -> Escaping {
        let fitting = |validation| match validation {
            Validation::Legacy => Escaping::Underscores,
            Validation::Utf8 => Escaping::AllowUtf8,
        };
        match (
            self.metric_name_escaping_scheme,
            self.metric_name_validation_scheme,
        ) {
            (Some(escaping), _) => escaping,
            (None, Some(validation)) => fitting(validation),
            (None, None) => global
                .metric_name_escaping_scheme
                .unwrap_or_else(|| fitting(global.validation())),
        }
    }

    /// Formats to ask for, the most wanted first.
    pub fn protocols(&self, global: &GlobalConfig) -> Vec<Protocol> {
        const TEXT: [Protocol; 4] = [
            Protocol::OpenMetrics100,
            Protocol::OpenMetrics001,
            Protocol::Text100,
            Protocol::Text004,
        ];
        let said = self
            .scrape_protocols
            .as_ref()
            .or(global.scrape_protocols.as_ref());
        said.cloned().unwrap_or_else(|| {
            let proto = self.native_histograms(global).then_some(Protocol::Proto);
            proto.into_iter().chain(TEXT).collect()
        })
    }

    /// Whether native histograms are taken.
    pub fn native_histograms(&self, global: &GlobalConfig) -> bool {
        self.scrape_native_histograms
            .unwrap_or(global.scrape_native_histograms)
    }
}
