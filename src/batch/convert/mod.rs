//! Conversions between what travels: the one place where OTLP becomes points, and points and events become OTLP.

mod attributes;
mod decode;
mod encode;
mod events;

pub use attributes::{attributes_from_proto, attributes_to_proto, value_from_proto};
pub use decode::points;
pub use encode::encode_points;
pub use events::events_to_points;

use super::{Encoded, Payload};

/// Bytes that are no export request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an OTLP request: {0}")]
pub struct ConvertError(String);

impl From<prost::DecodeError> for ConvertError {
    fn from(error: prost::DecodeError) -> Self {
        Self(error.to_string())
    }
}

/// Any payload as wire bytes; what is encoded already is shared.
pub fn encode(payload: &Payload) -> Encoded {
    match payload {
        Payload::Encoded(encoded) => encoded.clone(),
        Payload::Points(points) => encode_points(&points.points),
        Payload::Events(events) => encode_points(&events_to_points(events)),
    }
}

#[cfg(test)]
mod tests;
