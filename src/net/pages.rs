//! The HTTP server of all that readers ask for: health, the API, scrapes, the gateway's own metrics. Pages by GET, HEAD or a
//! posted form, streams of events, gRPC where a component speaks it; TLS, authentication and CORS where configured.

mod answers;
mod room;

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, WWW_AUTHENTICATE,
};
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tidegate_promql::Patience;
use tokio::time::timeout;
use tonic::Code;
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt};

pub(crate) use self::answers::{
    Answer, BodyError, COMPRESSING, Event, busy, bytes, empty, error, events, grpc_error, json, text,
};
use self::answers::{broken_off, compressed, only, whole, with_trailers, without_body};
use self::room::Room;
pub(crate) use self::room::{count_refusal, max_answer_bytes};
use crate::component::account::SenderKey;
use crate::component::{Account, ComponentError, Context, Held};
use crate::net::accept::{coding, joined};
use crate::net::auth::{AuthConfig, AuthGate, NotAdmitted};
use crate::net::body::{BodyError as Broken, Chunks, Run};
use crate::net::cors::CorsConfig;
use crate::net::grpc::{GRPC_STATUS, is_call};
use crate::net::http::{HttpConfig, Unfinished, start};
use crate::net::refused::ServedBy;
pub(crate) use crate::net::refused::Why;
use crate::net::shares::NoShare;
use crate::net::{
    Coding, ConnectionLimits, Endpoint, ListenError, Listener, Server, SocketFileConfig, TlsError,
    TlsServerConfig, tls,
};

/// People, probes, and those who watch.
pub(crate) const MAX_CONNECTIONS: usize = 512;

/// A longer form, or gRPC request, is refused.
const MAX_FORM: usize = 256 << 10;

/// So much of it needs no room: queries are answered above the limit of memory, too.
const FREE_FORM: usize = 4 << 10;

/// Parameters of a request, in its form and behind its path. One of a byte takes a hundred when it is read.
const MAX_PARAMETERS: usize = 1000;

/// Requests at a time on a connection of those who read pages.
const MAX_STREAMS: u32 = 16;

/// Time for a form, or a gRPC request, to come.
const FORM_TIME: Duration = Duration::from_secs(10);

/// What a page of another origin may send whatever is configured.
const PAGE_HEADERS: [HeaderName; 3] = [ACCEPT, AUTHORIZATION, CONTENT_TYPE];

/// An answer on its way.
type Answering = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

/// Where to listen, who may ask, and how much.
pub(crate) struct ServerConfig<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) socket: &'a SocketFileConfig,
    pub(crate) tls: Option<&'a TlsServerConfig>,
    pub(crate) auth: Option<&'a AuthConfig>,
    /// Names by which it is asked besides `localhost`, where it listens on this machine alone.
    pub(crate) allowed_hosts: &'a [String],
    pub(crate) max_connections: usize,
    /// Of one address; unset: a quarter of them.
    pub(crate) max_connections_per_peer: Option<NonZeroUsize>,
    /// What all answers that are on their way may take; unset: a sixteenth of the memory limit, 64 MiB at most.
    pub(crate) max_answer_bytes: Option<usize>,
    /// Headers of every answer.
    pub(crate) headers: HeaderMap,
    /// How connections are served; `max_concurrent_streams` is what the pages say.
    pub(crate) serving: HttpConfig,
}

impl<'a> ServerConfig<'a> {
    /// Anybody may ask, within the usual limits.
    pub(crate) fn at(endpoint: &'a Endpoint, socket: &'a SocketFileConfig) -> Self {
        Self {
            endpoint,
            socket,
            tls: None,
            auth: None,
            allowed_hosts: &[],
            max_connections: MAX_CONNECTIONS,
            max_connections_per_peer: None,
            max_answer_bytes: None,
            headers: HeaderMap::new(),
            serving: HttpConfig::pages(),
        }
    }
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// Its certificate or key can't be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// It can't listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// What a server serves.
#[async_trait]
pub(crate) trait Pages: Send + Sync + 'static {
    /// How a client may ask for a page.
    fn takes(&self) -> Takes;

    /// How a client may ask for the page of a path, where that differs.
    fn takes_at(&self, _path: &str) -> Takes {
        self.takes()
    }

    /// Which pages of other origins may ask.
    fn cors(&self) -> Option<&CorsConfig> {
        None
    }

    /// Requests at a time on one connection. Clients of gRPC have one connection for all they ask.
    fn max_streams(&self) -> u32 {
        MAX_STREAMS
    }

    /// The page that a request asks for.
    async fn page(&self, request: Request) -> Answer;

    /// The answer to a gRPC request.
    async fn grpc(&self, _request: http::Request<Full<Bytes>>) -> Answer {
        grpc_error(tonic::Status::unimplemented("no gRPC is spoken here"))
    }
}

