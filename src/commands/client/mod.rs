// SPDX-License-Identifier: Apache-2.0

//! The client of the commands that query a running gateway: the endpoint, the credentials and the requests. `events`
//! reads streams, and `print` has the form of the answers for people.

mod events;
mod print;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri};
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
use crate::net::read_answer;
use crate::net::tls::{ALPN_HTTP, TlsClientConfig};

/// A longer answer is not read.
const MAX_ANSWER: usize = 256 << 20;

/// The help for an answer 401.
const TOKEN_HINT: &str = "set TIDEGATE_TOKEN_FILE or TIDEGATE_TOKEN to the bearer token, or use `--header`";

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
}

/// The variable of the bearer token. There is no option for it, because all users of the system see command lines.
const TOKEN: &str = "TIDEGATE_TOKEN";

impl GatewayArgs {
    /// An endpoint without credentials.
    pub(super) fn at(endpoint: &str) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            headers: Vec::new(),
            token_file: None,
            ca_file: None,
            has_token: false,
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
    /// The base without a password, for messages.
    shown: String,
    headers: Vec<(String, String)>,
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
            shown: without_password(&base),
            base,
            headers,
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
        let uri: Uri = text
            .parse()
            .map_err(|error| Failure::Message(format!("{}: {error}", self.shown)))?;
        let mut request = Request::get(uri);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request
            .body(Empty::new())
            .map_err(|error| Failure::Message(format!("--header, or the token: {error}")))?;
        let answer = tokio::time::timeout(PATIENCE, self.http.request(request)).await;
        let answer = answer
            .map_err(|_| Failure::Message(format!("{}: no answer", self.shown)))?
            .map_err(|error| unreachable_at(&self.shown, &error))?;
        if answer.status().is_success() {
            return Ok(answer.into_body());
        }
        let status = answer.status();
        let said = read(answer.into_body()).await.unwrap_or_default();
        let said = why(&said).unwrap_or_else(|| String::from_utf8_lossy(&said).trim().to_owned());
        let said = if said.is_empty() {
            format!("{}: {status}", self.shown)
        } else {
            // Errors have labels of series, and anybody may answer at a wrong endpoint.
            printable_lines(&said)
        };
        Err(Failure::Message(match status {
            StatusCode::UNAUTHORIZED => format!("{said} ({status}; {TOKEN_HINT})"),
            // No token would help: the gateway does not allow it to anyone, or not under this name.
            StatusCode::FORBIDDEN => format!("{said} ({status})"),
            _ => said,
        }))
    }

    /// A page of JSON.
    pub(super) async fn get(&self, path: &str, form: &[(&str, &str)]) -> Result<Value, Failure> {
        let body = read(self.open(path, form).await?).await?;
        serde_json::from_slice(&body).map_err(|error| Failure::Message(format!("not JSON: {error}")))
    }

    /// A page of text.
    pub(super) async fn text(&self, path: &str) -> Result<String, Failure> {
        let body = read(self.open(path, &[]).await?).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// The data of a page in Prometheus's shape. Its warnings and notes go to stderr.
    pub(super) async fn data(&self, path: &str, form: &[(&str, &str)]) -> Result<Value, Failure> {
        Ok(self.answer(path, form).await?.0)
    }

    /// The same, and whether there were warnings.
    pub(super) async fn answer(&self, path: &str, form: &[(&str, &str)]) -> Result<(Value, bool), Failure> {
        let mut page = self.get(path, form).await?;
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

fn unreachable_at(base: &str, error: &dyn std::error::Error) -> Failure {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    let why = causes
        .last()
        .map_or_else(|| error.to_string(), ToString::to_string);
    Failure::Message(format!(
        "{base}: {why} (is the gateway running, with the `admin` extension at this endpoint?)"
    ))
}

async fn read(body: Incoming) -> Result<Bytes, Failure> {
    let mut held = Held::ours(Arc::default());
    let read = read_answer(body, MAX_ANSWER, &mut held).await;
    read.map_err(|error| Failure::Message(format!("the answer can't be read: {error}")))
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
