// SPDX-License-Identifier: Apache-2.0

//! The gRPC server of a replica.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Request, Response};
use http_body_util::Full;
use prost::Message;
use ring::digest::{Digest, SHA256, digest};
use tidegate_cluster::StoreError;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;
use tower::service_fn;

use crate::arrivals::Arrivals;
use crate::client::bearer;
use crate::config::{DirectError, ServeConfig};
use crate::connections::{PeerAddress, limited};
use crate::copies::of_copy;
use crate::engine_state::EngineState;
use crate::limits::{MAX_CALL_BYTES, MAX_CALL_MESSAGES, MAX_HEAD_BYTES};
use crate::replica::{Decision, Replica};
use crate::wire::{
    DecideOutcome, DecideRequest, ListRequest, MessageCopy, MessageHead, PublishOutcome, StatusRequest,
    StatusResponse,
};

/// The most calls at a time of one connection.
const MAX_STREAMS: u32 = 32;

/// The interval of pings, and the time to wait for their answers.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Starts the server. It ends when the sender of `lifetime` is dropped.
pub(crate) fn start(
    state: Arc<EngineState>,
    config: &ServeConfig,
    lifetime: watch::Receiver<()>,
) -> Result<(), DirectError> {
    let mut server = Server::builder()
        .max_concurrent_streams(MAX_STREAMS)
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .http2_max_header_list_size(MAX_HEAD_BYTES as u32);
    if let Some(tls) = &config.tls {
        server = server.tls_config(tls.load()?).map_err(DirectError::Tls)?;
    }
    let incoming = TcpIncoming::bind(config.listen).map_err(|error| DirectError::Listen {
        address: config.listen,
        error,
    })?;
    tracing::info!(endpoint = %config.listen, replica = %config.name, "serving the store of the cluster");
    let incoming = limited(incoming.with_nodelay(Some(true)), config.max_connections);
    let token = bearer(&state.config)?;
    let service = ReplicaService {
        token: token.map(|token| digest(&SHA256, token.as_encoded_bytes())),
        arrivals: Arc::new(arrivals(&state, config)),
        permits: Arc::new(Semaphore::new(config.max_concurrent_calls.max(1))),
        lifetime: lifetime.clone(),
        state,
    };
    let mut lifetime = lifetime;
    tokio::spawn(async move {
        let end = async { while lifetime.changed().await.is_ok() {} };
        if let Err(error) = server.serve_with_incoming_shutdown(service, incoming, end).await {
            tracing::error!(%error, "the server of the replica has ended");
        }
    });
    Ok(())
}

/// Room for as many calls as may run at a time.
fn arrivals(state: &EngineState, config: &ServeConfig) -> Arrivals {
    // The last body of a call may exceed the limit of its bodies.
    let max_call_bytes = MAX_CALL_BYTES + state.config.max_body_bytes + MAX_CALL_MESSAGES * MAX_HEAD_BYTES;
    let room = config.max_concurrent_calls.saturating_mul(MAX_CALL_BYTES);
    Arrivals::new(room, max_call_bytes)
}

#[derive(Clone)]
struct ReplicaService {
    state: Arc<EngineState>,
    /// The hash of the header that callers must have. The comparison of hashes tells nothing about the token.
    token: Option<Digest>,
    arrivals: Arc<Arrivals>,
    permits: Arc<Semaphore>,
    lifetime: watch::Receiver<()>,
}

impl tower::Service<Request<Body>> for ReplicaService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if !self.is_admitted(&request) {
            let status = Status::unauthenticated("the token is missing or wrong");
            return Box::pin(ready(Ok(status.into_http())));
        }
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}

impl ReplicaService {
    fn is_admitted(&self, request: &Request<Body>) -> bool {
        let Some(token) = &self.token else { return true };
        let given = request.headers().get(AUTHORIZATION);
        given.is_some_and(|given| digest(&SHA256, given.as_bytes()).as_ref() == token.as_ref())
    }

