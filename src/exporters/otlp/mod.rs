// SPDX-License-Identifier: Apache-2.0

//! `otlp`: sends metrics, traces and logs by OTLP/gRPC. Payloads that were not decoded go out unchanged.

mod call;
mod channel;
mod config;
mod target;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use h2::Reason;
use http::header::{CONTENT_TYPE, HeaderValue, TE, USER_AGENT as USER_AGENT_HEADER};
use http::{HeaderMap, Method, Request, Uri};
use tidegate_runtime::USER_AGENT;
use tonic::Code;

use crate::batch::{Encoded, Signal};
use crate::component::auth::Credentials;
use crate::component::{
    ComponentError, ConfigType, Context, ErrorDoc, ExporterContext, ExporterFactory, Factory, Held,
    PeerLabels, Settings, Shared, Stability,
};
use crate::delivery::errors::DELIVERY_ERRORS;
use crate::delivery::response::quote;
use crate::delivery::{Attempt, Delivery, Destination, EncodingPermit, ExportRequest, Outcome, RetryConfig};
use crate::net::client::{Connector, MAX_HEAD_BYTES, UseTls, error_chain};
use crate::net::grpc::{APPLICATION_GRPC, EXPORT_METHODS, GRPC_ACCEPT_ENCODING, GRPC_ENCODING, GRPC_TIMEOUT};
use crate::net::measured::Measured;
use crate::net::tls::ALPN_GRPC;
use crate::net::{self, Coding, Endpoint, headers};
use call::{Called, Message};
use channel::Channel;
pub(super) use config::{Compression, Keepalive, OF_GRPC, OtlpExporterConfig, check_authority};
pub(super) use target::Target;

/// The errors of `otlp`.
const ERRORS: &[ErrorDoc] = &[ErrorDoc::logged(
    "`auth` names an extension that signs requests. The gateway does not start.",
    "auth: signed requests are for the `otlphttp` exporter",
    "Use the exporter `otlphttp`, or another extension.",
)];

/// The factory of `otlp`.
pub static FACTORY: ExporterFactory = Factory {
    kind: "otlp",
    aliases: &["otlp_grpc"],
    stability: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "sends metrics, traces and logs by OTLP over gRPC",
    errors: &[ERRORS, DELIVERY_ERRORS],
    config: ConfigType::of::<OtlpExporterConfig>(),
    build: |settings, cx| {
        let config = settings.get::<OtlpExporterConfig>();
        for ledger in cx.ledgers.iter().flatten() {
            ledger.goes_to(peer(&config));
        }
        Ok(Arc::new(destination(&config, cx)?))
    },
};

/// The delivery options of an exporter with these settings.
pub fn delivery(settings: &Settings) -> Delivery {
    settings.get::<OtlpExporterConfig>().delivery()
}

/// The labels of the server.
fn peer(config: &OtlpExporterConfig) -> PeerLabels {
    match config.endpoint.endpoint() {
        Endpoint::Tcp { host, port } => {
            vec![
                ("server.address", host.clone()),
                ("server.port", port.to_string()),
            ]
        }
        Endpoint::Unix(path) => vec![("server.address", path.display().to_string())],
    }
}

/// An exporter like those of this type, for others that send by it.
pub(super) fn destination(
    config: &OtlpExporterConfig,
    cx: ExporterContext,
) -> Result<Destination<OtlpClient>, ComponentError> {
    let client = OtlpClient::new(config, &cx.base)?;
    Destination::new(cx, &config.delivery(), client).only_leader(config.only_leader.as_deref())
}

const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");

pub(super) struct OtlpClient {
    shared: Arc<Shared>,
    channel: Channel,
    /// The address, for people.
    shown: String,
    /// The URI of each signal's method, by `Signal as usize`.
    uris: [Uri; 3],
    headers: HeaderMap,
    compression: Option<Coding>,
    retry: RetryConfig,
    credentials: Option<Arc<dyn Credentials>>,
    /// The labels of measured calls; `None`: calls are not measured.
    measured: Option<Arc<Measured>>,
}

impl OtlpClient {
    fn new(config: &OtlpExporterConfig, cx: &Context) -> Result<Self, ComponentError> {
        let wrong = |error: &dyn std::fmt::Display| cx.error(format!("endpoint: {error}"));
        let secure = config.is_secure();
        let use_tls = if secure { UseTls::Always } else { UseTls::Never };
        let unix = config.endpoint.unix_path();
        let connector = Connector::new(unix, use_tls, &config.tls, ALPN_GRPC);
        let connector = connector.map_err(|error| cx.error(error.to_string()))?;
        let authority = config.authority.clone();
        let authority = authority.unwrap_or_else(|| config.endpoint.authority());
        let scheme = if secure { "https" } else { "http" };
        let uri = |path: &str| {
            let uri = format!("{scheme}://{authority}{path}").parse();
            uri.map_err(|error: http::uri::InvalidUri| wrong(&error))
        };
        let [metrics, traces, logs] = EXPORT_METHODS.map(uri);
        // The connection goes to the endpoint, whatever name the server has.
        let peer = format!("{scheme}://{}", config.endpoint.authority()).parse();
        let peer = peer.map_err(|error: http::uri::InvalidUri| wrong(&error))?;
        let credentials = config
            .auth
            .as_ref()
            .map(|auth| auth.credentials(cx))
            .transpose()?;
        if credentials
            .as_ref()
            .is_some_and(|credentials| credentials.signs_requests())
        {
            return Err(cx.error("auth: signed requests are for the `otlphttp` exporter"));
        }
        Ok(Self {
            shared: cx.shared.clone(),
            shown: match &config.endpoint.unix_path() {
                Some(path) => format!("unix:{}", path.display()),
                None => format!("{scheme}://{}", config.endpoint.authority()),
            },
            measured: (cx.shared.wants_details())
                .then(|| Measured::server(config.endpoint.endpoint(), secure)),
            channel: Channel::new(connector, peer, config.keepalive.clone()),
            uris: [metrics?, traces?, logs?],
            headers: request_headers(config),
            compression: config.compression().coding(),
            retry: config.retry_on_failure.clone(),
            credentials,
        })
    }

