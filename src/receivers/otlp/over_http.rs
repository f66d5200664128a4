// SPDX-License-Identifier: Apache-2.0

//! OTLP/HTTP: a POST to the path of a signal, protobuf or JSON by `Content-Type`. The answer has the encoding of
//! the request. Errors are a `google.rpc.Status`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use prost::Message;
use tonic::Code;

use super::config::HttpProtocolConfig;
use super::failure::Failure;
use super::ingest::{Encoding, ExportResponse, Ingest};
use crate::batch::Signal;
use crate::component::PushOutcome;
use crate::net::body::promised;
use crate::net::headers;
use crate::net::metadata::IncludeMetadata;
use crate::net::refused::Why;
use crate::net::{BodyError, BodyLimits, Coding, read_body, unpack};

/// Content types and their meaning.
const CONTENT_TYPES: [(&str, Encoding); 2] = [
    ("application/x-protobuf", Encoding::Protobuf),
    ("application/json", Encoding::Json),
];

type HttpResponse = Response<Full<Bytes>>;

/// The HTTP server.
pub(super) struct Http {
    ingest: Ingest,
    paths: [(String, Signal); 3],
    limits: BodyLimits,
    headers: HeaderMap,
    metadata: IncludeMetadata,
    read_timeout: Option<Duration>,
    /// Names of accepted codings; empty: all.
    codings: Vec<String>,
}

impl Http {
    pub(super) fn new(ingest: Ingest, config: &HttpProtocolConfig) -> Self {
        let max_bytes = config.max_body_bytes(ingest.memory_limit());
        Self {
            ingest,
            paths: [
                (config.metrics_url_path.clone(), Signal::Metrics),
                (config.traces_url_path.clone(), Signal::Traces),
                (config.logs_url_path.clone(), Signal::Logs),
            ],
            limits: BodyLimits::of(max_bytes),
            headers: headers::build(&config.response_headers),
            metadata: config.include_metadata.clone(),
            read_timeout: config.read_timeout(),
            codings: config.compression_algorithms.clone(),
        }
    }

    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> HttpResponse {
        let encoding = encoding(request.headers());
        let signal = self.signal_of(request.uri().path());
        let mut answer = match self.export(request, signal, encoding).await {
            Ok(outcome) => success(signal, encoding, outcome),
            Err(failure) => {
                self.ingest.note(&failure);
                refusal(encoding, &failure)
            }
        };
        answer.headers_mut().extend(self.headers.clone());
        answer
    }

    fn signal_of(&self, path: &str) -> Option<Signal> {
        self.paths
            .iter()
            .find(|(known, _)| known == path)
            .map(|(_, signal)| *signal)
    }

    async fn export(
        &self,
        request: Request<Incoming>,
        signal: Option<Signal>,
        encoding: Option<Encoding>,
    ) -> Result<PushOutcome, Failure> {
        let entry = signal
            .and_then(|signal| self.ingest.entry(signal))
            .ok_or_else(|| {
                let why = format!("no pipeline takes {} from this receiver", request.uri().path());
                Failure::new(Code::NotFound, StatusCode::NOT_FOUND, why).counted(Why::Path)
            })?;
        if request.method() != Method::POST {
            let failure = Failure::new(
                Code::Unimplemented,
                StatusCode::METHOD_NOT_ALLOWED,
                "telemetry is sent with POST",
            );
            return Err(failure.counted(Why::Method));
        }
        let encoding = encoding.ok_or_else(|| {
            let known = CONTENT_TYPES.map(|(name, _)| name).join(" or ");
            unsupported(Why::MediaType, format!("the Content-Type must be {known}"))
        })?;
        let coding = self.coding(request.headers())?;
        let limit_bytes = self.limits.max_bytes;
        let promised = promised(request.body());
        if promised.is_some_and(|promised| promised > limit_bytes) {
            return Err(BodyError::TooLarge { limit_bytes }.into());
        }
        let mut held = self.ingest.admit(&request, entry, promised).await?;
        let origin = self.metadata.origin(&request);
        let reading = read_body(request.into_body(), self.limits, &mut held);
        let body = match self.read_timeout {
            Some(whole) => tokio::time::timeout(whole, reading)
                .await
                .unwrap_or(Err(BodyError::TimedOut))?,
            None => reading.await?,
        };
        let mut slot = None;
        let body = unpack(coding, body, limit_bytes, &mut held, &mut slot).await?;
        self.ingest
            .take(entry, encoding, body, origin, &mut held, slot)
            .await
    }
}

impl Http {
    fn coding(&self, headers: &HeaderMap) -> Result<Coding, Failure> {
        let name = headers.get(CONTENT_ENCODING).map_or(Ok(""), HeaderValue::to_str);
        let is_listed = |name: &str| {
            let mut listed = self.codings.iter();
            self.codings.is_empty() || listed.any(|known| known.eq_ignore_ascii_case(name.trim()))
        };
        match name {
            Ok(name) if !is_listed(name) => Err(unsupported(
                Why::Coding,
                format!("Content-Encoding {name:?} is not among `compression_algorithms`"),
            )),
            _ => coding(headers),
        }
    }
}

/// The media type without its parameters (`; charset=utf-8`).
fn encoding(headers: &HeaderMap) -> Option<Encoding> {
    let content_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    CONTENT_TYPES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(media_type))
        .map(|(_, encoding)| *encoding)
}

fn coding(headers: &HeaderMap) -> Result<Coding, Failure> {
    let Some(name) = headers.get(CONTENT_ENCODING) else {
        return Ok(Coding::Identity);
    };
    let known = name.to_str().ok().and_then(Coding::named);
    known.ok_or_else(|| unsupported(Why::Coding, format!("Content-Encoding {name:?} is not supported")))
}

fn unsupported(why: Why, message: String) -> Failure {
    let failure = Failure::new(Code::InvalidArgument, StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
    failure.counted(why)
}

fn success(signal: Option<Signal>, encoding: Option<Encoding>, outcome: PushOutcome) -> HttpResponse {
    let response = ExportResponse::from(outcome);
    let body = match encoding {
        Some(Encoding::Json) => response
            .json(signal.unwrap_or(Signal::Metrics))
            .to_string()
            .into_bytes(),
        _ => response.encode_to_vec(),
    };
    answer(StatusCode::OK, encoding, body)
}

fn refusal(encoding: Option<Encoding>, failure: &Failure) -> HttpResponse {
    let body = match encoding {
        Some(Encoding::Json) => failure.json().to_string().into_bytes(),
        _ => failure.status().details().to_vec(),
    };
    let mut answer = answer(failure.http, encoding, body);
    let headers = answer.headers_mut();
    if let Some(seconds) = failure.retry_after_seconds() {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    if let Some(challenge) = &failure.challenge {
        headers.insert(WWW_AUTHENTICATE, challenge.clone());
    }
    match failure.http {
        StatusCode::METHOD_NOT_ALLOWED => headers.insert(ALLOW, HeaderValue::from_static("POST")),
        // RFC 9110, 15.5.16: says which codings would do.
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(Coding::ACCEPTED))
        }
        _ => None,
    };
    match failure.why {
        Some(why) => why.mark(answer),
        None => answer,
    }
}

/// The answer in the encoding of the request, or in protobuf if that is not supported.
fn answer(status: StatusCode, encoding: Option<Encoding>, body: Vec<u8>) -> HttpResponse {
    let content_type = match encoding {
        Some(Encoding::Json) => "application/json",
        _ => "application/x-protobuf",
    };
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}
