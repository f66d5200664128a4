// SPDX-License-Identifier: Apache-2.0

//! `zpages`: plain HTML tables about the gateway itself, at the paths of the Collector's extension. They show the
//! service, its pipelines with their item counts, extensions, feature gates and the last slow batches.

mod html;
mod pages;

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use http::StatusCode;
use parking_lot::Mutex;

use crate::component::slow::{Observer, Slow};
use crate::component::{
    ComponentError, ConfigType, Context, Extension, ExtensionFactory, Factory, Lifecycle, Shared, Stability,
};
use crate::config::{Node, Problems};
use crate::net::auth::AuthConfig;
use crate::net::errors::{AUTH_ERRORS, LISTENER_ERRORS, PAGE_ERRORS, SOCKET_ERRORS};
use crate::net::pages::{Answer, PageServer, Pages, Request, ServerConfig, Takes, text};
use crate::net::{Endpoint, SocketFileConfig, TlsServerConfig, tls};

/// The port of the Collector's extension.
const PORT: u16 = 55679;
/// Slow batches that are kept.
const KEPT: usize = 128;

crate::options! {
    /// Options of the `zpages` extension.
    pub struct ZpagesConfig {
        /// Address to listen on: `host:port` or `unix:/path`.
        pub endpoint: Endpoint = Endpoint::localhost(PORT),
        /// Permissions, owner and allowed peers of the socket file of a `unix:` endpoint.
        pub socket: SocketFileConfig = SocketFileConfig::default(),
        /// Authentication of clients by an extension. Unset: every client that can connect is admitted.
        pub auth: Option<AuthConfig> = None,
        /// TLS of the server. Unset: no TLS.
        pub tls: Option<TlsServerConfig> = None,
        /// Host names that a request may use, besides addresses and `localhost`. They count only if the endpoint
        /// is a loopback address. The check protects against web pages whose host name resolves to this machine.
        pub allowed_hosts: Vec<String> = Vec::new(),
        /// Most connections of one address. The server closes further ones. Unset: a quarter of all 512
        /// connections, and connections of this machine don't count.
        pub max_connections_per_peer: Option<NonZeroUsize> = None,
        /// Duration from which a batch is slow, in the graph or in a delivery. `/debug/tracez` lists slow
        /// batches.
        pub slow_batch: Duration = Duration::from_secs(1),
        /// Variables of Go, which tidegate does not have.
        pub expvar: Expvar = Expvar::default(),
    }
    check = ZpagesConfig::check
}

crate::options! {
    /// Variables of Go.
    pub struct Expvar {
        /// Accepted, without effect.
        pub enabled: bool = false,
    }
}

impl ZpagesConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.expvar.enabled {
            cx.at(at.child("expvar"))
                .help("the gateway's own metrics are at service::telemetry::metrics")
                .warning("expvar has no effect in tidegate");
        }
    }
}

/// The factory of `zpages`.
pub static FACTORY: ExtensionFactory = Factory {
    kind: "zpages",
    aliases: &[],
    stability: Stability::Beta,
    help: "serves tables about the gateway itself: service, pipelines, extensions, slow batches",
    errors: &[PAGE_ERRORS, AUTH_ERRORS, LISTENER_ERRORS, SOCKET_ERRORS],
    config: ConfigType::of::<ZpagesConfig>(),
    build: |settings, cx| {
        Ok(Arc::new(Zpages {
            config: settings.get(),
            base: cx,
            server: PageServer::default(),
            observer: Mutex::default(),
        }))
    },
};

struct Zpages {
    config: Arc<ZpagesConfig>,
    base: Context,
    server: PageServer,
    /// While it runs: what notes slow batches.
    observer: Mutex<Option<Arc<dyn Observer>>>,
}

impl Extension for Zpages {}

#[async_trait]
impl Lifecycle for Zpages {
    fn check_files(&self) -> Result<(), ComponentError> {
        tls::check_files(self.config.tls.as_ref(), &self.base)
    }

    async fn start(&self) -> Result<(), ComponentError> {
        let slow = Arc::new(SlowBatches::default());
        let observer: Arc<dyn Observer> = Arc::new(Noting(slow.clone()));
        let slowness = &self.base.shared.slowness;
        slowness.observe(self.config.slow_batch, observer.clone());
        *self.observer.lock() = Some(observer);
        let server = ServerConfig {
            tls: self.config.tls.as_ref(),
            auth: self.config.auth.as_ref(),
            allowed_hosts: &self.config.allowed_hosts,
            max_connections_per_peer: self.config.max_connections_per_peer,
            ..ServerConfig::at(&self.config.endpoint, &self.config.socket)
        };
        let tables = Tables {
            shared: self.base.shared.clone(),
            slow,
            slow_batch: self.config.slow_batch,
        };
        self.server.start(&self.base, server, Arc::new(tables)).await
    }

    async fn stop(&self, deadline: Instant) {
        let observer = self.observer.lock().take();
        if let Some(observer) = observer {
            self.base.shared.slowness.forget(&observer);
        }
        self.server.stop(deadline).await;
    }
}

/// The last slow batches, oldest first.
#[derive(Default)]
struct SlowBatches(Mutex<VecDeque<Slow>>);

impl SlowBatches {
    fn note(&self, slow: Slow) {
        let mut kept = self.0.lock();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(slow);
    }

    fn list(&self) -> Vec<Slow> {
        let kept = self.0.lock();
        kept.iter().cloned().collect()
    }
}

struct Noting(Arc<SlowBatches>);

impl Observer for Noting {
    fn slow(&self, slow: Slow) {
        self.0.note(slow);
    }
}

struct Tables {
    shared: Arc<Shared>,
    slow: Arc<SlowBatches>,
    slow_batch: Duration,
}

#[async_trait]
impl Pages for Tables {
    fn takes(&self) -> Takes {
        Takes::Paths
    }

    async fn page(&self, request: Request) -> Answer {
        let overview = self.shared.overview.get();
        let page = match (request.path.trim_end_matches('/'), overview.as_deref()) {
            ("" | "/debug", _) => pages::index(),
            ("/debug/featurez", _) => pages::features(),
            ("/debug/tracez", _) => pages::slow(&self.slow.list(), self.slow_batch),
            ("/debug/servicez", Some(overview)) => pages::service(overview, &self.shared.health),
            ("/debug/pipelinez", Some(overview)) => pages::pipelines(overview),
            ("/debug/extensionz", Some(overview)) => pages::extensions(overview),
            _ => return html(StatusCode::NOT_FOUND, pages::unknown()),
        };
        html(StatusCode::OK, page)
    }
}

fn html(status: StatusCode, page: String) -> Answer {
    text(status, "text/html; charset=utf-8", page)
}
