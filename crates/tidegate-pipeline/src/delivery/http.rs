// SPDX-License-Identifier: Apache-2.0

//! POST requests and their answers, for exporters over HTTP.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::PROXY_AUTHORIZATION;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::Semaphore;

use super::response::MAX_ANSWER_BYTES;
use super::{EncodingPermit, INLINE_BYTES, Outcome, apart};
use crate::batch::ClientMetadata;
use crate::component::auth::Credentials;
use crate::component::{ComponentError, Context, Held, Shared};
use crate::net::auth::AuthConfig;
use crate::net::client::{Connector, UseTls, error_chain, http_client};
use crate::net::measured::Measured;
use crate::net::tls::{ALPN_HTTP, ALPN_HTTP1};
use crate::net::url::Url;
use crate::net::via::Proxy;
use crate::net::{BodyError, TlsClientConfig, read_answer, retry_after};

/// The interval between HTTP/2 pings during requests, and their timeout.
pub const PING: Duration = Duration::from_secs(10);

type Http = hyper_util::client::legacy::Client<Connector, Pieces>;

/// A body as a sequence of byte chunks.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    pieces: VecDeque<Bytes>,
    bytes: u64,
}

impl FromIterator<Bytes> for Pieces {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        let pieces: VecDeque<_> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self { pieces, bytes }
    }
}

impl From<Bytes> for Pieces {
    fn from(whole: Bytes) -> Self {
        [whole].into_iter().collect()
    }
}

impl Pieces {
    /// The bytes to allocate for a contiguous body. Several chunks are copied.
    fn whole_bytes(&self) -> usize {
        match self.pieces.len() {
            0 | 1 => 0,
            _ => usize::try_from(self.bytes).unwrap_or(usize::MAX),
        }
    }

    /// The contiguous body.
    fn whole(&self) -> Cow<'_, [u8]> {
        match self.pieces.as_slices() {
            ([], []) => Cow::Borrowed(&[]),
            ([only], []) => Cow::Borrowed(only),
            (some, more) => Cow::Owned([some, more].concat().concat()),
        }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.pieces.pop_front();
        self.bytes -= next.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes)
    }
}

/// The options of a client.
pub struct HttpOptions<'a> {
    /// The endpoint, needed if it is a Unix socket.
    pub endpoint: Option<&'a Url>,
    /// TLS to the destination.
    pub tls: &'a TlsClientConfig,
    /// How requests authenticate.
    pub auth: Option<&'a AuthConfig>,
    /// The number of idle connections to keep.
    pub max_idle_conns: usize,
    /// The time for which an idle connection is kept.
    pub idle_conn_timeout: Duration,
    /// The connections of the exporter.
    pub connections: Connections<'a>,
}

/// The limits and timeouts of connections.
#[derive(Clone, Copy)]
pub struct Connections<'a> {
    /// The proxy between the exporter and the destination.
    pub proxy: Option<&'a Proxy>,
    /// The number of concurrent requests, each of which may need a connection; 0 = no limit.
    pub max: usize,
    /// Whether a connection serves more than one request.
    pub are_kept: bool,
    /// Whether TLS may negotiate HTTP/2.
    pub http2: bool,
    /// The interval between HTTP/2 pings during requests; zero = no pings.
    pub ping_interval: Duration,
    /// The timeout of a ping.
    pub ping_timeout: Duration,
}

impl Default for Connections<'_> {
    fn default() -> Self {
        Self {
            proxy: None,
            max: 0,
            are_kept: true,
            http2: true,
            ping_interval: PING,
            ping_timeout: PING,
        }
    }
}

/// An HTTP client with its connections.
pub struct HttpClient {
    shared: Arc<Shared>,
    http: Http,
    proxy: Option<Proxy>,
    /// Permits for concurrent requests, if they have a limit.
    turns: Option<Semaphore>,
    credentials: Option<Arc<dyn Credentials>>,
    /// Whether requests are measured.
    is_measured: bool,
    /// The largest answer that is read, in bytes.
    max_answer_bytes: usize,
}

/// The answer of a server.
pub struct HttpAnswer {
    /// The status of the answer.
    pub status: StatusCode,
    /// The headers of the answer.
    pub headers: HeaderMap,
    /// The delay that the server asks for.
    pub after: Option<Duration>,
    /// The body, or the error of reading it.
    pub body: Result<Bytes, BodyError>,
    /// The memory reservation of the body.
    _held: Held,
}

