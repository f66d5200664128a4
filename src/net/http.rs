//! Serving HTTP on an accepted connection: HTTP/1.1 and HTTP/2 on one port, or HTTP/2 only for gRPC.

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
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version};
use hyper::body::{Body, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::answers::{Answers, Pieces};
use self::frames::Frames;
use self::lingering::Lingering;
use self::reads::Seen;
use self::turns::Turns;
use super::auth::Sender;
use super::authority::AuthorityFilter;
use super::listener::Listener;
use super::measured::Measured;
use super::peers::counted;
use super::refused::{ServedBy, Why};
use super::server::{Connection, ConnectionLimits, Ended, Server, count_ended};
use super::stream::Peer;
use super::yield_first::YieldFirst;
use crate::component::{Ceiling, Context, Held};

/// 1 MiB frames halve the cost of a hop compared with HTTP/2's default of 16 KiB. Large ones are on the account.
pub const HTTP2_FRAME_BYTES: u32 = 1 << 20;
/// A full frame may be on the way in one stream before the sender must wait: a request of most senders.
pub const HTTP2_STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// What all streams of a connection may have on the way: the most that an unread connection costs.
pub const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 2 << 20;
/// Readers send forms and small messages.
const READER_WINDOWS: (u32, u32) = (64 << 10, 256 << 10);
/// Streams at a time unless configured. SDKs use one; gateways a few dozen.
pub const HTTP2_MAX_STREAMS: u32 = 200;
/// A head of senders'. Telemetry needs a few hundred bytes, and what stands in between adds tokens.
const MAX_HEAD_BYTES: u32 = 64 << 10;
/// A head of readers'. Long queries and many selectors come as forms.
const MAX_READER_HEAD_BYTES: u32 = 16 << 10;
/// The least that HTTP/2 allows. A frame is read as a whole, whatever the windows are.
const READER_FRAME_BYTES: u32 = 16 << 10;
/// Time that streams get to finish after the connection's age is up, unless configured.
const DEFAULT_AGE_GRACE: Duration = Duration::from_secs(30);
/// Time that an idle peer gets to close the connection when it is asked to.
const IDLE_GRACE: Duration = Duration::from_secs(5);
/// The same where others wait for the place of the connection: it is told, no more.
const CROWDED_GRACE: Duration = Duration::from_millis(1);
/// A connection without a request for so long makes room for others where connections are short.
const EXPENDABLE_AFTER: Duration = Duration::from_secs(2);
/// The same of a reader's that has had no second request: probes of health are to be answered at once.
const READER_UNUSED_AFTER: Duration = Duration::from_millis(50);
/// A sender keeps its connection as long without a request, unless configured: SDKs send once a minute.
pub const SENDER_IDLE: Duration = Duration::from_secs(300);
/// A reader keeps its connection as long without a request, unless configured: Prometheus scrapes once a minute.
pub const READER_IDLE: Duration = Duration::from_secs(120);
/// A reader that takes nothing of its answer for so long is cut off, unless configured.
pub const READER_STALL: Duration = Duration::from_secs(30);
/// Silence after which a reader is pinged: streams of those that are gone end.
const READER_PING: Duration = Duration::from_secs(60);

/// How a connection is served.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Refuse HTTP/1.1: gRPC needs HTTP/2.
    pub http2_only: bool,
    /// HTTP/2 streams at a time.
    pub max_concurrent_streams: u32,
    /// HTTP/2: what the peer may have on the way in a stream, and in all of them together.
    pub windows: (u32, u32),
    /// HTTP/2: the largest frame of the peer's.
    pub max_frame_bytes: u32,
    /// A connection gives way to others after so many bytes read.
    pub turn_bytes: usize,
    /// The largest head of a request: its path and its headers.
    pub max_head_bytes: u32,
    /// Time for the first request's headers. A connection over HTTP/1.1 has `max_idle`, where that is more, for the others.
    pub header_timeout: Duration,
    /// HTTP/2: silence after which the peer is pinged.
    pub ping_interval: Option<Duration>,
    /// HTTP/2: how long a ping may stay unanswered.
    pub ping_timeout: Duration,
    /// A connection without a request for so long is asked to go. One that has not sent any yet gets `header_timeout`.
    pub max_idle: Option<Duration>,
    /// Where all connections are taken, one without a request for so long makes room for another. One that has had only
    /// one request, or none, goes before those that are used again and again, which have 2 s.
    pub unused_after: Duration,
    /// Age at which a connection is asked to go, so that clients spread over new replicas.
    pub max_age: Option<Duration>,
    /// Time that running requests get after that.
    pub max_age_grace: Option<Duration>,
    /// A connection whose peer takes nothing of an answer for so long is cut. Answers that may be large need it.
    pub max_stall: Option<Duration>,
    /// HTTP/1.1: whether a connection serves more than one request.
    pub keeps_alive: bool,
    /// Names that requests may ask for besides addresses and `localhost`; `None`: any name.
    pub allowed_hosts: Option<Arc<[String]>>,
    /// Whose calls are measured, if they are.
    pub measured: Option<Arc<Measured>>,
    /// Who counts refused requests, and has large heads on its account.
    pub served_by: Arc<ServedBy>,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            http2_only: false,
            max_concurrent_streams: HTTP2_MAX_STREAMS,
            windows: (HTTP2_STREAM_WINDOW_BYTES, HTTP2_CONNECTION_WINDOW_BYTES),
            max_frame_bytes: HTTP2_FRAME_BYTES,
            // Most bytes are those of bodies, which are not decoded here.
            turn_bytes: 128 << 10,
            max_head_bytes: MAX_HEAD_BYTES,
            header_timeout: Duration::from_secs(60),
            ping_interval: Some(Duration::from_secs(7200)),
            ping_timeout: Duration::from_secs(20),
            max_idle: None,
            unused_after: EXPENDABLE_AFTER,
            max_age: None,
            max_age_grace: None,
            max_stall: None,
            keeps_alive: true,
            allowed_hosts: None,
            measured: None,
            served_by: Arc::default(),
        }
    }
}

