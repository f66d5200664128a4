// SPDX-License-Identifier: Apache-2.0

//! The client of the commands that query a running gateway: the endpoint, the credentials and the requests. `events`
//! reads streams, and `print` has the form of the answers for people.

mod events;
mod print;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Http;
use serde_json::Value;

pub(super) use self::events::{EventStream, StreamEvent};
use self::print::printable_lines;
pub(super) use self::print::{labels, number, printable, printable_json, sparkline, table};
use super::Failure;
use crate::component::Held;
use crate::config::read_file;
use crate::net::client::{Connector, UseTls, http_client};
use crate::net::tls::{ALPN_HTTP, TlsClientConfig};
use crate::net::{BodyError, read_answer};

/// A longer answer is not read.
const MAX_ANSWER: usize = 256 << 20;

/// The help for an answer 401.
const TOKEN_HINT: &str = "set TIDEGATE_TOKEN_FILE or TIDEGATE_TOKEN to the bearer token, or use `--header`";

/// The help if nothing listens at the endpoint of `admin`.
const ADMIN_HINT: &str = "is the gateway running, with the `admin` extension at this endpoint?";

/// The begin of the paths that only `admin` has.
const API: &str = "/api/";

/// The paths whose errors have no type.
const UNTYPED: [&str; 2] = ["/api/v1/composites", "/api/v1/tap"];

/// How long an answer may take to begin.
const PATIENCE: Duration = Duration::from_secs(90);

/// Where the gateway is.
#[derive(Clone, Debug, clap::Args)]
pub struct GatewayArgs {
    /// The admin extension's endpoint: HOST:PORT, http://HOST:PORT, https://HOST:PORT, or unix:PATH
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_ADMIN",
        default_value = "http://127.0.0.1:8080"
    )]
    endpoint: String,
    /// A header of every request as `NAME: VALUE`, for example `Authorization: Bearer ...`
    #[arg(long = "header", global = true, value_name = "HEADER")]
    headers: Vec<String>,
    /// File with a bearer token for the gateway. A header `Authorization` of `--header` replaces it
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_TOKEN_FILE",
        value_name = "FILE",
        value_hint = clap::ValueHint::FilePath
    )]
    token_file: Option<PathBuf>,
    /// PEM file of the certificates to trust for https
    #[arg(long, global = true, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Whether requests have the token.
    #[arg(skip = true)]
    has_token: bool,
    /// What to do if nothing listens there.
    #[arg(skip = ADMIN_HINT)]
    hint: &'static str,
}

/// The variable of the bearer token. There is no option for it, because all users of the system see command lines.
const TOKEN: &str = "TIDEGATE_TOKEN";

impl GatewayArgs {
    /// An endpoint without credentials, and what to do if nothing listens there.
    pub(super) fn at(endpoint: &str, hint: &'static str) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            headers: Vec::new(),
            token_file: None,
            ca_file: None,
            has_token: false,
            hint,
        }
    }

    /// The endpoint without a password, for messages.
    pub(super) fn shown_endpoint(&self) -> String {
        without_password(&self.endpoint)
    }

    /// The bearer token of the file, or else of the variable.
    fn token(&self) -> Result<Option<String>, Failure> {
        let token = match &self.token_file {
            _ if !self.has_token => None,
            Some(file) => {
                let text = read_file(file);
                Some(text.map_err(Failure::io(format!("--token-file {}", file.display())))?)
            }
            None => std::env::var(TOKEN).ok(),
        };
        let token = token.map(|token| token.trim().to_owned());
        Ok(token.filter(|token| !token.is_empty()))
    }
}

/// A client of the admin pages.
pub(super) struct Client {
    http: Http<Connector, Empty<Bytes>>,
    base: String,
    /// The base without a password, or the socket, for messages.
    shown: String,
    /// The endpoint as `HOST:PORT`, an https URL or a socket, for messages.
    endpoint: String,
    headers: Vec<(String, String)>,
    /// What to do if nothing listens there.
    hint: &'static str,
}

impl Client {
    pub(super) fn new(place: &GatewayArgs) -> Result<Self, Failure> {
        let socket = place.endpoint.strip_prefix("unix:");
        let tls = TlsClientConfig {
            ca_file: place.ca_file.clone(),
            ..TlsClientConfig::default()
        };
        let path = socket.map(|path| PathBuf::from(path.strip_prefix("//").unwrap_or(path)));
        let connector = Connector::new(path, UseTls::ByScheme, &tls, ALPN_HTTP);
        let connector = connector.map_err(|error| Failure::Message(error.to_string()))?;
        let headers = place.headers.iter().map(|text| header(text));
        let mut headers: Vec<(String, String)> = headers.collect::<Result<_, Failure>>()?;
        let is_set = headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        if !is_set && let Some(token) = place.token()? {
            headers.push(("authorization".to_owned(), format!("Bearer {token}")));
        }
        let base = match socket {
            Some(_) => "http://localhost".to_owned(),
            None => base(&place.endpoint),
        };
        Ok(Self {
            http: http_client().build(connector),
            shown: match socket {
                Some(_) => place.endpoint.clone(),
                None => without_password(&base),
            },
            endpoint: short(&place.shown_endpoint()),
            base,
            headers,
            hint: place.hint,
        })
    }