impl HttpAnswer {
    /// The status and text, for logs.
    pub fn text(&self) -> String {
        /// The longest text that is shown. It is cut again after secrets are masked.
        const MAX_CHARS: usize = 4096;
        let body = self.body.as_ref().map_or(&[][..], |body| body);
        let text: String = String::from_utf8_lossy(body)
            .trim()
            .chars()
            .take(MAX_CHARS)
            .collect();
        match text.as_str() {
            "" => self.status.to_string(),
            text => format!("{}: {text}", self.status),
        }
    }
}

impl HttpClient {
    /// Creates a client.
    ///
    /// # Errors
    /// The TLS files or the authenticator can't be used.
    pub fn new(options: HttpOptions<'_>, cx: &Context) -> Result<Self, ComponentError> {
        let unix = options.endpoint.and_then(Url::unix_path);
        let connections = options.connections;
        let alpn = if connections.http2 { ALPN_HTTP } else { ALPN_HTTP1 };
        let connector = Connector::new(unix, UseTls::ByScheme, options.tls, alpn);
        let connector = connector.map_err(|error| cx.error(error.to_string()))?;
        let connector = connector.via(connections.proxy.cloned());
        let ping_interval = Some(connections.ping_interval).filter(|interval| !interval.is_zero());
        Ok(Self {
            shared: cx.shared.clone(),
            proxy: connections.proxy.cloned(),
            turns: (connections.max > 0).then(|| Semaphore::new(connections.max)),
            http: http_client()
                .pool_idle_timeout(options.idle_conn_timeout)
                .pool_max_idle_per_host(if connections.are_kept {
                    options.max_idle_conns
                } else {
                    0
                })
                // Pings detect a peer that vanished, if requests share a connection.
                .http2_keep_alive_interval(ping_interval)
                .http2_keep_alive_timeout(connections.ping_timeout)
                .build(connector),
            credentials: options.auth.map(|auth| auth.credentials(cx)).transpose()?,
            is_measured: cx.shared.wants_details(),
            max_answer_bytes: MAX_ANSWER_BYTES,
        })
    }

    /// Reads answers of up to this size. The default fits answers without content.
    #[must_use]
    pub fn with_answers_up_to(self, max_answer_bytes: usize) -> Self {
        Self {
            max_answer_bytes,
            ..self
        }
    }

    /// The headers with credentials, so that a log can mask what the peer repeats.
    pub fn with_credentials(&self, headers: &HeaderMap, client: Option<&ClientMetadata>) -> HeaderMap {
        let mut headers = headers.clone();
        if let Some(credentials) = &self.credentials {
            // Without credentials nothing was sent that the peer could repeat.
            let _ = credentials.apply(&mut headers, client);
        }
        headers
    }

    /// The headers of a request with its signature. The hash of a large body is computed on another thread.
    async fn signed(
        &self,
        credentials: Arc<dyn Credentials>,
        url: &Uri,
        mut headers: HeaderMap,
        body: &Pieces,
    ) -> Result<HeaderMap, Outcome> {
        let permit = EncodingPermit::reserve(&self.shared, body.whole_bytes()).await;
        let is_long = body.bytes > INLINE_BYTES as u64;
        let (url, body) = (url.clone(), body.clone());
        let sign = move || {
            let signed = credentials.sign("POST", &url, &mut headers, &body.whole());
            drop(permit);
            signed.map(|()| headers)
        };
        let signed = apart(is_long, sign).await.map_err(Outcome::permanent)?;
        signed.map_err(Outcome::retry)
    }

