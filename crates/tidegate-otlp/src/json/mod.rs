// SPDX-License-Identifier: Apache-2.0

//! OTLP/JSON to and from protobuf bytes, by tables: one generic transcoder, no trees of messages in between.
//!
//! The mapping is ProtoJSON with OTLP's exceptions (OTLP specification, "JSON Protobuf Encoding"): ids are hexadecimal,
//! enums are numbers, unknown fields are ignored, keys are lowerCamelCase only.

mod read;
mod scalar;
mod write;

use bytes::Bytes;

use super::{Encoded, Signal, schema};

/// JSON that is not an export request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at `{path}`")]
pub struct JsonError {
    /// The description of the mistake.
    pub problem: String,
    /// Where: `resourceMetrics[0].scopeMetrics[1].metrics[0].name`; `$` at the top.
    pub path: String,
}

/// The protobuf bytes of an `Export*ServiceRequest` in JSON (which is also `*Data` in JSON).
///
/// # Errors
/// The first thing that is wrong, with its path.
pub fn to_protobuf(signal: Signal, json: &[u8]) -> Result<Bytes, JsonError> {
    to_protobuf_within(signal, json, &mut |_| true).map_err(|unread| match unread {
        Unread::Wrong(error) => error,
        // `reserve` above always agrees.
        Unread::NoRoom(_) => JsonError {
            problem: "the gateway has no memory left for the request".to_owned(),
            path: "$".to_owned(),
        },
    })
}

/// Why JSON was not read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It is not a request.
    Wrong(JsonError),
    /// `reserve` refused this many more bytes.
    NoRoom(usize),
}

/// The same; `reserve` is asked for every byte before it is allocated.
///
/// # Errors
/// The first mistake, or the bytes that `reserve` refused.
pub fn to_protobuf_within(
    signal: Signal,
    json: &[u8],
    reserve: &mut dyn FnMut(usize) -> bool,
) -> Result<Bytes, Unread> {
    read::request(schema::request(signal), json, reserve).map(Bytes::from)
}

/// A request in JSON, on one line.
///
/// # Errors
/// When the bytes can't be read as protobuf.
pub fn to_json(encoded: &Encoded) -> Result<String, super::wire::WireError> {
    let wire = encoded.joined();
    let mut json = String::with_capacity(wire.len() * 2);
    write::message(schema::request(encoded.signal), &wire, &mut json).map_err(|problem| {
        super::wire::WireError {
            problem,
            path: String::new(),
        }
    })?;
    Ok(json)
}

#[cfg(test)]
mod tests;