    /// Opens a stream of events.
    pub(super) async fn events(&self, path: &str, form: &[(&str, &str)]) -> Result<EventStream, Failure> {
        Ok(EventStream::new(self.open(path, form).await?))
    }

    /// Opens a page.
    async fn open(&self, path: &str, form: &[(&str, &str)]) -> Result<Incoming, Failure> {
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form)
            .finish();
        let text = format!("{}{path}?{query}", self.base);
        let uri = text.parse::<Uri>().map_err(|error| self.failure(error))?;
        let mut request = Request::get(uri);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request
            .body(Empty::new())
            .map_err(|error| Failure::Message(format!("--header, or the token: {error}")))?;
        let answer = tokio::time::timeout(PATIENCE, self.http.request(request)).await;
        let answer = answer
            .map_err(|_| self.failure("no answer"))?
            .map_err(|error| self.failure(unreachable_because(&error, self.hint)))?;
        if answer.status().is_success() {
            return Ok(answer.into_body());
        }
        let status = answer.status();
        let is_text = is_text(answer.headers());
        let body = read(answer.into_body()).await.unwrap_or_default();
        if path.starts_with(API) && is_of_others(status) && !is_api_error(path, &body) {
            return Err(self.no_admin());
        }
        let said = match why(&body) {
            Some(why) => why,
            None if is_text => String::from_utf8_lossy(&body).trim().to_owned(),
            None => String::new(),
        };
        let said = if said.is_empty() {
            status.to_string()
        } else {
            // Errors have labels of series, and anybody may answer at a wrong endpoint.
            printable_lines(&said)
        };
        Err(self.failure(match status {
            StatusCode::UNAUTHORIZED => format!("{said} ({status}; {TOKEN_HINT})"),
            // No token would help: the gateway does not allow it to anyone, or not under this name.
            StatusCode::FORBIDDEN => format!("{said} ({status})"),
            _ => said,
        }))
    }

    /// A failure that names the gateway, because users may have asked another one than they meant.
    pub(super) fn failure(&self, why: impl fmt::Display) -> Failure {
        Failure::Message(format!("{}: {why}", self.shown))
    }

    /// The failure of a request that another server answers.
    fn no_admin(&self) -> Failure {
        let endpoint = &self.endpoint;
        Failure::Message(format!(
            "{endpoint} is not an admin endpoint: set `--endpoint` to that of the admin extension"
        ))
    }

    async fn read(&self, path: &str, form: &[(&str, &str)]) -> Result<Bytes, Failure> {
        let body = read(self.open(path, form).await?).await;
        body.map_err(|error| self.failure(format_args!("the answer can't be read: {error}")))
    }

    /// A page of JSON of the API.
    pub(super) async fn get(&self, path: &str, form: &[(&str, &str)]) -> Result<Value, Failure> {
        let body = self.read(path, form).await?;
        serde_json::from_slice(&body).map_err(|_| self.no_admin())
    }

    /// A page of text.
    pub(super) async fn text(&self, path: &str) -> Result<String, Failure> {
        let body = self.read(path, &[]).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// The data of a page in Prometheus's shape. Its warnings and notes go to stderr.
    pub(super) async fn data(&self, path: &str, form: &[(&str, &str)]) -> Result<Value, Failure> {
        Ok(self.answer(path, form).await?.0)
    }

    /// The same, and whether there were warnings.
    pub(super) async fn answer(&self, path: &str, form: &[(&str, &str)]) -> Result<(Value, bool), Failure> {
        let mut page = self.get(path, form).await?;
        // Another server may answer every path with JSON of its own.
        if page.get("data").is_none() {
            return Err(self.no_admin());
        }
        for (list, name) in [("warnings", "warning"), ("infos", "info")] {
            let notes = page[list].as_array().into_iter().flatten();
            notes
                .filter_map(Value::as_str)
                .for_each(|note| eprintln!("{name}: {}", printable(note)));
        }
        let is_warned = page["warnings"].as_array().is_some_and(|all| !all.is_empty());
        Ok((page["data"].take(), is_warned))
    }
}

/// The name and the value of a header. The error does not repeat the text, because it may have a token.
fn header(text: &str) -> Result<(String, String), Failure> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| Failure::Message("--header: expected NAME: VALUE".to_owned()))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// The URL of an endpoint, which may lack its scheme.
fn base(endpoint: &str) -> String {
    let plain = endpoint.trim_end_matches('/');
    if plain.contains("://") {
        plain.to_owned()
    } else {
        format!("http://{plain}")
    }
}

