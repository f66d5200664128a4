//! gRPC on the admin port: composites for programs (`query`), and KEDA's contract with external scalers (`keda`).

mod keda;
pub(super) mod messages;
mod query;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::server::Grpc;
use tonic_prost::ProstCodec;
use tower::service_fn;

use super::api::Api;
use crate::component::account::SenderKey;
use crate::net::pages::{Answer, BodyError, grpc_error};

/// Messages of a few bytes that a slow reader may be behind by.
const BACKLOG: usize = 16;

/// What a call needs.
#[derive(Clone)]
struct Caller {
    api: Arc<Api>,
    /// The client that calls, if the gateway can identify it.
    client: Option<SenderKey>,
}

type Replies<M> = ReceiverStream<Result<M, Status>>;

/// Answers one call.
pub(super) async fn answer(api: Arc<Api>, request: Request<Full<Bytes>>) -> Answer {
    let client = request.extensions().get().copied();
    let caller = Caller { api, client };
    match request.uri().path() {
        "/tidegate.v1.Query/Get" => unary(caller, request, query::get).await,
        "/tidegate.v1.Query/List" => unary(caller, request, query::list).await,
        "/tidegate.v1.Query/Watch" => stream(caller, request, query::watch).await,
        "/externalscaler.ExternalScaler/IsActive" => unary(caller, request, keda::is_active).await,
        "/externalscaler.ExternalScaler/StreamIsActive" => {
            stream(caller, request, keda::stream_is_active).await
        }
        "/externalscaler.ExternalScaler/GetMetricSpec" => unary(caller, request, keda::metric_spec).await,
        "/externalscaler.ExternalScaler/StreamMetricSpec" => {
            stream(caller, request, keda::stream_metric_spec).await
        }
        "/externalscaler.ExternalScaler/GetMetrics" => unary(caller, request, keda::metrics).await,
        path => grpc_error(Status::unimplemented(format!("there is no {path}"))),
    }
}

async fn unary<I, O, F>(
    caller: Caller,
    request: Request<Full<Bytes>>,
    call: impl Fn(Caller, I) -> F + Clone,
) -> Answer
where
    I: Message + Default + 'static,
    O: Message + Default + 'static,
    F: Future<Output = Result<O, Status>> + Send,
{
    let service = service_fn(|request: tonic::Request<I>| {
        let called = call(caller.clone(), request.into_inner());
        async move { called.await.map(tonic::Response::new) }
    });
    let response = Grpc::new(ProstCodec::<O, I>::default())
        .unary(service, request)
        .await;
    response.map(|body| body.map_err(BodyError::from).boxed_unsync())
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
