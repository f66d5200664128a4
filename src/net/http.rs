//! Serving HTTP on an accepted connection: HTTP/1.1 and HTTP/2 on one port, or HTTP/2 only for gRPC.

mod answers;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::time::Instant;

use self::answers::Answers;
use super::authority::AuthorityFilter;
use super::behind::Behind;
use super::listener::Listener;
use super::measured::Measured;
use super::server::{Connection, ConnectionLimits, Server};
use super::stream::Peer;
use crate::component::Shared;

/// 1 MiB frames halve the cost of a hop compared with HTTP/2's default of 16 KiB.
pub const HTTP2_FRAME_BYTES: u32 = 1 << 20;
/// A full frame may be on the way in one stream before the sender must wait: a request of most senders.
pub const HTTP2_STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// What all streams of a connection may have on the way: the most that an unread connection costs.
pub const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 2 << 20;
/// Streams at a time unless configured. SDKs use one; gateways a few dozen.
pub const HTTP2_MAX_STREAMS: u32 = 200;
/// Names and values of a request's headers together. Telemetry needs a few hundred bytes.
const MAX_HEADER_BYTES: u32 = 64 << 10;
/// Time that streams get to finish after the connection's age is up, unless configured.
const DEFAULT_AGE_GRACE: Duration = Duration::from_secs(30);

/// How a connection is served.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Refuse HTTP/1.1: gRPC needs HTTP/2.
    pub http2_only: bool,
    /// HTTP/2 streams at a time.
    pub max_concurrent_streams: u32,
    /// HTTP/1.1: time for a request's headers, which includes waiting for the next request.
    pub header_timeout: Duration,
    /// HTTP/2: silence after which the peer is pinged.
    pub ping_interval: Option<Duration>,
    /// HTTP/2: how long a ping may stay unanswered.
    pub ping_timeout: Duration,
    /// A connection without a request for so long is asked to go. One that has not sent any yet gets `header_timeout`.
    pub max_idle: Option<Duration>,
    /// Age at which a connection is asked to go, so that clients spread over new replicas.
    pub max_age: Option<Duration>,
    /// Time that running requests get after that.
    pub max_age_grace: Option<Duration>,
    /// A connection whose peer takes nothing of an answer for so long is cut. Answers that may be large need it.
    pub max_stall: Option<Duration>,
    /// HTTP/1.1: whether a connection serves more than one request.
    pub keeps_alive: bool,
    /// Whose calls are measured, if they are.
    pub measured: Option<Arc<Measured>>,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            http2_only: false,
            max_concurrent_streams: HTTP2_MAX_STREAMS,
            header_timeout: Duration::from_secs(60),
            ping_interval: Some(Duration::from_secs(7200)),
            ping_timeout: Duration::from_secs(20),
            max_idle: None,
            max_age: None,
            max_age_grace: None,
            max_stall: None,
            keeps_alive: true,
            measured: None,
        }
    }
}

impl HttpConfig {
    /// The same, and calls are measured where somebody wants to know.
    pub fn measured(self, at: &Listener, limits: &ConnectionLimits, shared: &Shared) -> Self {
        let measured = || Measured::server(at.local(), limits.tls.is_some());
        Self {
            measured: shared.wants_details().then(measured),
            ..self
        }
    }
}

/// Serves HTTP on every connection of a listener: [`serve`] in a [`Server`].
pub fn start<S, F, B>(listener: Listener, limits: ConnectionLimits, config: HttpConfig, service: S) -> Server
where
    S: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let config = Arc::new(config);
    Server::start(listener, limits, move |connection| {
        let (config, service) = (config.clone(), service.clone());
        async move { serve(connection, &config, service).await }
    })
}