/// An endpoint without `USER:PASSWORD@`. A password may have any character, so the last `@` ends it.
fn without_password(endpoint: &str) -> String {
    if endpoint.starts_with("unix:") {
        return endpoint.to_owned();
    }
    let (scheme, rest) = match endpoint.find("://") {
        Some(at) => endpoint.split_at(at + "://".len()),
        None => ("", endpoint),
    };
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    format!("{scheme}{host}")
}

/// An endpoint as users write it: without `http://` and a last `/`.
fn short(endpoint: &str) -> String {
    let plain = endpoint.trim_end_matches('/');
    plain.strip_prefix("http://").unwrap_or(plain).to_owned()
}

/// Whether the body of an answer is for people.
fn is_text(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_none_or(|kind| kind.starts_with("text/") || kind.starts_with("application/json"))
}

/// Whether a body is an error of the API. `health_check` has errors in JSON too, without a type.
fn is_api_error(path: &str, body: &[u8]) -> bool {
    let page: Value = serde_json::from_slice(body).unwrap_or_default();
    let is_untyped = UNTYPED.iter().any(|begin| path.starts_with(begin));
    page["error"].is_string() && (is_untyped || page["errorType"].is_string())
}

/// Whether an answer without an error of the API is from another server.
///
/// The gateway and proxies in front of it have texts of their own for other statuses: access, load, and TLS.
fn is_of_others(status: StatusCode) -> bool {
    [
        StatusCode::NOT_FOUND,
        StatusCode::METHOD_NOT_ALLOWED,
        StatusCode::NOT_ACCEPTABLE,
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        StatusCode::NOT_IMPLEMENTED,
    ]
    .contains(&status)
}

fn unreachable_because(error: &dyn std::error::Error, hint: &str) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    let why = causes
        .last()
        .map_or_else(|| error.to_string(), ToString::to_string);
    format!("{why} ({hint})")
}

async fn read(body: Incoming) -> Result<Bytes, BodyError> {
    let mut held = Held::ours(Arc::default());
    read_answer(body, MAX_ANSWER, &mut held).await
}

/// The message of an error page.
fn why(body: &[u8]) -> Option<String> {
    let page: Value = serde_json::from_slice(body).ok()?;
    let why = page["error"].as_str()?;
    Some(match page["did_you_mean"].as_str() {
        Some(near) => format!("{why}; did you mean `{near}`?"),
        None => why.to_owned(),
    })
}

/// Runs a command that queries the gateway.
pub(super) fn run<F: Future<Output = Result<(), Failure>>>(
    place: &GatewayArgs,
    ask: impl FnOnce(Client) -> F,
) -> Result<(), Failure> {
    let client = Client::new(place)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::io("starting"))?;
    runtime.block_on(ask(client))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_header_is_not_repeated_in_the_error() {
        let error = header("Authorization=Bearer secret").unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
        let (name, value) = header("Authorization: Bearer a:b").unwrap();
        assert_eq!((&*name, &*value), ("Authorization", "Bearer a:b"));
    }

    #[test]
    fn messages_do_not_show_the_password_of_an_endpoint() {
        for (endpoint, shown) in [
            ("http://ada:p/w@host:8080", "http://host:8080"),
            ("ada:p@w@host:8080", "host:8080"),
            ("https://host:8080", "https://host:8080"),
            ("unix:/run/a@b.sock", "unix:/run/a@b.sock"),
        ] {
            assert_eq!(without_password(endpoint), shown);
        }
    }

    #[test]
    fn messages_about_another_server_show_a_short_endpoint() {
        for (endpoint, expected) in [
            ("http://localhost:8080/", "localhost:8080"),
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("https://host:8080", "https://host:8080"),
            ("unix:/run/admin.sock", "unix:/run/admin.sock"),
        ] {
            assert_eq!(short(endpoint), expected);
        }
    }

    #[test]
    fn errors_of_the_api_have_a_type_or_a_path_of_their_own() {
        let typed = r#"{"status":"error","errorType":"not_found","error":"nothing here"}"#;
        let untyped = r#"{"error":"the probe is at /"}"#;
        for (path, body, expected) in [
            ("/api/v1/query", typed, true),
            ("/api/v1/query", untyped, false),
            ("/api/v1/composites/a", untyped, true),
            ("/api/v1/tap", "metrics are at /metrics", false),
            ("/api/v1/tap", "\u{8}\u{5}\u{12}", false),
        ] {
            assert_eq!(is_api_error(path, body.as_bytes()), expected, "{path}: {body}");
        }
    }

    #[test]
    fn an_endpoint_needs_no_scheme() {
        for (endpoint, expected) in [
            ("localhost:8080", "http://localhost:8080"),
            ("[::1]:8080/", "http://[::1]:8080"),
            ("https://host/", "https://host"),
        ] {
            assert_eq!(base(endpoint), expected);
        }
    }
}
