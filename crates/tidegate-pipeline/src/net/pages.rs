// SPDX-License-Identifier: Apache-2.0

//! The HTTP server for readers: health, the API, scrapes, the gateway's own metrics. It serves pages by GET, HEAD
//! or a posted form, event streams, and gRPC if the component supports it. TLS, authentication and CORS are
//! optional.

mod answers;
mod refusals;
mod request;
mod response_memory;

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName};
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::timeout;
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt};

pub use self::answers::{
    Answer, BodyError, COMPRESSING, Event, busy, bytes, empty, error, events, grpc_error, json, links, text,
};
use self::answers::{broken_off, compressed, only, whole, with_trailers, without_body};
use self::refusals::{broken_call, broken_form, refusal, with_reason};
pub use self::request::{Request, Takes};
use self::response_memory::ResponseMemory;
pub use self::response_memory::{count_refusal, max_answer_bytes};
use crate::component::account::SenderKey;
use crate::component::{Account, ComponentError, Context, Held};
use crate::net::accept::{coding, joined};
use crate::net::auth::{AuthConfig, AuthGate};
use crate::net::body::{BodyError as Broken, Chunks, Run};
use crate::net::cors::CorsConfig;
use crate::net::grpc::is_call;
use crate::net::http::{HttpConfig, Unfinished, start};
use crate::net::refused::ServedBy;
pub use crate::net::refused::Why;
use crate::net::shares::NoShare;
use crate::net::{
    Coding, ConnectionLimits, Endpoint, ListenError, Listener, Server, SocketFileConfig, TlsError,
    TlsServerConfig, tls,
};

/// The default limit of connections: people, probes and watchers.
pub const MAX_CONNECTIONS: usize = 512;

/// The largest form or gRPC request, in bytes.
const MAX_FORM: usize = 256 << 10;

/// The part of a form without a reservation. Queries are answered above the memory limit, too.
const FREE_FORM: usize = 4 << 10;

/// The most parameters of a request, in its form and query. A parameter of one byte takes a hundred in memory.
const MAX_PARAMETERS: usize = 1000;

/// The limit of concurrent requests on a connection of a reader.
const MAX_STREAMS: u32 = 16;

/// The timeout for a form or a gRPC request.
const FORM_TIME: Duration = Duration::from_secs(10);

/// Headers that pages of other origins may always send.
const PAGE_HEADERS: [HeaderName; 3] = [ACCEPT, AUTHORIZATION, CONTENT_TYPE];

/// An answer in progress.
type Answering = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

/// The address, the access and the limits of a server.
pub struct ServerConfig<'a> {
    /// The address.
    pub endpoint: &'a Endpoint,
    /// The mode and owner of a Unix socket.
    pub socket: &'a SocketFileConfig,
    /// TLS; without it, connections are plain.
    pub tls: Option<&'a TlsServerConfig>,
    /// How clients authenticate; without it, they do not.
    pub auth: Option<&'a AuthConfig>,
    /// The host names of a loopback listener besides `localhost`.
    pub allowed_hosts: &'a [String],
    /// The most connections.
    pub max_connections: usize,
    /// The limit for one address; unset: a quarter of all connections.
    pub max_connections_per_peer: Option<NonZeroUsize>,
    /// The limit of all unsent answers in bytes; unset: a sixteenth of the memory limit, at most 64 MiB.
    pub max_answer_bytes: Option<usize>,
    /// Headers of every answer.
    pub headers: HeaderMap,
    /// The options of connections. `Pages::max_streams` overrides `max_concurrent_streams`.
    pub serving: HttpConfig,
}

impl<'a> ServerConfig<'a> {
    /// A server for everybody, with the default limits.
    pub fn at(endpoint: &'a Endpoint, socket: &'a SocketFileConfig) -> Self {
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

/// The error of starting a server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The certificate or the key is unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The endpoint can't be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// The content of a server.
#[async_trait]
pub trait Pages: Send + Sync + 'static {
    /// The requests that it accepts.
    fn takes(&self) -> Takes;

    /// The requests that the path accepts, if it differs.
    fn takes_at(&self, _path: &str) -> Takes {
        self.takes()
    }

    /// Whether the path has no data of the gateway. If browsers can't ask their users for the credentials, it is served to
    /// everybody: a page that asks for a token must be read before it. Its answer is small or static, because it is sent without
    /// a reservation then.
    fn is_public(&self, _path: &str) -> bool {
        false
    }

    /// The CORS options.
    fn cors(&self) -> Option<&CorsConfig> {
        None
    }

    /// The limit of concurrent requests on one connection. gRPC clients use one connection for all requests.
    fn max_streams(&self) -> u32 {
        MAX_STREAMS
    }

    /// The answer to a page request.
    async fn page(&self, request: Request) -> Answer;

    /// The answer to a gRPC request.
    async fn grpc(&self, _request: http::Request<Full<Bytes>>) -> Answer {
        grpc_error(tonic::Status::unimplemented("no gRPC is spoken here"))
    }
}

/// A server that starts and stops with its component.
#[derive(Default)]
pub struct PageServer {
    running: Mutex<Option<Server>>,
}

impl PageServer {
    /// Binds the endpoint and starts to serve.
    ///
    /// # Errors
    /// The extension of `auth` or a TLS file is unusable, or the endpoint can't be bound.
    pub async fn start(
        &self,
        base: &Context,
        config: ServerConfig<'_>,
        pages: Arc<dyn Pages>,
    ) -> Result<(), ComponentError> {
        let handler = Handler {
            auth_gate: AuthGate::of(config.auth, base)?,
            room: ResponseMemory::of(&base.id, config.max_answer_bytes, base.shared.memory.clone()),
            served_by: ServedBy::component(base.id.clone(), base.shared.memory.clone()),
            pages,
        };
        let server = handler.open(&base.path, config).await;
        let server = server.map_err(|error| base.error(error.to_string()))?;
        tracing::info!(component = %base.path, endpoint = %server.local(), "serving");
        *self.lock() = Some(server);
        Ok(())
    }

