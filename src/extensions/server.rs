//! The small HTTP server that extensions share: pages by GET, HEAD or a posted form, one service, TLS where configured.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;

use crate::component::{ComponentError, Context};
use crate::net::http::{HttpConfig, start};
use crate::net::{ConnectionLimits, Endpoint, Listener, Server, SocketFileConfig, TlsServerConfig, tls};

/// People and probes: a few connections at a time.
const MAX_CONNECTIONS: usize = 64;

/// A longer form is refused.
const MAX_FORM: usize = 256 << 10;

/// What a path answers.
pub(super) type Answer = Response<Full<Bytes>>;

/// A server that is started and stopped with its extension.
#[derive(Default)]
pub(super) struct PageServer {
    running: Mutex<Option<Server>>,
}

impl PageServer {
    /// Binds and serves what `page` answers.
    pub(super) async fn start<F: Future<Output = Answer> + Send + 'static>(
        &self,
        base: &Context,
        (endpoint, socket): (&Endpoint, &SocketFileConfig),
        tls: Option<&TlsServerConfig>,
        takes: Takes,
        page: impl Fn(Request) -> F + Send + Sync + 'static,
    ) -> Result<(), ComponentError> {
        let tls = tls.map(|tls| tls.build(tls::ALPN_HTTP)).transpose();
        let limits = ConnectionLimits {
            max_connections: MAX_CONNECTIONS,
            tls: tls.map_err(|error| base.error(error.to_string()))?,
        };
        let listener = Listener::bind(endpoint, socket).await;
        let listener = listener.map_err(|error| base.error(error.to_string()))?;
        let page = Arc::new(page);
        let server = start(listener, limits, HttpConfig::default(), move |request| {
            let page = page.clone();
            async move { answer(request, takes, &*page).await }
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

async fn answer<F: Future<Output = Answer>>(
    request: http::Request<Incoming>,
    takes: Takes,
    page: &(impl Fn(Request) -> F + Send + Sync),
) -> Answer {
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
    let answer = page(Request { path, form }).await;
    match head.method {
        Method::HEAD => without_body(answer),
        _ => answer,
    }
}

fn without_body(answer: Answer) -> Answer {
    let length = http_body::Body::size_hint(answer.body()).lower();
    let mut answer = answer.map(|_| Full::default());
    answer.headers_mut().insert(CONTENT_LENGTH, length.into());
    answer
}

/// A JSON page.
pub(super) fn json(status: StatusCode, body: &serde_json::Value) -> Answer {
    text(status, "application/json", body.to_string())
}

/// A page of any type.
pub(super) fn text(status: StatusCode, content_type: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

#[cfg(test)]
pub(super) mod testing {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

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
