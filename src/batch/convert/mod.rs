//! Conversions between what travels: the one place where OTLP becomes points, and points and events become OTLP.

mod attributes;
mod decode;

pub use attributes::{attributes_from_proto, attributes_to_proto, value_from_proto, value_to_proto};
pub use decode::points;

/// Bytes that are no export request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an OTLP request: {0}")]
pub struct ConvertError(String);

impl From<prost::DecodeError> for ConvertError {
    fn from(error: prost::DecodeError) -> Self {
        Self(error.to_string())
    }
}
