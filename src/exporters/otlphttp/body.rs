// SPDX-License-Identifier: Apache-2.0

//! Bodies: the encoding and compression of telemetry, and the meaning of answers.

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use prost::Message;
use serde_json::Value;

use crate::batch::{Encoded, json};
use crate::config::{Node, Problems};
use crate::delivery::Outcome;
use crate::delivery::http::Pieces;
use crate::delivery::response::{ExportResponse, PartialSuccess};
use crate::net::{self, Coding};

crate::choices! {
    /// The encoding of telemetry.
    pub(super) enum Encoding {
        /// Protobuf.
        Proto = "proto",
        /// OTLP/JSON.
        Json = "json",
    }
}

crate::choices! {
    /// The compression of requests.
    pub(super) enum Compression {
        /// No compression.
        None = "none" | "",
        /// RFC 1952, level 1: OTLP compresses so well that more effort buys little.
        Gzip = "gzip",
        /// RFC 8878, level 1.
        Zstd = "zstd",
        /// Snappy, one block.
        Snappy = "snappy",
        /// Snappy, framed.
        SnappyFramed = "x-snappy-framed",
        /// RFC 1950, which HTTP calls deflate.
        Deflate = "deflate",
        /// RFC 1950, sent as `Content-Encoding: zlib`.
        Zlib = "zlib",
        /// LZ4, framed.
        Lz4 = "lz4",
    }
}

crate::options! {
    /// `compression_params`.
    pub(super) struct CompressionParams {
        /// Compression level: 1 (fast) to 9 for `gzip`, `deflate` and `zlib`, 1 to 22 for `zstd`. 0 and -1: level
        /// 1.
        pub level: i32 = 0,
    }
}

impl CompressionParams {
    /// Reports a level that the compression has not.
    pub(super) fn check_with(&self, compression: Compression, at: &Node, cx: &mut Problems) {
        let most = match compression {
            Compression::Gzip | Compression::Deflate | Compression::Zlib => 9,
            Compression::Zstd => 22,
            _ => 0,
        };
        if !(-1..=most).contains(&self.level) {
            let at = at.child("compression_params");
            cx.at(at.child("level"))
                .error(format!("`{compression}` has no level {}", self.level));
        }
    }

    /// The level, if it differs from the default.
    pub(super) fn level(&self) -> Option<u32> {
        u32::try_from(self.level).ok().filter(|level| *level > 0)
    }
}

impl Encoding {
    /// The value of `Content-Type`.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Proto => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }

    /// The encoding of an answer, if its headers name it.
    pub(super) fn of_answer(headers: &HeaderMap) -> Option<Self> {
        let content_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        [Self::Proto, Self::Json]
            .into_iter()
            .find(|encoding| content_type.starts_with(encoding.content_type()))
    }

    /// The encoded and compressed request; `Err` has the reason why it can't be sent.
    pub(super) fn body(
        self,
        encoded: Encoded,
        compression: Compression,
        level: Option<u32>,
    ) -> Result<Pieces, String> {
        let whole = match (self, compression) {
            (Self::Proto, Compression::None) => {
                return Ok(encoded.parts.into_iter().map(|part| part.bytes).collect());
            }
            (Self::Proto, _) => encoded.joined(),
            (Self::Json, _) => json::to_json(&encoded).map_err(|error| error.to_string())?.into(),
        };
        compression.compress(whole, level).map(Pieces::from)
    }

    /// The outcome of a successful answer. An unreadable answer still means that the server took the request.
    pub(super) fn outcome(self, answer: &[u8]) -> Outcome {
        match self {
            Self::Proto => ExportResponse::decode(answer).map_or(Outcome::Done, ExportResponse::outcome),
            Self::Json if answer.len() > MAX_JSON_BYTES => Outcome::Accepted {
                note: UNREAD.to_owned(),
            },
            Self::Json => json_outcome(answer),
        }
    }
}

/// The note about a request that the peer accepted with an answer that is not read.
pub(super) const UNREAD: &str = "the peer accepted the request, but its answer is too large to be read";

/// A longer answer in JSON is not taken apart, since each of its bytes may become a value of 32.
const MAX_JSON_BYTES: usize = 64 << 10;

/// `{"partialSuccess": {"rejectedDataPoints": "3", "errorMessage": "..."}}`; the count's name depends on the signal.
fn json_outcome(answer: &[u8]) -> Outcome {
    const COUNTS: [&str; 3] = ["rejectedDataPoints", "rejectedSpans", "rejectedLogRecords"];
    let Ok(answer) = serde_json::from_slice::<Value>(answer) else {
        return Outcome::Done;
    };
    let Some(partial) = answer.get("partialSuccess") else {
        return Outcome::Done;
    };
    let count = COUNTS.iter().find_map(|name| partial.get(name));
    // 64-bit numbers are strings in OTLP/JSON; plain numbers are accepted.
    let rejected = count
        .and_then(|count| count.as_i64().or_else(|| count.as_str()?.parse().ok()))
        .unwrap_or(0);
    let message = partial
        .get("errorMessage")
        .and_then(Value::as_str)
        .unwrap_or_default();
    PartialSuccess {
        rejected,
        error_message: message.to_owned(),
    }
    .outcome()
}

impl Compression {
    /// The value of `Content-Encoding`.
    pub(super) fn content_coding(self) -> Option<&'static str> {
        match self {
            Self::Zlib => Some("zlib"),
            other => other.coding().header(),
        }
    }

    fn coding(self) -> Coding {
        match self {
            Self::None => Coding::Identity,
            Self::Gzip => Coding::Gzip,
            Self::Zstd => Coding::Zstd,
            Self::Snappy => Coding::Snappy,
            Self::SnappyFramed => Coding::SnappyFramed,
            Self::Deflate | Self::Zlib => Coding::Deflate,
            Self::Lz4 => Coding::Lz4,
        }
    }

    /// Compresses the body.
    fn compress(self, body: Bytes, level: Option<u32>) -> Result<Bytes, String> {
        if self == Self::None {
            return Ok(body);
        }
        let packed = match level {
            Some(level) => net::compress_at(self.coding(), &body, level),
            None => net::compress(self.coding(), &body),
        };
        packed
            .map(Bytes::from)
            .map_err(|error| format!("compressing: {error}"))
    }
}

/// The message of an error answer: that of a `google.rpc.Status`, or the text itself.
pub(super) fn error_message(answer: &[u8], headers: &HeaderMap) -> String {
    /// The longest text that is shown. It is cut again after secrets are masked.
    const MAX_CHARS: usize = 4096;
    let text = || String::from_utf8_lossy(answer).trim().to_owned();
    let message = match Encoding::of_answer(headers) {
        Some(Encoding::Proto) => RpcStatus::decode(answer)
            .map(|status| status.message)
            .unwrap_or_default(),
        Some(Encoding::Json) if answer.len() <= MAX_JSON_BYTES => {
            let status = serde_json::from_slice::<Value>(answer).unwrap_or_default();
            let message = status.get("message").and_then(Value::as_str);
            message.map_or_else(text, str::to_owned)
        }
        Some(Encoding::Json) | None => text(),
    };
    message.chars().take(MAX_CHARS).collect()
}

/// The parts of `google.rpc.Status` that are shown.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(string, tag = "2")]
    message: String,
}
