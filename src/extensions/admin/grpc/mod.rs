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
use crate::net::pages::{Answer, BodyError, grpc_error};

/// Messages of a few bytes that a slow reader may be behind by.
const BACKLOG: usize = 16;

type Replies<M> = ReceiverStream<Result<M, Status>>;

/// Answers one call.
pub(super) async fn answer(api: Arc<Api>, request: Request<Full<Bytes>>) -> Answer {
    match request.uri().path() {
        "/tidegate.v1.Query/Get" => unary(api, request, query::get).await,
        "/tidegate.v1.Query/List" => unary(api, request, query::list).await,
        "/tidegate.v1.Query/Watch" => stream(api, request, query::watch).await,
        "/externalscaler.ExternalScaler/IsActive" => unary(api, request, keda::is_active).await,
        "/externalscaler.ExternalScaler/StreamIsActive" => stream(api, request, keda::stream_is_active).await,
        "/externalscaler.ExternalScaler/GetMetricSpec" => unary(api, request, keda::metric_spec).await,
        "/externalscaler.ExternalScaler/StreamMetricSpec" => {
            stream(api, request, keda::stream_metric_spec).await
        }
        "/externalscaler.ExternalScaler/GetMetrics" => unary(api, request, keda::metrics).await,
        path => grpc_error(Status::unimplemented(format!("there is no {path}"))),
    }
}

async fn unary<I, O, F>(
    api: Arc<Api>,
    request: Request<Full<Bytes>>,
    call: impl Fn(Arc<Api>, I) -> F + Clone,
) -> Answer
where
    I: Message + Default + 'static,
    O: Message + Default + 'static,
    F: Future<Output = Result<O, Status>> + Send,
{
    let service = service_fn(|request: tonic::Request<I>| {
        let called = call(api.clone(), request.into_inner());
        async move { called.await.map(tonic::Response::new) }
    });
    let response = Grpc::new(ProstCodec::<O, I>::default())
        .unary(service, request)
        .await;
    response.map(|body| body.map_err(BodyError::from).boxed_unsync())
}

async fn stream<I, O, S, F>(
    api: Arc<Api>,
    request: Request<Full<Bytes>>,
    call: impl Fn(Arc<Api>, I) -> F + Clone,
) -> Answer
where
    I: Message + Default + 'static,
    O: Message + Default + 'static,
    S: Stream<Item = Result<O, Status>> + Send + 'static,
    F: Future<Output = Result<S, Status>> + Send,
{
    let service = service_fn(|request: tonic::Request<I>| {
        let called = call(api.clone(), request.into_inner());
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
