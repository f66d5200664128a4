// SPDX-License-Identifier: Apache-2.0

//! Decoding requests whose strings may not be UTF-8.
//!
//! Protobuf demands UTF-8, but the Collector neither checks it nor refuses what isn't, so senders that cut names in
//! the middle of a character get away with it. Undecoded text passes untouched here too; where something is
//! decoded, wrong sequences read as U+FFFD, and nothing is lost for a wrong byte in a label.

use prost::DecodeError;

use super::MAX_DEPTH;
use super::edit::{push_field, push_message};
use super::proto::{Fields, WireType};
use crate::schema::{Message, Type};

/// The message of a type that `schema` describes, with U+FFFD for bytes that are not UTF-8.
pub(crate) fn decode<M: prost::Message + Default>(
    schema: &'static Message,
    bytes: &[u8],
) -> Result<M, DecodeError> {
    M::decode(bytes).or_else(|error| {
        let mut repaired = Vec::with_capacity(bytes.len());
        match repair(schema, bytes, &mut repaired, 0) {
            Some(()) => M::decode(repaired.as_slice()),
            None => Err(error),
        }
    })
}

/// Appends the message with every string made UTF-8; `None` when it is broken.
fn repair(message: &'static Message, bytes: &[u8], out: &mut Vec<u8>, depth: usize) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    for field in Fields::new(bytes) {
        let field = field.ok()?;
        match message.field(field.number).map(|known| known.kind) {
            Some(Type::Message(inner)) if field.wire == WireType::Bytes => {
                let mut repaired = Vec::with_capacity(field.payload.len());
                repair(inner, field.payload, &mut repaired, depth + 1)?;
                push_message(out, field.number, &repaired);
            }
            Some(Type::String) if field.wire == WireType::Bytes => {
                let text = String::from_utf8_lossy(field.payload);
                push_message(out, field.number, text.as_bytes());
            }
            _ => push_field(out, &field),
        }
    }
    Some(())
}
