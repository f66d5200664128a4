//! The end of the line: counts requests, notes their age, answers.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tower::Service;

use super::codec::Raw;
use super::load::now_ns;
use super::request;
use crate::Error;

/// A server on the runtime that it was started on.
pub(crate) struct Sink {
    pub(crate) port: u16,
    seen: Arc<Seen>,
    stop: CancellationToken,
}

#[derive(Default)]
struct Seen {
    requests: AtomicU64,
    /// Of the requests that came since it was asked last, nanoseconds.
    ages: Mutex<Vec<f64>>,
}

impl Sink {
    pub(crate) async fn start() -> Result<Self, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let (seen, stop) = (Arc::<Seen>::default(), CancellationToken::new());
        let serving = tonic::transport::Server::builder()
            .initial_connection_window_size(64 << 20)
            .initial_stream_window_size(16 << 20)
            .add_service(Server(seen.clone()))
            .serve_with_incoming_shutdown(TcpIncoming::from(listener), stop.clone().cancelled_owned());
        tokio::spawn(serving);
        Ok(Self { port, seen, stop })
    }

    /// How many requests have come.
    pub(crate) fn requests(&self) -> u64 {
        self.seen.requests.load(Relaxed)
    }

    /// Milliseconds from being sent to arriving here, of what came since it was asked last.
    pub(crate) fn take_ages_ms(&self) -> Vec<f64> {
        std::mem::take(&mut *self.seen.ages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[derive(Clone)]
struct Server(Arc<Seen>);

impl NamedService for Server {
    const NAME: &'static str = "opentelemetry.proto.collector.metrics.v1.MetricsService";
}

impl Service<http::Request<Body>> for Server {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            let mut grpc = Grpc::new(Raw).max_decoding_message_size(usize::MAX);
            Ok(grpc.unary(server, request).await)
        })
    }
}

impl UnaryService<Bytes> for Server {
    type Response = Bytes;
    type Future = std::future::Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        self.0.requests.fetch_add(1, Relaxed);
        if let Some(stamp) = request::stamp(request.get_ref()).filter(|stamp| *stamp > 0) {
            let age = now_ns().saturating_sub(stamp) as f64 / 1e6;
            self.0
                .ages
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(age);
        }
        std::future::ready(Ok(Response::new(Bytes::new())))
    }
}