    /// Posts a body with these headers and credentials.
    ///
    /// # Errors
    /// The credentials or the signature are not available now, or there is no answer.
    pub async fn post(
        &self,
        url: &Uri,
        mut headers: HeaderMap,
        body: impl Into<Pieces>,
        client: Option<&ClientMetadata>,
    ) -> Result<HttpAnswer, Outcome> {
        let body = body.into();
        if let Some(credentials) = &self.credentials {
            credentials.apply(&mut headers, client).map_err(Outcome::retry)?;
            if credentials.signs_requests() {
                headers = self.signed(credentials.clone(), url, headers, &body).await?;
            }
        }
        // A proxy reads unencrypted requests only, so the others need no authorization here.
        let authorization = self.proxy.as_ref().and_then(Proxy::authorization);
        if let Some(authorization) = authorization.filter(|_| url.scheme_str() == Some("http")) {
            headers.insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        let _turn = match &self.turns {
            // The semaphore is never closed.
            Some(turns) => turns.acquire().await.ok(),
            None => None,
        };
        let (began, bytes) = (std::time::Instant::now(), body.bytes);
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = url.clone();
        *request.headers_mut() = headers;
        let response = self.http.request(request).await;
        if self.is_measured {
            let answered = response.as_ref().ok();
            let status = answered.map(|response| response.status().as_u16());
            let version = answered.map_or(Version::HTTP_11, Response::version);
            Measured::peer(url).http_sent(began, status, version, bytes);
        }
        let (head, body) = response
            .map_err(|error| Outcome::retry(error_chain(&error)))?
            .into_parts();
        let mut held = Held::ours(self.shared.memory.clone());
        let body = read_answer(body, self.max_answer_bytes, &mut held).await;
        Ok(HttpAnswer {
            status: head.status,
            after: retry_after::parse(&head.headers, SystemTime::now()),
            headers: head.headers,
            body,
            _held: held,
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::component::testing::{context, options};

    tidegate_config::options! {
        struct Via {
            proxy_url: Option<Proxy> = None,
        }
    }

    /// Signs with the length of the body and the thread that hashes it.
    struct Signs;

    impl Credentials for Signs {
        fn apply(&self, _: &mut HeaderMap, _: Option<&ClientMetadata>) -> Result<(), String> {
            Ok(())
        }

        fn sign(&self, _: &str, _: &Uri, headers: &mut HeaderMap, body: &[u8]) -> Result<(), String> {
            let signature = format!("{} {:?}", body.len(), std::thread::current().id());
            headers.insert("signature", signature.parse().unwrap());
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_large_request_is_signed_as_a_whole_and_on_another_thread() {
        let tls = TlsClientConfig::default();
        let options = HttpOptions {
            endpoint: None,
            tls: &tls,
            auth: None,
            max_idle_conns: 1,
            idle_conn_timeout: Duration::from_secs(9),
            connections: Connections::default(),
        };
        let client = HttpClient::new(options, &context("exporters", "test")).unwrap();
        let url = Uri::from_static("http://otlp.example/v1/logs");
        let here = format!("{:?}", std::thread::current().id());
        for (bytes, is_here) in [(10, true), (INLINE_BYTES, false)] {
            let pieces = [7_u8, 8].map(|byte| Bytes::from(vec![byte; bytes]));
            let body = Pieces::from_iter(pieces);
            let signed = client.signed(Arc::new(Signs), &url, HeaderMap::new(), &body);
            let signed = signed.await.unwrap();
            let signature = signed["signature"].to_str().unwrap();
            assert!(signature.starts_with(&format!("{} ", 2 * bytes)), "{signature}");
            assert_eq!(signature.ends_with(&here), is_here, "{signature}");
        }
        assert_eq!(client.shared.memory.reserved_bytes(), 0);
    }

    #[tokio::test]
    async fn a_proxy_gets_absolute_urls_and_our_credentials() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let via = options::<Via>(&format!("proxy_url: \"http://ada:secret@{address}\"")).unwrap();
        let tls = TlsClientConfig::default();
        let options = HttpOptions {
            endpoint: None,
            tls: &tls,
            auth: None,
            max_idle_conns: 1,
            idle_conn_timeout: Duration::from_secs(9),
            connections: Connections {
                proxy: via.proxy_url.as_ref(),
                max: 1,
                ..Connections::default()
            },
        };
        let client = HttpClient::new(options, &context("exporters", "test")).unwrap();
        let served = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 1024];
            let read = stream.read(&mut head).await.unwrap();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer).await.unwrap();
            String::from_utf8_lossy(&head[..read]).to_lowercase()
        };
        let url = Uri::from_static("http://otlp.example:4318/v1/logs");
        let posted = client.post(&url, HeaderMap::new(), Bytes::from_static(b"x"), None);
        let (head, answer) = tokio::join!(served, posted);
        assert!(
            head.starts_with("post http://otlp.example:4318/v1/logs http/1.1\r\n"),
            "{head}"
        );
        assert!(
            head.contains("proxy-authorization: basic ywrhonnly3jlda==\r\n"),
            "{head}"
        );
        assert_eq!(answer.ok().map(|answer| answer.status), Some(StatusCode::OK));
    }
}
