// SPDX-License-Identifier: Apache-2.0

//! Options of the `prometheus` exporter, in the Collector's names.

use std::num::NonZeroUsize;
use std::time::Duration;

use tidegate_engine::{Limits, Pattern};

use crate::component::future::FutureConfig;
use crate::config::{Node, Ordered, Problems};
use crate::net::auth::AuthConfig;
use crate::net::headers::{self, Headers};
use crate::net::http::{HttpConfig, READER_IDLE};
use crate::net::{Endpoint, SocketFileConfig, TlsServerConfig, Transport};
use crate::prom::{Escaping, LabelSources, Naming, ResourceLabels, Strategy, Style};

/// The path of the list of omitted series. The metrics path must differ.
pub(super) const DEBUG_PATH: &str = "/debug";

crate::options! {
    /// Options of the `prometheus` exporter.
    pub struct PrometheusExporterConfig {
        /// Address to listen on: `host:port` or `unix:/path`.
        pub endpoint: Endpoint = required,
        /// `tcp` or `unix`. The endpoint determines it, so this option is optional.
        pub transport: Option<Transport> = None,
        /// HTTP path of the metrics page.
        pub path: String = "/metrics".to_owned(),
        /// Prefix of every metric name.
        pub namespace: String = String::new(),
        /// Labels of every series.
        pub const_labels: Ordered<String> = Ordered::default(),
        /// Whether samples have timestamps. Prometheus then no longer marks series as stale.
        pub send_timestamps: bool = false,
        /// Time after which a series without new points disappears. Series of live tables follow their own rules.
        pub metric_expiration: Duration = Duration::from_secs(300),
        /// Whether scrapers that prefer OpenMetrics get it.
        pub enable_open_metrics: bool = false,
        /// Translation of names. Unset: `UnderscoreEscapingWithSuffixes`.
        pub translation_strategy: Option<Strategy> = None,
        /// Old form of `translation_strategy`: `true` is `UnderscoreEscapingWithSuffixes`, `false` is
        /// `UnderscoreEscapingWithoutSuffixes`.
        pub add_metric_suffixes: Option<bool> = None,
        /// Resource attributes that become labels.
        pub resource_constant_labels: ResourceConstantLabels = ResourceConstantLabels::default(),
        /// Old form of `resource_constant_labels`, for all resource attributes.
        pub resource_to_telemetry_conversion: ResourceConversion = ResourceConversion::default(),
        /// Whether the labels `otel_scope_*` are omitted.
        pub without_scope_info: bool = false,
        /// Whether series have the label `otel_scope_schema_url`. The Collector has no such label.
        pub scope_schema_url: bool = true,
        /// Most series in the exporter's own table. Further series of a metric share one overflow series.
        pub max_series: u64 = 1_000_000,
        /// Most series of one metric in that table. Unset: no limit besides `max_series`.
        pub max_series_per_metric: Option<u64> = None,
        /// Treatment of points whose time is too far ahead of the gateway's clock. It applies to the exporter's
        /// own table, not to that of an `aggregate` processor.
        pub future: FutureConfig = FutureConfig::default(),
        /// Most concurrent connections. Further ones wait.
        pub max_connections: u32 = 64,
        /// Most connections of one address. The server closes further ones. Unset: a quarter of
        /// `max_connections`, and connections of this machine don't count.
        pub max_connections_per_peer: Option<NonZeroUsize> = None,
        /// Host names that a request may use, besides addresses and `localhost`. They count only if the endpoint
        /// is a loopback address. The check protects against web pages whose host name resolves to this machine.
        pub allowed_hosts: Vec<String> = Vec::new(),
        /// Longest time for the headers of the first request on a connection.
        pub read_header_timeout: Duration = Duration::from_secs(60),
        /// Longest time that a connection stays open without a request. 0: no limit.
        pub idle_timeout: Duration = READER_IDLE,
        /// Longest time that a scraper may read nothing of its response. Then the connection ends. 0: no limit.
        pub write_timeout: Duration = Duration::from_secs(30),
        /// TLS of the server. Unset: no TLS.
        pub tls: Option<TlsServerConfig> = None,
        /// Authentication of clients by an extension. Unset: every client that can connect is admitted.
        pub auth: Option<AuthConfig> = None,
        /// Additional headers of every response. Their values are secrets.
        pub response_headers: Headers = Headers::new(),
        /// Permissions, owner and allowed peers of the socket file of a `unix:` endpoint.
        pub socket: SocketFileConfig = SocketFileConfig::default(),
    }
    check = PrometheusExporterConfig::check
}

