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
    ComponentError, ConfigType, Context, Extension, ExtensionFactory, Factory, Lifecycle, Shared,
};
use crate::config::{Node, Problems};
use crate::net::auth::AuthConfig;
use crate::net::pages::{Answer, PageServer, Pages, Request, ServerConfig, Takes, text};
use crate::net::{Endpoint, SocketFileConfig, TlsServerConfig};

/// The port of the Collector's extension.
const PORT: u16 = 55679;
/// Slow batches that are kept.
const KEPT: usize = 128;

crate::options! {
    /// Options of the `zpages` extension.
    pub struct Config {
        /// Where the pages are served.
        pub endpoint: Endpoint = Endpoint::localhost(PORT),
        /// The socket file of a `unix:` endpoint.
        pub socket: SocketFileConfig = SocketFileConfig::default(),
        /// Who may ask, by an extension; unset: everyone who can connect.
        pub auth: Option<AuthConfig> = None,
        /// TLS; unset: none.
        pub tls: Option<TlsServerConfig> = None,
        /// Names by which it may be asked besides addresses and `localhost`, where it listens on this machine alone: a page
        /// in a browser can give its own name any address.
        pub allowed_hosts: Vec<String> = Vec::new(),
        /// Connections of one address at a time, further ones are closed; unset: a quarter of the 512 that there may be. Those
        /// of this machine count where it is set.
        pub max_connections_per_peer: Option<NonZeroUsize> = None,
        /// A batch that takes at least this long through the graph, or to a destination, is listed at `/debug/tracez`.
        pub slow_batch: Duration = Duration::from_secs(1),
        /// Go's variables, which do not exist here.
        pub expvar: Expvar = Expvar::default(),
    }
    check = Config::check
}

crate::options! {
    /// Go's variables.
    pub struct Expvar {
        /// Accepted, without effect.
        pub enabled: bool = false,
    }
}

impl Config {
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
    signals: &[],
    help: "serves tables about the gateway itself: service, pipelines, extensions, slow batches",
    config: ConfigType::of::<Config>(),
    build: |settings, cx| {
        Ok(Arc::new(Zpages {
            config: settings.get(),
            base: cx,
            server: PageServer::default(),
        }))
    },
};

struct Zpages {
    config: Arc<Config>,
    base: Context,
    server: PageServer,
}

impl Extension for Zpages {}

#[async_trait]
impl Lifecycle for Zpages {
    async fn start(&self) -> Result<(), ComponentError> {
        let slow = Arc::new(SlowBatches::default());
        let observer = Box::new(Noting(slow.clone()));
        self.base
            .shared
            .slowness
            .observe(self.config.slow_batch, observer);
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
        let page = match (request.path.trim_end_matches('/'), overview) {
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
