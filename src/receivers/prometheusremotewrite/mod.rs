// SPDX-License-Identifier: Apache-2.0

//! `prometheusremotewrite`: accepts Prometheus remote write, 1.0 and 2.0, selected by the content type.

pub mod config;
#[cfg(any(fuzzing, test))]
pub mod fuzz;
mod response;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use parking_lot::Mutex;

use crate::batch::{Points, Signal};
use crate::component::collisions::Alternating;
use crate::component::worker::Slot;
use crate::component::{
    ComponentError, ConfigType, Context, Entry, ErrorDoc, Factory, Held, Lifecycle, Reason, Receiver,
    ReceiverFactory, Stability,
};
use crate::net::auth::AuthGate;
use crate::net::body::{begin_body, promised};
use crate::net::errors::{AUTH_ERRORS, LISTENER_ERRORS, SOCKET_ERRORS};
use crate::net::metadata::Origin;
use crate::net::refused::{Of, Why};
use crate::net::{
    self, BodyError, BodyLimits, Coding, ConnectionLimits, Listener, Server, headers, read_body, tls, unpack,
};
use crate::prom::remote::decoder::{DecodedRequest, RemoteWriteDecoder};
use crate::prom::remote::read::ReadError;
use crate::prom::remote::{Version, count_evicted};
use config::RemoteWriteReceiverConfig;
use response::{Refusal, Written};

/// The errors of `prometheusremotewrite`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::answered(
        "The receiver can't write a part of the samples.",
        "400 with the reasons",
        "Correct the series that the answer names. The receiver has taken the rest.",
    ),
    ErrorDoc::answered(
        "The body can't be decompressed or decoded, or breaks off.",
        "400",
        "Correct the sender, or check the network.",
    ),
    ErrorDoc::answered(
        "The message or its coding is not supported.",
        "415",
        "Use remote write 1.0 or 2.0, with a coding that the answer names.",
    ),
    ErrorDoc::answered(
        "A queue is full, memory is short, or the body stops.",
        "503 with `Retry-After`",
        "The sender tries again by itself. Look at `tidegate_memory_refusals_total`, and at the \
         queues of the exporters.",
    ),
    ErrorDoc::answered(
        "The request is larger than the limit of the receiver, the queue or the memory.",
        "413",
        "Let the sender write fewer samples in a request, or raise the limit that the answer names.",
    ),
    ErrorDoc::answered(
        "The path is not that of the option `path`.",
        "404",
        "Correct the URL of the sender.",
    ),
    ErrorDoc::answered(
        "The method is not POST.",
        "405 with `Allow`",
        "Send writes with POST.",
    ),
];

/// The factory of `prometheusremotewrite`.
pub static FACTORY: ReceiverFactory = Factory {
    kind: "prometheusremotewrite",
    aliases: &["prometheus_remote_write"],
    stability: &[(Signal::Metrics, Stability::Beta)],
    help: "takes Prometheus remote write, 1.0 and 2.0",
    errors: &[ERRORS, AUTH_ERRORS, LISTENER_ERRORS, SOCKET_ERRORS],
    config: ConfigType::of::<RemoteWriteReceiverConfig>(),
    build: |settings, cx| {
        let config = settings.get::<RemoteWriteReceiverConfig>();
        let entry = cx.entries[Signal::Metrics as usize].clone();
        let entry = entry.ok_or_else(|| cx.base.error("only metrics pipelines can use it"))?;
        let auth_gate = AuthGate::of(config.auth.as_ref(), &cx.base)?;
        let taker = Taker {
            response_headers: headers::build(&config.response_headers),
            decoder: Arc::new(
                RemoteWriteDecoder::within(cx.base.shared.memory.clone())
                    .with_future((&config.future).into()),
            ),
            alternating: Alternating::new(("receiver", cx.base.id.to_string())),
            config,
            base: cx.base,
            entry,
            auth_gate,
        };
        Ok(Arc::new(RemoteWrite {
            taker: Arc::new(taker),
            server: Mutex::default(),
        }))
    },
};

/// Requests up to this size are read on the spot; larger ones would keep a runtime thread from its other work.
const INLINE_MAX_BYTES: usize = 64 << 10;

/// The largest decoded size for inline work, in bytes. It takes about a millisecond.
const LIGHT_BYTES: usize = 1 << 20;

/// The most points that are absorbed inline.
const LIGHT_POINTS: usize = 1000;

struct RemoteWrite {
    taker: Arc<Taker>,
    server: Mutex<Option<Server>>,
}