    /// Stops the server; see [`Server::stop`].
    pub async fn stop(&self, deadline: Instant) {
        let running = self.lock().take();
        if let Some(server) = running {
            server.stop(deadline).await;
        }
    }

    /// The bound address, with its port.
    #[cfg(any(test, feature = "testing"))]
    pub fn local(&self) -> Endpoint {
        self.lock().as_ref().expect("the server runs").local().clone()
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Option<Server>> {
        self.running.lock()
    }
}

/// Serves `pages` to everybody, outside any component. `id` identifies them in the gateway's own metrics.
///
/// # Errors
/// The endpoint can't be bound.
pub async fn serve(
    id: &Arc<str>,
    config: ServerConfig<'_>,
    memory: Arc<Account>,
    pages: Arc<dyn Pages>,
) -> Result<Server, StartError> {
    let handler = Handler {
        auth_gate: AuthGate::default(),
        room: ResponseMemory::of(id, config.max_answer_bytes, memory.clone()),
        served_by: ServedBy::component(id.clone(), memory),
        pages,
    };
    handler.open(id, config).await
}

/// Handles requests before they reach the pages.
struct Handler {
    auth_gate: AuthGate,
    room: Arc<ResponseMemory>,
    served_by: ServedBy,
    pages: Arc<dyn Pages>,
}

impl Handler {
    async fn open(self, component: &Arc<str>, config: ServerConfig<'_>) -> Result<Server, StartError> {
        let tls = config.tls.map(|tls| tls.build(tls::ALPN_HTTP)).transpose()?;
        let limits = ConnectionLimits::new(config.max_connections, config.max_connections_per_peer)
            .of(component)
            .over(tls);
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
            let answer: Answering = Box::pin(async move { Ok(handler.handle(request).await) });
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

    async fn handle(&self, mut request: http::Request<Incoming>) -> Answer {
        let pages = &*self.pages;
        let is_public = pages.is_public(request.uri().path()) && !is_call(&request);
        let is_unchecked = is_public && !self.auth_gate.is_asked_by_browsers();
        let client = if is_unchecked {
            None
        } else {
            match self.auth_gate.admit(&request).await {
                Ok(client) => client,
                Err(refused) => return refusal(refused, is_call(&request)),
            }
        };
        // The reservation of the body, until the answer exists.
        let mut body = Held::new(self.served_by.memory.clone());
        if is_call(&request) {
            if let Some(client) = client {
                request.extensions_mut().insert(client);
            }
            return match called(request, &mut body).await {
                Ok(request) => held(with_reason(pages.grpc(request).await), &self.room, client, true).await,
                Err(why) => why.why().mark(grpc_error(broken_call(&why))),
            };
        }
        let headers = request.headers();
        let coding = coding(&joined(headers, ACCEPT_ENCODING), &[Coding::Gzip]);
        let answer = with_reason(answer(request, client, pages, &mut body).await);
        drop(body);
        if is_unchecked {
            // Clients without credentials must not use up the memory for answers, nor the time to compress them.
            return answer;
        }
        let answer = held(answer, &self.room, client, false).await;
        compressed(answer, coding, &self.room, client).await
    }
}

/// Reads a body within its timeout. Meanwhile the connection may be closed for others if connections are short.
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
        held.keep(whole.len());
        Ok(whole.freeze())
    };
    timeout(FORM_TIME, reading).await.unwrap_or(Err(Broken::TimedOut))
}

/// Reads a whole gRPC request within its timeout.
async fn called(
    request: http::Request<Incoming>,
    held: &mut Held,
) -> Result<http::Request<Full<Bytes>>, Broken> {
    let (head, body) = request.into_parts();
    let body = in_time(&head, body, held).await?;
    Ok(http::Request::from_parts(head, Full::new(body)))
}

/// Reserves the bytes of an answer until they are sent, or refuses the request. Streams need no reservation.
async fn held(
    answer: Answer,
    room: &Arc<ResponseMemory>,
    client: Option<SenderKey>,
    is_call: bool,
) -> Answer {
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

/// Whether a posted body is a form. A body without a type counts as one.
fn is_form(headers: &HeaderMap) -> bool {
    let Some(of) = headers.get(CONTENT_TYPE) else {
        return true;
    };
    let of = of.to_str().unwrap_or_default().split(';').next();
    let of = of.unwrap_or_default().trim();
    of.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
