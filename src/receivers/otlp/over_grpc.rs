// SPDX-License-Identifier: Apache-2.0

//! OTLP/gRPC: the three unary `Export` calls.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use prost::Message;
use tonic::Code;

use super::config::GrpcConfig;
use super::failure::Failure;
use super::ingest::{Encoding, ExportResponse, Ingest};
use crate::batch::Signal;
use crate::component::worker::Slot;
use crate::component::{Held, PushOutcome};
use crate::net::body::{Chunks, Run};
use crate::net::grpc::{
    APPLICATION_GRPC, EXPORT_METHODS, GRPC_ACCEPT_ENCODING, GRPC_ENCODING, GRPC_STATUS, Prefix, is_call,
};
use crate::net::metadata::IncludeMetadata;
use crate::net::refused::Why;
use crate::net::{BodyError, BodyLimits, Coding, unpack};

type GrpcResponse = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The gRPC server.
pub(super) struct Grpc {
    ingest: Ingest,
    limits: BodyLimits,
    metadata: IncludeMetadata,
}

impl Grpc {
    pub(super) fn new(ingest: Ingest, config: &GrpcConfig) -> Self {
        let max_bytes = config.max_message_bytes(ingest.memory_limit());
        Self {
            ingest,
            limits: BodyLimits::of(max_bytes),
            metadata: config.include_metadata.clone(),
        }
    }

    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> GrpcResponse {
        if !is_call(&request) {
            // "If Content-Type does not begin with application/grpc, gRPC servers SHOULD respond with 415."
            let mut answer = Response::new(Empty::new().boxed_unsync());
            *answer.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Why::MediaType.mark(answer);
        }
        match self.call(request).await {
            Ok(outcome) => success(outcome),
            Err(failure) => {
                self.ingest.note(&failure);
                let answer: Response<Empty<Bytes>> = failure.status().into_http();
                let mut answer = answer.map(BodyExt::boxed_unsync);
                offer_codings(answer.headers_mut());
                match failure.why {
                    Some(why) => why.mark(answer),
                    None => answer,
                }
            }
        }
    }

    async fn call(&self, request: Request<Incoming>) -> Result<PushOutcome, Failure> {
        let called = EXPORT_METHODS.iter().zip(Signal::ALL);
        let entry = called
            .filter(|(method, _)| **method == request.uri().path())
            .find_map(|(_, signal)| self.ingest.entry(signal))
            .ok_or_else(|| {
                let why = format!("no pipeline takes {} from this receiver", request.uri().path());
                unimplemented(Why::Path, why)
            })?;
        let coding = coding(request.headers())?;
        let mut held = self.ingest.admit(&request, entry, None).await?;
        let origin = self.metadata.origin(&request);
        let mut slot = None;
        let message = self
            .read(request.into_body(), coding, &mut held, &mut slot)
            .await?;
        let encoding = Encoding::Protobuf;
        self.ingest
            .take(entry, encoding, message, origin, &mut held, slot)
            .await
    }

    async fn read(
        &self,
        body: Incoming,
        coding: Coding,
        held: &mut Held,
        slot: &mut Option<Slot>,
    ) -> Result<Bytes, Failure> {
        let (is_compressed, message) = read_message(body, self.limits, &self.ingest, held).await?;
        match (is_compressed, coding) {
            (false, _) => Ok(message),
            (true, Coding::Identity) => {
                let why = "the message is marked as compressed, but there is no grpc-encoding";
                let failure = Failure::new(Code::Internal, StatusCode::BAD_REQUEST, why);
                Err(failure.counted(Why::Coding))
            }
            (true, coding) => Ok(unpack(coding, message, self.limits.max_bytes, held, slot).await?),
        }
    }
}

fn coding(headers: &HeaderMap) -> Result<Coding, Failure> {
    let Some(name) = headers.get(GRPC_ENCODING) else {
        return Ok(Coding::Identity);
    };
    let known = name.to_str().ok().and_then(Coding::named);
    known.ok_or_else(|| unimplemented(Why::Coding, format!("grpc-encoding {name:?} is not supported")))
}

fn unimplemented(why: Why, message: String) -> Failure {
    Failure::new(Code::Unimplemented, StatusCode::NOT_FOUND, message).counted(why)
}

/// The body is not one message of gRPC's.
fn misframed(message: impl Into<String>) -> Failure {
    Failure::invalid(message).counted(Why::Body)
}

/// The one message of a unary call, and whether it is compressed. It is refused by its length before it is read.
async fn read_message(
    body: Incoming,
    limits: BodyLimits,
    ingest: &Ingest,
    held: &mut Held,
) -> Result<(bool, Bytes), Failure> {
    let mut whole = Run::default();
    let mut end = None;
    let mut chunks = Chunks::under(body, limits.idle_timeout, held);
    while let Some(chunk) = chunks.next().await? {
        whole.take(chunk, end, held).await?;
        if end.is_none() {
            end = message_end(whole.as_slice(), limits.max_bytes)?;
            if end.is_some() {
                // Many may have been let in before the first of them had said how long it is.
                ingest.begin(held, end).await?;
            }
        }
        if end.is_some_and(|end| whole.len() > end) {
            return Err(misframed("more than one message in a unary call"));
        }
    }
    match (end, whole.as_slice().first()) {
        (Some(end), Some(flag @ (0 | 1))) if whole.len() == end => {
            let is_compressed = *flag == 1;
            held.keep(end);
            Ok((is_compressed, whole.freeze().slice(Prefix::BYTES..)))
        }
        (Some(end), Some(0 | 1)) => Err(misframed(format!(
            "the message broke off after {} of {end} bytes",
            whole.len()
        ))),
        _ => Err(misframed("the body does not begin with a gRPC message prefix")),
    }
}

/// Prefix and message together, once the prefix is there.
fn message_end(whole: &[u8], limit_bytes: usize) -> Result<Option<usize>, Failure> {
    let Some(prefix) = Prefix::read(whole) else {
        return Ok(None);
    };
    match usize::try_from(prefix.length) {
        Ok(length) if length <= limit_bytes => Ok(Some(Prefix::BYTES + length)),
        _ => Err(BodyError::TooLarge { limit_bytes }.into()),
    }
}

fn success(outcome: PushOutcome) -> GrpcResponse {
    let message = ExportResponse::from(outcome).encode_to_vec();
    let prefix = Prefix {
        flag: 0,
        // An answer is a few bytes: its message was shortened.
        length: u32::try_from(message.len()).unwrap_or(u32::MAX),
    };
    let frame = Bytes::from([&prefix.to_bytes()[..], &message].concat());
    let trailers = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]);
    let body = Full::new(frame).with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut answer = Response::new(body.boxed_unsync());
    answer.headers_mut().insert(CONTENT_TYPE, APPLICATION_GRPC);
    offer_codings(answer.headers_mut());
    answer
}

fn offer_codings(headers: &mut HeaderMap) {
    headers.insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static(Coding::ACCEPTED));
}
