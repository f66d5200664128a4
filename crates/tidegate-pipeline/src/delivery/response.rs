// SPDX-License-Identifier: Apache-2.0

//! The meaning of the answers of OTLP servers, for exporters and webhooks.

use std::time::Duration;

use prost::Message;
use tonic_types::StatusExt;

use super::{Loss, Outcome};
use crate::component::Reason;

/// The largest answer that is read, in bytes. Answers are small. Servers don't use this number as their own limit,
/// so our error message differs from theirs.
pub const MAX_ANSWER_BYTES: usize = (1 << 20) + 1;

/// `Export*ServiceResponse` of every signal: they differ in names only.
#[derive(Clone, PartialEq, Message)]
pub struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

/// `Export*PartialSuccess` of every signal.
#[derive(Clone, PartialEq, Message)]
pub struct PartialSuccess {
    /// `rejected_data_points`, `rejected_spans`, `rejected_log_records`.
    #[prost(int64, tag = "1")]
    pub rejected: i64,
    /// The reason for the rejection, or a warning if nothing was rejected.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

impl ExportResponse {
    /// The outcome of a successful answer. A partial success is never retried (OTLP, "Partial Success").
    pub fn outcome(self) -> Outcome {
        match self.partial_success {
            Some(partial) => partial.outcome(),
            None => Outcome::Done,
        }
    }
}

#[cfg(any(test, feature = "testing"))]
impl ExportResponse {
    /// An answer that rejects `rejected` items.
    pub fn rejecting(rejected: i64, error_message: &str) -> Self {
        let error_message = error_message.to_owned();
        Self {
            partial_success: Some(PartialSuccess {
                rejected,
                error_message,
            }),
        }
    }
}

impl PartialSuccess {
    /// The outcome of the attempt that got this answer.
    pub fn outcome(self) -> Outcome {
        let items = usize::try_from(self.rejected).unwrap_or(0);
        if items == 0 {
            return if self.error_message.is_empty() {
                Outcome::Done
            } else {
                Outcome::Accepted {
                    note: format!("a warning from the peer: {}", self.error_message),
                }
            };
        }
        Outcome::Partly(Loss {
            items,
            reason: Reason::Rejected,
            why: format!("partial success: {}", self.error_message),
        })
    }
}

/// Retryable codes (OTLP/gRPC, "Failures").
const RETRYABLE: [tonic::Code; 6] = [
    tonic::Code::Cancelled,
    tonic::Code::DeadlineExceeded,
    tonic::Code::Aborted,
    tonic::Code::OutOfRange,
    tonic::Code::Unavailable,
    tonic::Code::DataLoss,
];

/// Messages of gRPC libraries about a message that is too large. gRPC has no code for this error.
const TOO_LARGE: [&str; 4] = [
    "larger than max",
    "message length too large",
    "exceeds maximum size",
    "message too large",
];

/// The outcome of a failed gRPC call.
pub fn of_status(status: &tonic::Status) -> Outcome {
    let why = format!("{:?}: {}", status.code(), status.message());
    let ours = format!("the limit is: {MAX_ANSWER_BYTES} bytes");
    if status.message().contains(&ours) {
        return Outcome::permanent("the answer is too large");
    }
    if TOO_LARGE.iter().any(|words| status.message().contains(words)) {
        return Outcome::TooLarge { why };
    }
    let after = retry_delay(status);
    // A status with a source was made by the client: the connection broke and the server never answered.
    let no_answer = std::error::Error::source(status).is_some();
    let throttled = status.code() == tonic::Code::ResourceExhausted && after.is_some();
    match status.code() {
        code if RETRYABLE.contains(&code) || no_answer || throttled => Outcome::Retry { after, why },
        tonic::Code::InvalidArgument => Outcome::Refused { why },
        tonic::Code::Unauthenticated | tonic::Code::PermissionDenied => denied(after, why),
        _ => Outcome::Permanent { why },
    }
}

fn denied(after: Option<Duration>, why: String) -> Outcome {
    Outcome::Denied {
        retries: false,
        after,
        why,
    }
}

/// Quotes the message of a peer for logs: without our secrets, on one line, and cut after a status and the first
/// 500 bytes of an answer.
pub fn quote(said: &str, headers: &http::HeaderMap) -> String {
    shorten(&redact(said, headers))
}

/// Shortens the message of a peer to 540 bytes on one line.
pub fn shorten(said: &str) -> String {
    const MAX_BYTES: usize = 540;
    let mut quoted = String::new();
    for character in said.chars() {
        if character.is_control() {
            quoted.extend(character.escape_default());
        } else {
            quoted.push(character);
        }
        if quoted.len() >= MAX_BYTES {
            quoted.push_str("...");
            break;
        }
    }
    quoted
}

/// Headers whose values are not secret.
const OPEN_HEADERS: [&str; 10] = [
    "accept",
    "content-encoding",
    "content-type",
    "grpc-accept-encoding",
    "grpc-encoding",
    "grpc-timeout",
    "te",
    "user-agent",
    "x-prometheus-remote-write-version",
    "x-scope-orgid",
];

fn redact(said: &str, headers: &http::HeaderMap) -> String {
    /// Shorter values occur in every text, so they are not masked.
    const MIN_BYTES: usize = 4;
    let secret = headers
        .iter()
        .filter(|(name, _)| !OPEN_HEADERS.contains(&name.as_str()));
    let values = secret.filter_map(|(_, value)| value.to_str().ok());
    let mut said = said.to_owned();
    for value in values {
        // The peer may repeat only the second word of `Bearer token` and `Basic base64`.
        let token = value.rsplit(' ').next().unwrap_or_default();
        let password = password(token);
        for secret in [value, token, password.as_deref().unwrap_or_default()] {
            if secret.len() >= MIN_BYTES {
                said = said.replace(secret, "[REDACTED]");
            }
        }
    }
    said
}

/// The password in the token of basic authentication.
fn password(token: &str) -> Option<String> {
    use base64::Engine;
    let pair = base64::engine::general_purpose::STANDARD.decode(token).ok()?;
    let (_, password) = std::str::from_utf8(&pair).ok()?.split_once(':')?;
    Some(password.to_owned())
}

/// A URL without its possible secrets: user, password and query.
pub fn address(uri: &http::Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or("http");
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{}", uri.path())
}

fn retry_delay(status: &tonic::Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

/// The outcome of an HTTP answer other than 200 (OTLP/HTTP, "Failures"). `after` is its `Retry-After`.
pub fn of_http(status: http::StatusCode, after: Option<Duration>, message: &str) -> Outcome {
    let why = match message {
        "" => status.to_string(),
        message => format!("{status}: {message}"),
    };
    match status.as_u16() {
        400 | 422 => Outcome::Refused { why },
        401 | 403 => denied(after, why),
        413 => Outcome::TooLarge { why },
        429 | 502 | 503 | 504 => Outcome::Retry { after, why },
        _ => Outcome::Permanent { why },
    }
}

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};
    use tonic_types::ErrorDetails;

