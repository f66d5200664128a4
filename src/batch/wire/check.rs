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
                    let is_attribute = std::ptr::eq(inner, &schema::KEY_VALUE) && depth < MAX_DEPTH - 2;
                    match is_attribute && is_plain_attribute(field.payload) {
                        true => Ok(()),
                        false => self.look(inner, field.payload, depth + 1),
                    }
                }
                kind => value(kind, known.repeated, &field),
            }
            .map_err(|error| error.inside(known.name))?;
        }
        Ok(())
    }
}

/// Whether bytes are a `KeyValue` as nearly all are: a key and a string, each once, each shorter than 128 bytes. Most
/// of a request is of these, and to see it costs a tenth of looking at them field by field.
#[inline]
fn is_plain_attribute(bytes: &[u8]) -> bool {
    /// Tags of `KeyValue.key`, `KeyValue.value`, `AnyValue.string_value`.
    const KEY: u8 = 0x0a;
    const VALUE: u8 = 0x12;
    const STRING: u8 = 0x0a;
    let &[KEY, key_length @ 0..0x80, ref rest @ ..] = bytes else {
        return false;
    };
    match rest.get(usize::from(key_length)..) {
        Some(&[VALUE, length @ 0..0x80, STRING, inner @ 0..0x80, ref text @ ..]) => {
            usize::from(length) == text.len() + 2 && usize::from(inner) == text.len()
        }
        _ => false,
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

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;

    fn attribute(key: String, value: String) -> Vec<u8> {
        let value = AnyValue {
            value: Some(any_value::Value::StringValue(value)),
        };
        let attribute = KeyValue {
            key,
            value: Some(value),
            ..Default::default()
        };
        attribute.encode_to_vec()
    }

    proptest! {
        /// The short way never says more than the long one, whatever is changed in an attribute.
        #[test]
        fn what_looks_like_a_plain_attribute_is_a_sound_one(
            key in "[a-z.]{0,140}",
            value in ".{0,50}",
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let whole = attribute(key.clone(), value.clone());
            let short = key.len() < 128 && !key.is_empty() && value.len() < 126;
            prop_assert_eq!(is_plain_attribute(&whole), short);
            let mut bytes = whole;
            for (at, byte) in changes {
                let at = at.index(bytes.len().max(1));
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            bytes.truncate(cut.index(bytes.len() + 1).max(bytes.len().saturating_sub(3)));
            if is_plain_attribute(&bytes) {
                let mut found = Found::default();
                prop_assert!(found.look(&schema::KEY_VALUE, &bytes, 0).is_ok());
                prop_assert!(!found.in_pieces && found.items == 0);
            }
        }
    }
}
