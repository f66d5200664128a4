// SPDX-License-Identifier: Apache-2.0

//! Conversions: the one place where OTLP becomes points, and points and events become OTLP.

mod attributes;
mod decode;
mod encode;
mod events;

pub use attributes::{attributes_from_proto, attributes_to_proto, value_from_proto};
pub use decode::points;
pub(crate) use decode::temporality;
pub use encode::encode_points;
pub use events::events_to_points;

/// Bytes that are not an export request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an OTLP request: {0}")]
pub struct ConvertError(String);

impl From<prost::DecodeError> for ConvertError {
    fn from(error: prost::DecodeError) -> Self {
        Self(error.to_string())
    }
}

#[cfg(test)]
mod tests;
