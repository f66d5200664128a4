//! `otlphttp`: sends metrics, traces and logs by OTLP/HTTP, protobuf or JSON.

mod body;
mod config;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, USER_AGENT as USER_AGENT_HEADER};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::batch::{ClientMetadata, Signal};
use crate::component::auth::Credentials;
use crate::component::{ComponentError, ConfigType, Context, ExporterFactory, Factory, Stability};
use crate::delivery::answer::{MAX_ANSWER_BYTES, USER_AGENT, of_http};
use crate::delivery::{Attempt, Destination, Outcome, Parcel};
use crate::net::client::{Connector, UseTls};
use crate::net::tls::ALPN_HTTP;
use crate::net::{headers, retry_after};
use body::{Compression, Encoding};
use config::Config;

/// The factory of `otlphttp`.
pub static FACTORY: ExporterFactory = Factory {
    kind: "otlphttp",
    aliases: &["otlp_http"],
    signals: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "sends metrics, traces and logs by OTLP over HTTP",
    config: ConfigType::of::<Config>(),
    build: |settings, cx| {
        let config = settings.get::<Config>();
        for (signal, _) in cx.ledgers.iter().enumerate().filter(|(_, used)| used.is_some()) {
            if config.url(Signal::ALL[signal]).is_none() {
                return Err(cx
                    .base
                    .error(format!("no endpoint for {}", Signal::ALL[signal].name())));
            }
        }
        let client = Client::new(&config, &cx.base)?;
        Ok(Arc::new(Destination::new(cx, &config.delivery(), client)))
    },
};

/// Between two HTTP/2 pings while requests are under way, and how long an answer may take.
const PING: std::time::Duration = std::time::Duration::from_secs(10);

type Http = hyper_util::client::legacy::Client<Connector, Full<Bytes>>;

struct Client {
    http: Http,
    urls: [Option<Uri>; 3],
    headers: HeaderMap,
    credentials: Option<Arc<dyn Credentials>>,
    encoding: Encoding,
    compression: Compression,
}

impl Client {
    fn new(config: &Config, cx: &Context) -> Result<Self, ComponentError> {
        let connector = Connector::new(config.unix_path(), UseTls::ByScheme, &config.tls, ALPN_HTTP);
        let connector = connector.map_err(|error| cx.error(error.to_string()))?;
        Ok(Self {
            http: hyper_util::client::legacy::Client::builder(TokioExecutor::new())
                .pool_idle_timeout(config.idle_conn_timeout)
                .pool_max_idle_per_host(config.max_idle_conns)
                // A peer that is gone without a word is found out, where requests share a connection.
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .http2_keep_alive_interval(PING)
                .http2_keep_alive_timeout(PING)
                .build(connector),
            urls: Signal::ALL.map(|signal| config.url(signal)),
            headers: request_headers(config),
            credentials: config
                .auth
                .as_ref()
                .map(|auth| auth.credentials(cx))
                .transpose()?,
            encoding: config.encoding,
            compression: config.compression(),
        })
    }

    /// An error says why we can't prove now who we are.
    fn request(
        &self,
        url: &Uri,
        body: Bytes,
        client: Option<&ClientMetadata>,
    ) -> Result<Request<Full<Bytes>>, String> {
        let mut headers = self.headers.clone();
        if let Some(credentials) = &self.credentials {
            credentials.apply(&mut headers, client)?;
            credentials.sign("POST", url, &mut headers, &body)?;
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = url.clone();
        *request.headers_mut() = headers;
        Ok(request)
    }

    async fn outcome(&self, response: Response<Incoming>) -> Outcome {
        let (head, body) = response.into_parts();
        let after = retry_after::parse(&head.headers, SystemTime::now());
        let answer = match Limited::new(body, MAX_ANSWER_BYTES).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return unreadable(head.status, after, &*error),
        };
        let encoding = Encoding::of_answer(&head.headers).unwrap_or(self.encoding);
        match head.status.is_success() {
            true => encoding.outcome(&answer),
            false => of_http(head.status, after, &body::error_message(&answer, &head.headers)),
        }
    }
}

/// The answer broke off or was too large. The status decides, except that a success is none: who sent it may
/// have failed half way. Too large an answer is not worth another attempt.
fn unreadable(
    status: StatusCode,
    after: Option<std::time::Duration>,
    error: &(dyn std::error::Error + Send + Sync + 'static),
) -> Outcome {
    match status.is_success() {
        true if error.is::<http_body_util::LengthLimitError>() => {
            Outcome::permanent("the answer is too large")
        }
        true => Outcome::retry(format!("the answer broke off: {error}")),
        false => of_http(status, after, &error.to_string()),
    }
}

fn request_headers(config: &Config) -> HeaderMap {
    let mut all = HeaderMap::new();
    all.insert(USER_AGENT_HEADER, HeaderValue::from_static(USER_AGENT));
    all.extend(headers::build(&config.chosen().headers(&config.headers)));
    let content_type = HeaderValue::from_static(config.encoding.content_type());
    all.insert(ACCEPT, content_type.clone());
    all.insert(CONTENT_TYPE, content_type);
    if let Some(coding) = config.compression().content_coding() {
        all.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    all
}

#[async_trait]
impl Attempt for Client {
    async fn send(&self, parcel: Parcel) -> Outcome {
        let Some(url) = &self.urls[parcel.signal() as usize] else {
            return Outcome::permanent("no endpoint for this signal");
        };
        let encoded = parcel.encoded();
        let body = match self
            .encoding
            .body(&encoded)
            .and_then(|body| self.compression.compress(body))
        {
            Ok(body) => body,
            Err(why) => return Outcome::Permanent { why },
        };
        let request = match self.request(url, body, parcel.client()) {
            Ok(request) => request,
            Err(why) => return Outcome::retry(why),
        };
        match self.http.request(request).await {
            Ok(response) => self.outcome(response).await,
            Err(error) => Outcome::retry(error_chain(&error)),
        }
    }
}

/// An error with its causes: hyper's own text is only "client error".
fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