/// Answers the requests of a connection until the peer closes it or the server stops; then requests that have begun
/// are finished and no new ones are taken.
pub async fn serve<S, F, B>(connection: Connection, config: &HttpConfig, service: S)
where
    S: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let Connection {
        stream,
        peer,
        stopping,
    } = connection;
    let activity = Arc::new(Activity::new());
    let requests = activity.clone();
    let answers = config.max_stall.map(|_| Arc::<Answers>::default());
    let sending = answers.clone();
    let measured = config.measured.clone();
    let service = hyper::service::service_fn(move |request| {
        let call = measured.as_ref().map(|server| server.begin(&request));
        let (answer, requests, sending) = (service(request), requests.clone(), sending.clone());
        async move {
            let _busy = requests.begin();
            let answer = answer.await;
            if let Some(call) = call {
                call.end(&answer);
            }
            Ok::<_, Infallible>(answer.map(|body| answers::in_pieces(body, sending)))
        }
    });
    let stream = match peer {
        Peer::Unix(_) => AuthorityFilter::new(stream),
        Peer::Tcp(_) => AuthorityFilter::passing(stream),
    };
    let stream = answers::Noted::new(stream, answers.clone());
    let builder = builder(config);
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);

    let mut outcome = tokio::select! {
        outcome = Behind::new(serving.as_mut()) => Some(outcome),
        () = stopping.cancelled() => None,
        () = sleep(config.max_age) => None,
        () = activity.idle(config.header_timeout, config.max_idle) => None,
        () = answers::stalled(answers.as_deref(), config.max_stall) => {
            tracing::debug!(?peer, "takes nothing of its answer: the connection is cut");
            return;
        }
    };
    if outcome.is_none() && activity.has_begun() {
        serving.as_mut().graceful_shutdown();
        let grace = match stopping.is_cancelled() {
            true => None,
            false => Some(config.max_age_grace.unwrap_or(DEFAULT_AGE_GRACE)),
        };
        outcome = tokio::select! {
            outcome = serving => Some(outcome),
            () = sleep(grace) => None,
        };
    }
    if let Some(Err(error)) = outcome {
        tracing::debug!(?peer, %error, "connection ended");
    }
}

/// Whether a connection has requests, and since when it has none. Requests pay two atomic operations for it; whoever
/// waits looks when it could be long enough.
struct Activity {
    /// The connection's beginning.
    began: Instant,
    requests: AtomicUsize,
    has_begun: AtomicBool,
    /// When the last request ended, in milliseconds after the beginning.
    last_ms: AtomicU64,
}

/// One request of a connection, until it is answered.
struct Busy<'a>(&'a Activity);

impl Activity {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            requests: AtomicUsize::new(0),
            has_begun: AtomicBool::new(false),
            last_ms: AtomicU64::new(0),
        }
    }

    fn has_begun(&self) -> bool {
        self.has_begun.load(SeqCst)
    }

    fn begin(&self) -> Busy<'_> {
        self.requests.fetch_add(1, SeqCst);
        self.has_begun.store(true, SeqCst);
        Busy(self)
    }

    /// Returns when there has been no request for too long.
    async fn idle(&self, before_the_first: Duration, after: Option<Duration>) {
        let patience = after.map_or(before_the_first, |after| after.min(before_the_first));
        loop {
            let limit = match (self.has_begun(), after) {
                (false, _) => before_the_first,
                (true, Some(after)) => after,
                (true, None) => return std::future::pending().await,
            };
            let idle = match self.requests.load(SeqCst) {
                0 => (self.began + Duration::from_millis(self.last_ms.load(SeqCst))).elapsed(),
                _ => Duration::ZERO,
            };
            if idle >= limit {
                return;
            }
            tokio::time::sleep((limit - idle).min(patience)).await;
        }
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let now = u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last_ms.store(now, SeqCst);
        self.0.requests.fetch_sub(1, SeqCst);
    }
}

/// For ever where there is no such limit.
async fn sleep(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

fn builder(config: &HttpConfig) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .keep_alive(config.keeps_alive)
        .header_read_timeout(config.header_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_frame_size(HTTP2_FRAME_BYTES)
        .initial_stream_window_size(HTTP2_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(config.max_concurrent_streams)
        .max_header_list_size(MAX_HEADER_BYTES)
        .keep_alive_interval(config.ping_interval)
        .keep_alive_timeout(config.ping_timeout);
    match config.http2_only {
        true => builder.http2_only(),
        false => builder,
    }
}
