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

use super::proto::{self, Fields, WireType, varint};
use super::{MAX_DEPTH, WireError, text};
use crate::batch::schema::{self, Field, Message, Type, Value};
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
        let may_be_plain = depth < MAX_DEPTH - 2;
        let (mut rest, mut seen) = (bytes, 0_u32);
        while let &[tag, ref behind @ ..] = rest {
            let step = message.step(tag);
            let next = match step.value {
                Value::Fixed64 => behind.get(8..),
                Value::Fixed32 => behind.get(4..),
                Value::Varint => behind
                    .split_first()
                    .and_then(|(byte, next)| (*byte < 0x80).then_some(next)),
                Value::Bytes => delimited(behind).map(|(_, next)| next),
                Value::Attribute => short(behind)
                    .filter(|(attribute, _)| may_be_plain && is_plain_attribute(attribute))
                    .map(|(_, next)| next),
                Value::Message => match delimited(behind) {
                    Some((inner, next)) => {
                        self.look_inside(message, tag >> 3, inner, depth)?;
                        Some(next)
                    }
                    None => None,
                },
                Value::Other => None,
            };
            let Some(next) = next else {
                rest = self.look_closely(message, rest, &mut seen, depth)?;
                continue;
            };
            self.in_pieces |= seen & step.once != 0;
            seen |= step.once;
            rest = next;
        }
        Ok(())
    }

    /// The field that bytes begin with, whatever it is. What is behind it.
    #[cold]
    fn look_closely<'a>(
        &mut self,
        message: &'static Message,
        bytes: &'a [u8],
        seen: &mut u32,
        depth: usize,
    ) -> Result<&'a [u8], WireError> {
        let mut fields = Fields::new(bytes);
        let Some(field) = fields.next().transpose().map_err(WireError::here)? else {
            return Ok(&[]);
        };
        let Some(known) = message.field(field.number) else {
            return Ok(fields.rest());
        };
        let once = known.once().unwrap_or(0);
        self.in_pieces |= *seen & once != 0;
        *seen |= once;
        match known.kind {
            Type::Message(_) if field.wire == WireType::Bytes => {
                self.look_inside(message, field.number, field.payload, depth)?;
            }
            kind => value(kind, known.repeated, &field).map_err(|error| error.inside(known.name))?,
        }
        Ok(fields.rest())
    }

    /// A field that is a message.
    #[inline]
    fn look_inside(
        &mut self,
        message: &'static Message,
        number: impl Into<u32>,
        bytes: &[u8],
        depth: usize,
    ) -> Result<(), WireError> {
        let Some(Field {
            name,
            kind: Type::Message(inner),
            ..
        }) = message.field(number.into())
        else {
            return Err(WireError::here("not a message"));
        };
        self.look(inner, bytes, depth + 1)
            .map_err(|error| error.inside(name))
    }
}

/// A length and so many bytes, and what is behind them.
#[inline]
fn delimited(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, behind) = match *bytes {
        [length @ 0..0x80, ref behind @ ..] => (usize::from(length), behind),
        [low @ 0x80..=0xff, high @ 0..0x80, ref behind @ ..] => {
            (usize::from(low & 0x7f) | usize::from(high) << 7, behind)
        }
        _ => {
            let (length, used) = varint(bytes)?;
            (usize::try_from(length).ok()?, bytes.get(used..)?)
        }
    };
    behind.split_at_checked(length)
}

/// The same where the length is one byte.
#[inline]
fn short(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, behind) = bytes.split_first()?;
    (*length < 0x80).then(|| behind.split_at_checked(usize::from(*length)))?
}

/// Whether bytes are a `KeyValue` as nearly all are: a key and a string, each once, each shorter than 128 bytes, in either
/// order (the Collector writes backwards). Most of a request is of these, and to see it costs a tenth of looking at them
/// field by field.
#[inline]
fn is_plain_attribute(bytes: &[u8]) -> bool {
    /// Tags of `KeyValue.key` and `KeyValue.value`.
    const KEY: u8 = 0x0a;
    const VALUE: u8 = 0x12;
    let Some((&first, behind)) = bytes.split_first() else {
        return false;
    };
    let Some((one, [second, behind @ ..])) = short(behind) else {
        return false;
    };
    let Some((two, [])) = short(behind) else {
        return false;
    };
    match (first, *second) {
        (KEY, VALUE) => is_plain_string(two),
        (VALUE, KEY) => is_plain_string(one),
        _ => false,
    }
}

/// Whether bytes are an `AnyValue` of nothing but a string.
#[inline]
fn is_plain_string(bytes: &[u8]) -> bool {
    /// The tag of `AnyValue.string_value`.
    const STRING: u8 = 0x0a;
    match bytes {
        [STRING, length @ 0..0x80, text @ ..] => usize::from(*length) == text.len(),
        _ => false,
    }
}

#[inline]
fn value(kind: Type, repeated: bool, field: &proto::Field<'_>) -> Result<(), WireError> {
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
    use proptest::prelude::*;
    use prost::Message as _;
    use tidegate_requests::attribute;

    use super::*;

    /// Whatever one byte of it is changed to: lengths and tags are where the short way could go wrong.
    #[test]
    fn no_byte_makes_a_plain_attribute_of_an_unsound_one() {
        let whole = attribute("key", "\x01\x0a\x01a").encode_to_vec();
        for at in 0..whole.len() {
            for byte in 0..=u8::MAX {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                if is_plain_attribute(&bytes) {
                    let mut found = Found::default();
                    let looked = found.look(&schema::KEY_VALUE, &bytes, 0);
                    assert!(looked.is_ok() && !found.in_pieces, "{bytes:?}");
                }
            }
        }
    }

    proptest! {
        /// The short way never says more than the long one, whatever is changed in an attribute.
        #[test]
        fn what_looks_like_a_plain_attribute_is_a_sound_one(
            key in "[a-z.]{0,140}",
            value in ".{0,50}",
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
            backwards in any::<bool>(),
        ) {
            let whole = attribute(&key, &*value).encode_to_vec();
            let short = key.len() < 128 && !key.is_empty() && value.len() < 126;
            prop_assert_eq!(is_plain_attribute(&whole), short);
            let mut bytes = whole;
            if backwards && short {
                bytes.rotate_left(2 + key.len());
                prop_assert!(is_plain_attribute(&bytes));
            }
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
