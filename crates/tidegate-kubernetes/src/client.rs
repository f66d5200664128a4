// SPDX-License-Identifier: Apache-2.0

//! Requests to an API server.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use tidegate_config::Secret;
use tidegate_pipeline::delivery::response::shorten;
use tidegate_pipeline::net::client::{UseTls, error_chain, http_client};
use tidegate_pipeline::net::tls::{ALPN_HTTP, ALPN_HTTP1};
use tidegate_pipeline::net::{Connector, TlsClientConfig, TlsError};
use tidegate_runtime::{USER_AGENT as OUR_NAME, files};

use crate::error::WatchError;
use crate::objects::status_message;

/// The server begins its answer within this time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Redirects that are followed for one answer.
const MAX_REDIRECTS: usize = 10;

/// The most bytes of the body of a refusal that are read for its message.
const MAX_MESSAGE_BYTES: usize = 16 << 10;

/// The bytes of a stream over HTTP/2 that no account counts.
const WINDOW_BYTES: u32 = 64 << 10;

/// The interval of pings over HTTP/2: a watch may be silent for a minute.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// A secret, or the file that has it.
#[derive(Clone, Debug, PartialEq)]
pub enum SecretText {
    /// The secret.
    Fixed(Secret),
    /// The file. It is read for each request, so that a token may change.
    File(PathBuf),
}

impl SecretText {
    async fn current(&self) -> Result<Secret, WatchError> {
        let path = match self {
            Self::Fixed(text) => return Ok(text.clone()),
            Self::File(path) => path.clone(),
        };
        let read = move || files::read_text(&path).map_err(|error| format!("{}: {error}", path.display()));
        let text = tokio::task::spawn_blocking(read).await;
        let text = text.unwrap_or_else(|error| Err(error.to_string()));
        text.map(|text| Secret::new(text.trim()))
            .map_err(WatchError::Credentials)
    }
}

/// The `Authorization` header.
#[derive(Clone, Debug, PartialEq)]
pub enum ApiCredentials {
    /// A user and a password.
    Basic(SecretText, SecretText),
    /// A word, such as `Bearer`, and a secret.
    Word(String, SecretText),
}

impl ApiCredentials {
    async fn header(&self) -> Result<HeaderValue, WatchError> {
        let text = match self {
            Self::Basic(user, password) => {
                let (user, password) = (user.current().await?, password.current().await?);
                let pair = format!("{}:{}", user.expose(), password.expose());
                format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
            }
            Self::Word(word, secret) => format!("{word} {}", secret.current().await?.expose()),
        };
        secret_header(&text)
    }
}

