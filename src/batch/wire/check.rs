//! Whether bytes are an export request, and how many items it holds: one pass over tags and lengths.
//!
//! What is taken here can be decoded later by whoever needs to, so a wrong request costs its sender an answer and
//! nobody else a batch. Two things are not looked at: whether strings are UTF-8 (they are read lossily, see
//! [`super::text`]) and what unknown fields hold. Stricter than protobuf in two points: groups, which no OTLP message
//! has ever had, are refused, and messages nest one level less than prost's limit (it counts unknown fields as a
//! level of their own).
//!
//! Protobuf lets a message be written in several pieces, which are merged, and of a `oneof` the last member counts.
//! No SDK does so; a request that does is written anew, so that nobody below has to think of it.

use bytes::Bytes;

use super::proto::{Field, Fields, WireType, varint};
use super::{MAX_DEPTH, WireError, text};
use crate::batch::schema::{self, Message, Type};
use crate::batch::{Encoded, Signal};

/// Checks the bytes of an `Export*ServiceRequest` and counts its points, spans or log records.
///
/// # Errors
/// What is wrong and in which message.
pub fn check(signal: Signal, bytes: Bytes) -> Result<Encoded, WireError> {
    let request = schema::request(signal);
    let mut found = Found::default();
    found.look(request, &bytes, 0)?;
    if !found.in_pieces {
        return Ok(Encoded::one(signal, bytes, found.items));
    }
    let bytes = written_anew(signal, &bytes)?;
    let mut found = Found::default();
    found.look(request, &bytes, 0)?;
    Ok(Encoded::one(signal, bytes, found.items))
}

/// The same request as prost writes it.
fn written_anew(signal: Signal, bytes: &[u8]) -> Result<Bytes, WireError> {
    use opentelemetry_proto::tonic::collector::{
        logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
        trace::v1::ExportTraceServiceRequest,
    };
    fn again<M: prost::Message + Default>(signal: Signal, bytes: &[u8]) -> Result<Bytes, prost::DecodeError> {
        let message = text::decode::<M>(schema::request(signal), bytes)?;
        Ok(message.encode_to_vec().into())
    }
    let again = match signal {
        Signal::Metrics => again::<ExportMetricsServiceRequest>(signal, bytes),
        Signal::Traces => again::<ExportTraceServiceRequest>(signal, bytes),
        Signal::Logs => again::<ExportLogsServiceRequest>(signal, bytes),
    };
    again.map_err(|_| WireError::here("a message in pieces that can't be decoded"))
}

/// What a pass has found so far.
#[derive(Default)]
struct Found {
    items: usize,
    in_pieces: bool,
}

impl Found {
    fn look(&mut self, message: &'static Message, bytes: &[u8], depth: usize) -> Result<(), WireError> {
        if depth > MAX_DEPTH {
            return Err(WireError::here("messages nested too deeply"));
        }
        self.items += usize::from(message.is_item);
        let mut seen = 0_u32;
        for field in Fields::new(bytes) {
            let field = field.map_err(WireError::here)?;
            let Some(known) = message.field(field.number) else {
                continue;
            };
            if let Some(bit) = known.once() {
                self.in_pieces |= seen & bit != 0;
                seen |= bit;
            }
            match known.kind {
                Type::Message(inner) if field.wire == WireType::Bytes => {
                    self.look(inner, field.payload, depth + 1)
                }
                kind => value(kind, known.repeated, &field),
            }
            .map_err(|error| error.inside(known.name))?;
        }
        Ok(())
    }
}

#[inline]
fn value(kind: Type, repeated: bool, field: &Field<'_>) -> Result<(), WireError> {
    let wire = kind.wire();
    match kind {
        Type::Message(_) => Err(WireError::here("not a message")),
        _ if field.wire == wire => Ok(()),
        _ if repeated && field.wire == WireType::Bytes && is_packed(wire, field.payload) => Ok(()),
        _ => Err(WireError::here("a value of another type")),
    }
}

/// Whether bytes are values of a wire type, one behind the other.
fn is_packed(wire: WireType, mut bytes: &[u8]) -> bool {
    match wire {
        WireType::Fixed64 => bytes.len().is_multiple_of(8),
        WireType::Fixed32 => bytes.len().is_multiple_of(4),
        WireType::Bytes => false,
        WireType::Varint => {
            while let Some((_, used)) = varint(bytes) {
                bytes = bytes.get(used..).unwrap_or_default();
            }
            bytes.is_empty()
        }
    }
}
