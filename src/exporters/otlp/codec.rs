//! A gRPC codec that takes requests as the bytes they are.

use bytes::{BufMut, Bytes};
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use crate::delivery::answer::ExportResponse;

/// Requests as runs of bytes, one after another one message; answers decoded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExportCodec;

impl Codec for ExportCodec {
    type Encode = Vec<Bytes>;
    type Decode = ExportResponse;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for ExportCodec {
    type Item = Vec<Bytes>;
    type Error = Status;

    fn encode(&mut self, parts: Vec<Bytes>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.reserve(parts.iter().map(Bytes::len).sum());
        parts.into_iter().for_each(|part| into.put(part));
        Ok(())
    }
}

impl Decoder for ExportCodec {
    type Item = ExportResponse;
    type Error = Status;

    /// An answer that can't be read comes from a server that took the request: not to be tried again.
    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<ExportResponse>, Status> {
        ExportResponse::decode(from)
            .map(Some)
            .map_err(|error| Status::internal(format!("unreadable answer: {error}")))
    }
}