/// A server that is started and stopped with its component.
#[derive(Default)]
pub(crate) struct PageServer {
    running: Mutex<Option<Server>>,
}

impl PageServer {
    /// Binds and serves.
    pub(crate) async fn start(
        &self,
        base: &Context,
        config: ServerConfig<'_>,
        pages: Arc<dyn Pages>,
    ) -> Result<(), ComponentError> {
        let handler = Handler {
            auth_gate: AuthGate::of(config.auth, base)?,
            room: Room::of(&base.id, config.max_answer_bytes, base.shared.memory.clone()),
            served_by: ServedBy::component(base.id.clone(), base.shared.memory.clone()),
            pages,
        };
        let server = handler.open(config).await;
        let server = server.map_err(|error| base.error(error.to_string()))?;
        tracing::info!(component = %base.id, endpoint = %server.local(), "serving");
        *self.lock() = Some(server);
        Ok(())
    }

    /// See [`Server::stop`].
    pub(crate) async fn stop(&self, deadline: Instant) {
        let running = self.lock().take();
        if let Some(server) = running {
            server.stop(deadline).await;
        }
    }

    #[cfg(test)]
    pub(crate) fn local(&self) -> Endpoint {
        self.lock().as_ref().unwrap().local().clone()
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Option<Server>> {
        self.running.lock()
    }
}

/// Serves `pages` to anybody, outside any component: `id` stands for them in the gateway's own metrics.
///
/// # Errors
/// It can't listen.
pub(crate) async fn serve(
    id: &Arc<str>,
    config: ServerConfig<'_>,
    memory: Arc<Account>,
    pages: Arc<dyn Pages>,
) -> Result<Server, StartError> {
    let handler = Handler {
        auth_gate: AuthGate::default(),
        room: Room::of(id, config.max_answer_bytes, memory.clone()),
        served_by: ServedBy::component(id.clone(), memory),
        pages,
    };
    handler.open(config).await
}

/// What stands between requests and pages.
struct Handler {
    auth_gate: AuthGate,
    room: Arc<Room>,
    served_by: ServedBy,
    pages: Arc<dyn Pages>,
}

impl Handler {
    async fn open(self, config: ServerConfig<'_>) -> Result<Server, StartError> {
        let tls = config.tls.map(|tls| tls.build(tls::ALPN_HTTP)).transpose()?;
        let limits = ConnectionLimits::new(config.max_connections, config.max_connections_per_peer).over(tls);
        let listener = Listener::bind(config.endpoint, config.socket).await?;
        let cors = self.pages.cors().and_then(|cors| {
            let methods = [Method::GET, Method::POST, Method::OPTIONS];
            cors.layer(methods, &PAGE_HEADERS)
        });
        let serving = HttpConfig {
            max_concurrent_streams: self.pages.max_streams(),
            served_by: Arc::new(self.served_by.clone()),
            ..config.serving.guarded(&listener, config.allowed_hosts)
        };
        let handler = Arc::new(self);
        let service = move |request: http::Request<Incoming>| {
            let handler = handler.clone();
            let answer: Answering = Box::pin(async move { Ok(handler.admit(request).await) });
            answer
        };
        let service = ServiceBuilder::new().option_layer(cors).service_fn(service);
        let service = BoxCloneSyncService::new(service);
        let headers = config.headers;
        let answer = move |request: http::Request<Incoming>| {
            let is_preflight = request.method() == Method::OPTIONS;
            let (answer, headers) = (service.clone().oneshot(request), headers.clone());
            async move {
                let mut answer = answer.await.unwrap_or_else(|never| match never {});
                if is_preflight && answer.status() == StatusCode::OK {
                    *answer.status_mut() = StatusCode::NO_CONTENT;
                }
                answer.headers_mut().extend(headers);
                answer
            }
        };
        Ok(start(listener, limits, serving, answer))
    }

