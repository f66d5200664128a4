//! POST and its answer: what exporters over HTTP share.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::Outcome;
use super::answer::MAX_ANSWER_BYTES;
use crate::batch::ClientMetadata;
use crate::component::auth::Credentials;
use crate::component::{ComponentError, Context};
use crate::net::TlsClientConfig;
use crate::net::auth::AuthConfig;
use crate::net::client::{Connector, UseTls};
use crate::net::retry_after;
use crate::net::tls::ALPN_HTTP;
use crate::net::url::Url;

/// Between two HTTP/2 pings while requests are under way, and how long an answer may take.
const PING: Duration = Duration::from_secs(10);

type Http = hyper_util::client::legacy::Client<Connector, Full<Bytes>>;

/// What a client is made of.
pub(crate) struct HttpOptions<'a> {
    /// Where it connects to, as far as that is a Unix socket.
    pub(crate) endpoint: Option<&'a Url>,
    pub(crate) tls: &'a TlsClientConfig,
    pub(crate) auth: Option<&'a AuthConfig>,
    /// Unused connections to keep.
    pub(crate) max_idle_conns: usize,
    /// How long an unused connection is kept.
    pub(crate) idle_conn_timeout: Duration,
}

/// A client with its connections.
pub(crate) struct HttpClient {
    http: Http,
    credentials: Option<Arc<dyn Credentials>>,
}

/// What a server answered.
pub(crate) struct HttpAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// When it wants to be asked again.
    pub(crate) after: Option<Duration>,
    /// The body, or why it can't be had.
    pub(crate) body: Result<Bytes, Box<dyn std::error::Error + Send + Sync>>,
}

impl HttpAnswer {
    /// Status and text, for people.
    pub(crate) fn text(&self) -> String {
        /// Longest text that is worth a log line.
        const MAX_CHARS: usize = 300;
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
    pub(crate) fn new(options: HttpOptions<'_>, cx: &Context) -> Result<Self, ComponentError> {
        let unix = options.endpoint.and_then(Url::unix_path);
        let connector = Connector::new(unix, UseTls::ByScheme, options.tls, ALPN_HTTP);
        let connector = connector.map_err(|error| cx.error(error.to_string()))?;
        Ok(Self {
            http: hyper_util::client::legacy::Client::builder(TokioExecutor::new())
                .pool_idle_timeout(options.idle_conn_timeout)
                .pool_max_idle_per_host(options.max_idle_conns)
                // A peer that is gone without a word is found out, where requests share a connection.
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .http2_keep_alive_interval(PING)
                .http2_keep_alive_timeout(PING)
                .build(connector),
            credentials: options.auth.map(|auth| auth.credentials(cx)).transpose()?,
        })
    }

    /// Sends a body with these headers and who we are. An error: there is no answer, or we can't prove now who we are.
    pub(crate) async fn post(
        &self,
        url: &Uri,
        mut headers: HeaderMap,
        body: Bytes,
        client: Option<&ClientMetadata>,
    ) -> Result<HttpAnswer, Outcome> {
        if let Some(credentials) = &self.credentials {
            let applied = credentials.apply(&mut headers, client);
            let signed = applied.and_then(|()| credentials.sign("POST", url, &mut headers, &body));
            signed.map_err(Outcome::retry)?;
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = url.clone();
        *request.headers_mut() = headers;
        let response = self.http.request(request).await;
        let (head, body) = response
            .map_err(|error| Outcome::retry(error_chain(&error)))?
            .into_parts();
        let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
        Ok(HttpAnswer {
            status: head.status,
            after: retry_after::parse(&head.headers, SystemTime::now()),
            headers: head.headers,
            body: body.map(|body| body.to_bytes()),
        })
    }
}

/// An error with its causes: hyper's own text is only "client error".
fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