    /// A call takes a permit when its body has arrived. The first time limit ends callers that send slowly.
    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let most = self.state.config.timeout;
        let (parts, body) = request.into_parts();
        let from = parts.extensions.get::<PeerAddress>();
        let arrived = self.arrivals.read(from.and_then(|address| address.0), body);
        let arrived = match timeout(most, arrived).await {
            Ok(Ok(arrived)) => arrived,
            Ok(Err(status)) => return status.into_http(),
            Err(_) => return Status::deadline_exceeded("the body of the call takes too long").into_http(),
        };
        let body = Body::new(Full::new(arrived.bytes.clone()));
        let answer = async {
            let _permit = self.permits.acquire().await;
            self.carry_out(Request::from_parts(parts, body)).await
        };
        match timeout(2 * most, answer).await {
            Ok(response) => response,
            Err(_) => Status::deadline_exceeded("the call takes too long").into_http(),
        }
    }

    async fn carry_out(&self, request: Request<Body>) -> Response<Body> {
        if self.lifetime.has_changed().is_err() {
            return Status::unavailable("the replica is stopping").into_http();
        }
        let large = self.state.config.max_body_bytes + MAX_HEAD_BYTES;
        match request.uri().path() {
            "/tidegate.v1.Replica/Status" => self.stream(request, MAX_HEAD_BYTES, status).await,
            "/tidegate.v1.Replica/Publish" => self.stream(request, large, publish).await,
            "/tidegate.v1.Replica/Decide" => self.stream(request, large, decide).await,
            "/tidegate.v1.Replica/Remove" => self.stream(request, MAX_HEAD_BYTES, remove).await,
            "/tidegate.v1.Replica/List" => self.stream(request, MAX_HEAD_BYTES, list).await,
            "/tidegate.v1.Replica/Fetch" => self.stream(request, MAX_HEAD_BYTES, fetch).await,
            path => Status::unimplemented(format!("the replica has no method {path}")).into_http(),
        }
    }

    async fn stream<I, O, F>(
        &self,
        request: Request<Body>,
        max_message_bytes: usize,
        call: impl Fn(Arc<EngineState>, Streaming<I>) -> F + Send + Sync,
    ) -> Response<Body>
    where
        I: Message + Default + 'static,
        O: Message + Default + 'static,
        F: Future<Output = Result<Vec<O>, Status>> + Send,
    {
        let service = service_fn(|request: tonic::Request<Streaming<I>>| {
            let called = call(self.state.clone(), request.into_inner());
            async move {
                let answers = called.await?.into_iter().map(Ok::<O, Status>);
                Ok::<_, Status>(tonic::Response::new(tokio_stream::iter(answers)))
            }
        });
        let grpc = Grpc::new(ProstCodec::<O, I>::default());
        let mut grpc = grpc.max_decoding_message_size(max_message_bytes);
        grpc.streaming(service, request).await
    }
}

/// Reads all messages of a call, one at a time.
async fn each<I>(mut messages: Streaming<I>, mut take: impl FnMut(I)) -> Result<(), Status> {
    let mut count = 0;
    while let Some(message) = messages.message().await? {
        count += 1;
        if count > MAX_CALL_MESSAGES {
            return Err(Status::resource_exhausted("the call has too many messages"));
        }
        take(message);
    }
    Ok(())
}

async fn only<I>(mut messages: Streaming<I>) -> Result<I, Status> {
    let message = messages.message().await?;
    message.ok_or_else(|| Status::invalid_argument("the call has no message"))
}

fn replica(state: &EngineState) -> Result<&Replica, Status> {
    let replica = state.replica.as_ref();
    replica.ok_or_else(|| Status::unavailable("the process has no store"))
}

async fn status(
    state: Arc<EngineState>,
    messages: Streaming<StatusRequest>,
) -> Result<Vec<StatusResponse>, Status> {
    let request = only(messages).await?;
    let replica = replica(&state)?;
    if request.cluster != state.cluster {
        let (own, other) = (&state.cluster, &request.cluster);
        let error = format!(
            "this replica has the cluster `{own}`, and the caller has `{other}`: set the same `name` of the cluster"
        );
        return Err(Status::failed_precondition(error));
    }
    Ok(vec![StatusResponse {
        name: replica.name.clone(),
        instance: replica.instance,
        is_synced: replica.is_synced(),
    }])
}

async fn publish(
    state: Arc<EngineState>,
    messages: Streaming<MessageCopy>,
) -> Result<Vec<PublishOutcome>, Status> {
    let replica = replica(&state)?;
    let mut outcomes = Vec::new();
    each(messages, |copy| {
        state.received_bytes.fetch_add(copy.body.len() as u64, Relaxed);
        let code = replica.publish(&copy).into();
        outcomes.push(PublishOutcome { code });
    })
    .await?;
    Ok(outcomes)
}

async fn decide(
    state: Arc<EngineState>,
    messages: Streaming<DecideRequest>,
) -> Result<Vec<DecideOutcome>, Status> {
    let request = only(messages).await?;
    let record = request.record.as_ref();
    let record = record.ok_or_else(|| Status::invalid_argument("the call has no record"))?;
    let term = (request.term_ns > 0).then(|| Duration::from_nanos(request.term_ns));
    let decision = state
        .decide(of_copy(record), request.expected, term, request.is_forwarded)
        .await;
    let decision = decision.map_err(|error| match error {
        StoreError::TooLarge => Status::invalid_argument(error.to_string()),
        error => Status::unavailable(error.to_string()),
    })?;
    let (is_accepted, current) = match decision {
        Decision::Accepted(copy) => (true, Some(copy)),
        Decision::Conflict(current) => (false, current),
    };
    Ok(vec![DecideOutcome { is_accepted, current }])
}

async fn remove(
    state: Arc<EngineState>,
    messages: Streaming<MessageHead>,
) -> Result<Vec<MessageHead>, Status> {
    let mut heads = Vec::new();
    each(messages, |head| heads.push(head)).await?;
    replica(&state)?.remove(&heads);
    Ok(Vec::new())
}

async fn list(state: Arc<EngineState>, messages: Streaming<ListRequest>) -> Result<Vec<MessageHead>, Status> {
    let request = only(messages).await?;
    Ok(replica(&state)?.list(request.after))
}

async fn fetch(
    state: Arc<EngineState>,
    messages: Streaming<MessageHead>,
) -> Result<Vec<MessageCopy>, Status> {
    let mut heads = Vec::new();
    each(messages, |head| heads.push(head)).await?;
    Ok(replica(&state)?.fetch(&heads))
}
