// SPDX-License-Identifier: Apache-2.0

//! HTTP on accepted connections: HTTP/1.1 and HTTP/2 on one port, or HTTP/2 only for gRPC.

mod activity;
mod answers;
mod frames;
mod header_table;
mod heads;
mod host;
mod lingering;
mod reads;
#[cfg(test)]
mod tests;
mod turns;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;

use self::activity::Activity;
pub use self::activity::{Unfinished, Waiting};
use self::answers::{Answers, Pieces};
use self::frames::Frames;
use self::lingering::Lingering;
use self::reads::ObservedStream;
use self::turns::Turns;
use super::auth::Sender;
use super::authority::AuthorityFilter;
use super::listener::Listener;
use super::measured::Measured;
use super::peers::{PeerAddress, counted};
use super::refused::{ServedBy, Why};
use super::server::{Connection, ConnectionLimits, Ended, Server, count_ended};
use super::stream::Peer;
use super::yield_first::YieldFirst;
use crate::component::{Ceiling, Context, Held};

/// The largest HTTP/2 frame. 1 MiB halves the cost of a hop compared with the default of 16 KiB. Large frames
/// reserve memory.
pub const HTTP2_FRAME_BYTES: u32 = 1 << 20;
/// The receive window of a stream: one full frame, which holds a request of most senders.
pub const HTTP2_STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// The receive window of a connection: the most memory that its unread data takes.
pub const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 2 << 20;
/// The stream and connection windows for readers, which send forms and small messages.
const READER_WINDOWS: (u32, u32) = (64 << 10, 256 << 10);
/// The default limit of concurrent streams. SDKs use one; gateways a few dozen.
pub const HTTP2_MAX_STREAMS: u32 = 200;
/// The largest request head of a sender. Telemetry needs a few hundred bytes, and proxies add tokens.
const MAX_HEAD_BYTES: u32 = 64 << 10;
/// The largest request head of a reader. Long queries and many selectors come as forms.
const MAX_READER_HEAD_BYTES: u32 = 16 << 10;
/// The smallest limit that HTTP/2 allows. A frame is read as a whole, whatever the windows.
const READER_FRAME_BYTES: u32 = 16 << 10;
/// The default time for streams to finish after the maximum age of the connection.
pub const AGE_GRACE: Duration = Duration::from_secs(30);
/// The time for an idle peer to close the connection after a request to do so.
const IDLE_GRACE: Duration = Duration::from_secs(5);
/// The same time while other connections wait for the slot. The peer gets the notice only.
const CROWDED_GRACE: Duration = Duration::from_millis(1);
/// The idle time after which a connection may be closed for others, if connections are short.
const EXPENDABLE_AFTER: Duration = Duration::from_secs(2);
/// The same for a reader with at most one request so far: health probes must be answered at once.
const READER_UNUSED_AFTER: Duration = Duration::from_millis(50);
/// The default idle time of a sender's connection. SDKs send once a minute.
pub const SENDER_IDLE: Duration = Duration::from_mins(5);
/// The default idle time of a reader's connection. Prometheus scrapes once a minute.
pub const READER_IDLE: Duration = Duration::from_mins(2);
/// The default time after which a reader that takes no byte of its answer is cut off.
pub const READER_STALL: Duration = Duration::from_secs(30);
/// The silence after which a reader is pinged, to detect streams whose readers have vanished.
const READER_PING: Duration = Duration::from_mins(1);