crate::options! {
    /// Resource attributes as labels. In keys, `*` matches any characters and `?` one character.
    pub struct ResourceConstantLabels {
        /// Keys of attributes that become labels.
        pub included: Vec<String> = Vec::new(),
        /// Keys of attributes that do not. Without `included`, all other attributes become labels.
        pub excluded: Vec<String> = Vec::new(),
    }
}

crate::options! {
    /// All resource attributes as labels.
    pub struct ResourceConversion {
        /// Whether every resource attribute becomes a label of every series.
        pub enabled: bool = false,
        /// Whether `service.name`, `service.namespace` and `service.instance.id` are omitted. They are also the
        /// labels `job` and `instance`.
        pub exclude_service_attributes: bool = false,
    }
}

/// The attributes that make `job` and `instance`.
const SERVICE: [&str; 3] = ["service.name", "service.namespace", "service.instance.id"];

impl PrometheusExporterConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        self.endpoint.check_transport(self.transport, at, cx);
        headers::check(&self.response_headers, at.child("response_headers"), cx);
        if !self.path.starts_with('/') {
            cx.at(at.child("path")).error("must begin with `/`");
        }
        if self.path == DEBUG_PATH {
            cx.at(at.child("path"))
                .error("the exporter lists omitted series there");
        }
        if self.metric_expiration.is_zero() {
            cx.at(at.child("metric_expiration"))
                .error("must be greater than zero: nothing would ever be shown");
        }
        self.check_names(at, cx);
        let (old, new) = (
            &self.resource_to_telemetry_conversion,
            &self.resource_constant_labels,
        );
        if *old != ResourceConversion::default() && *new != ResourceConstantLabels::default() {
            cx.at(at.child("resource_to_telemetry_conversion"))
                .help("the new form is `resource_constant_labels: {included: [\"*\"]}`")
                .error("can't be combined with `resource_constant_labels`");
        }
    }

    fn check_names(&self, at: &Node, cx: &mut Problems) {
        for (name, _) in self.const_labels.iter() {
            if name.bytes().all(|byte| !byte.is_ascii_alphanumeric()) {
                cx.at(at.child("const_labels"))
                    .error(format!("{name:?} is not a label name"));
            }
        }
        let Some(suffixes) = self.add_metric_suffixes else {
            return;
        };
        let at = at.child("add_metric_suffixes");
        match self.translation_strategy {
            Some(strategy) if strategy.adds_suffixes() != suffixes => cx
                .at(at)
                .help("leave it out")
                .error(format!("contradicts `translation_strategy: {strategy}`")),
            Some(_) => {}
            None => cx.at(at).warning(format!(
                "is the old form of `translation_strategy: {}`",
                self.strategy()
            )),
        }
    }

    /// The translation of names.
    pub(super) fn strategy(&self) -> Strategy {
        match (self.translation_strategy, self.add_metric_suffixes) {
            (Some(strategy), _) => strategy,
            (None, Some(false)) => Strategy::Underscores,
            (None, Some(true) | None) => Strategy::UnderscoresAndSuffixes,
        }
    }

    /// The style of series for a scraper that wants this escaping.
    pub fn style(&self, escaping: Escaping) -> Style {
        let constant = self.const_labels.iter();
        Style {
            naming: Naming {
                namespace: self.namespace.clone(),
                strategy: self.strategy(),
                escaping,
            },
            labels: LabelSources {
                constant: constant
                    .map(|(name, value)| (name.to_owned(), value.clone()))
                    .collect(),
                resource: self.resource_labels(),
                without_scope: self.without_scope_info,
                without_schema_url: !self.scope_schema_url,
            },
            timestamps: self.send_timestamps,
            ..Style::default()
        }
    }

    fn resource_labels(&self) -> ResourceLabels {
        let glob = |text: &str| Pattern::Glob(text.into());
        let globs = |list: &[String]| list.iter().map(|text| glob(text)).collect();
        let old = &self.resource_to_telemetry_conversion;
        if old.enabled {
            ResourceLabels {
                included: vec![glob("*")],
                excluded: if old.exclude_service_attributes {
                    SERVICE.map(glob).into()
                } else {
                    Vec::new()
                },
            }
        } else {
            ResourceLabels {
                included: globs(&self.resource_constant_labels.included),
                excluded: globs(&self.resource_constant_labels.excluded),
            }
        }
    }

    /// Bounds of the exporter's own table.
    pub(super) fn limits(&self) -> Limits {
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        Limits {
            series: count(self.max_series),
            series_per_metric: self.max_series_per_metric.map_or(usize::MAX, count),
            expiry: self.metric_expiration,
            future: (&self.future).into(),
            streams: Limits::default().streams.max(count(self.max_series)),
            ..Limits::default()
        }
    }

    /// The options of connections.
    pub(super) fn serving(&self) -> HttpConfig {
        HttpConfig {
            header_timeout: self.read_header_timeout,
            max_idle: Some(self.idle_timeout).filter(|idle| !idle.is_zero()),
            max_stall: Some(self.write_timeout).filter(|time| !time.is_zero()),
            ..HttpConfig::pages()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::testing::settings;
    use crate::config::{Decode, parse_text};

    fn config(more: &str) -> std::sync::Arc<PrometheusExporterConfig> {
        settings::<PrometheusExporterConfig>(&format!("{{endpoint: '127.0.0.1:0', {more}}}")).get()
    }

    fn problems_of(more: &str) -> String {
        let mut cx = Problems::default();
        let text = format!("{{endpoint: '127.0.0.1:0', {more}}}");
        let node = parse_text("a.yaml", &text, &mut cx).unwrap();
        let _ = PrometheusExporterConfig::decode(&node, &mut cx);
        cx.to_string()
    }

    #[test]
    fn a_client_that_reads_nothing_is_cut_off_after_the_write_timeout() {
        let max_stall = |more| config(more).serving().max_stall;
        assert_eq!(max_stall(""), Some(Duration::from_secs(30)));
        assert_eq!(max_stall("write_timeout: 5s"), Some(Duration::from_secs(5)));
        assert_eq!(max_stall("write_timeout: 0s"), None);
    }

    #[test]
    fn the_strategy_has_an_old_spelling() {
        assert_eq!(config("").strategy(), Strategy::UnderscoresAndSuffixes);
        assert_eq!(
            config("add_metric_suffixes: true").strategy(),
            Strategy::UnderscoresAndSuffixes
        );
        assert_eq!(
            config("add_metric_suffixes: false").strategy(),
            Strategy::Underscores
        );
        assert_eq!(
            config("translation_strategy: NoTranslation, add_metric_suffixes: false").strategy(),
            Strategy::Nothing
        );
        let said = |more| problems_of(more);
        assert!(said("add_metric_suffixes: false").contains("UnderscoreEscapingWithoutSuffixes"));
        let both = said("translation_strategy: NoTranslation, add_metric_suffixes: true");
        assert!(
            both.contains("contradicts `translation_strategy: NoTranslation`"),
            "{both}"
        );
    }

    #[test]
    fn there_is_no_default_endpoint() {
        let mut cx = Problems::default();
        let node = parse_text("a.yaml", "{path: /x}", &mut cx).unwrap();
        assert!(PrometheusExporterConfig::decode(&node, &mut cx).is_none());
        assert!(cx.to_string().contains("`endpoint`"), "{cx}");
    }

    #[test]
    fn contradictions_are_reported() {
        let both =
            "resource_constant_labels: {included: [a]}, resource_to_telemetry_conversion: {enabled: true}";
        assert!(
            problems_of(both).contains("can't be combined"),
            "{}",
            problems_of(both)
        );
        assert!(problems_of("path: /debug").contains("lists omitted series"));
        assert!(problems_of("metric_expiration: 0s").contains("greater than zero"));
        assert!(problems_of("const_labels: {'..': x}").contains("not a label name"));
        assert_eq!(problems_of("const_labels: {'another label': x}"), "");
    }

    #[test]
    fn service_attributes_can_stay_out_of_the_labels() {
        let labels =
            config("resource_to_telemetry_conversion: {enabled: true, exclude_service_attributes: true}");
        let labels = labels.style(Escaping::default()).labels.resource;
        assert!(labels.included[0].matches("host.name"));
        assert!(
            labels
                .excluded
                .iter()
                .any(|pattern| pattern.matches("service.name"))
        );
        assert!(!labels.excluded.iter().any(|pattern| pattern.matches("host.name")));
    }
}