    async fn admit(&self, mut request: http::Request<Incoming>) -> Answer {
        let pages = &*self.pages;
        let client = match self.auth_gate.admit(&request).await {
            Ok(client) => client,
            Err(refused) => return refusal(refused, is_call(&request)),
        };
        // What the body takes, until there is an answer.
        let mut body = Held::new(self.served_by.memory.clone());
        if is_call(&request) {
            if let Some(client) = client {
                request.extensions_mut().insert(client);
            }
            return match called(request, &mut body).await {
                Ok(request) => held(told(pages.grpc(request).await), &self.room, client, true).await,
                Err(why) => why.why().mark(grpc_error(broken_call(&why))),
            };
        }
        let headers = request.headers();
        let coding = coding(&joined(headers, ACCEPT_ENCODING), &[Coding::Gzip]);
        let answer = told(answer(request, client, pages, &mut body).await);
        drop(body);
        let answer = held(answer, &self.room, client, false).await;
        compressed(answer, coding, &self.room, client).await
    }
}

/// A body, unless it takes too long. Until it has come its connection makes room for others where they are short.
async fn in_time(head: &http::request::Parts, body: Incoming, held: &mut Held) -> Result<Bytes, Broken> {
    let _waiting = head.extensions.get().map(Unfinished::wait);
    let reading = async {
        let mut whole = Run::default();
        let mut chunks = Chunks::under(body, FORM_TIME, held);
        while let Some(chunk) = chunks.next().await? {
            let length = whole.len() + chunk.len();
            if length > MAX_FORM {
                let limit_bytes = MAX_FORM;
                return Err(Broken::TooLarge { limit_bytes });
            }
            if length <= FREE_FORM {
                held.grow(chunk.len());
                whole.push(chunk, 0);
            } else {
                whole.take(chunk, None, held).await?;
            }
        }
        held.settle(whole.len());
        Ok(whole.freeze())
    };
    timeout(FORM_TIME, reading).await.unwrap_or(Err(Broken::TimedOut))
}

/// A gRPC request that has come as a whole, in time.
async fn called(
    request: http::Request<Incoming>,
    held: &mut Held,
) -> Result<http::Request<Full<Bytes>>, Broken> {
    let (head, body) = request.into_parts();
    let body = in_time(&head, body, held).await?;
    Ok(http::Request::from_parts(head, Full::new(body)))
}

/// What a client is told whose gRPC request did not come.
fn broken_call(why: &Broken) -> tonic::Status {
    match why {
        Broken::TimedOut => {
            tonic::Status::deadline_exceeded(format!("the request did not come within {FORM_TIME:?}"))
        }
        Broken::NoRoom(_) | Broken::TooSlow => tonic::Status::unavailable(why.to_string()),
        Broken::TooLarge { .. } | Broken::Broken(_) => tonic::Status::resource_exhausted(format!(
            "the request is broken, or has more than {MAX_FORM} bytes"
        )),
    }
}

/// What a client is told whose form did not come.
fn broken_form(why: &Broken) -> Answer {
    match why {
        Broken::NoRoom(_) | Broken::TooSlow => busy(&why.to_string()),
        Broken::TimedOut => {
            let why = format!("the form did not come within {FORM_TIME:?}");
            error(StatusCode::REQUEST_TIMEOUT, "bad_data", &why)
        }
        Broken::TooLarge { .. } | Broken::Broken(_) => {
            let why = format!("the form is broken, or has more than {MAX_FORM} bytes");
            error(StatusCode::PAYLOAD_TOO_LARGE, "bad_data", &why)
        }
    }
}

/// The answer. Where it refuses its request and does not say why, its status does.
fn told(answer: Answer) -> Answer {
    let is_said = Why::of(&answer).is_some();
    match by_status(&answer).filter(|_| !is_said) {
        Some(why) => why.mark(answer),
        None => answer,
    }
}

/// Why a page refuses what it was asked. What it could not do for now, it does not refuse.
fn by_status(answer: &Answer) -> Option<Why> {
    let code = answer.headers().get(GRPC_STATUS);
    if let Some(code) = code.map(|code| Code::from_bytes(code.as_bytes())) {
        return match code {
            Code::Unimplemented | Code::NotFound => Some(Why::Path),
            Code::InvalidArgument => Some(Why::Parameters),
            _ => None,
        };
    }
    match answer.status() {
        StatusCode::NOT_FOUND => Some(Why::Path),
        StatusCode::BAD_REQUEST => Some(Why::Parameters),
        StatusCode::UNPROCESSABLE_ENTITY => Some(Why::Query),
        _ => None,
    }
}

/// The answer, its bytes on the books until they are sent; a refusal where there is no room. Streams have none.
async fn held(answer: Answer, room: &Arc<Room>, client: Option<SenderKey>, is_call: bool) -> Answer {
    if http_body::Body::size_hint(answer.body()).exact().is_none() {
        return answer;
    }
    let (head, body) = answer.into_parts();
    let Ok(body) = body.collect().await else {
        return broken_off();
    };
    let trailers = body.trailers().cloned();
    let why = match room.hold(body.to_bytes(), client) {
        Ok(bytes) => return Response::from_parts(head, with_trailers(bytes, trailers)),
        Err(NoShare::Full) => "the answers that clients have not read take too much memory: try again later",
        Err(NoShare::OfSender) => {
            "the answers that this client has not read take too much memory: read them, then try again"
        }
    };
    room.count_refusal();
    if is_call {
        grpc_error(tonic::Status::unavailable(why))
    } else {
        busy(why)
    }
}

/// The answer to a client that may not ask.
fn refusal(refused: NotAdmitted, is_call: bool) -> Answer {
    let is_for_now = refused.retry_after().is_some();
    let NotAdmitted { why, challenge } = refused;
    match (is_call, is_for_now) {
        (true, true) => grpc_error(tonic::Status::unavailable(why.to_string())),
        (true, false) => grpc_error(tonic::Status::unauthenticated(why.to_string())),
        (false, true) => busy(&why.to_string()),
        (false, false) => {
            let mut answer = error(StatusCode::UNAUTHORIZED, "unauthenticated", &why.to_string());
            answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            answer
        }
    }
}

/// How a client may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// By path alone: GET and HEAD.
    Paths,
    /// Also by a posted form.
    Forms,
    /// As Prometheus's API has it: GET alone.
    Get,
    /// As Prometheus's API has it: GET, or a posted form.
    GetOrForm,
}