/// The options of connections.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Whether HTTP/1.1 is refused: gRPC needs HTTP/2.
    pub http2_only: bool,
    /// The limit of concurrent HTTP/2 streams.
    pub max_concurrent_streams: u32,
    /// HTTP/2: the receive windows of a stream and of a connection, in bytes.
    pub windows: (u32, u32),
    /// HTTP/2: the largest frame from the peer, in bytes.
    pub max_frame_bytes: u32,
    /// The bytes to read before the connection yields to others.
    pub turn_bytes: usize,
    /// The largest head of a request in bytes: its path and headers.
    pub max_head_bytes: u32,
    /// The timeout for the headers of the first request. Later requests over HTTP/1.1 have `max_idle`, if that is
    /// longer.
    pub header_timeout: Duration,
    /// HTTP/2: the silence after which the peer is pinged.
    pub ping_interval: Option<Duration>,
    /// HTTP/2: the timeout of a ping.
    pub ping_timeout: Duration,
    /// The idle time after which the peer is asked to close. Before the first request, `header_timeout` applies.
    pub max_idle: Option<Duration>,
    /// The idle time after which a connection may be closed for others, if all slots are in use. It applies to
    /// connections with at most one request so far. Those with more requests have 2 s.
    pub unused_after: Duration,
    /// The age at which the peer is asked to close, so that clients spread over new replicas.
    pub max_age: Option<Duration>,
    /// The time for running requests to finish after `max_age`.
    pub max_age_grace: Duration,
    /// The time after which a connection is cut if its peer takes no byte of an answer. Large answers need it.
    pub max_stall: Option<Duration>,
    /// HTTP/1.1: whether a connection serves more than one request.
    pub keeps_alive: bool,
    /// The host names that requests may use besides addresses and `localhost`; `None`: any name.
    pub allowed_hosts: Option<Arc<[String]>>,
    /// The labels of measured calls; `None`: calls are not measured.
    pub measured: Option<Arc<Measured>>,
    /// The component that counts refused requests, with the memory account of large heads.
    pub served_by: Arc<ServedBy>,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            http2_only: false,
            max_concurrent_streams: HTTP2_MAX_STREAMS,
            windows: (HTTP2_STREAM_WINDOW_BYTES, HTTP2_CONNECTION_WINDOW_BYTES),
            max_frame_bytes: HTTP2_FRAME_BYTES,
            // Most bytes belong to bodies, which are not decoded here.
            turn_bytes: 128 << 10,
            max_head_bytes: MAX_HEAD_BYTES,
            header_timeout: Duration::from_mins(1),
            ping_interval: Some(Duration::from_hours(2)),
            ping_timeout: Duration::from_secs(20),
            max_idle: None,
            unused_after: EXPENDABLE_AFTER,
            max_age: None,
            max_age_grace: AGE_GRACE,
            max_stall: None,
            keeps_alive: true,
            allowed_hosts: None,
            measured: None,
            served_by: Arc::default(),
        }
    }
}

impl HttpConfig {
    /// Options for readers of pages. Readers that are idle or take nothing of their answers are cut off. Streams
    /// continue while their readers answer pings.
    pub fn pages() -> Self {
        Self {
            windows: READER_WINDOWS,
            max_frame_bytes: READER_FRAME_BYTES,
            // Most bytes belong to heads, which are decoded here.
            turn_bytes: 32 << 10,
            max_head_bytes: MAX_READER_HEAD_BYTES,
            max_idle: Some(READER_IDLE),
            max_stall: Some(READER_STALL),
            unused_after: READER_UNUSED_AFTER,
            ping_interval: Some(READER_PING),
            ..Self::default()
        }
    }

    /// Limits the host names of a loopback listener to `localhost` and `allowed_hosts`. A page in a browser can
    /// let its own name resolve to any address.
    pub fn guarded(self, at: &Listener, allowed_hosts: &[String]) -> Self {
        Self {
            allowed_hosts: at.local().is_loopback().then(|| allowed_hosts.into()),
            ..self
        }
    }

    /// Options for a receiver. Its calls are measured if detailed metrics are on.
    pub fn of_receiver(
        self,
        base: &Context,
        ceiling: Ceiling,
        at: &Listener,
        limits: &ConnectionLimits,
    ) -> Self {
        let measured = || Measured::server(at.local(), limits.tls.is_some());
        Self {
            measured: base.shared.wants_details().then(measured),
            served_by: Arc::new(ServedBy::receiver(base, ceiling)),
            ..self
        }
    }
}

/// Serves HTTP on every connection of a listener, with [`serve`] in a [`Server`].
pub fn start<S, F, B>(listener: Listener, limits: ConnectionLimits, config: HttpConfig, service: S) -> Server
where
    S: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let config = Arc::new(config);
    let memory = config.served_by.memory.clone();
    let limits = limits.within(memory.limit());
    let server = Server::start(listener, limits, move |connection| {
        let (config, service) = (config.clone(), service.clone());
        async move { serve(connection, &config, service).await }
    });
    server.close_unused_while_over(memory);
    server
}

