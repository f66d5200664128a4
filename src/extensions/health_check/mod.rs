// SPDX-License-Identifier: Apache-2.0

//! `health_check`: shows the cluster whether the gateway accepts data: 200 while it runs, 503 before and after.

pub mod v2;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use http::StatusCode;
use serde_json::json;

use crate::component::shared::{Phase, Shared};
use crate::component::{
    ComponentError, ConfigType, Context, ErrorDoc, Extension, ExtensionFactory, Factory, Lifecycle, Stability,
};
use crate::config::{Node, Problems, WithoutEffect};
use crate::net::errors::{LISTENER_ERRORS, PAGE_ERRORS, SOCKET_ERRORS};
use crate::net::pages::{self, Answer, PageServer, Pages, Request, ServerConfig, Takes};
use crate::net::{Endpoint, SocketFileConfig, TlsServerConfig, tls};

/// Options of the Collector's extension that can mean nothing here.
const OF_THE_COLLECTOR: &WithoutEffect = &[(
    "check_collector_pipeline",
    "the probe says whether the gateway runs, and its answer names exporters in trouble",
)];

/// The port of the Collector's extension.
const PORT: u16 = 13133;

crate::options! {
    /// Options of the `health_check` extension.
    pub struct HealthCheckConfig {
        /// Address to listen on: `host:port` or `unix:/path`.
        pub endpoint: Endpoint = Endpoint::localhost(PORT),
        /// HTTP path of the probe.
        pub path: String = "/".to_owned(),
        /// Response texts instead of the JSON object.
        pub response_body: Option<ResponseBody> = None,
        /// Permissions, owner and allowed peers of the socket file of a `unix:` endpoint.
        pub socket: SocketFileConfig = SocketFileConfig::default(),
        /// TLS of the server. Unset: no TLS.
        pub tls: Option<TlsServerConfig> = None,
        /// Host names that a request may use, besides addresses and `localhost`. They count only if the endpoint
        /// is a loopback address. The check protects against web pages whose host name resolves to this machine.
        pub allowed_hosts: Vec<String> = Vec::new(),
        /// Most connections of one address. The server closes further ones. Unset: a quarter of all 512
        /// connections, and connections of this machine don't count.
        pub max_connections_per_peer: Option<NonZeroUsize> = None,
    }
    accepted = OF_THE_COLLECTOR;
    check = HealthCheckConfig::check
}

crate::options! {
    /// Response texts.
    pub struct ResponseBody {
        /// Text while the gateway accepts data.
        pub healthy: String = String::new(),
        /// Text during the start and the stop.
        pub unhealthy: String = String::new(),
    }
}

impl HealthCheckConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if !self.path.starts_with('/') {
            cx.at(at.child("path")).error("a path begins with `/`");
        }
    }
}

/// The errors of `health_check` and `healthcheckv2`.
const ERRORS: &[ErrorDoc] = &[ErrorDoc::answered(
    "The gateway starts or stops, is a replica that does not know all totals, or lacks a component since a failed \
     reload.",
    "503, with the `reason`",
    "Wait until the gateway is ready. After a failed reload, correct the configuration and reload, or restart the \
     gateway. Kubernetes sends no requests to it meanwhile.",
)];

/// The factory of `health_check`.
pub static FACTORY: ExtensionFactory = Factory {
    kind: "health_check",
    aliases: &[],
    stability: Stability::Beta,
    help: "answers liveness and readiness probes over HTTP",
    errors: &[ERRORS, PAGE_ERRORS, LISTENER_ERRORS, SOCKET_ERRORS],
    config: ConfigType::of::<HealthCheckConfig>(),
    build: |settings, cx| Ok(Arc::new(HealthCheck::new(settings.get(), Shape::First, cx))),
};

/// The path for liveness probes, as in `admin`. It answers 200 as long as the process can: a restart does not help a replica
/// that waits for the store of its cluster.
const LIVENESS: &str = "/-/healthy";

/// The format of the JSON object.
#[derive(Clone, Copy)]
enum Shape {
    /// The format of the Collector's `health_check`.
    First,
    /// The format of its `healthcheckv2`.
    Second,
}

struct HealthCheck {
    config: Arc<HealthCheckConfig>,
    shape: Shape,
    base: Context,
    server: PageServer,
}

impl HealthCheck {
    fn new(config: Arc<HealthCheckConfig>, shape: Shape, base: Context) -> Self {
        Self {
            config,
            shape,
            base,
            server: PageServer::default(),
        }
    }
}

impl Extension for HealthCheck {}

#[async_trait]
impl Lifecycle for HealthCheck {
    fn check_files(&self) -> Result<(), ComponentError> {
        tls::check_files(self.config.tls.as_ref(), &self.base)
    }

