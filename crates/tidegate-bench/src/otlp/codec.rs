//! Messages as bytes.

use bytes::{Buf, BufMut, Bytes};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// The method of metrics.
pub(super) const METHOD: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

/// Sends bytes; of what comes only the first are kept.
#[derive(Clone, Copy, Default)]
pub(super) struct Raw;

/// As much of a message is kept: its time stamp is within.
const KEPT: usize = 64;

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
        into.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let kept = from.copy_to_bytes(from.remaining().min(KEPT));
        from.advance(from.remaining());
        Ok(Some(kept))
    }
}