/// Answers the requests of a connection until the peer closes it or the server stops. At the stop, running
/// requests finish and new ones are refused.
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
        crowd,
        over_memory,
        is_proxied,
        endpoint,
        component,
    } = connection;
    let activity = Arc::new(Activity::new(config.served_by.clone()));
    let requests = activity.clone();
    let answers = config.max_stall.map(|_| Arc::<Answers>::default());
    let sending = answers.clone();
    let measured = config.measured.clone();
    let hosts = config.allowed_hosts.clone();
    let sender = counted(peer).map(|address| Sender {
        address,
        is_shared: is_proxied,
    });
    let address = PeerAddress::of(peer);
    let has_readers = answers.is_some();
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        if let Some(sender) = sender {
            request.extensions_mut().insert(sender);
        }
        if let Some(address) = address {
            request.extensions_mut().insert(address);
        }
        let busy = requests.begin(&request);
        if has_readers && !request.body().is_end_stream() {
            request.extensions_mut().insert(Unfinished(requests.clone()));
        }
        heads::copy_path(&mut request);
        let head = heads::hold(&request, requests.unanswered(), &requests.served_by, sender);
        let refusal = host::refusal(&request, hosts.as_deref())
            .or_else(|| head.is_err().then(|| heads::refusal(&request)));
        let call = measured.as_ref().map(|server| server.begin(&request));
        let answer = refusal.is_none().then(|| service(request));
        let sending = sending.clone();
        async move {
            let answer = match answer {
                Some(answer) => {
                    let answer = answer.await;
                    busy.note(&answer);
                    answer.map(|body| Pieces::of(body, sending, Some(busy)))
                }
                None => {
                    let refusal = refusal.unwrap_or_default();
                    busy.note(&refusal);
                    refusal.map(|text| Pieces::of_text(text, busy))
                }
            };
            drop(head);
            if let Some(call) = call {
                call.end(&answer);
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let held = || {
        let held = Held::under(config.served_by.ceiling, config.served_by.memory.clone());
        held.of(sender.and_then(Sender::key))
    };
    let frames = Frames::new([held(), held()], endpoint.clone());
    let stream = ObservedStream::new(stream, frames);
    let stream = match peer {
        Peer::Unix(_) => AuthorityFilter::new(stream),
        Peer::Tcp(_) => AuthorityFilter::passing(stream),
    };
    let stream = answers::Noted::new(stream, answers.clone());
    let stream = ObservedStream::new(
        Lingering::new(stream, activity.clone()),
        Turns::of(config.turn_bytes),
    );
    let builder = builder(config);
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);

    let age_grace = config.max_age_grace;
    let (mut outcome, mut grace, mut grace_of_requests) = (None, None, Duration::ZERO);
    tokio::select! {
        ended = YieldFirst::new(serving.as_mut()) => outcome = Some(ended),
        () = stopping.cancelled() => {}
        () = sleep(config.max_age) => grace = Some(age_grace),
        of_idle = activity.idle(config, &crowd, &over_memory) => (grace, grace_of_requests) = (Some(of_idle), age_grace),
        () = answers::stalled(answers.as_deref(), config.max_stall) => {
            tracing::debug!(component = &*component, ?peer, "takes nothing of its answer: the connection is cut");
            return count_ended(&endpoint, Ended::Stalled);
        }
    };
    if outcome.is_none() && activity.has_begun() {
        activity.ask_to_go();
        serving.as_mut().graceful_shutdown();
        let cut = async {
            sleep(grace).await;
            // These requests came before the peer knew.
            if activity.is_busy() {
                sleep(Some(grace_of_requests)).await;
            }
        };
        outcome = tokio::select! {
            outcome = serving => Some(outcome),
            () = cut => None,
        };
    }
    if let Some(Err(error)) = outcome {
        // The HTTP library has answered it itself.
        if error
            .downcast_ref::<hyper::Error>()
            .is_some_and(hyper::Error::is_parse)
        {
            activity.served_by.count(Why::Head);
        }
        tracing::debug!(component = &*component, ?peer, %error, "connection ended");
    }
}

/// Sleeps forever without a duration.
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
        .max_buf_size(config.max_head_bytes as usize)
        // The timer also runs while the connection waits for its next request.
        .header_read_timeout(config.header_timeout.max(config.max_idle.unwrap_or_default()));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_frame_size(config.max_frame_bytes)
        .initial_stream_window_size(config.windows.0)
        .initial_connection_window_size(config.windows.1)
        .max_concurrent_streams(config.max_concurrent_streams)
        .max_header_list_size(config.max_head_bytes)
        .keep_alive_interval(config.ping_interval)
        .keep_alive_timeout(config.ping_timeout);
    if config.http2_only {
        builder.http2_only()
    } else {
        builder
    }
}
