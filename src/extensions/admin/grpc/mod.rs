// SPDX-License-Identifier: Apache-2.0

//! gRPC on the admin port: composites for programs (`query`), and KEDA's contract with external scalers (`keda`).

mod keda;
pub(super) mod messages;
mod query;
#[cfg(test)]
mod tests;

use std::future::ready;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use http::Request;
use http_body_util::{BodyExt, Full};
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic::server::Grpc;
use tonic_prost::ProstCodec;
use tower::service_fn;

use super::api::Api;
use super::queues::{ConnectionShare, NotComputed, RequestShare};
use crate::component::account::SenderKey;
use crate::net::grpc::time_limit;
use crate::net::pages::{Answer, BodyError, grpc_error};

/// The most pending messages of a slow reader. Each has a few bytes.
const BACKLOG: usize = 16;

/// The context of a call.
#[derive(Clone)]
struct Caller {
    api: Arc<Api>,
    /// The client that calls, if the gateway can identify it.
    client: Option<SenderKey>,
}

/// The shares of a stream, until they are dropped.
struct StreamShare {
    _stream: Arc<ConnectionShare>,
    _request: Option<RequestShare>,
}

impl Caller {
    /// The shares of a stream that keeps `bytes` of its request.
    fn follow(&self, bytes: usize) -> Result<Arc<StreamShare>, Status> {
        let queues = self.api.queues();
        let stream = queues.follow(self.client).map_err(busy)?;
        let memory = &self.api.shared().memory;
        let request = queues.keep(self.client, bytes, memory).map_err(busy)?;
        Ok(Arc::new(StreamShare {
            _stream: stream,
            _request: request,
        }))
    }
}

/// The refusal of a call that may be made again soon.
#[expect(clippy::needless_pass_by_value, reason = "a function for `map_err`")]
fn busy(why: NotComputed) -> Status {
    Status::unavailable(why.to_string())
}

type Replies<M> = ReceiverStream<Result<M, Status>>;

/// The answer of a call, encoded: a large one is not encoded on the threads that move data.
struct Reply(Bytes);

impl Reply {
    fn of(message: &impl Message) -> Self {
        Self(message.encode_to_vec().into())
    }
}

/// Reads messages and writes encoded ones.
struct Replying<I>(PhantomData<I>);

struct ReplyEncoder;

impl<I: Message + Default + 'static> Codec for Replying<I> {
    type Encode = Reply;
    type Decode = I;
    type Encoder = ReplyEncoder;
    type Decoder = <ProstCodec<(), I> as Codec>::Decoder;

    fn encoder(&mut self) -> ReplyEncoder {
        ReplyEncoder
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<(), I>::default().decoder()
    }
}

impl Encoder for ReplyEncoder {
    type Item = Reply;
    type Error = Status;

    fn encode(&mut self, reply: Reply, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.reserve(reply.0.len());
        to.put(reply.0);
        Ok(())
    }
}

/// Answers one call within the time limit of its client. A stream begins within it.
pub(super) async fn answer(api: Arc<Api>, request: Request<Full<Bytes>>) -> Answer {
    let client = request.extensions().get().copied();
    let limit = time_limit(request.headers()).unwrap_or(Duration::MAX);
    let answer = timeout(limit, call(Caller { api, client }, request)).await;
    let why = "the deadline of the client has passed";
    answer.unwrap_or_else(|_| grpc_error(Status::deadline_exceeded(why)))
}

async fn call(caller: Caller, request: Request<Full<Bytes>>) -> Answer {
    match request.uri().path() {
        // Names and targets of metrics are in the trigger: they need no values.
        "/externalscaler.ExternalScaler/GetMetricSpec" => unary(caller, request, keda::metric_spec).await,
        "/externalscaler.ExternalScaler/StreamMetricSpec" => {
            stream(caller, request, keda::stream_metric_spec).await
        }
        _ => read(caller, request).await,
    }
}

/// Answers a call that reads values, as soon as they may be read.
async fn read(caller: Caller, request: Request<Full<Bytes>>) -> Answer {
    let api = caller.api.clone();
    let health = &api.shared().health;
    let read = match health.begin_confirmed_read().await {
        Ok(read) => read,
        Err(why) => return grpc_error(Status::unavailable(why)),
    };
    let answer = match request.uri().path() {
        "/tidegate.v1.Query/Get" => unary(caller, request, query::get).await,
        "/tidegate.v1.Query/List" => unary(caller, request, query::list).await,
        "/tidegate.v1.Query/Watch" => stream(caller, request, query::watch).await,
        "/externalscaler.ExternalScaler/IsActive" => unary(caller, request, keda::is_active).await,
        "/externalscaler.ExternalScaler/StreamIsActive" => {
            stream(caller, request, keda::stream_is_active).await
        }
        "/externalscaler.ExternalScaler/GetMetrics" => unary(caller, request, keda::metrics).await,
        path => grpc_error(Status::unimplemented(format!("there is no {path}"))),
    };
    // The values may have become too old while the answer was made.
    match health.check_read(read) {
        Ok(()) => answer,
        Err(why) => grpc_error(Status::unavailable(why)),
    }
}

/// The answer has a known size: it takes room until its client has read it.
async fn unary<I, F>(
    caller: Caller,
    request: Request<Full<Bytes>>,
    call: impl Fn(Caller, I) -> F + Clone,
) -> Answer
where
    I: Message + Default + 'static,
    F: Future<Output = Result<Reply, Status>> + Send,
{
    let service = service_fn(|request: tonic::Request<I>| {
        let called = call(caller.clone(), request.into_inner());
        async move { called.await.map(tonic::Response::new) }
    });
    let response = Grpc::new(Replying(PhantomData)).unary(service, request).await;
    let (head, body) = response.into_parts();
    let Ok(body) = body.collect().await else {
        return grpc_error(Status::internal("the answer broke off"));
    };
    let trailers = body.trailers().cloned();
    let body = Full::new(body.to_bytes()).with_trailers(ready(trailers.map(Ok)));
    http::Response::from_parts(head, body.map_err(|never| match never {}).boxed_unsync())
}

async fn stream<I, O, S, F>(
    caller: Caller,
    request: Request<Full<Bytes>>,
    call: impl Fn(Caller, I) -> F + Clone,
) -> Answer
where
    I: Message + Default + 'static,
    O: Message + Default + 'static,
    S: Stream<Item = Result<O, Status>> + Send + 'static,
    F: Future<Output = Result<S, Status>> + Send,
{
    let service = service_fn(|request: tonic::Request<I>| {
        let called = call(caller.clone(), request.into_inner());
        async move { called.await.map(tonic::Response::new) }
    });
    let mut grpc = Grpc::new(ProstCodec::<O, I>::default());
    let response = grpc.server_streaming(service, request).await;
    response.map(|body| body.map_err(BodyError::from).boxed_unsync())
}

/// A stream of what a task sends.
fn replies<M>() -> (mpsc::Sender<Result<M, Status>>, Replies<M>) {
    let (to, from) = mpsc::channel(BACKLOG);
    (to, ReceiverStream::new(from))
}