    async fn start(&self) -> Result<(), ComponentError> {
        let probe = Probe {
            config: self.config.clone(),
            shape: self.shape,
            shared: self.base.shared.clone(),
            since: Since(SystemTime::now(), Instant::now()),
        };
        let server = ServerConfig {
            tls: self.config.tls.as_ref(),
            allowed_hosts: &self.config.allowed_hosts,
            max_connections_per_peer: self.config.max_connections_per_peer,
            ..ServerConfig::at(&self.config.endpoint, &self.config.socket)
        };
        self.server.start(&self.base, server, Arc::new(probe)).await
    }

    /// Extensions stop last, so probes see 503 while the gateway drains.
    async fn stop(&self, deadline: Instant) {
        self.server.stop(deadline).await;
    }
}

struct Probe {
    config: Arc<HealthCheckConfig>,
    shape: Shape,
    shared: Arc<Shared>,
    since: Since,
}

#[async_trait]
impl Pages for Probe {
    fn takes(&self) -> Takes {
        Takes::Paths
    }

    async fn page(&self, request: Request) -> Answer {
        if request.path == self.config.path {
            health(&self.config, self.shape, &self.shared, self.since)
        } else if request.path == LIVENESS {
            pages::text(StatusCode::OK, "text/plain", "tidegate is healthy.\n".to_owned())
        } else {
            pages::json(
                StatusCode::NOT_FOUND,
                &json!({"error": format!("the probe is at {}", self.config.path)}),
            )
        }
    }
}

/// The start of the gateway, by both clocks.
#[derive(Clone, Copy)]
struct Since(SystemTime, Instant);

fn health(config: &HealthCheckConfig, shape: Shape, shared: &Shared, since: Since) -> Answer {
    let unready = shared.health.unready();
    let is_ready = shared.health.phase() == Phase::Ready && unready.is_none();
    let status = if is_ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    if let Some(texts) = &config.response_body {
        let text = if is_ready {
            &texts.healthy
        } else {
            &texts.unhealthy
        };
        return pages::text(status, "text/plain; charset=utf-8", text.clone());
    }
    let uptime = Duration::from_secs(since.1.elapsed().as_secs());
    let up_since = humantime::format_rfc3339_millis(since.0).to_string();
    let mut body = match shape {
        Shape::First => json!({
            "status": if is_ready { "Server available" } else { "Server not available" },
            "upSince": up_since,
            "uptime": humantime::format_duration(uptime).to_string(),
        }),
        Shape::Second => json!({
            "start_time": up_since,
            "healthy": is_ready,
            "status": v2::status(shared.health.phase(), is_ready),
            "status_time": humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
        }),
    };
    if let Some(why) = unready {
        body["reason"] = json!(why);
    }
    // The gateway is not restarted for one component in trouble: the others do their work.
    let troubles = shared.health.troubles();
    if !troubles.is_empty() {
        body["troubles"] = json!(troubles);
    }
    pages::json(status, &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::testing::{context, settings};
    use crate::net::pages::testing::fetch;

    async fn start(yaml: &str) -> HealthCheck {
        let extension = HealthCheck::new(
            settings::<HealthCheckConfig>(yaml).get(),
            Shape::First,
            context("extensions", "health_check"),
        );
        extension.start().await.unwrap();
        extension
    }

    #[tokio::test]
    async fn ready_is_200_and_everything_else_503() {
        let extension = start("endpoint: 127.0.0.1:0").await;
        let endpoint = extension.server.local();
        for (phase, expected) in [
            (Phase::Starting, 503),
            (Phase::Ready, 200),
            (Phase::Stopping, 503),
        ] {
            extension.base.shared.health.enter(phase);
            let (status, body) = fetch(&endpoint, "GET", "/").await;
            assert_eq!(status, expected);
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!(body["status"] == "Server available", expected == 200);
        }
        extension.base.shared.health.enter(Phase::Ready);
        let hold = |why| extension.base.shared.health.hold("receivers::partials", why);
        hold(Some("catching up"));
        let (status, body) = fetch(&endpoint, "GET", "/").await;
        assert!(
            status == 503 && body.contains("receivers::partials: catching up"),
            "{body}"
        );
        assert_eq!(fetch(&endpoint, "GET", "/-/healthy").await.0, 200);
        hold(None);
        assert_eq!(fetch(&endpoint, "GET", "/").await.0, 200);
        extension.base.shared.health.enter(Phase::Stopping);
        assert_eq!(fetch(&endpoint, "GET", "/other").await.0, 404);
        assert_eq!(fetch(&endpoint, "POST", "/").await.0, 405);
        assert_eq!(fetch(&endpoint, "HEAD", "/").await, (503, String::new()));
        extension.stop(Instant::now() + Duration::from_secs(10)).await;
    }

    #[tokio::test]
    async fn path_and_texts_can_be_chosen() {
        let extension =
            start("{endpoint: '127.0.0.1:0', path: /live, response_body: {healthy: fine, unhealthy: ill}}")
                .await;
        let endpoint = extension.server.local();
        assert_eq!(fetch(&endpoint, "GET", "/live").await, (503, "ill".to_owned()));
        extension.base.shared.health.enter(Phase::Ready);
        assert_eq!(fetch(&endpoint, "GET", "/live").await, (200, "fine".to_owned()));
    }
}
