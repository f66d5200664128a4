// SPDX-License-Identifier: Apache-2.0

//! Messages as bytes, for tonic.

use std::convert::Infallible;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes};
use tonic::Status;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::BoxFuture;
use tonic::server::{Grpc, NamedService, UnaryService};
use tower::Service;

/// The method of metrics.
pub(crate) const METHOD: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

/// Messages as bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.reserve(message.len());
        into.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// A server of the method, by what answers a call.
#[derive(Clone)]
pub(crate) struct Answering<U>(pub(crate) U);

impl<U> NamedService for Answering<U> {
    const NAME: &'static str = "opentelemetry.proto.collector.metrics.v1.MetricsService";
}

impl<U> Service<http::Request<Body>> for Answering<U>
where
    U: UnaryService<Bytes, Response = Bytes> + Clone + Send + 'static,
    U::Future: Send,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answering = self.0.clone();
        Box::pin(async move {
            let mut grpc = Grpc::new(Raw).max_decoding_message_size(usize::MAX);
            Ok(grpc.unary(answering, request).await)
        })
    }
}
