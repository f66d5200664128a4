//! Options of the `prometheus` exporter, in the Collector's names.

use std::time::Duration;

use crate::config::{Node, Ordered, Problems};
use crate::net::{Endpoint, SocketFileConfig, TlsServerConfig};

crate::options! {
    /// Options of the `prometheus` exporter.
    pub struct Config {
        /// Where scrapes are answered: `host:port`, or `unix:/path`.
        pub endpoint: Endpoint = required,
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
        /// Answer in OpenMetrics 1.0.0 where the scraper prefers it.
        pub enable_open_metrics: bool = false,
        /// Add unit and type suffixes to names.
        pub add_metric_suffixes: bool = true,
        /// Resource attributes as labels.
        pub resource_to_telemetry_conversion: ResourceConversion = ResourceConversion::default(),
        /// Leave the `otel_scope_*` labels out.
        pub without_scope_info: bool = false,
        /// Most series kept of what comes undecoded by a table; further ones share one overflow series a metric.
        pub max_series: u64 = 1_000_000,
        /// Most connections at a time.
        pub max_connections: u32 = 64,
        /// TLS.
        pub tls: Option<TlsServerConfig> = None,
        /// The socket file of a `unix:` endpoint.
        pub socket: SocketFileConfig = SocketFileConfig::default(),
    }
    check = Config::check
}

crate::options! {
    /// Resource attributes as labels.
    pub struct ResourceConversion {
        /// Copy every resource attribute to a label of every series.
        pub enabled: bool = false,
    }
}

impl Config {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if !self.path.starts_with('/') {
            cx.at(at.child("path")).error("must begin with `/`");
        }
        if self.metric_expiration.is_zero() {
            cx.at(at.child("metric_expiration"))
                .error("must be greater than zero: nothing would ever be shown");
        }
    }
}
