//! `health_check`: tells the cluster whether the gateway takes data: 200 while it runs, 503 before and after.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::json;

use crate::component::shared::Phase;
use crate::component::{
    ComponentError, ConfigType, Context, Extension, ExtensionFactory, Factory, Lifecycle, Shared,
};
use crate::net::http::{HttpConfig, serve};
use crate::net::{ConnectionLimits, Endpoint, Listener, Server, SocketFileConfig};

/// Probes are few; more connections than this are somebody's mistake.
const MAX_CONNECTIONS: usize = 64;

crate::options! {
    /// Options of the `health_check` extension.
    pub struct Config {
        /// Where probes are answered.
        pub endpoint: Endpoint = Endpoint::localhost(13133),
        /// Path of the probe.
        pub path: String = "/".to_owned(),
        /// The socket file of a `unix:` endpoint.
        pub socket: SocketFileConfig = SocketFileConfig::default(),
    }
}

/// The factory of `health_check`.
pub static FACTORY: ExtensionFactory = Factory {
    kind: "health_check",
    aliases: &[],
    signals: &[],
    help: "answers liveness and readiness probes over HTTP",
    config: ConfigType::of::<Config>(),
    build: |settings, cx| {
        let up_since = SystemTime::now();
        Ok(Arc::new(HealthCheck {
            config: settings.get(),
            base: cx,
            up_since,
            server: Mutex::default(),
        }))
    },
};

struct HealthCheck {
    config: Arc<Config>,
    base: Context,
    up_since: SystemTime,
    server: Mutex<Option<Server>>,
}

impl Extension for HealthCheck {}

#[async_trait]
impl Lifecycle for HealthCheck {
    async fn start(&self) -> Result<(), ComponentError> {
        let listener = Listener::bind(&self.config.endpoint, &self.config.socket).await;
        let listener = listener.map_err(|error| self.base.error(error.to_string()))?;
        let (path, shared, since): (Arc<str>, _, _) = (
            self.config.path.as_str().into(),
            self.base.shared.clone(),
            Since(self.up_since, Instant::now()),
        );
        let server = Server::start(
            listener,
            ConnectionLimits::plain(MAX_CONNECTIONS),
            move |connection| {
                let (path, shared) = (path.clone(), shared.clone());
                async move {
                    let reply = move |request| {
                        let answer = answer(&request, &path, &shared, since);
                        async move { answer }
                    };
                    serve(connection, &HttpConfig::default(), reply).await;
                }
            },
        );
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        Ok(())
    }

    /// Extensions stop last, so probes see 503 while the gateway drains.
    async fn stop(&self, deadline: Instant) {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(server) = server {
            server.stop(deadline).await;
        }
    }
}

/// When the gateway came up, by both clocks.
#[derive(Clone, Copy)]
struct Since(SystemTime, Instant);

fn answer(request: &Request<Incoming>, path: &str, shared: &Shared, since: Since) -> Response<Full<Bytes>> {
    let (status, text) = match shared.health.phase() {
        _ if request.uri().path() != path => (StatusCode::NOT_FOUND, "Not found"),
        _ if ![Method::GET, Method::HEAD].contains(request.method()) => {
            (StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD")
        }
        Phase::Ready => (StatusCode::OK, "Server available"),
        Phase::Starting | Phase::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "Server not available"),
    };
    let body = json!({
        "status": text,
        "upSince": humantime::format_rfc3339_millis(since.0).to_string(),
        "uptime": humantime::format_duration(std::time::Duration::from_secs(since.1.elapsed().as_secs())).to_string(),
    });
    let response = Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "application/json");
    response
        .body(Full::new(body.to_string().into()))
        .unwrap_or_default()
}