impl Takes {
    fn allows(self, method: &Method) -> bool {
        match *method {
            Method::GET => true,
            Method::HEAD => matches!(self, Self::Paths | Self::Forms),
            Method::POST => matches!(self, Self::Forms | Self::GetOrForm),
            _ => false,
        }
    }

    fn allowed(self) -> &'static str {
        match self {
            Self::Paths => "GET, HEAD, OPTIONS",
            Self::Forms => "GET, HEAD, OPTIONS, POST",
            Self::Get => "GET, OPTIONS",
            Self::GetOrForm => "GET, OPTIONS, POST",
        }
    }
}

/// What a client asks for.
#[derive(Clone)]
pub(crate) struct Request {
    /// The path.
    pub(crate) path: String,
    /// What is in a posted form, then what stands behind the path.
    pub(crate) form: Vec<(String, String)>,
    /// Its headers.
    pub(crate) headers: HeaderMap,
    /// The client that asks, if the gateway can identify it: by its user or token, else by an address that it does not share.
    pub(crate) client: Option<SenderKey>,
    /// When it came.
    pub(crate) came: Instant,
    /// How long its answer is waited for.
    pub(crate) patience: Patience,
    /// What its answer may take while it is made.
    pub(crate) max_bytes: usize,
}

impl Request {
    /// One that comes now.
    pub(crate) fn of(path: &str, form: Vec<(String, String)>) -> Self {
        Self {
            path: path.to_owned(),
            form,
            headers: HeaderMap::new(),
            client: None,
            came: Instant::now(),
            patience: Patience::default(),
            max_bytes: usize::MAX,
        }
    }

    /// The first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.form.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &**value)
    }

    /// All values of a parameter.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let of_name = self.form.iter().filter(move |(known, _)| known == name);
        of_name.map(|(_, value)| &**value)
    }
}

async fn answer(
    request: http::Request<Incoming>,
    client: Option<SenderKey>,
    pages: &dyn Pages,
    held: &mut Held,
) -> Answer {
    let (head, body) = request.into_parts();
    let takes = pages.takes_at(head.uri.path());
    if head.method == Method::OPTIONS {
        return only(takes, StatusCode::NO_CONTENT, whole(Bytes::new()));
    }
    if !takes.allows(&head.method) {
        let why = format!("{} is not allowed here: use {}", head.method, takes.allowed());
        let refusal = error(StatusCode::METHOD_NOT_ALLOWED, "bad_data", &why);
        let refusal = only(takes, StatusCode::METHOD_NOT_ALLOWED, refusal.into_body());
        return Why::Method.mark(refusal);
    }
    let mut form = Vec::new();
    let mut fill = |text: &[u8]| {
        let left = MAX_PARAMETERS + 1 - form.len();
        form.extend(form_urlencoded::parse(text).into_owned().take(left));
    };
    if head.method == Method::POST && is_form(&head.headers) {
        match in_time(&head, body, held).await {
            Ok(body) => fill(&body),
            Err(why) => return why.why().mark(broken_form(&why)),
        }
    }
    fill(head.uri.query().unwrap_or_default().as_bytes());
    if form.len() > MAX_PARAMETERS {
        let why = format!("the request has more than {MAX_PARAMETERS} parameters");
        return Why::Parameters.mark(error(StatusCode::PAYLOAD_TOO_LARGE, "bad_data", &why));
    }
    let request = Request {
        headers: head.headers,
        client,
        ..Request::of(head.uri.path(), form)
    };
    let answer = pages.page(request).await;
    match head.method {
        Method::HEAD => without_body(answer),
        _ => answer,
    }
}

/// Whether a posted body is a form; one without a type is taken for one.
fn is_form(headers: &HeaderMap) -> bool {
    let Some(of) = headers.get(CONTENT_TYPE) else {
        return true;
    };
    let of = of.to_str().unwrap_or_default().split(';').next();
    let of = of.unwrap_or_default().trim();
    of.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

#[cfg(test)]
pub(crate) mod testing;
