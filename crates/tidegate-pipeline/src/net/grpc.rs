// SPDX-License-Identifier: Apache-2.0

//! The parts of gRPC that both ends of OTLP need: methods, headers and message prefixes. See
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};

/// The method of each signal, by `Signal as usize`.
pub const EXPORT_METHODS: [&str; 3] = [
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
];

/// The names of the codes, by number.
pub const CODE_NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The `Content-Type` of calls and answers.
pub const APPLICATION_GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
/// The code of a call, in the trailers.
pub const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The compression of messages that are marked as compressed.
pub const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// The compressions that the sender of this header accepts.
pub const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
/// The time limit of the caller.
pub const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Whether a request is a call.
pub fn is_call<B>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = content_type.and_then(|value| value.strip_prefix(APPLICATION_GRPC.as_bytes()));
    // `application/grpc-web` is another protocol.
    request.method() == Method::POST
        && rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// The time limit of the caller; `None`: it has none, or it is not readable.
pub fn time_limit(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(GRPC_TIMEOUT)?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    // `parse` would take a sign too.
    if number.len() > 8 || !number.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number = number.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_hours(number)),
        "M" => Some(Duration::from_mins(number)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

/// The prefix of a message: a byte that says whether it is compressed, and its length in 32 bits, big endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// 0 or 1; other values are invalid.
    pub flag: u8,
    /// The length of the message, in bytes.
    pub length: u32,
}

impl Prefix {
    /// The length of a prefix, in bytes.
    pub const BYTES: usize = 5;

    /// The prefix of a message. `None` if gRPC can't express the length.
    pub fn of(is_compressed: bool, message_bytes: usize) -> Option<Self> {
        Some(Self {
            flag: is_compressed.into(),
            length: message_bytes.try_into().ok()?,
        })
    }

    /// The prefix at the beginning of `bytes`; `None` if it is incomplete.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let [flag, length @ ..] = bytes.first_chunk::<{ Self::BYTES }>()?;
        Some(Self {
            flag: *flag,
            length: u32::from_be_bytes(*length),
        })
    }

    /// The encoded prefix.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let [a, b, c, d] = self.length.to_be_bytes();
        [self.flag, a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_flag_and_a_length() {
        let prefix = Prefix::of(true, 0x0102_0304).unwrap();
        assert_eq!(prefix.to_bytes(), [1, 1, 2, 3, 4]);
        assert_eq!(Prefix::read(&[1, 1, 2, 3, 4, 9]), Some(prefix));
        assert_eq!(Prefix::read(&[1, 1, 2, 3]), None);
        assert_eq!(Prefix::of(false, 1 << 32), None);
    }

    #[test]
    fn the_time_limit_of_a_caller_is_a_number_and_a_unit() {
        let limit = |text: &'static str| {
            let headers = [(GRPC_TIMEOUT, HeaderValue::from_static(text))];
            time_limit(&HeaderMap::from_iter(headers))
        };
        for (text, expected) in [
            ("2H", Duration::from_hours(2)),
            ("3M", Duration::from_mins(3)),
            ("42S", Duration::from_secs(42)),
            ("13m", Duration::from_millis(13)),
            ("2u", Duration::from_micros(2)),
            ("82n", Duration::from_nanos(82)),
            ("0S", Duration::ZERO),
            ("99999999H", Duration::from_hours(99_999_999)),
        ] {
            assert_eq!(limit(text), Some(expected), "{text}");
        }
        for text in ["", "S", "5", "5f", "oneH", "+5S", "1.5S", "123456789n"] {
            assert_eq!(limit(text), None, "{text}");
        }
        assert_eq!(time_limit(&HeaderMap::new()), None);
    }

    #[test]
    fn a_call_is_posted_with_the_content_type_of_grpc() {
        let is_call = |method: &str, content_type: &str| {
            let request = Request::builder()
                .method(method)
                .header(CONTENT_TYPE, content_type);
            super::is_call(&request.body(()).unwrap())
        };
        for content_type in [
            "application/grpc",
            "application/grpc+proto",
            "application/grpc;x=y",
        ] {
            assert!(is_call("POST", content_type), "{content_type}");
        }
        for content_type in ["application/grpc-web", "application/json", ""] {
            assert!(!is_call("POST", content_type), "{content_type}");
        }
        assert!(!is_call("GET", "application/grpc"));
    }
}
