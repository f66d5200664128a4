// SPDX-License-Identifier: Apache-2.0

//! Floors: hops that do not look into the bytes that they forward. The difference between a gateway and its floor is
//! the gateway's own cost.

#![expect(
    clippy::disallowed_types,
    reason = "the requests of a client wait for the one connection to the peer"
)]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use http::uri::PathAndQuery;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tonic::client::Grpc as Client;
use tonic::codegen::BoxFuture;
use tonic::server::UnaryService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use crate::BenchError;
use crate::otlp::codec::{Answering, METHOD, Raw};
use crate::otlp::{PATH, WINDOWS};

/// Runs the floor of this name between two ports until the process ends; `frame` is the size of HTTP/2 frames that
/// `grpc` asks for.
pub(crate) fn run(name: &str, from: u16, to: u16, frame: u32) -> Result<(), BenchError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match name {
            "grpc" => grpc(from, to, frame).await,
            "http" => http(from, to).await,
            "tcp" => tcp(from, to).await,
            other => Err(format!("no floor `{other}`; there are: grpc, http, tcp").into()),
        }
    })
}

/// As many bytes are copied at a time.
const PIECE: usize = 256 << 10;

/// Bytes, whatever they are.
async fn tcp(from: u16, to: u16) -> Result<(), BenchError> {
    let listener = listen(from).await?;
    loop {
        let (mut near, _) = listener.accept().await?;
        tokio::spawn(async move {
            near.set_nodelay(true)?;
            let mut far = connect(to).await?;
            tokio::io::copy_bidirectional_with_sizes(&mut near, &mut far, PIECE, PIECE).await
        });
    }
}

/// Bodies of HTTP/1.1 requests, over as many connections as come.
async fn http(from: u16, to: u16) -> Result<(), BenchError> {
    let listener = listen(from).await?;
    loop {
        let (near, _) = listener.accept().await?;
        tokio::spawn(async move {
            near.set_nodelay(true)?;
            let (far, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(connect(to).await?)).await?;
            tokio::spawn(connection);
            let far = Arc::new(Mutex::new(far));
            let service = service_fn(|request| hand_on(far.clone(), request));
            let server = hyper::server::conn::http1::Builder::new();
            server.serve_connection(TokioIo::new(near), service).await?;
            Ok::<_, BenchError>(())
        });
    }
}

/// Reads the whole body before its answer, so that no answer acknowledges a body too early.
async fn hand_on(
    far: Arc<Mutex<SendRequest<http_body_util::Full<Bytes>>>>,
    request: http::Request<Incoming>,
) -> Result<http::Response<http_body_util::Full<Bytes>>, BenchError> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let mut onward = http::Request::post(PATH).body(http_body_util::Full::new(body))?;
    for name in [
        http::header::HOST,
        http::header::CONTENT_TYPE,
        http::header::CONTENT_ENCODING,
    ] {
        if let Some(value) = head.headers.get(&name) {
            onward.headers_mut().insert(name, value.clone());
        }
    }
    let (head, answer) = far.lock().await.send_request(onward).await?.into_parts();
    let answer = answer.collect().await?.to_bytes();
    let mut response = http::Response::new(http_body_util::Full::new(answer));
    *response.status_mut() = head.status;
    Ok(response)
}

async fn listen(port: u16) -> Result<TcpListener, BenchError> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?)
}

async fn connect(port: u16) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connections to where messages go.
const CONNECTIONS: usize = 4;

/// Messages of OTLP's method for metrics, not compressed.
async fn grpc(from: u16, to: u16, frame: u32) -> Result<(), BenchError> {
    let connect = || {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{to}"))?
            .tcp_nodelay(true)
            .initial_stream_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1);
        Ok::<_, BenchError>(Client::new(endpoint.connect_lazy()))
    };
    let far: Vec<_> = std::iter::repeat_with(connect)
        .take(CONNECTIONS)
        .collect::<Result<_, _>>()?;
    let hop = Answering(Hop(Arc::new((far, AtomicUsize::new(0)))));
    tonic::transport::Server::builder()
        .tcp_nodelay(true)
        .initial_stream_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1)
        .max_frame_size(frame)
        .add_service(hop)
        .serve((Ipv4Addr::LOCALHOST, from).into())
        .await?;
    Ok(())
}

/// Where messages go, in turn.
#[derive(Clone)]
struct Hop(Arc<(Vec<Client<Channel>>, AtomicUsize)>);

impl UnaryService<Bytes> for Hop {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let (far, next) = &*self.0;
        let mut far = far[next.fetch_add(1, Relaxed) % far.len()].clone();
        Box::pin(async move {
            let unavailable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
            far.ready().await.map_err(unavailable)?;
            let request = Request::new(request.into_inner());
            far.unary(request, PathAndQuery::from_static(METHOD), Raw).await
        })
    }
}
