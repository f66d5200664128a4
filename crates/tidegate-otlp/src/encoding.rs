// SPDX-License-Identifier: Apache-2.0

//! The encodings of a request that is the content of a message.

use bytes::Bytes;

use crate::{Encoded, json};

tidegate_config::choices! {
    /// The encoding of messages.
    pub enum TelemetryEncoding {
        /// An OTLP request in protobuf.
        OtlpProto = "otlp_proto",
        /// An OTLP request in JSON.
        OtlpJson = "otlp_json",
    }
}

impl TelemetryEncoding {
    /// A request in this encoding. Protobuf in one part is not copied.
    ///
    /// # Errors
    /// The request is not valid OTLP.
    pub fn encode(self, encoded: &Encoded) -> Result<Bytes, String> {
        match self {
            Self::OtlpProto => Ok(encoded.joined()),
            Self::OtlpJson => match json::to_json(encoded) {
                Ok(text) => Ok(text.into()),
                Err(error) => Err(error.to_string()),
            },
        }
    }
}
