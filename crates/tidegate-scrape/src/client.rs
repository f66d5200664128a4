// SPDX-License-Identifier: Apache-2.0

//! The HTTP client for targets and discovery services: GET, credentials, redirects, and a limit on answers.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_ENCODING, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;

use super::config::http::HttpOptions;
use super::credentials::{Credentials, TextSource, header_value};
use tidegate_pipeline::component::{Account, Ceiling, Held, NoRoom};
use tidegate_pipeline::delivery::response::shorten;
use tidegate_pipeline::net::body::Chunks;
use tidegate_pipeline::net::client::{UseTls, error_chain, http_client};
use tidegate_pipeline::net::compression::unpack_now;
use tidegate_pipeline::net::compression::{Coding, DecompressError};
use tidegate_pipeline::net::tls::ALPN_HTTP;
use tidegate_pipeline::net::{BodyError, Connector, TlsError};

/// Redirects that are followed for one answer.
const MAX_REDIRECTS: usize = 10;

/// Longer than usual intervals between scrapes, so that connections are kept from one to the next.
const IDLE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(300);

/// A target is one host and is asked one question at a time; several may share a host.
const MAX_IDLE_PER_HOST: usize = 4;

type HyperClient = hyper_util::client::legacy::Client<Connector, Empty<Bytes>>;

/// Makes requests with the credentials of one job or one discovery.
pub(super) struct Client {
    http: HyperClient,
    credentials: Option<Credentials>,
    headers: Vec<(HeaderName, TextSource)>,
    follow_redirects: bool,
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    /// The file of a credential or header can't be read.
    #[error("credentials: {0}")]
    Credentials(String),
    /// No connection, or it broke.
    #[error("{0}")]
    Connection(String),
    /// No answer in time.
    #[error("no answer within {0:?}")]
    TimedOut(std::time::Duration),
    /// The redirects don't end, or have no valid location.
    #[error("redirected {0}")]
    Redirect(String),
    /// Anything but 200.
    #[error("server returned HTTP status {0}")]
    Status(StatusCode),
    /// The body is as large as the limit, or larger.
    #[error("body size limit exceeded ({0} bytes)")]
    TooLarge(usize),
    /// All pages together are larger than may be held.
    #[error("the pages in memory exceed `max_buffered_size`: raise it, or scrape fewer targets")]
    NoRoom,
    /// The gateway is over its memory limit.
    #[error(transparent)]
    NoMemory(#[from] NoRoom),
    /// The body broke off, or its coding is unknown or wrong.
    #[error("{0}")]
    Body(String),
}

impl FetchError {
    /// The `reason` of a counter.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Credentials(_) => "credentials",
            Self::Connection(_) => "connection",
            Self::TimedOut(_) => "timeout",
            Self::Redirect(_) => "redirect",
            Self::Status(_) => "status",
            Self::TooLarge(_) => "body_size_limit",
            Self::NoRoom => "no_room",
            Self::NoMemory(_) => "memory",
            Self::Body(_) => "body",
        }
    }
}

impl Client {
    /// A client with these options.
    pub(super) fn new(options: &HttpOptions) -> Result<Self, TlsError> {
        let alpn = if options.enable_http2 {
            ALPN_HTTP
        } else {
            &[b"http/1.1".as_slice()]
        };
        let connector = Connector::new(None, UseTls::ByScheme, &options.tls.client(), alpn)?;
        let http = http_client()
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
            .build(connector);
        Ok(Self {
            http,
            credentials: Credentials::of(options),
            headers: options.headers(TextSource::Fixed, TextSource::file),
            follow_redirects: options.follow_redirects,
        })
    }