    /// Makes an export request ready to send. An error says why it can't be sent, or that we have no
    /// credentials now.
    async fn ready(&self, export: ExportRequest) -> Result<Ready, Outcome> {
        let bytes = match self.compression {
            None => export.message_bytes(),
            Some(_) => export.joined_bytes(),
        };
        let permit = EncodingPermit::reserve(&self.shared, bytes).await;
        let compression = self.compression;
        let make = move || (message(compression, export.encoded()), export);
        let ((message, export), held) = permit.make(make).await.map_err(Outcome::permanent)?;
        let message = message?;
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uris[export.signal() as usize].clone();
        *request.headers_mut() = self.headers(&export).map_err(Outcome::retry)?;
        Ok(Ready {
            request,
            message,
            export,
            _held: held,
        })
    }

    fn headers(&self, export: &ExportRequest) -> Result<HeaderMap, String> {
        let mut headers = self.headers.clone();
        if let Some(credentials) = &self.credentials {
            credentials.apply(&mut headers, export.client())?;
        }
        Ok(headers)
    }
}

/// A request to send, with its memory reservation.
struct Ready {
    request: Request<()>,
    message: Message,
    export: ExportRequest,
    _held: Held,
}

fn message(compression: Option<Coding>, encoded: Encoded) -> Result<Message, Outcome> {
    let message = match compression {
        None => Message::new(false, encoded.parts.into_iter().map(|part| part.bytes)),
        Some(coding) => {
            let packed = net::compress(coding, &encoded.joined());
            let packed = packed.map_err(|error| Outcome::permanent(format!("compressing: {error}")))?;
            Message::new(true, [packed.into()])
        }
    };
    message.ok_or_else(|| Outcome::TooLarge {
        why: "gRPC has no messages beyond 4 GiB".to_owned(),
    })
}

/// The headers of all requests.
fn request_headers(config: &OtlpExporterConfig) -> HeaderMap {
    let mut all = HeaderMap::new();
    all.insert(USER_AGENT_HEADER, HeaderValue::from_static(USER_AGENT));
    all.extend(headers::build(&config.chosen().headers(&config.headers)));
    all.insert(TE, TRAILERS);
    all.insert(CONTENT_TYPE, APPLICATION_GRPC);
    all.insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static(Coding::ACCEPTED));
    if let Some(name) = config.compression().header() {
        all.insert(GRPC_ENCODING, HeaderValue::from_static(name));
    }
    if let Some(timeout) = grpc_timeout(config.timeout) {
        all.insert(GRPC_TIMEOUT, timeout);
    }
    all
}

/// At most eight digits and a unit (gRPC over HTTP/2, "Timeout"). `None` means no limit.
fn grpc_timeout(timeout: Duration) -> Option<HeaderValue> {
    const DIGITS: u128 = 99_999_999;
    if timeout.is_zero() {
        return None;
    }
    let (number, unit) = match timeout.as_millis().max(1) {
        millis @ ..=DIGITS => (millis, 'm'),
        millis => ((millis / 1000).min(DIGITS), 'S'),
    };
    HeaderValue::from_str(&format!("{number}{unit}")).ok()
}

#[async_trait]
impl Attempt for OtlpClient {
    fn endpoint(&self) -> String {
        self.shown.clone()
    }

    fn denying_statuses(&self) -> &'static str {
        "[UNAUTHENTICATED, PERMISSION_DENIED]"
    }

    async fn send(&self, export: ExportRequest) -> Outcome {
        let Ready {
            request,
            message,
            export,
            _held,
        } = match self.ready(export).await {
            Ok(ready) => ready,
            Err(outcome) => return outcome,
        };
        let (mut sender, call) = match self.channel.call().await {
            Ok(ready) => ready,
            Err(error) => return Outcome::retry(error_chain(&error)),
        };
        let (began, method) = (Instant::now(), request.uri().path().to_owned());
        let called = call::unary(&mut sender, request, message, &self.retry, &self.shared).await;
        if let Some(peer) = &self.measured {
            let code = called.as_ref().map_or(Code::Unavailable, |called| called.code);
            peer.rpc_sent(began, &method, code);
        }
        match called {
            Ok(Called { outcome, .. }) => {
                call.answered();
                let headers = || self.headers(&export).unwrap_or_default();
                outcome.reworded(|why| quote(why, &headers()))
            }
            Err(error) => {
                // A stream that the peer ended is an answer of it; else the connection has come to its end.
                if error.is_reset() {
                    call.answered();
                } else {
                    call.ended();
                }
                Outcome::retry(broken_off(&error))
            }
        }
    }
}

/// The reason of a broken call. The library does not report heads that are too long.
fn broken_off(error: &h2::Error) -> String {
    let chain = error_chain(error);
    let of_heads = [
        Reason::PROTOCOL_ERROR,
        Reason::ENHANCE_YOUR_CALM,
        Reason::COMPRESSION_ERROR,
    ];
    let is_of_head = error.reason().is_some_and(|reason| of_heads.contains(&reason));
    if error.is_library() && is_of_head {
        format!(
            "{chain}: the answer is malformed, or its head is longer than {} KiB",
            MAX_HEAD_BYTES >> 10
        )
    } else {
        chain
    }
}
