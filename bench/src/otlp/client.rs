// SPDX-License-Identifier: Apache-2.0

//! Connections to a gateway, over which encoded requests go.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest as Http2;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName, HeaderValue, TE};
use http::{Method, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest as Http1, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::codec::METHOD;
use super::packed::Compression;
use super::{PATH, WINDOWS};
use crate::BenchError;

/// The protocol, over TCP without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Grpc,
    Http,
}

/// The outcome of a request.
pub(crate) enum SendOutcome {
    Taken,
    /// To be sent again later.
    Refused,
    /// Why it is of no use to send it again.
    Failed(String),
}

/// A start may take so long.
const PATIENCE: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_millis(20);

/// How requests get to a port.
pub(crate) struct Client {
    port: u16,
    compression: Compression,
    head: http::Request<()>,
    connections: Connections,
}

enum Connections {
    /// Each for any number of requests at a time.
    Grpc(Vec<Mutex<Http2<Bytes>>>),
    /// Each for one at a time: those that are free, and how many there may be.
    Http(Mutex<Vec<Http1<Full<Bytes>>>>, Semaphore),
}

impl Client {
    /// Waits for the gateway to listen. HTTP has a connection for each request that is under way.
    pub(crate) async fn connect(
        port: u16,
        protocol: Protocol,
        compression: Compression,
        connections: usize,
        in_flight: usize,
    ) -> Result<Self, BenchError> {
        let connecting = async {
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                tokio::time::sleep(AGAIN).await;
            }
        };
        let listens = tokio::time::timeout(PATIENCE, connecting).await;
        listens.map_err(|_| "it did not listen in time")?;
        let connections = match protocol {
            Protocol::Grpc => {
                let mut made = Vec::new();
                for _ in 0..connections {
                    made.push(Mutex::new(grpc(port).await?));
                }
                Connections::Grpc(made)
            }
            Protocol::Http => Connections::Http(Mutex::default(), Semaphore::new(connections * in_flight)),
        };
        Ok(Self {
            port,
            compression,
            head: head(protocol, port, compression)?,
            connections,
        })
    }

    /// A request as it travels.
    pub(crate) fn pack(&self, request: Bytes) -> Result<Bytes, BenchError> {
        let packed = self.compression.pack(request)?;
        Ok(match &self.connections {
            Connections::Http(..) => packed,
            Connections::Grpc(_) => framed(packed, self.compression != Compression::None)?,
        })
    }

    /// Sends what `pack` made; `lane` says over which connection, where it matters.
    pub(crate) async fn send(&self, lane: usize, packed: Bytes) -> SendOutcome {
        let sent = match &self.connections {
            Connections::Grpc(connections) => {
                let connection = &connections[lane % connections.len()];
                self.send_grpc(connection, packed).await
            }
            Connections::Http(free, room) => self.send_http(free, room, packed).await,
        };
        sent.unwrap_or_else(|error| SendOutcome::Failed(error.to_string()))
    }

    async fn send_grpc(
        &self,
        connection: &Mutex<Http2<Bytes>>,
        packed: Bytes,
    ) -> Result<SendOutcome, BenchError> {
        let lock = || connection.lock();
        let ready = lock().clone().ready();
        let mut sender = match ready.await {
            Ok(sender) => sender,
            Err(_) => {
                let reconnected = grpc(self.port).await?;
                *lock() = reconnected.clone();
                reconnected.ready().await?
            }
        };
        let (response, mut body) = sender.send_request(self.head.clone(), false)?;
        body.send_data(packed, true)?;
        let response = response.await?;
        if response.headers().contains_key("grpc-status") || response.status() != StatusCode::OK {
            return Ok(grpc_answer(response.headers()));
        }
        let mut body = response.into_body();
        while let Some(data) = body.data().await {
            body.flow_control().release_capacity(data?.len())?;
        }
        Ok(grpc_answer(&body.trailers().await?.unwrap_or_default()))
    }

    async fn send_http(
        &self,
        free: &Mutex<Vec<Http1<Full<Bytes>>>>,
        room: &Semaphore,
        packed: Bytes,
    ) -> Result<SendOutcome, BenchError> {
        let lock = || free.lock();
        let _room = room.acquire().await?;
        let kept = lock().pop().filter(|kept| !kept.is_closed());
        let mut connection = match kept {
            Some(kept) => kept,
            None => http1(self.port).await?,
        };
        connection.ready().await?;
        let request = self.head.clone().map(|()| Full::new(packed));
        let response = connection.send_request(request).await?;
        let status = response.status();
        let said = response.into_body().collect().await?.to_bytes();
        lock().push(connection);
        Ok(match status {
            status if status.is_success() => SendOutcome::Taken,
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => SendOutcome::Refused,
            status => SendOutcome::Failed(format!("{status}: {}", String::from_utf8_lossy(&said))),
        })
    }
}

async fn tcp(port: u16) -> Result<TcpStream, BenchError> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn grpc(port: u16) -> Result<Http2<Bytes>, BenchError> {
    let (sender, connection) = h2::client::Builder::new()
        .initial_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1)
        .handshake(tcp(port).await?)
        .await?;
    // Its end shows when it is used next.
    tokio::spawn(connection);
    Ok(sender)
}

async fn http1(port: u16) -> Result<Http1<Full<Bytes>>, BenchError> {
    let (sender, connection) = handshake(TokioIo::new(tcp(port).await?)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

fn head(protocol: Protocol, port: u16, compression: Compression) -> Result<http::Request<()>, BenchError> {
    let packed = |header: HeaderName| {
        compression
            .name()
            .map(|name| (header, HeaderValue::from_static(name)))
    };
    let mut head = http::Request::new(());
    *head.method_mut() = Method::POST;
    let (uri, version, headers) = match protocol {
        Protocol::Grpc => (
            format!("http://127.0.0.1:{port}{METHOD}"),
            Version::HTTP_2,
            vec![
                Some((CONTENT_TYPE, HeaderValue::from_static("application/grpc"))),
                Some((TE, HeaderValue::from_static("trailers"))),
                packed(HeaderName::from_static("grpc-encoding")),
            ],
        ),
        Protocol::Http => (
            PATH.to_owned(),
            Version::HTTP_11,
            vec![
                Some((CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"))),
                Some((HOST, HeaderValue::try_from(format!("127.0.0.1:{port}"))?)),
                packed(CONTENT_ENCODING),
            ],
        ),
    };
    *head.uri_mut() = uri.parse()?;
    *head.version_mut() = version;
    head.headers_mut().extend(headers.into_iter().flatten());
    Ok(head)
}

/// A message as gRPC frames it.
fn framed(message: Bytes, is_compressed: bool) -> Result<Bytes, BenchError> {
    let mut framed = BytesMut::with_capacity(message.len() + 5);
    framed.put_u8(is_compressed.into());
    framed.put_u32(message.len().try_into()?);
    framed.put(message);
    Ok(framed.freeze())
}

/// The outcome that trailers, or the headers of an answer without a body, give.
fn grpc_answer(trailers: &http::HeaderMap) -> SendOutcome {
    let text = |name| {
        trailers
            .get(name)
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
    };
    match text("grpc-status").as_deref() {
        Some("0") => SendOutcome::Taken,
        // Deadline exceeded, resource exhausted, unavailable.
        Some("4" | "8" | "14") => SendOutcome::Refused,
        Some(code) => {
            let why = text("grpc-message").unwrap_or_default();
            SendOutcome::Failed(format!("status {code}: {why}"))
        }
        None => SendOutcome::Failed("an answer without a status".to_owned()),
    }
}
