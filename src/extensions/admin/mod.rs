// SPDX-License-Identifier: Apache-2.0

//! `admin`: the current data of the gateway.
//!
//! `GET /api/v1/composites` lists all label sets of all composites, `GET /api/v1/composites/NAME` those of one
//! (`composites`). The other paths below `/api/v1` are those of Prometheus, so that its clients can read the
//! gateway (`api`). `/` is a page for people, which shows all of it (`page`). Queries see every table live, and the recent
//! past of its series (`view`). The same port serves gRPC (`grpc`): the composites for programs, and KEDA's contract with
//! external scalers. `GET /api/v1/tap` copies the data of a component (`tap`).

mod api;
mod composites;
mod explain;
mod fetch;
mod grpc;
mod memory;
mod page;
mod queues;
mod reload;
mod sampler;
mod tap;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, StatusCode};
use http_body_util::Full;
use parking_lot::Mutex;
use tidegate_engine::{BadPattern, Pattern};
use tidegate_promql::Millis;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::api::Api;
pub use self::api::{ApiPage, api_pages};
use self::fetch::{HistoryFetch, PeersConfig};
use self::tap::TapAccess;
use crate::component::patterns::{check_filter, check_pattern, filter};
use crate::component::worker::Worker;
use crate::component::{
    ComponentError, ConfigType, Context, ErrorDoc, Evaluator, Extension, ExtensionFactory, Factory,
    Lifecycle, Stability,
};
use crate::config::{ByteSize, Node, Ordered, Problems};
use crate::net::auth::AuthConfig;
use crate::net::cors::CorsConfig;
use crate::net::errors::{AUTH_ERRORS, LISTENER_ERRORS, PAGE_ERRORS, SOCKET_ERRORS};
use crate::net::http::HTTP2_MAX_STREAMS;
use crate::net::pages::{self, Answer, PageServer, Pages, Request, ServerConfig, Takes, max_answer_bytes};
use crate::net::{Endpoint, SocketFileConfig, TlsServerConfig};
use crate::prom::catalog::{HistoryRule, KeptPast, View, max_samples_within};

/// The default port of the pages.
const PORT: u16 = 8080;

/// The time for which samples are kept if neither an option nor a rule asks for a longer one.
const RETENTION: Duration = Duration::from_secs(600);

/// The default limit of open taps.
const MAX_TAPS: NonZeroUsize = NonZeroUsize::new(8).expect("not zero");

/// The default limit of the items of a tap in a second.
const MAX_TAP_ITEMS: NonZeroUsize = NonZeroUsize::new(1000).expect("not zero");

crate::options! {
    /// Options of the `admin` extension.
    pub struct AdminConfig {
        /// Address to listen on: `host:port` or `unix:/path`. Every client that can connect can read.
        pub endpoint: Endpoint = Endpoint::Tcp { host: "127.0.0.1".to_owned(), port: PORT },
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
        /// Web pages of other origins that may query. Unset: none.
        pub cors: Option<CorsConfig> = None,
        /// The `prometheus` exporter whose names and labels queries use, for example `prometheus/NAME`. Unset:
        /// the first that shows the table.
        pub exporter: Option<String> = None,
        /// Recent samples of series, for range queries.
        pub history: HistoryConfig = HistoryConfig::default(),
        /// Limits of queries.
        pub query: QueryConfig = QueryConfig::default(),
        /// Whether clients that do not authenticate may tap, which shows the contents of data. It needs a loopback
        /// address or a socket. With `auth`, all clients may tap.
        pub tap: bool = false,
        /// Most open taps. Each holds at most 8 MiB of data.
        pub max_taps: NonZeroUsize = MAX_TAPS,
        /// Most items that a tap shows in a second. It skips the batches that follow in this second.
        pub max_tap_items_per_second: NonZeroUsize = MAX_TAP_ITEMS,
    }
    check = AdminConfig::check
}

impl AdminConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let is_local = self.endpoint.is_loopback() || self.endpoint.unix_path().is_some();
        if self.tap && self.auth.is_none() && !is_local {
            cx.at(at.child("tap"))
                .help("set `auth`, or listen on a loopback address")
                .error("shows the contents of data to every client that can connect");
        }
    }
}

