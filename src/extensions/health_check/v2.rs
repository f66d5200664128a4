// SPDX-License-Identifier: Apache-2.0

//! `healthcheckv2`: `health_check` with the options and the answers of the Collector's second extension, over HTTP.

use std::num::NonZeroUsize;
use std::sync::Arc;

use super::{ERRORS, HealthCheck, PORT, ResponseBody, Shape};
use crate::component::shared::Phase;
use crate::component::{ConfigType, ExtensionFactory, Factory, Stability};
use crate::config::{Node, Problems, WithoutEffect};
use crate::net::errors::{LISTENER_ERRORS, PAGE_ERRORS};
use crate::net::{Endpoint, SocketFileConfig, TlsServerConfig};

crate::options! {
    /// Options of the `healthcheckv2` extension.
    pub struct HealthCheckV2Config {
        /// Whether options and responses are those of version 2. Setting `http` has the same effect.
        pub use_v2: bool = false,
        /// Probes over HTTP.
        pub http: Option<HealthHttpConfig> = None,
        /// Address to listen on in version 1: `host:port` or `unix:/path`.
        pub endpoint: Endpoint = Endpoint::localhost(PORT),
        /// HTTP path of the probe in version 1.
        pub path: String = "/".to_owned(),
        /// Response texts instead of the JSON object, in version 1.
        pub response_body: Option<ResponseBody> = None,
        /// TLS of the server in version 1. Unset: no TLS.
        pub tls: Option<TlsServerConfig> = None,
        /// Host names that a request may use in version 1, besides addresses and `localhost`. They count only if
        /// the endpoint is a loopback address.
        pub allowed_hosts: Vec<String> = Vec::new(),
        /// Most connections of one address. The server closes further ones. Unset: a quarter of all 512
        /// connections, and connections of this machine don't count.
        pub max_connections_per_peer: Option<NonZeroUsize> = None,
    }
    refused = OVER_GRPC;
    accepted = super::OF_THE_COLLECTOR, COMPONENTS;
    check = HealthCheckV2Config::check
}

const OVER_GRPC: &[(&str, &str)] = &[(
    "grpc",
    "probe over HTTP: `http: {endpoint: \"0.0.0.0:13133\"}` answers at /status",
)];

const COMPONENTS: &WithoutEffect = &[(
    "component_health",
    "a component in trouble never makes the gateway unhealthy; the answer names it",
)];

const NO_PAGE: &WithoutEffect = &[("config", "the configuration is not served")];

crate::options! {
    /// Probes over HTTP.
    pub struct HealthHttpConfig {
        /// Address to listen on: `host:port` or `unix:/path`.
        pub endpoint: Endpoint = Endpoint::localhost(PORT),
        /// Options of the probe.
        pub status: Status = Status::default(),
        /// TLS of the server. Unset: no TLS.
        pub tls: Option<TlsServerConfig> = None,
        /// Host names that a request may use, besides addresses and `localhost`. They count only if the endpoint
        /// is a loopback address.
        pub allowed_hosts: Vec<String> = Vec::new(),
        /// Most connections of one address. The server closes further ones. Unset: a quarter of all 512
        /// connections, and connections of this machine don't count.
        pub max_connections_per_peer: Option<NonZeroUsize> = None,
    }
    accepted = NO_PAGE;
}

crate::options! {
    /// Options of the probe.
    pub struct Status {
        /// Must be `true`. To have no probe, leave the extension out.
        pub enabled: bool = true,
        /// HTTP path of the probe.
        pub path: String = "/status".to_owned(),
    }
    check = Status::check
}

impl Status {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if !self.enabled {
            cx.at(at.child("enabled"))
                .help("leave the extension out of `service::extensions`")
                .error("without the probe, the extension answers nothing");
        }
        check_path(&self.path, at, cx);
    }
}

fn check_path(path: &str, at: &Node, cx: &mut Problems) {
    if !path.starts_with('/') {
        cx.at(at.child("path")).error("a path begins with `/`");
    }
}

impl HealthCheckV2Config {
    fn check(&self, at: &Node, cx: &mut Problems) {
        check_path(&self.path, at, cx);
    }

    /// The equivalent options of `health_check`.
    fn probe(&self) -> (super::HealthCheckConfig, Shape) {
        let second = self
            .http
            .clone()
            .or_else(|| self.use_v2.then(HealthHttpConfig::default));
        match second {
            Some(http) => (
                super::HealthCheckConfig {
                    endpoint: http.endpoint,
                    path: http.status.path,
                    response_body: None,
                    socket: SocketFileConfig::default(),
                    tls: http.tls,
                    allowed_hosts: http.allowed_hosts,
                    max_connections_per_peer: http.max_connections_per_peer,
                },
                Shape::Second,
            ),
            None => (
                super::HealthCheckConfig {
                    endpoint: self.endpoint.clone(),
                    path: self.path.clone(),
                    response_body: self.response_body.clone(),
                    socket: SocketFileConfig::default(),
                    tls: self.tls.clone(),
                    allowed_hosts: self.allowed_hosts.clone(),
                    max_connections_per_peer: self.max_connections_per_peer,
                },
                Shape::First,
            ),
        }
    }
}

/// The factory of `healthcheckv2`.
pub static FACTORY: ExtensionFactory = Factory {
    kind: "healthcheckv2",
    aliases: &["health_check_v2"],
    stability: Stability::Beta,
    help: "answers liveness and readiness probes over HTTP, as the Collector's extension of that name",
    errors: &[ERRORS, PAGE_ERRORS, LISTENER_ERRORS],
    config: ConfigType::of::<HealthCheckV2Config>(),
    build: |settings, cx| {
        let (config, shape) = settings.get::<HealthCheckV2Config>().probe();
        Ok(Arc::new(HealthCheck::new(Arc::new(config), shape, cx)))
    },
};

/// The Collector's word for it.
pub(super) fn status(phase: Phase, is_ready: bool) -> &'static str {
    match phase {
        Phase::Ready if is_ready => "StatusOK",
        Phase::Starting | Phase::Ready => "StatusStarting",
        Phase::Stopping => "StatusStopping",
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::component::Lifecycle;
    use crate::component::testing::{context, options};
    use crate::net::pages::testing::fetch;

    #[tokio::test]
    async fn each_version_answers_in_its_shape() {
        let first = ("endpoint: 127.0.0.1:0", "/", "status", "Server available");
        let second = ("http: {endpoint: '127.0.0.1:0'}", "/status", "status", "StatusOK");
        let moved = (
            "{use_v2: true, http: {endpoint: '127.0.0.1:0', status: {path: /live}}}",
            "/live",
            "status",
            "StatusOK",
        );
        for (yaml, path, key, expected) in [first, second, moved] {
            let (config, shape) = options::<HealthCheckV2Config>(yaml).unwrap().probe();
            let extension = HealthCheck::new(Arc::new(config), shape, context("extensions", "healthcheckv2"));
            extension.start().await.unwrap();
            extension.base.shared.health.enter(Phase::Ready);
            let (status, body) = fetch(&extension.server.local(), "GET", path).await;
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!((status, &body[key]), (200, &expected.into()), "{yaml}");
            extension.stop(Instant::now() + Duration::from_secs(10)).await;
        }
    }

    #[test]
    fn probes_over_grpc_are_refused_by_name() {
        let error = options::<HealthCheckV2Config>("grpc: {endpoint: '0.0.0.0:13132'}").unwrap_err();
        assert!(error.contains("`grpc` is not supported"), "{error}");
    }
}