impl HttpConfig {
    /// For readers of pages: those who are idle or take nothing of their answers are cut off. Streams go on while their
    /// readers answer pings.
    pub fn pages() -> Self {
        Self {
            windows: READER_WINDOWS,
            max_frame_bytes: READER_FRAME_BYTES,
            // Most bytes are those of heads, which are decoded here.
            turn_bytes: 32 << 10,
            max_head_bytes: MAX_READER_HEAD_BYTES,
            max_idle: Some(READER_IDLE),
            max_stall: Some(READER_STALL),
            unused_after: READER_UNUSED_AFTER,
            ping_interval: Some(READER_PING),
            ..Self::default()
        }
    }

    /// The same, and a listener of this machine alone answers to no names but `localhost` and these: a page in a browser
    /// can give its own name any address.
    pub fn guarded(self, at: &Listener, allowed_hosts: &[String]) -> Self {
        Self {
            allowed_hosts: at.local().is_loopback().then(|| allowed_hosts.into()),
            ..self
        }
    }

    /// The same for a receiver, and its calls are measured where somebody wants to know.
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

/// Serves HTTP on every connection of a listener: [`serve`] in a [`Server`].
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
        crowd,
        over_memory,
        is_proxied,
        endpoint,
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
    let has_readers = answers.is_some();
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        if let Some(sender) = sender {
            request.extensions_mut().insert(sender);
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
    let stream = Seen::new(stream, frames);
    let stream = match peer {
        Peer::Unix(_) => AuthorityFilter::new(stream),
        Peer::Tcp(_) => AuthorityFilter::passing(stream),
    };
    let stream = answers::Noted::new(stream, answers.clone());
    let stream = Seen::new(
        Lingering::new(stream, activity.clone()),
        Turns::of(config.turn_bytes),
    );
    let builder = builder(config);
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);

    let age_grace = config.max_age_grace.unwrap_or(DEFAULT_AGE_GRACE);
    let (mut outcome, mut grace, mut grace_of_requests) = (None, None, Duration::ZERO);
    tokio::select! {
        ended = YieldFirst::new(serving.as_mut()) => outcome = Some(ended),
        () = stopping.cancelled() => {}
        () = sleep(config.max_age) => grace = Some(age_grace),
        of_idle = activity.idle(config, &crowd, &over_memory) => (grace, grace_of_requests) = (Some(of_idle), age_grace),
        () = answers::stalled(answers.as_deref(), config.max_stall) => {
            tracing::debug!(?peer, "takes nothing of its answer: the connection is cut");
            return count_ended(&endpoint, Ended::Stalled);
        }
    };
    if outcome.is_none() && activity.has_begun() {
        activity.ask_to_go();
        serving.as_mut().graceful_shutdown();
        let cut = async {
            sleep(grace).await;
            // What came before the peer knew.
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
        // HTTP has answered it itself.
        if error
            .downcast_ref::<hyper::Error>()
            .is_some_and(hyper::Error::is_parse)
        {
            activity.served_by.count(Why::Head);
        }
        tracing::debug!(?peer, %error, "connection ended");
    }
}

/// Whether a connection has requests, and since when it has none. Requests pay two atomic operations for it; anyone who
/// waits looks when it could be long enough.
struct Activity {
    served_by: Arc<ServedBy>,
    /// The connection's beginning.
    began: Instant,
    requests: AtomicUsize,
    /// Requests whose bodies are waited for, which are not among `requests`.
    waiting: AtomicUsize,
    /// Requests that have ever begun.
    begun: AtomicUsize,
    /// When the last request ended, in milliseconds after the beginning.
    last_ms: AtomicU64,
    /// Whether the peer may still be sending when the connection ends.
    may_send: AtomicBool,
}

/// One request of a connection, until its answer is sent.
struct Busy(Arc<Activity>);

/// In the extensions of a reader's request whose body has not come yet.
#[derive(Clone)]
pub(crate) struct Unfinished(Arc<Activity>);

/// While this lives the connection counts as idle: it is the peer's turn.
pub(crate) struct Waiting(Arc<Activity>);

impl Unfinished {
    pub(crate) fn wait(&self) -> Waiting {
        self.0.waiting.fetch_add(1, SeqCst);
        self.0.end_one();
        Waiting(self.0.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.requests.fetch_add(1, SeqCst);
        self.0.waiting.fetch_sub(1, SeqCst);
    }
}

impl Activity {
    fn new(served_by: Arc<ServedBy>) -> Self {
        Self {
            served_by,
            began: Instant::now(),
            requests: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            last_ms: AtomicU64::new(0),
            may_send: AtomicBool::new(false),
        }
    }

