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
    pub struct Config {
        /// Where scrapes are answered: `host:port`, or `unix:/path`.
        pub endpoint: Endpoint = required,
        /// `tcp` or `unix`; the endpoint says it already.
        pub transport: Option<Transport> = None,
        /// Path of the scrape.
        pub path: String = "/metrics".to_owned(),
        /// Put before every metric name.
        pub namespace: String = String::new(),
        /// Labels on every series.
        pub const_labels: Ordered<String> = Ordered::default(),
        /// Write the time of each point (Prometheus then no longer marks series stale).
        pub send_timestamps: bool = false,
        /// How long a series is shown after it was last received. Series of live tables follow their own rules.
        pub metric_expiration: Duration = Duration::from_secs(300),
        /// Answer in OpenMetrics where the scraper prefers it.
        pub enable_open_metrics: bool = false,
        /// What becomes of names: `UnderscoreEscapingWithSuffixes` unless set.
        pub translation_strategy: Option<Strategy> = None,
        /// The old way to say `UnderscoreEscapingWithSuffixes` (true) or `UnderscoreEscapingWithoutSuffixes` (false).
        pub add_metric_suffixes: Option<bool> = None,
        /// Which resource attributes become labels.
        pub resource_constant_labels: ResourceConstantLabels = ResourceConstantLabels::default(),
        /// The old way to say that all resource attributes become labels.
        pub resource_to_telemetry_conversion: ResourceConversion = ResourceConversion::default(),
        /// Leave the `otel_scope_*` labels out.
        pub without_scope_info: bool = false,
        /// Write the `otel_scope_schema_url` label; the Collector has none.
        pub scope_schema_url: bool = true,
        /// Most series kept of what comes undecoded by a table; further ones share one overflow series a metric.
        pub max_series: u64 = 1_000_000,
        /// The same for the series of one metric; unset: no limit of its own.
        pub max_series_per_metric: Option<u64> = None,
        /// What becomes of points of its own table (not of an `aggregate` before it) whose time lies too far ahead of the gateway's clock.
        pub future: FutureConfig = FutureConfig::default(),
        /// Most connections at a time.
        pub max_connections: u32 = 64,
        /// Connections of one address at a time, further ones are closed; unset: a quarter of `max_connections`. Those of
        /// this machine do not count.
        pub max_connections_per_peer: Option<NonZeroUsize> = None,
        /// Names by which it may be asked besides addresses and `localhost`, where it listens on this machine alone: a page
        /// in a browser can give its own name any address.
        pub allowed_hosts: Vec<String> = Vec::new(),
        /// Time for the headers of the first request on a connection.
        pub read_header_timeout: Duration = Duration::from_secs(60),
        /// A connection without a request for so long is asked to go; 0: never.
        pub idle_timeout: Duration = READER_IDLE,
        /// A scraper that takes nothing of its answer for so long is cut off; 0: never.
        pub write_timeout: Duration = Duration::from_secs(30),
        /// TLS.
        pub tls: Option<TlsServerConfig> = None,
        /// Who may scrape; unset: everybody who can connect.
        pub auth: Option<AuthConfig> = None,
        /// Headers of every answer; their values are secrets.
        pub response_headers: Headers = Headers::new(),
        /// The socket file of a `unix:` endpoint.
        pub socket: SocketFileConfig = SocketFileConfig::default(),
    }
    check = Config::check
}

crate::options! {
    /// Resource attributes as labels; `*` and `?` stand for any characters, any one character.
    pub struct ResourceConstantLabels {
        /// Keys to copy.
        pub included: Vec<String> = Vec::new(),
        /// Keys not to copy; without `included`, all others are.
        pub excluded: Vec<String> = Vec::new(),
    }
}

crate::options! {
    /// All resource attributes as labels.
    pub struct ResourceConversion {
        /// Copy every resource attribute to a label of every series.
        pub enabled: bool = false,
        /// But not `service.name`, `service.namespace` and `service.instance.id`, which are `job` and `instance`.
        pub exclude_service_attributes: bool = false,
    }
}

/// The attributes that make `job` and `instance`.
const SERVICE: [&str; 3] = ["service.name", "service.namespace", "service.instance.id"];

impl Config {
    fn check(&self, at: &Node, cx: &mut Problems) {
        self.endpoint.check_transport(self.transport, at, cx);
        headers::check(&self.response_headers, at.child("response_headers"), cx);
        if !self.path.starts_with('/') {
            cx.at(at.child("path")).error("must begin with `/`");
        }
        if self.path == DEBUG_PATH {
            cx.at(at.child("path"))
                .error("the exporter says there what it leaves out");
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
                .help("the same in the new spelling: `resource_constant_labels: {included: [\"*\"]}`")
                .error("`resource_constant_labels` says already which resource attributes become labels");
        }
    }

    fn check_names(&self, at: &Node, cx: &mut Problems) {
        for (name, _) in self.const_labels.iter() {
            if name.bytes().all(|byte| !byte.is_ascii_alphanumeric()) {
                cx.at(at.child("const_labels"))
                    .error(format!("{name:?} is no label name"));
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
                "is an old spelling of `translation_strategy: {}`",
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
    pub(super) fn style(&self, escaping: Escaping) -> Style {
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

    fn config(more: &str) -> std::sync::Arc<Config> {
        settings::<Config>(&format!("{{endpoint: '127.0.0.1:0', {more}}}")).get()
    }

    fn said(more: &str) -> String {
        let mut cx = Problems::default();
        let text = format!("{{endpoint: '127.0.0.1:0', {more}}}");
        let node = parse_text("a.yaml", &text, &mut cx).unwrap();
        let _ = Config::decode(&node, &mut cx);
        cx.to_string()
    }

    #[test]
    fn who_takes_nothing_is_cut_off_after_the_write_timeout() {
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
        let said = |more| said(more);
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
        assert!(Config::decode(&node, &mut cx).is_none());
        assert!(cx.to_string().contains("`endpoint`"), "{cx}");
    }

    #[test]
    fn contradictions_are_told() {
        let both =
            "resource_constant_labels: {included: [a]}, resource_to_telemetry_conversion: {enabled: true}";
        assert!(said(both).contains("says already"), "{}", said(both));
        assert!(said("path: /debug").contains("what it leaves out"));
        assert!(said("metric_expiration: 0s").contains("greater than zero"));
        assert!(said("const_labels: {'..': x}").contains("no label name"));
        assert_eq!(said("const_labels: {'another label': x}"), "");
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