    /// The answer to a GET, whatever its status, after redirects.
    pub(super) async fn get(&self, url: &Uri, headers: &HeaderMap) -> Result<Response<Incoming>, FetchError> {
        let mut at = url.clone();
        // A host on the way chooses what the next one is asked for: it must not do so with our credentials.
        let mut is_ours = true;
        for _ in 0..=MAX_REDIRECTS {
            let mut request = Request::new(Empty::new());
            *request.uri_mut() = at.clone();
            *request.headers_mut() = headers.clone();
            is_ours &= same_origin(&at, url);
            if is_ours {
                self.introduce(request.headers_mut())?;
            }
            let response = self.http.request(request).await;
            let response = response.map_err(|error| FetchError::Connection(shorten(&error_chain(&error))))?;
            let Some(next) = self.redirect(&at, &response)? else {
                return Ok(response);
            };
            at = next;
        }
        Err(FetchError::Redirect(format!("more than {MAX_REDIRECTS} times")))
    }

    /// Adds credentials, but only for the configured host.
    fn introduce(&self, headers: &mut HeaderMap) -> Result<(), FetchError> {
        if let Some(credentials) = &self.credentials {
            headers.insert(AUTHORIZATION, credentials.header()?);
        }
        for (name, value) in &self.headers {
            headers.append(name.clone(), header_value(value.current()?.expose())?);
        }
        Ok(())
    }

    fn redirect<B>(&self, at: &Uri, response: &Response<B>) -> Result<Option<Uri>, FetchError> {
        let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
        if !is_redirect || !self.follow_redirects {
            return Ok(None);
        }
        let location = response.headers().get(LOCATION);
        let location = location
            .and_then(|location| location.to_str().ok())
            .unwrap_or_default();
        let next = resolve(at, location);
        next.map(Some).ok_or_else(|| {
            FetchError::Redirect(format!("to `{}`, which is not a valid URL", shorten(location)))
        })
    }
}

fn same_origin(one: &Uri, other: &Uri) -> bool {
    one.scheme() == other.scheme() && one.authority() == other.authority()
}

/// The target of a reference in an answer (RFC 3986, 5.2).
fn resolve(base: &Uri, reference: &str) -> Option<Uri> {
    let reference = reference
        .split('#')
        .next()
        .filter(|reference| !reference.is_empty())?;
    let scheme = base.scheme_str()?;
    let authority = base.authority()?;
    let text = if reference.starts_with("http://") || reference.starts_with("https://") {
        reference.to_owned()
    } else if let Some(elsewhere) = reference.strip_prefix("//") {
        format!("{scheme}://{elsewhere}")
    } else if reference.starts_with('/') {
        format!("{scheme}://{authority}{reference}")
    } else if reference.starts_with('?') {
        format!("{scheme}://{authority}{}{reference}", base.path())
    } else {
        let directory = base
            .path()
            .rsplit_once('/')
            .map_or("", |(directory, _)| directory);
        format!("{scheme}://{authority}{directory}/{reference}")
    };
    let uri = without_dot_segments(text.parse().ok()?)?;
    let usable =
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty());
    usable.then_some(uri)
}