    use super::*;

    fn is_retry(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Retry { .. })
    }

    #[test]
    fn only_the_codes_of_the_specification_are_retried() {
        let retried: Vec<_> = (0..17)
            .map(Code::from_i32)
            .filter(|code| is_retry(&of_status(&Status::new(*code, "no"))))
            .collect();
        let expected = [
            Code::Cancelled,
            Code::DeadlineExceeded,
            Code::Aborted,
            Code::OutOfRange,
            Code::Unavailable,
            Code::DataLoss,
        ];
        assert_eq!(retried, expected);
    }

    #[test]
    fn resource_exhausted_is_retried_only_with_retry_info() {
        let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(7)));
        let status = Status::with_error_details(Code::ResourceExhausted, "slow down", details);
        assert!(
            matches!(of_status(&status), Outcome::Retry { after: Some(after), .. } if after.as_secs() == 7)
        );
        let bare = of_status(&Status::resource_exhausted("out of quota"));
        assert!(matches!(bare, Outcome::Permanent { .. }));
    }

    #[test]
    fn too_large_is_recognised_in_the_errors_of_go_and_tonic() {
        let go = "grpc: received message larger than max (5 vs. 4)";
        let tonic = "Error, decoded message length too large: found 5 bytes, the limit is: 4194304 bytes";
        let ours = format!(
            "Error, decoded message length too large: found 5 bytes, the limit is: {MAX_ANSWER_BYTES} bytes"
        );
        let too_large = |status: Status| matches!(of_status(&status), Outcome::TooLarge { .. });
        assert!(too_large(Status::resource_exhausted(go)));
        assert!(too_large(Status::out_of_range(tonic)));
        assert!(!too_large(Status::out_of_range(ours)));
    }

    #[test]
    fn a_broken_connection_is_retried() {
        let status = Status::from_error(Box::new(std::io::Error::other("connection reset")));
        assert!(is_retry(&of_status(&status)), "{status:?}");
    }

    #[test]
    fn only_the_http_statuses_of_the_specification_are_retried() {
        let retried: Vec<_> = (300..600)
            .filter_map(|status| http::StatusCode::from_u16(status).ok())
            .filter(|status| is_retry(&of_http(*status, None, "")))
            .map(|status| status.as_u16())
            .collect();
        assert_eq!(retried, [429, 502, 503, 504]);
    }

    #[test]
    fn an_answer_is_quoted_on_one_line_without_our_secrets() {
        let headers = [
            ("api-key", "hunter2"),
            ("authorization", "Basic dXNlcjpvcGVuIHNlc2FtZQ=="),
            ("user-agent", "tidegate/1"),
        ];
        let headers = headers.map(|(name, value)| {
            (
                http::HeaderName::from_static(name),
                http::HeaderValue::from_static(value),
            )
        });
        let headers = http::HeaderMap::from_iter(headers);
        let said = "401: no hunter2,\n`dXNlcjpvcGVuIHNlc2FtZQ==`, open sesame from tidegate/1";
        let quoted = "401: no [REDACTED],\\n`[REDACTED]`, [REDACTED] from tidegate/1";
        assert_eq!(quote(said, &headers), quoted);
        let long = quote(&"ü".repeat(1000), &headers);
        assert!(long.ends_with("ü...") && long.len() < 560, "{}", long.len());
    }

    #[test]
    fn an_address_has_no_secrets() {
        let uri = "https://me:secret@a.example:4318/v1/logs?api_key=secret"
            .parse()
            .unwrap();
        assert_eq!(address(&uri), "https://a.example:4318/v1/logs");
    }

    #[test]
    fn denied_access_is_recognised() {
        let denied = |outcome: Outcome| matches!(outcome, Outcome::Denied { retries: false, .. });
        for (code, status) in [(Code::Unauthenticated, 401), (Code::PermissionDenied, 403)] {
            assert!(denied(of_status(&Status::new(code, "no"))));
            assert!(denied(of_http(status.try_into().unwrap(), None, "no")));
        }
        assert!(!denied(of_http(http::StatusCode::NOT_FOUND, None, "no")));
    }

    #[test]
    fn a_partial_success_without_rejections_is_a_success() {
        let answer = |rejected, message: &str| {
            let partial = PartialSuccess {
                rejected,
                error_message: message.into(),
            };
            let bytes = ExportResponse {
                partial_success: Some(partial),
            }
            .encode_to_vec();
            ExportResponse::decode(&*bytes).unwrap().outcome()
        };
        assert_eq!(answer(0, ""), Outcome::Done);
        assert!(matches!(answer(0, "old field"), Outcome::Accepted { note } if note.contains("old field")));
        assert!(matches!(answer(-1, "nonsense"), Outcome::Accepted { .. }));
        assert!(matches!(answer(2, "bad"), Outcome::Partly(Loss { items: 2, .. })));
        assert_eq!(ExportResponse::decode(&b""[..]).unwrap().outcome(), Outcome::Done);
    }
}
