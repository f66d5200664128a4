//! The small HTTP server that extensions share: pages by GET, HEAD or a posted form, streams of events, gRPC where an
//! extension speaks it; one service, TLS and authentication where configured.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use tokio_stream::{Stream, StreamExt};

use crate::component::{ComponentError, Context};
use crate::net::auth::{AuthConfig, Door, NotAdmitted};
use crate::net::grpc::is_call;
use crate::net::http::{HttpConfig, start};
use crate::net::{ConnectionLimits, Endpoint, Listener, Server, SocketFileConfig, TlsServerConfig, tls};

/// People, probes, and those who watch.
const MAX_CONNECTIONS: usize = 512;

/// A longer form is refused.
const MAX_FORM: usize = 256 << 10;

/// A body, whole or a stream.
pub(super) type Body = UnsyncBoxBody<Bytes, BodyError>;
pub(super) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// What a path answers.
pub(super) type Answer = Response<Body>;

/// Where to listen, and who may ask.
pub(super) struct Place<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) socket: &'a SocketFileConfig,
    pub(super) tls: Option<&'a TlsServerConfig>,
    pub(super) auth: Option<&'a AuthConfig>,
}

/// What an extension serves.
#[async_trait]
pub(super) trait Pages: Send + Sync + 'static {
    /// How a client may ask for a page.
    fn takes(&self) -> Takes;

    /// The page that a request asks for.
    async fn page(&self, request: Request) -> Answer;

    /// The answer to a gRPC request.
    async fn grpc(&self, _request: http::Request<Incoming>) -> Answer {
        grpc_error(tonic::Status::unimplemented("no gRPC is spoken here"))
    }
}

/// A server that is started and stopped with its extension.
#[derive(Default)]
pub(super) struct PageServer {
    running: Mutex<Option<Server>>,
}

impl PageServer {
    /// Binds and serves.
    pub(super) async fn start(
        &self,
        base: &Context,
        place: Place<'_>,
        pages: Arc<dyn Pages>,
    ) -> Result<(), ComponentError> {
        let tls = place.tls.map(|tls| tls.build(tls::ALPN_HTTP)).transpose();
        let limits = ConnectionLimits {
            max_connections: MAX_CONNECTIONS,
            tls: tls.map_err(|error| base.error(error.to_string()))?,
        };
        let door = Door::of(place.auth, base)?;
        let listener = Listener::bind(place.endpoint, place.socket).await;
        let listener = listener.map_err(|error| base.error(error.to_string()))?;
        let server = start(listener, limits, HttpConfig::default(), move |request| {
            let (pages, door) = (pages.clone(), door.clone());
            async move {
                match refusal(&door, &request).await {
                    Some(refusal) => refusal,
                    None if is_call(&request) => pages.grpc(request).await,
                    None => answer(request, &*pages).await,
                }
            }
        });
        tracing::info!(extension = %base.id, endpoint = %server.local(), "serving");
        *self.lock() = Some(server);
        Ok(())
    }

    /// See [`Server::stop`].
    pub(super) async fn stop(&self, deadline: Instant) {
        let running = self.lock().take();
        if let Some(server) = running {
            server.stop(deadline).await;
        }
    }

    #[cfg(test)]
    pub(super) fn local(&self) -> Endpoint {
        self.lock().as_ref().unwrap().local().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Server>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer to who may not ask.
async fn refusal(door: &Door, request: &http::Request<Incoming>) -> Option<Answer> {
    let NotAdmitted { why, challenge } = door.admit(request.headers()).await.err()?;
    if is_call(request) {
        return Some(grpc_error(tonic::Status::unauthenticated(why.to_string())));
    }
    let why =
        serde_json::json!({"status": "error", "errorType": "unauthenticated", "error": why.to_string()});
    let mut answer = json(StatusCode::UNAUTHORIZED, &why);
    answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    Some(answer)
}

/// A gRPC answer without a message.
pub(super) fn grpc_error(status: tonic::Status) -> Answer {
    status.into_http::<Body>()
}

/// How a client may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// By path alone.
    Paths,
    /// Also by a posted form.
    Forms,
}

/// What a client asks for.
pub(super) struct Request {
    /// The path.
    pub(super) path: String,
    /// What stands behind it, and in a posted form.
    pub(super) form: Vec<(String, String)>,
}

impl Request {
    /// The first value of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.form.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &**value)
    }

    /// All values of a parameter.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let of_name = self.form.iter().filter(move |(known, _)| known == name);
        of_name.map(|(_, value)| &**value)
    }
}