/// Takes requests.
struct Taker {
    config: Arc<RemoteWriteReceiverConfig>,
    base: Context,
    entry: Entry,
    auth_gate: AuthGate,
    response_headers: HeaderMap,
    decoder: Arc<RemoteWriteDecoder>,
    alternating: Alternating,
}

impl Receiver for RemoteWrite {}

#[async_trait]
impl Lifecycle for RemoteWrite {
    fn check_files(&self) -> Result<(), ComponentError> {
        tls::check_files(self.taker.config.tls.as_ref(), &self.taker.base)
    }

    async fn start(&self) -> Result<(), ComponentError> {
        let taker = self.taker.clone();
        let (config, base) = (&taker.config, &taker.base);
        let tls = config
            .tls
            .as_ref()
            .map(|config| config.build(tls::ALPN_HTTP))
            .transpose();
        let limits = ConnectionLimits::new(config.max_connections.get(), config.max_connections_per_peer)
            .of(&base.path)
            .over(tls.map_err(|error| base.error(error.to_string()))?);
        let listener = Listener::bind(&config.endpoint, &config.socket).await;
        let listener = listener.map_err(|error| base.error(error.to_string()))?;
        let answering = taker.clone();
        let answer = move |request| answering.clone().answer(request);
        let serving = config
            .serving()
            .of_receiver(base, taker.entry.ceiling(), &listener, &limits);
        let server = net::http::start(listener, limits, serving, answer);
        tracing::info!(receiver = %base.id, endpoint = %server.local(), "listening for remote writes");
        *self.server.lock() = Some(server);
        Ok(())
    }

    async fn stop(&self, deadline: Instant) {
        let server = self.server.lock().take();
        if let Some(server) = server {
            server.stop(deadline).await;
        }
    }
}

impl Taker {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let mut answer = match self.take(request).await {
            Ok((version, written)) => written.answer(version),
            Err(refusal) => refusal.answer(),
        };
        answer.headers_mut().extend(self.response_headers.clone());
        answer
    }

    async fn take(&self, request: Request<Incoming>) -> Result<(Version, Written), Refusal> {
        if request.uri().path() != self.config.path {
            let refusal = Refusal::new(StatusCode::NOT_FOUND, "nothing is written here");
            return Err(refusal.counted(Why::Path));
        }
        if request.method() != Method::POST {
            let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "a write is a POST");
            return Err(refusal.counted(Why::Method));
        }
        let version = version(request.headers())?;
        let promised = promised(request.body());
        let mut held = self.admit(&request, promised).await?;
        let origin = self.config.include_metadata.origin(&request);
        let limits = self.limits();
        let body = read_body(request.into_body(), limits, &mut held).await?;
        let mut slot = None;
        let body = unpack(Coding::Snappy, body, limits.max_bytes, &mut held, &mut slot).await?;
        let (decoded, held) = self.read(version, body, held, &mut slot).await?;
        Ok((version, self.push(decoded, origin, held, slot).await?))
    }

    fn limits(&self) -> BodyLimits {
        BodyLimits::of(self.config.max_body_bytes(self.base.shared.memory.limit()))
    }

    /// The reservation of a request that may come in; refused before its body is read when we don't know its sender, or
    /// when memory is too short for it.
    async fn admit<B>(&self, request: &Request<B>, promised: Option<usize>) -> Result<Held, Refusal> {
        let sender = self.auth_gate.admit(request).await?;
        let limit_bytes = self.limits().max_bytes;
        if promised.is_some_and(|promised| promised > limit_bytes) {
            return Err(BodyError::TooLarge { limit_bytes }.into());
        }
        let mut held = Held::under(self.entry.ceiling(), self.base.shared.memory.clone()).of(sender);
        fits_at_all(&held, promised.unwrap_or(0))?;
        let begun = begin_body(&mut held, promised).await;
        begun.map_err(|no_room| Refusal::no_room(Of::Admission, no_room.to_string()))?;
        Ok(held)
    }

    /// Reads a body that is reserved; the decoded request takes its place.
    async fn read(
        &self,
        version: Version,
        body: Bytes,
        held: Held,
        slot: &mut Option<Slot>,
    ) -> Result<(DecodedRequest, Held), Refusal> {
        let weight = if body.len() <= INLINE_MAX_BYTES {
            Some(version.weight(&body))
        } else {
            None
        };
        let mut reading = Reading {
            decoder: self.decoder.clone(),
            version,
            body,
            held,
        };
        let read = match weight {
            Some(weight) if weight <= LIGHT_BYTES => {
                reading.reserve(weight)?;
                reading.take()
            }
            _ => {
                let place = Slot::get_unless(slot, &reading.held).await?;
                let work = move || {
                    reading.weigh()?;
                    reading.take()
                };
                let (read, kept) = place.run_on(work).await?;
                *slot = Some(kept);
                read
            }
        };
        read.inspect_err(|refusal| {
            if refusal.is_malformed() {
                self.entry.fail(1);
            }
        })
    }

    /// Pushes the points and returns the written numbers. Inexpressible samples are counted, not pushed.
    async fn push(
        &self,
        decoded: DecodedRequest,
        origin: Origin,
        held: Held,
        mut slot: Option<Slot>,
    ) -> Result<Written, Refusal> {
        let mut written = Written {
            samples: decoded.samples,
            histograms: decoded.histograms,
            exemplars: decoded.exemplars,
            missing: Vec::new(),
        };
        if !decoded.points.is_empty() {
            let batch = origin.batch(Points {
                points: decoded.points.into(),
            });
            let long = if batch.items() > LIGHT_POINTS {
                Some(Slot::get_unless(&mut slot, &held).await?)
            } else {
                None
            };
            drop(slot);
            let outcome = self.entry.send_held(batch, Some(held), long).await?;
            if outcome.rejected_items > 0 {
                written.reject(outcome.rejected_items, outcome.message);
            }
        }
        count_evicted("receiver", &self.base.id, decoded.evicted);
        for (reason, samples, why) in decoded.dropped {
            self.entry.fail(samples);
            self.count(reason, samples);
            written.missing.push((samples, why));
        }
        for stream in decoded.colliding {
            self.alternating.note(&stream.metric.name);
        }
        if decoded.lost_exemplars > 0 {
            metrics::counter!("tidegate_remote_write_dropped_exemplars_total", "receiver" => self.base.id.clone())
                .increment(decoded.lost_exemplars as u64);
        }
        Ok(written)
    }

    fn count(&self, reason: Reason, samples: usize) {
        let labels = [
            ("receiver", self.base.id.to_string()),
            ("reason", reason.name().to_owned()),
        ];
        metrics::counter!("tidegate_remote_write_dropped_samples_total", &labels).increment(samples as u64);
    }
}