crate::options! {
    /// Limits of queries.
    pub struct QueryConfig {
        /// Longest time for an answer, waiting in the queue included. `timeout=` of a request may shorten it.
        pub timeout: Duration = Duration::from_secs(10),
        /// Most samples that one evaluation of a query may read. A sample takes at least 16 bytes during the
        /// evaluation. Unset: one for every 128 bytes of the memory limit, 20 million at most.
        pub max_samples: Option<NonZeroUsize> = None,
        /// Most bytes of one answer, and of all unsent answers together. The extension refuses further ones with
        /// 503. Unset: a sixteenth of the memory limit, 64 MiB at most.
        pub max_answer_bytes: Option<ByteSize> = None,
    }
    check = QueryConfig::check
}

impl QueryConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.timeout.is_zero() {
            cx.at(at.child("timeout")).error("must be more than 0");
        }
    }

    /// The configured limit, or the default for this memory limit in bytes.
    fn max_samples(&self, memory: usize) -> usize {
        let configured = self.max_samples.map(NonZeroUsize::get);
        configured.unwrap_or_else(|| max_samples_within(memory))
    }

    /// The configured limit of answers, or the default for this memory limit in bytes.
    fn max_answer_bytes(&self, memory: usize) -> usize {
        let derived = max_answer_bytes(memory);
        self.max_answer_bytes.map_or(derived, ByteSize::as_usize)
    }
}

crate::options! {
    /// The recent samples that queries can read.
    pub struct HistoryConfig {
        /// Whether the extension keeps recent samples. Otherwise queries can read only the present.
        pub enabled: bool = true,
        /// Rules that select series. The extension keeps samples of matching series only. Empty: all series.
        pub rules: Vec<HistoryRuleConfig> = Vec::new(),
        /// Interval between two samples of a series.
        pub interval: Duration = Duration::from_secs(1),
        /// Time for which a sample is kept. Unset: 10 minutes, or as far back as the rules of `rules` extensions read, if
        /// that is longer.
        pub retention: Option<Duration> = None,
        /// Most memory of all samples. When it is used up, new series get no samples. Unset: an eighth of the
        /// memory limit, 256 MiB at most.
        pub max_bytes: Option<ByteSize> = None,
        /// Other replicas of the cluster. When this gateway starts, it fetches the history of merged series from one of
        /// them. Unset: the history begins at the start.
        pub peers: Option<PeersConfig> = None,
    }
    check = HistoryConfig::check
}

crate::options! {
    /// Series whose samples are kept.
    pub struct HistoryRuleConfig {
        /// Metric name: exact, a glob (`agent_*`), or `regex:...`.
        pub name: String = required,
        /// Attributes that a series must have. Each value is exact, a glob, or `regex:...`.
        pub attributes: Ordered<String> = Ordered::default(),
    }
    check = HistoryRuleConfig::check
}

impl HistoryRuleConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        check_pattern(&self.name, at.child("name"), cx);
        check_filter(&self.attributes, at.child("attributes"), cx);
    }

    fn rule(&self) -> Result<HistoryRule, BadPattern> {
        Ok(HistoryRule {
            name: Pattern::parse(&self.name)?,
            attributes: filter(&self.attributes)?,
        })
    }
}

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX / 4)
}

impl HistoryConfig {
    /// The past of the series that these rules select.
    fn kept_past(&self, rules: Vec<HistoryRule>) -> KeptPast {
        KeptPast {
            interval_ms: millis(self.interval),
            span_ms: millis(self.retention()),
            follows_needs: self.retention.is_none(),
            max_bytes: self.max_bytes.map(ByteSize::as_usize),
            rules,
        }
    }

    /// The shortest time for which a sample is kept.
    fn retention(&self) -> Duration {
        self.retention.unwrap_or(RETENTION)
    }

    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.interval < Duration::from_millis(10) {
            cx.at(at.child("interval")).error("must be at least 10ms");
        }
        if self.retention() < self.interval {
            cx.at(at.child("retention"))
                .error("must not be less than `interval`");
        }
    }
}

