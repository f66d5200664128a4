//! A job of `scrape_configs`, and the common options of jobs, `global`.

use super::discovery::{DnsSdConfig, FileSdConfig, HttpSdConfig, StaticConfig};
use super::http::http_options;
use super::refused;
use super::units::{PromBytes, Text};
use crate::config::{Node, Ordered, Problems};
use crate::prom::duration::PromDuration;
use crate::receivers::prometheus::relabel::{Rule, Validation};

crate::choices! {
    /// A format of exposition.
    pub enum Protocol {
        /// Delimited `io.prometheus.client.MetricFamily` messages, the only one with native histograms.
        Proto = "PrometheusProto",
        /// Text 0.0.4.
        Text004 = "PrometheusText0.0.4",
        /// Text 1.0.0: names of any UTF-8.
        Text100 = "PrometheusText1.0.0",
        /// OpenMetrics 0.0.1.
        OpenMetrics001 = "OpenMetricsText0.0.1",
        /// OpenMetrics 1.0.0.
        OpenMetrics100 = "OpenMetricsText1.0.0",
    }
}

crate::choices! {
    /// How targets are asked to write names that are not of letters, digits and underscores.
    pub enum Escaping {
        /// As they are.
        AllowUtf8 = "allow-utf-8",
        /// `_` in place of others.
        Underscores = "underscores",
        /// Dots can be told apart.
        Dots = "dots",
        /// Everything can be told apart.
        Values = "values",
    }
}

crate::options! {
    /// What the jobs have in common.
    pub struct GlobalConfig {
        /// How often targets are scraped.
        pub scrape_interval: PromDuration = PromDuration::seconds(60),
        /// How long an answer may take; 10s, or the interval where that is shorter.
        pub scrape_timeout: PromDuration = PromDuration::default(),
        /// Formats to ask for, the most wanted first.
        pub scrape_protocols: Option<Vec<Protocol>> = None,
        /// Labels that points get where they have none of that name.
        pub external_labels: Ordered<Text> = Ordered::default(),
        /// As in a job.
        pub body_size_limit: PromBytes = PromBytes::default(),
        /// As in a job.
        pub sample_limit: u64 = 0,
        /// As in a job.
        pub target_limit: u64 = 0,
        /// As in a job.
        pub label_limit: u64 = 0,
        /// As in a job.
        pub label_name_length_limit: u64 = 0,
        /// As in a job.
        pub label_value_length_limit: u64 = 0,
        /// As in a job.
        pub metric_name_validation_scheme: Option<Validation> = None,
        /// As in a job.
        pub metric_name_escaping_scheme: Option<Escaping> = None,
        /// As in a job.
        pub scrape_native_histograms: bool = false,
        /// As in a job.
        pub always_scrape_classic_histograms: bool = false,
        /// As in a job.
        pub extra_scrape_metrics: bool = false,
    }
    refused = refused::GLOBAL;
    accepted = refused::GLOBAL_WITHOUT_EFFECT;
    check = GlobalConfig::check
}

http_options! {
    /// A job: targets that are scraped in one way.
    pub struct ScrapeConfig {
        /// The label `job` of its targets.
        pub job_name: String = required,
        /// How often targets are scraped; as in `global` unless given.
        pub scrape_interval: PromDuration = PromDuration::default(),
        /// How long an answer may take; as in `global` unless given.
        pub scrape_timeout: PromDuration = PromDuration::default(),
        /// Formats to ask for, the most wanted first.
        pub scrape_protocols: Option<Vec<Protocol>> = None,
        /// The format of an answer whose `Content-Type` is missing or unknown; such an answer fails unless given.
        pub fallback_scrape_protocol: Option<Protocol> = None,
        /// Take native histograms (in the protobuf format, which is then asked for first).
        pub scrape_native_histograms: Option<bool> = None,
        /// Take the classic buckets of histograms that are native too.
        #[alias = "scrape_classic_histograms"]
        pub always_scrape_classic_histograms: Option<bool> = None,
        /// Where the page is.
        pub metrics_path: String = "/metrics".to_owned(),
        /// Parameters of the URL.
        pub params: Ordered<Vec<String>> = Ordered::default(),
        /// `http` or `https`.
        pub scheme: String = "http".to_owned(),
        /// Where a label of the page and one of the target clash, take that of the page.
        pub honor_labels: bool = false,
        /// Take the times that the page gives.
        pub honor_timestamps: bool = true,
        /// Mark series with times of their own as stale too when they disappear.
        pub track_timestamps_staleness: bool = false,
        /// Ask for compressed pages.
        pub enable_compression: bool = true,
        /// A page of this size, unpacked, or larger fails; 0: of 256 MiB.
        pub body_size_limit: PromBytes = PromBytes::default(),
        /// A page with more samples after relabelling fails; 0: no limit.
        pub sample_limit: u64 = 0,
        /// A page with a series of more labels fails; 0: no limit.
        pub label_limit: u64 = 0,
        /// A page with a longer name of a label fails; 0: no limit.
        pub label_name_length_limit: u64 = 0,
        /// A page with a longer value of a label fails; 0: no limit.
        pub label_value_length_limit: u64 = 0,
        /// With more targets, all scrapes of the job fail; 0: no limit.
        pub target_limit: u64 = 0,
        /// A native histogram of more buckets is made coarser; one that can't be fails the page; 0: no limit.
        pub native_histogram_bucket_limit: u64 = 0,
        /// A native histogram is made coarser until its buckets grow by this factor; 0: as it is.
        pub native_histogram_min_bucket_factor: f64 = 0.0,
        /// Which names are valid.
        pub metric_name_validation_scheme: Option<Validation> = None,
        /// How targets are asked to write names.
        pub metric_name_escaping_scheme: Option<Escaping> = None,
        /// Add `scrape_timeout_seconds`, `scrape_sample_limit` and `scrape_body_size_bytes`.
        pub extra_scrape_metrics: Option<bool> = None,
        /// Targets as they are.
        pub static_configs: Vec<StaticConfig> = Vec::new(),
        /// Targets from files.
        pub file_sd_configs: Vec<FileSdConfig> = Vec::new(),
        /// Targets from HTTP services.
        pub http_sd_configs: Vec<HttpSdConfig> = Vec::new(),
        /// Targets from DNS.
        pub dns_sd_configs: Vec<DnsSdConfig> = Vec::new(),
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
    pub(super) fn check_with(&self, global: &GlobalConfig, at: &Node, cx: &mut Problems) {
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