    fn has_begun(&self) -> bool {
        self.begun.load(SeqCst) > 0
    }

    fn begin<B: Body>(self: &Arc<Self>, request: &Request<B>) -> Busy {
        self.requests.fetch_add(1, SeqCst);
        self.begun.fetch_add(1, SeqCst);
        if request.version() <= Version::HTTP_11 && !request.body().is_end_stream() {
            self.may_send.store(true, SeqCst);
        }
        Busy(self.clone())
    }

    fn end_one(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(now, SeqCst);
        self.requests.fetch_sub(1, SeqCst);
    }

    /// Notes that the peer is asked to go: one that has no request has sent all of the last one.
    fn ask_to_go(&self) {
        if !self.is_busy() {
            self.may_send.store(false, SeqCst);
        }
    }

    fn is_busy(&self) -> bool {
        self.requests.load(SeqCst) > 0
    }

    /// Whether there is no request, and none is on its way, nor the rest of one that was refused.
    fn is_unused(&self) -> bool {
        let may_come = !self.has_begun() || self.may_send.load(SeqCst);
        !self.is_busy() && (!may_come || self.idle_for() >= EXPENDABLE_AFTER)
    }

    /// Requests whose answers are not sent yet.
    fn unanswered(&self) -> usize {
        self.requests.load(SeqCst) + self.waiting.load(SeqCst)
    }

    /// How long there has been no request.
    fn idle_for(&self) -> Duration {
        match self.requests.load(SeqCst) {
            0 => (self.began + Duration::from_millis(self.last_ms.load(SeqCst))).elapsed(),
            _ => Duration::ZERO,
        }
    }

    fn expendable_after(&self, config: &HttpConfig) -> Duration {
        match self.begun.load(SeqCst) {
            0 | 1 => config.unused_after,
            _ => EXPENDABLE_AFTER,
        }
    }

    /// Returns when there has been no request for too long, and how long the peer gets to go. Where memory is short there
    /// is no request now.
    async fn idle(&self, config: &HttpConfig, crowd: &Notify, over_memory: &Notify) -> Duration {
        loop {
            let expendable_after = self.expendable_after(config);
            let limit = if self.has_begun() {
                config.max_idle
            } else {
                Some(config.header_timeout)
            };
            let idle = self.idle_for();
            if limit.is_some_and(|limit| idle >= limit) {
                return IDLE_GRACE;
            }
            let is_expendable = idle >= expendable_after;
            let left = limit.map(|limit| limit - idle);
            let again = if is_expendable {
                left
            } else {
                Some(left.unwrap_or(expendable_after).min(expendable_after - idle))
            };
            tokio::select! {
                () = sleep(again) => {}
                () = crowd.notified(), if is_expendable => {
                    if self.idle_for() >= self.expendable_after(config) {
                        return CROWDED_GRACE;
                    } else {
                        // It has work again: another one is to go.
                        crowd.notify_one()
                    }
                }
                () = over_memory.notified() => if self.is_unused() { return IDLE_GRACE },
            }
        }
    }
}

impl Busy {
    /// Counts the request as refused, if its answer says why.
    fn note<B>(&self, answer: &Response<B>) {
        if let Some(why) = Why::of(answer) {
            self.0.served_by.count(why);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.end_one();
    }
}

/// For ever where no limit is set.
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
        // It runs while the connection waits for its next request, too.
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