async fn answer(request: http::Request<Incoming>, pages: &dyn Pages) -> Answer {
    let takes = pages.takes();
    let (head, body) = request.into_parts();
    let mut form = Vec::new();
    let mut fill = |text: &[u8]| form.extend(form_urlencoded::parse(text).into_owned());
    fill(head.uri.query().unwrap_or_default().as_bytes());
    match head.method {
        Method::GET | Method::HEAD => {}
        Method::POST if takes == Takes::Forms => match Limited::new(body, MAX_FORM).collect().await {
            Ok(body) => fill(&body.to_bytes()),
            Err(_) => {
                let why = serde_json::json!({"error": format!("a form of more than {MAX_FORM} bytes, or a broken one")});
                return json(StatusCode::PAYLOAD_TOO_LARGE, &why);
            }
        },
        _ => {
            let allowed = match takes {
                Takes::Forms => "GET, HEAD, POST",
                Takes::Paths => "GET, HEAD",
            };
            let why = serde_json::json!({"error": format!("{allowed} only")});
            let mut answer = json(StatusCode::METHOD_NOT_ALLOWED, &why);
            answer
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static(allowed));
            return answer;
        }
    }
    let path = head.uri.path().to_owned();
    let answer = pages.page(Request { path, form }).await;
    match head.method {
        Method::HEAD => without_body(answer),
        _ => answer,
    }
}

/// A body that is there as a whole.
fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

fn without_body(answer: Answer) -> Answer {
    let length = http_body::Body::size_hint(answer.body()).lower();
    let mut answer = answer.map(|_| whole(Bytes::new()));
    answer.headers_mut().insert(CONTENT_LENGTH, length.into());
    answer
}

/// A JSON page.
pub(super) fn json(status: StatusCode, body: &serde_json::Value) -> Answer {
    text(status, "application/json", body.to_string())
}

/// A page of any type.
pub(super) fn text(status: StatusCode, content_type: &'static str, body: String) -> Answer {
    let mut answer = Response::new(whole(body.into()));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// A download.
pub(super) fn bytes(content_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(whole(body));
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// Server-sent events, as they come; a comment now and then shows that the stream is alive.
pub(super) fn events(next: impl Stream<Item = Event> + Send + 'static) -> Answer {
    let frames = next.map(|event| {
        let text = match event {
            Event::Named(name, data) => format!("event: {name}\ndata: {data}\n\n"),
            Event::Alive => ": alive\n\n".to_owned(),
        };
        Ok::<_, BodyError>(Frame::data(Bytes::from(text)))
    });
    let mut answer = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answer
}

/// One event of a stream.
pub(super) enum Event {
    /// Its name and its data, in one line.
    Named(&'static str, String),
    /// Nothing happened.
    Alive,
}

#[cfg(test)]
pub(super) mod testing {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A stream of server-sent events.
    pub(in crate::extensions) struct Lines(tokio::io::BufReader<tokio::net::TcpStream>);

    impl Lines {
        pub(in crate::extensions) async fn open(admin: &crate::extensions::admin::Admin, path: &str) -> Self {
            let Endpoint::Tcp { host, port } = admin.local() else {
                panic!("not TCP");
            };
            let mut stream = tokio::net::TcpStream::connect((host.as_str(), port))
                .await
                .unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            Self(tokio::io::BufReader::new(stream))
        }

        async fn line(&mut self) -> Option<String> {
            use tokio::io::AsyncBufReadExt;
            let mut line = String::new();
            let patience = std::time::Duration::from_secs(30);
            let read = tokio::time::timeout(patience, self.0.read_line(&mut line)).await;
            let length = read.expect("a line in time").unwrap_or(0);
            (length > 0).then(|| line.trim_end().to_owned())
        }

        pub(in crate::extensions) async fn event(&mut self) -> (String, serde_json::Value) {
            loop {
                let line = self.line().await.expect("the stream goes on");
                if let Some(name) = line.strip_prefix("event: ") {
                    let data = self.line().await.expect("data");
                    let data = data.strip_prefix("data: ").expect("data");
                    return (name.to_owned(), serde_json::from_str(data).unwrap());
                }
            }
        }

        pub(in crate::extensions) async fn event_named(&mut self, wanted: &str) -> serde_json::Value {
            loop {
                let (name, data) = self.event().await;
                if name == wanted {
                    return data;
                }
            }
        }

        pub(in crate::extensions) async fn ends(&mut self) -> bool {
            while self.line().await.is_some() {}
            true
        }
    }

    /// Status line number and body of a request.
    pub(in crate::extensions) async fn fetch(endpoint: &Endpoint, method: &str, path: &str) -> (u16, String) {
        send(endpoint, method, path, "").await
    }

    /// The same of a posted form.
    pub(in crate::extensions) async fn post(endpoint: &Endpoint, path: &str, form: &str) -> (u16, String) {
        send(endpoint, "POST", path, form).await
    }

    async fn send(endpoint: &Endpoint, method: &str, path: &str, body: &str) -> (u16, String) {
        let Endpoint::Tcp { host, port } = endpoint else {
            panic!("not TCP");
        };
        let mut stream = tokio::net::TcpStream::connect((host.as_str(), *port))
            .await
            .unwrap();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}