fn secret_header(text: &str) -> Result<HeaderValue, WatchError> {
    let value = HeaderValue::try_from(text);
    let mut value =
        value.map_err(|_| WatchError::Credentials("characters that no header may have".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The address of an API server, and how to reach it.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiServer {
    /// Its URL, perhaps with a path before that of the API.
    pub url: Uri,
    /// TLS.
    pub tls: TlsClientConfig,
    /// The `Authorization` header.
    pub credentials: Option<ApiCredentials>,
    /// Further headers.
    pub headers: Vec<(HeaderName, SecretText)>,
    /// Whether redirects to the same host and port are followed.
    pub follow_redirects: bool,
    /// Whether TLS may negotiate HTTP/2.
    pub enable_http2: bool,
}

impl ApiServer {
    /// A server without credentials and with the default TLS.
    pub fn at(url: Uri) -> Self {
        Self {
            url,
            tls: TlsClientConfig::default(),
            credentials: None,
            headers: Vec::new(),
            follow_redirects: true,
            enable_http2: true,
        }
    }
}

/// Makes requests to an API server.
pub struct ApiClient {
    server: ApiServer,
    http: hyper_util::client::legacy::Client<Connector, Full<Bytes>>,
}

impl ApiClient {
    /// Creates a client.
    ///
    /// # Errors
    /// A TLS file is unusable.
    pub fn new(server: ApiServer) -> Result<Self, TlsError> {
        let alpn = if server.enable_http2 {
            ALPN_HTTP
        } else {
            ALPN_HTTP1
        };
        let connector = Connector::new(None, UseTls::ByScheme, &server.tls, alpn)?;
        let http = http_client()
            .http2_initial_stream_window_size(WINDOW_BYTES)
            .http2_keep_alive_interval(PING_INTERVAL)
            .build(connector);
        Ok(Self { server, http })
    }

    /// The server of the requests.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// The body of the answer to a GET of a path with its query.
    ///
    /// # Errors
    /// The server does not answer, or the status is not 200.
    pub(crate) async fn get(&self, path: &str) -> Result<Incoming, WatchError> {
        let answer = self.answer(Method::GET, path, Bytes::new()).await?;
        match answer.status() {
            StatusCode::OK => Ok(answer.into_body()),
            StatusCode::GONE => Err(WatchError::Expired),
            status => Err(WatchError::Status(status, message(answer.into_body()).await)),
        }
    }

    /// Sends an object. The body of the answer is not read.
    ///
    /// # Errors
    /// The server does not answer, or the status is neither 200 nor 201.
    pub(crate) async fn send(&self, method: Method, path: &str, object: Bytes) -> Result<(), WatchError> {
        let answer = self.answer(method, path, object).await?;
        match answer.status() {
            StatusCode::OK | StatusCode::CREATED => Ok(()),
            status => Err(WatchError::Status(status, message(answer.into_body()).await)),
        }
    }

    async fn answer(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, WatchError> {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.ask(method, path, body)).await;
        answer.map_err(|_| WatchError::TimedOut(ANSWER_TIMEOUT))?
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Response<Incoming>, WatchError> {
        let mut headers = self.headers().await?;
        if !body.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let mut at = self.url(path)?;
        for _ in 0..=MAX_REDIRECTS {
            let mut request = Request::new(Full::new(body.clone()));
            *request.method_mut() = method.clone();
            *request.uri_mut() = at.clone();
            *request.headers_mut() = headers.clone();
            let answer = self.http.request(request).await;
            let answer = answer.map_err(|error| WatchError::Connection(shorten(&error_chain(&error))))?;
            if !self.server.follow_redirects || !answer.status().is_redirection() {
                return Ok(answer);
            }
            at = self.redirected(&answer)?;
        }
        Err(WatchError::Redirect(format!("more than {MAX_REDIRECTS} times")))
    }

    async fn headers(&self) -> Result<HeaderMap, WatchError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(OUR_NAME));
        if let Some(credentials) = &self.server.credentials {
            headers.insert(AUTHORIZATION, credentials.header().await?);
        }
        for (name, value) in &self.server.headers {
            headers.append(name.clone(), secret_header(value.current().await?.expose())?);
        }
        Ok(headers)
    }

    /// The URL of a path that begins with `/`.
    fn url(&self, path: &str) -> Result<Uri, WatchError> {
        let base = self.server.url.path().trim_end_matches('/');
        let mut parts = self.server.url.clone().into_parts();
        parts.path_and_query = format!("{base}{path}").parse().ok();
        Uri::from_parts(parts).map_err(|error| WatchError::Connection(error.to_string()))
    }

    /// The target of a redirect. Credentials go to the server only.
    fn redirected(&self, answer: &Response<Incoming>) -> Result<Uri, WatchError> {
        let location = answer
            .headers()
            .get(LOCATION)
            .and_then(|value| value.to_str().ok());
        let location = location.unwrap_or_default();
        let ours = &self.server.url;
        let target = location.parse::<Uri>().ok().and_then(|uri| {
            let mut parts = uri.into_parts();
            parts.scheme = parts.scheme.or_else(|| ours.scheme().cloned());
            parts.authority = parts.authority.or_else(|| ours.authority().cloned());
            Uri::from_parts(parts).ok()
        });
        let is_ours = |uri: &Uri| uri.scheme() == ours.scheme() && uri.authority() == ours.authority();
        target
            .filter(is_ours)
            .ok_or_else(|| WatchError::Redirect(format!("to `{}`", shorten(location))))
    }
}

/// The message of a refusal: `: pods is forbidden`.
async fn message(body: Incoming) -> String {
    let read = Limited::new(body, MAX_MESSAGE_BYTES).collect();
    let read = tokio::time::timeout(ANSWER_TIMEOUT, read).await;
    let bytes = read
        .ok()
        .and_then(Result::ok)
        .map(http_body_util::Collected::to_bytes);
    let message = status_message(&bytes.unwrap_or_default());
    if message.is_empty() {
        message
    } else {
        format!(": {}", shorten(&message))
    }
}