/// RFC 3986, 5.2.4.
fn without_dot_segments(uri: Uri) -> Option<Uri> {
    if !uri.path().split('/').any(|segment| matches!(segment, "." | "..")) {
        return Some(uri);
    }
    let mut kept: Vec<&str> = Vec::new();
    for segment in uri.path().split('/').skip(1) {
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let ends_in_directory = uri.path().ends_with("/.") || uri.path().ends_with("/..");
    let last = if ends_in_directory && !kept.is_empty() {
        "/"
    } else {
        ""
    };
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let path = format!("/{}{last}{query}", kept.join("/"));
    let mut parts = uri.into_parts();
    parts.path_and_query = path.parse().ok();
    Uri::from_parts(parts).ok()
}

/// A body as it came.
pub(super) struct Packed {
    pub(super) bytes: Bytes,
    pub(super) coding: Coding,
}

impl Packed {
    /// The body as it was meant, less than `limit_bytes` of it. Takes its time: not for a runtime thread.
    pub(super) fn unpack(self, limit_bytes: usize, held: &mut Held) -> Result<Bytes, FetchError> {
        let most = limit_bytes.saturating_sub(1);
        unpack_now(self.coding, self.bytes, most, held).map_err(|error| match error {
            DecompressError::TooLarge { .. } => FetchError::TooLarge(limit_bytes),
            DecompressError::NoRoom(no_room) => FetchError::NoMemory(no_room),
            DecompressError::NeverFits { .. } => FetchError::NoMemory(NoRoom),
            DecompressError::Corrupt(_) | DecompressError::Overloaded(_) => {
                FetchError::Body(error.to_string())
            }
        })
    }
}

/// Reserves memory for a body with this many bytes so far. It grows by doubling.
pub(super) fn reserve_arrived(held: &mut Held, bytes: usize) -> Result<(), NoRoom> {
    held.try_grow_to(bytes.saturating_mul(2))?;
    held.fill_to(bytes);
    Ok(())
}

/// Reads a body of less than `limit_bytes`; `reserve` may refuse room for the next bytes.
pub(super) async fn read(
    response: Response<Incoming>,
    limit_bytes: usize,
    idle_timeout: std::time::Duration,
    (account, ceiling): (Arc<Account>, Ceiling),
    mut reserve: impl FnMut(usize) -> Result<(), FetchError>,
) -> Result<Packed, FetchError> {
    let (head, body) = response.into_parts();
    let coding = head.headers.get(CONTENT_ENCODING);
    let coding = coding.map_or(Ok(""), HeaderValue::to_str).unwrap_or("?");
    let coding = Coding::named(coding)
        .ok_or_else(|| FetchError::Body(format!("unknown content coding `{}`", shorten(coding))))?;
    let mut whole = BytesMut::new();
    let mut chunks = Chunks::new(body, idle_timeout, account, ceiling);
    while let Some(chunk) = chunks.next().await.map_err(broken)? {
        if whole.len() + chunk.len() >= limit_bytes {
            return Err(FetchError::TooLarge(limit_bytes));
        }
        reserve(chunk.len())?;
        whole.extend_from_slice(&chunk);
    }
    let bytes = whole.freeze();
    Ok(Packed { bytes, coding })
}

fn broken(error: BodyError) -> FetchError {
    match error {
        BodyError::NoRoom(NoRoom) | BodyError::TooSlow => FetchError::NoMemory(NoRoom),
        error => FetchError::Body(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_grows_by_doubling_reserves_twice_what_is_there() {
        let account = Arc::<Account>::default();
        account.add_limit(tidegate_pipeline::component::Limit::of(10_000));
        let mut held = Held::new(account.clone());
        reserve_arrived(&mut held, 1_000).unwrap();
        reserve_arrived(&mut held, 3_000).unwrap();
        assert_eq!((account.reserved_bytes(), account.filled_bytes()), (6_000, 3_000));
        assert_eq!(reserve_arrived(&mut held, 5_000), Err(NoRoom));
    }

    #[test]
    fn references_are_resolved_against_where_they_stood() {
        let table = [
            ("http://b/x", Some("http://b/x")),
            ("//b/x", Some("https://b/x")),
            ("/x?y=1", Some("https://a:1/x?y=1")),
            ("x", Some("https://a:1/p/x")),
            ("?y=1", Some("https://a:1/p/q?y=1")),
            ("../x?y=..", Some("https://a:1/x?y=..")),
            ("./a/../../../x/..", Some("https://a:1/")),
            ("/x/y/.", Some("https://a:1/x/y/")),
            ("/x#part", Some("https://a:1/x")),
            ("", None),
            ("ftp://b/", Some("https://a:1/p/ftp://b/")),
            ("http://", None),
        ];
        let base = "https://a:1/p/q".parse().unwrap();
        for (reference, expected) in table {
            let resolved = resolve(&base, reference).map(|uri| uri.to_string());
            assert_eq!(resolved.as_deref(), expected, "{reference}");
        }
    }

    #[test]
    fn credentials_stay_with_whom_they_were_meant_for() {
        let table = [
            ("https://a:1/y", true),
            ("http://a:1/x", false),
            ("https://a:2/x", false),
            ("https://b:1/x", false),
        ];
        let first = "https://a:1/x".parse().unwrap();
        for (url, expected) in table {
            assert_eq!(same_origin(&url.parse().unwrap(), &first), expected, "{url}");
        }
    }

    /// Answers each request by its path, and reports the requests and whether they had credentials.
    async fn server(
        answers: impl Fn(&str) -> String + Send + 'static,
    ) -> (u16, tokio::sync::mpsc::Receiver<(String, bool)>) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (asked, requests) = tokio::sync::mpsc::channel(16);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = BytesMut::new();
                while !request.ends_with(b"\r\n\r\n") {
                    stream.read_buf(&mut request).await.unwrap();
                }
                let request = String::from_utf8_lossy(&request).to_ascii_lowercase();
                let path = request.split(' ').nth(1).unwrap().to_owned();
                let answer = answers(&path);
                let _ = asked.try_send((path, request.contains("authorization:")));
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        (port, requests)
    }

    /// The client of a job with these options.
    fn client(yaml: &str) -> Client {
        use crate::config::PrometheusReceiverConfig;
        let yaml = format!("config: {{scrape_configs: [{{job_name: j, {yaml}}}]}}");
        let config = tidegate_pipeline::component::testing::settings::<PrometheusReceiverConfig>(&yaml)
            .get::<PrometheusReceiverConfig>();
        Client::new(&config.config.scrape_configs[0].http()).unwrap()
    }

    fn redirect_to(location: &str) -> String {
        format!(
            "HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )
    }

    #[tokio::test]
    async fn credentials_do_not_come_back_after_a_redirect_through_another_host() {
        let ours = Arc::new(std::sync::OnceLock::<u16>::new());
        let back = ours.clone();
        let (other, mut of_other) =
            server(move |_| redirect_to(&format!("http://127.0.0.1:{}/admin", back.get().unwrap()))).await;
        let (port, mut of_ours) = server(move |path| match path {
            "/metrics" => redirect_to("/here"),
            "/here" => redirect_to(&format!("http://127.0.0.1:{other}/")),
            _ => "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
        })
        .await;
        ours.set(port).unwrap();
        let url = format!("http://127.0.0.1:{port}/metrics").parse().unwrap();
        let client = client("basic_auth: {username: u, password: p}");
        let answer = client.get(&url, &HeaderMap::new()).await.unwrap();
        assert_eq!(answer.status(), 200);
        let request = |path: &str, with_credentials| (path.to_owned(), with_credentials);
        assert_eq!(of_ours.recv().await.unwrap(), request("/metrics", true));
        assert_eq!(of_ours.recv().await.unwrap(), request("/here", true));
        assert_eq!(of_other.recv().await.unwrap(), request("/", false));
        assert_eq!(of_ours.recv().await.unwrap(), request("/admin", false));
    }

    #[tokio::test]
    async fn texts_from_targets_are_shortened_in_errors() {
        let long = |bytes: usize| "\"".repeat(bytes);
        for (bytes, expected) in [(60_000, "redirected to"), (300_000, "head is too large")] {
            let (port, _asked) = server(move |_| redirect_to(&format!("http://{}", long(bytes)))).await;
            let url = format!("http://127.0.0.1:{port}/").parse().unwrap();
            let refused = client("honor_labels: false")
                .get(&url, &HeaderMap::new())
                .await
                .unwrap_err()
                .to_string();
            assert!(refused.len() < 700, "{} bytes", refused.len());
            assert!(refused.contains(expected), "{refused}");
        }
    }
}