/// Fails if this would not fit even into an idle gateway, so that a retry makes no sense.
fn fits_at_all(held: &Held, bytes: usize) -> Result<(), Refusal> {
    if held.could_ever_grow(bytes) {
        Ok(())
    } else {
        Err(Refusal::never_fits(bytes, held.account().limit()))
    }
}

/// A request to decode.
struct Reading {
    decoder: Arc<RemoteWriteDecoder>,
    version: Version,
    body: Bytes,
    held: Held,
}

impl Reading {
    /// Reserves what it is read to.
    fn weigh(&mut self) -> Result<(), Refusal> {
        let index = self.version.index_weight(&self.body);
        self.reserve(index)?;
        let weight = self.version.weight(&self.body);
        self.reserve(weight.saturating_sub(index))
    }

    fn reserve(&mut self, weight: usize) -> Result<(), Refusal> {
        fits_at_all(&self.held, weight)?;
        let grown = self.held.try_grow(weight);
        grown.map_err(|no_room| Refusal::no_room(Of::Decoding, no_room.to_string()))
    }

    fn take(self) -> Result<(DecodedRequest, Held), Refusal> {
        let decoded = self.decoder.decode(self.version, &self.body);
        let malformed = |error: ReadError| Refusal::new(StatusCode::BAD_REQUEST, error.to_string());
        Ok((decoded.map_err(malformed)?, self.held))
    }
}

/// The message version. Checks that the compression is that of the protocol.
fn version(headers: &HeaderMap) -> Result<Version, Refusal> {
    let get = |name| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let version = Version::of_content_type(get(CONTENT_TYPE)).ok_or_else(|| {
        let known = [Version::One, Version::Two].map(Version::message).join(" or ");
        let why = format!("the Content-Type must be application/x-protobuf, with proto {known}");
        Refusal::unsupported(Why::MediaType, why)
    })?;
    // Some senders of 1.0 don't say it; there is no other.
    match get(CONTENT_ENCODING).trim() {
        coding if coding.eq_ignore_ascii_case("snappy") => Ok(version),
        "" if !headers.contains_key(CONTENT_ENCODING) => Ok(version),
        _ => Err(Refusal::unsupported(
            Why::Coding,
            "the Content-Encoding must be snappy".to_owned(),
        )),
    }
}
