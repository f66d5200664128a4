//! The small HTTP server that extensions share: GET and HEAD only, one service, TLS where configured.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::component::{ComponentError, Context};
use crate::net::http::{HttpConfig, start};
use crate::net::{ConnectionLimits, Endpoint, Listener, Server, SocketFileConfig, TlsServerConfig, tls};

/// People and probes: a few connections at a time.
const MAX_CONNECTIONS: usize = 64;

/// What a path answers.
pub(super) type Answer = Response<Full<Bytes>>;

/// A server that is started and stopped with its extension.
#[derive(Default)]
pub(super) struct PageServer {
    running: Mutex<Option<Server>>,
}

impl PageServer {
    /// Binds and serves; `page` answers GET by path.
    pub(super) async fn start(
        &self,
        base: &Context,
        (endpoint, socket): (&Endpoint, &SocketFileConfig),
        tls: Option<&TlsServerConfig>,
        page: impl Fn(&str) -> Answer + Send + Sync + 'static,
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
            let answer = answer(&request, &*page);
            async move { answer }
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

fn answer(request: &Request<Incoming>, page: &dyn Fn(&str) -> Answer) -> Answer {
    match *request.method() {
        Method::GET => page(request.uri().path()),
        Method::HEAD => without_body(page(request.uri().path())),
        _ => {
            let mut answer = json(
                StatusCode::METHOD_NOT_ALLOWED,
                &serde_json::json!({"error": "GET only"}),
            );
            answer
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            answer
        }
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
        let Endpoint::Tcp { host, port } = endpoint else {
            panic!("not TCP");
        };
        let mut stream = tokio::net::TcpStream::connect((host.as_str(), *port))
            .await
            .unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}
