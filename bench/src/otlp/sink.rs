// SPDX-License-Identifier: Apache-2.0

//! The end of the line: counts requests and points, notes their age, answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use bytes::Bytes;
use h2::server::SendResponse;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client::Protocol;
use super::load::now_ns;
use super::packed::{Compression, Unpacker};
use super::{FRAME, WINDOWS, walk};
use crate::BenchError;

/// A gRPC message has this many bytes before it: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// A server on the runtime that it was started on, until it is dropped.
pub(crate) struct OtlpSink {
    pub(crate) port: u16,
    seen: Arc<SinkCounts>,
    _stop: DropGuard,
}

struct SinkCounts {
    requests: AtomicU64,
    points: AtomicU64,
    /// Requests that could not be read.
    bad: AtomicU64,
    more: Mutex<More>,
}

struct More {
    /// Of the requests that came since it was asked last, milliseconds.
    ages: Vec<f64>,
    unpacker: Unpacker,
    /// When the last request came, and what it was.
    last: Option<(Instant, Bytes)>,
}

impl OtlpSink {
    pub(crate) async fn start() -> Result<Self, BenchError> {
        Self::serve(Protocol::Grpc, FRAME).await
    }

    /// Over gRPC asks for HTTP/2 frames of at most this number of bytes.
    pub(crate) async fn serve(protocol: Protocol, frame: u32) -> Result<Self, BenchError> {
        Self::listen(0, protocol, frame).await
    }

    /// At a port, over gRPC.
    pub(crate) async fn on(port: u16) -> Result<Self, BenchError> {
        Self::listen(port, Protocol::Grpc, FRAME).await
    }

    async fn listen(port: u16, protocol: Protocol, frame: u32) -> Result<Self, BenchError> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let port = listener.local_addr()?.port();
        let seen = Arc::new(SinkCounts {
            requests: AtomicU64::new(0),
            points: AtomicU64::new(0),
            bad: AtomicU64::new(0),
            more: Mutex::new(More {
                ages: Vec::new(),
                unpacker: Unpacker::new()?,
                last: None,
            }),
        });
        let stop = CancellationToken::new();
        let accepting = accept(listener, protocol, frame, seen.clone(), stop.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(accepting));
        Ok(Self {
            port,
            seen,
            _stop: stop.drop_guard(),
        })
    }

    /// How many requests have come.
    #[cfg(test)]
    pub(crate) fn requests(&self) -> u64 {
        self.seen.requests.load(Relaxed)
    }

    /// How many points have come.
    pub(crate) fn points(&self) -> u64 {
        self.seen.points.load(Relaxed)
    }

    /// How many requests could not be read.
    pub(crate) fn bad(&self) -> u64 {
        self.seen.bad.load(Relaxed)
    }

    /// When the last request came.
    pub(crate) fn last_arrival(&self) -> Option<Instant> {
        self.seen.more().last.as_ref().map(|(when, _)| *when)
    }

    /// The last request, not compressed any more.
    pub(crate) fn last_request(&self) -> Option<Bytes> {
        self.seen.more().last.as_ref().map(|(_, request)| request.clone())
    }

    /// Milliseconds from being due to arriving here, of what came since it was asked last and was stamped.
    pub(crate) fn take_ages_ms(&self) -> Vec<f64> {
        std::mem::take(&mut self.seen.more().ages)
    }
}

impl SinkCounts {
    fn more(&self) -> MutexGuard<'_, More> {
        self.more.lock()
    }

    fn count(&self, compression: Compression, body: Bytes) {
        let arrived = now_ns();
        self.requests.fetch_add(1, Relaxed);
        let more = &mut *self.more();
        let unpacked = more.unpacker.unpack(compression, &body);
        let Some((request, points)) = unpacked
            .ok()
            .and_then(|request| Some((request, walk::points(request)?)))
        else {
            self.bad.fetch_add(1, Relaxed);
            return;
        };
        let ages = &mut more.ages;
        // One that has none that is right has none.
        let _ = walk::stamps(request, |stamp| {
            ages.push(arrived.saturating_sub(stamp) as f64 / 1e6)
        });
        let kept = match compression {
            Compression::None => body.clone(),
            _ => Bytes::copy_from_slice(request),
        };
        more.last = Some((Instant::now(), kept));
        self.points.fetch_add(points, Relaxed);
    }
}

async fn accept(
    listener: TcpListener,
    protocol: Protocol,
    frame: u32,
    seen: Arc<SinkCounts>,
    stop: CancellationToken,
) {
    while let Ok((stream, _)) = listener.accept().await {
        // Without it all is slower.
        let _ = stream.set_nodelay(true);
        let (seen, stop) = (seen.clone(), stop.clone());
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            // A closed connection is not an error here. The counts show points that did not arrive.
            let _ = match protocol {
                Protocol::Grpc => serve_grpc(stream, frame, seen).await,
                Protocol::Http => serve_http(stream, seen).await,
            };
        }));
    }
}

async fn serve_grpc(stream: TcpStream, frame: u32, seen: Arc<SinkCounts>) -> Result<(), BenchError> {
    let mut connection = h2::server::Builder::new()
        .initial_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1)
        .max_frame_size(frame)
        .handshake(stream)
        .await?;
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted?;
        let seen = seen.clone();
        tokio::spawn(async move {
            if answer_grpc(request, respond, &seen).await.is_err() {
                seen.bad.fetch_add(1, Relaxed);
            }
        });
    }
    Ok(())
}

async fn answer_grpc(
    request: http::Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    seen: &SinkCounts,
) -> Result<(), BenchError> {
    let (head, mut body) = request.into_parts();
    let mut pieces = Vec::with_capacity(1);
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        pieces.push(piece);
    }
    let message = joined(pieces);
    let compression = match message.first() {
        Some(0) => Compression::None,
        Some(_) => Compression::of(head.headers.get("grpc-encoding"))?,
        None => return Err("no message".into()),
    };
    seen.count(compression, message.slice(PREFIX.min(message.len())..));
    let mut response = Response::new(());
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(CONTENT_TYPE, grpc);
    let mut stream = respond.send_response(response, false)?;
    stream.send_data(Bytes::from_static(&[0; PREFIX]), false)?;
    let status = (
        HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    );
    stream.send_trailers(HeaderMap::from_iter([status]))?;
    Ok(())
}

async fn serve_http(stream: TcpStream, seen: Arc<SinkCounts>) -> Result<(), BenchError> {
    let service = service_fn(|request| answer_http(request, seen.clone()));
    let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    Ok(serving.await?)
}

async fn answer_http(
    request: http::Request<Incoming>,
    seen: Arc<SinkCounts>,
) -> Result<Response<Empty<Bytes>>, BenchError> {
    let (head, mut body) = request.into_parts();
    let mut pieces = Vec::with_capacity(1);
    while let Some(frame) = body.frame().await {
        pieces.extend(frame?.into_data());
    }
    let compression = Compression::of(head.headers.get(CONTENT_ENCODING))?;
    seen.count(compression, joined(pieces));
    let mut response = Response::new(Empty::new());
    let protobuf = HeaderValue::from_static("application/x-protobuf");
    response.headers_mut().insert(CONTENT_TYPE, protobuf);
    Ok(response)
}

/// The pieces as one, which costs nothing where there is one.
fn joined(mut pieces: Vec<Bytes>) -> Bytes {
    match pieces.len() {
        1 => pieces.swap_remove(0),
        _ => pieces.concat().into(),
    }
}