/// The errors of `admin`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::answered(
        "A parameter or a query can't be read.",
        "400 `bad_data`, or `INVALID_ARGUMENT`",
        "Correct the query at the line and column that the answer names.",
    ),
    ErrorDoc::answered(
        "A query fails during its evaluation, or exceeds a limit.",
        "422 `execution`",
        "Ask for fewer series or a shorter range.",
    ),
    ErrorDoc::answered(
        "A query is empty because a composite that it names is stale, absent or has an error.",
        "422 `execution`",
        "Check that the sources of the composite run and reach the gateway. `tidegate explain` lists those that do not report.",
    ),
    ErrorDoc::answered(
        "A query takes longer than its time limit, or too many queries wait.",
        "503 `timeout` or `unavailable`; over gRPC: `UNAVAILABLE` or `DEADLINE_EXCEEDED`",
        "Ask for less, or try again after the time of `Retry-After`.",
    ),
    ErrorDoc::answered(
        "A composite or a service of gRPC does not exist.",
        "404, `NOT_FOUND` or `UNIMPLEMENTED`",
        "Correct the name. The answer names the nearest one.",
    ),
    ErrorDoc::answered(
        "A trigger of KEDA has no value, and its `onPartial` or `whenGone` says that this is an error.",
        "`FAILED_PRECONDITION`",
        "Look at the sources of the composite. KEDA then uses the `fallback` of the object.",
    ),
    ErrorDoc::answered(
        "A reload or a tap is not allowed, or a web page of another site asks for it.",
        "403 `forbidden`",
        "Set `auth`, or `tap: true` on a loopback address. For web pages, set `cors`.",
    ),
    ErrorDoc::answered(
        "The new configuration of a reload does not run. The old one runs on.",
        "500 `bad_config`, with the problems",
        "Correct the configuration, and reload again.",
    ),
    ErrorDoc::answered(
        "The process can't reload its configuration.",
        "501 `unsupported`",
        "Restart the gateway to apply changes.",
    ),
    ErrorDoc::answered(
        "A query ends because of a bug.",
        "500 `internal`, or `INTERNAL`",
        "Report the bug, with the log.",
    )
    .logged_as("a query panicked (a bug)"),
    ErrorDoc::logged(
        "Another `admin` extension has the history.",
        "another admin extension already keeps samples",
        "Remove `history` from one of the extensions.",
    ),
    ErrorDoc::logged(
        "No peer gives its history.",
        "no peer gives its history, so that of this gateway begins at its start",
        "Check `history::peers`, and the peers.",
    ),
    ErrorDoc::logged(
        "A tap can't decode a batch.",
        "a tap can't decode batches",
        "Correct the sender. The line has the cause.",
    ),
];

/// The factory of `admin`.
pub static FACTORY: ExtensionFactory = Factory {
    kind: "admin",
    aliases: &[],
    stability: Stability::Beta,
    help: "answers PromQL and serves the current values of composites",
    errors: &[ERRORS, PAGE_ERRORS, AUTH_ERRORS, LISTENER_ERRORS, SOCKET_ERRORS],
    config: ConfigType::of::<AdminConfig>(),
    build: |settings, cx| Ok(Arc::new(Admin::new(settings.get(), cx)?)),
};

pub(super) struct Admin {
    config: Arc<AdminConfig>,
    base: Context,
    view: Arc<View>,
    evaluator: Arc<Evaluator>,
    /// Whether it keeps the past; of several extensions one does.
    samples: bool,
    server: PageServer,
    sampler: Worker,
    /// The fetch of the history of a peer.
    fetch: Mutex<Option<JoinHandle<()>>>,
    /// The random name of this process.
    instance: String,
    stopping: CancellationToken,
}

impl Admin {
    fn new(config: Arc<AdminConfig>, base: Context) -> Result<Self, ComponentError> {
        let rules = config.history.rules.iter().map(HistoryRuleConfig::rule);
        let rules: Result<Vec<_>, BadPattern> = rules.collect();
        let rules = rules.map_err(|error| base.error(error.to_string()))?;
        let view = View::of(&base.shared);
        if let Some(exporter) = &config.exporter {
            view.prefer(exporter);
        }
        let samples = config.history.enabled && view.keep_past(config.history.kept_past(rules));
        if config.history.enabled && !samples {
            tracing::warn!(extension = %base.id, "another admin extension already keeps samples; `history` here has no effect");
        }
        Ok(Self {
            samples,
            config,
            base,
            evaluator: Arc::new(Evaluator(view.clone())),
            view,
            server: PageServer::default(),
            sampler: Worker::new("admin-sampler"),
            fetch: Mutex::default(),
            instance: format!("{:016x}", rand::random::<u64>()),
            stopping: CancellationToken::new(),
        })
    }
}

#[cfg(test)]
impl Admin {
    pub(super) fn local(&self) -> Endpoint {
        self.server.local()
    }
}

impl Extension for Admin {}

#[async_trait]
impl Lifecycle for Admin {
    async fn start(&self) -> Result<(), ComponentError> {
        let shared = self.base.shared.clone();
        // Memory limiters, which bound the past, have been built meanwhile.
        if self.samples
            && let Some(limits) = self.view.past_limits()
        {
            self.view.bound_past(limits.max_bytes);
        }
        let api = Api::new(
            &self.base.id,
            shared,
            self.view.clone(),
            self.config.query.clone(),
            self.stopping.clone(),
            self.instance.clone(),
        );
        let api = Arc::new(api);
        let server = ServerConfig {
            tls: self.config.tls.as_ref(),
            auth: self.config.auth.as_ref(),
            allowed_hosts: &self.config.allowed_hosts,
            max_connections_per_peer: self.config.max_connections_per_peer,
            max_answer_bytes: self.config.query.max_answer_bytes.map(ByteSize::as_usize),
            headers: HeaderMap::from_iter([(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))]),
            ..ServerConfig::at(&self.config.endpoint, &self.config.socket)
        };
        let faces = Faces {
            api,
            cors: self.config.cors.clone(),
            tap: TapAccess::of(&self.config),
            authenticates: self.config.auth.is_some(),
        };
        self.server.start(&self.base, server, Arc::new(faces)).await?;
        self.base.shared.evaluators.add(self.evaluator.clone());
        let view = self.view.clone();
        let interval = self.samples.then_some(self.config.history.interval);
        let started = self
            .sampler
            .start(move |pause| sampler::run(&view, interval, pause));
        started.map_err(|error| self.base.error(format!("starting the sampler: {error}")))?;
        if self.samples {
            let fetch = HistoryFetch::of(&self.config, &self.base, &self.view, &self.instance)?;
            *self.fetch.lock() = fetch.map(|fetch| tokio::spawn(fetch.run()));
        }
        Ok(())
    }

    async fn stop(&self, deadline: Instant) {
        self.stopping.cancel();
        let fetch = self.fetch.lock().take();
        if let Some(fetch) = fetch {
            fetch.abort();
            // It has ended, or it panicked before.
            let _ = fetch.await;
        }
        self.base.shared.evaluators.remove(&self.evaluator);
        self.sampler.stop(deadline).await;
        self.server.stop(deadline).await;
    }
}

/// Whether a web page of another site sends the request. A browser adds the password of the user to it if it has one.
fn is_of_other_site(request: &Request) -> bool {
    let site = request.headers.get("sec-fetch-site");
    site.is_some_and(|site| site != "same-origin" && site != "none")
}

/// HTTP and gRPC on one port.
struct Faces {
    api: Arc<Api>,
    cors: Option<CorsConfig>,
    tap: TapAccess,
    /// Whether all clients have authenticated.
    authenticates: bool,
}

#[async_trait]
impl Pages for Faces {
    fn takes(&self) -> Takes {
        Takes::Forms
    }

    fn takes_at(&self, path: &str) -> Takes {
        api::takes(path)
    }

    /// The files of the page have no data. A browser needs them before it can send a token.
    fn is_public(&self, path: &str) -> bool {
        page::is_here(path)
    }

    fn cors(&self) -> Option<&CorsConfig> {
        self.cors.as_ref()
    }

    /// KEDA keeps a stream open for every object that it scales.
    fn max_streams(&self) -> u32 {
        HTTP2_MAX_STREAMS
    }

    async fn page(&self, request: Request) -> Answer {
        match &*request.path {
            reload::PATH if is_of_other_site(&request) => {
                let why = "a web page of another site asks for a reload";
                pages::error(StatusCode::FORBIDDEN, "forbidden", why)
            }
            // It could read nothing of the answer, but use up the taps.
            tap::PATH if self.cors.is_none() && is_of_other_site(&request) => {
                let why = "a web page of another site asks for a tap: list it in `cors`";
                pages::error(StatusCode::FORBIDDEN, "forbidden", why)
            }
            reload::PATH => reload::page(self.api.shared(), self.authenticates).await,
            tap::PATH => tap::page(&request, &self.tap, self.api.shared(), self.api.stopping()).await,
            _ => self.api.clone().answer(request).await,
        }
    }

    async fn grpc(&self, request: http::Request<Full<Bytes>>) -> Answer {
        grpc::answer(self.api.clone(), request).await
    }
}

#[cfg(test)]
mod tests;
