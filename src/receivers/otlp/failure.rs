// SPDX-License-Identifier: Apache-2.0

//! The refusal of a request, in the form of each protocol: gRPC status, HTTP status, `google.rpc.Status`.

use std::time::Duration;

use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::ingest::MEMORY_RETRY;
use crate::component::worker::Overloaded;
use crate::component::{NoRoom, Refused};
use crate::net::auth::NotAdmitted;
use crate::net::refused::{Of, Why};
use crate::net::{BodyError, DecompressError};

/// The longest message in an answer, in bytes. gRPC sends it in a header, and OTLP wants short responses.
pub(super) const MAX_MESSAGE_BYTES: usize = 1024;

/// A refused request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    /// In gRPC and in `google.rpc.Status`.
    pub(super) code: Code,
    /// In HTTP.
    pub(super) http: StatusCode,
    /// For people.
    pub(super) message: String,
    /// The position of the error in the request, if it is a single one (`BadRequest.field`).
    pub(super) field: Box<str>,
    /// The retry delay, if a retry is useful.
    pub(super) retry_after: Option<Duration>,
    /// The accepted authentication of senders (`WWW-Authenticate`).
    pub(super) challenge: Option<HeaderValue>,
    /// The reason that counts the request. `None` if its items count elsewhere, or its sender is not
    /// authenticated.
    pub(super) why: Option<Why>,
}

impl Failure {
    pub(super) fn new(code: Code, http: StatusCode, message: impl Into<String>) -> Self {
        let mut message = message.into();
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        Self {
            code,
            http,
            message,
            field: Box::default(),
            retry_after: None,
            challenge: None,
            why: None,
        }
    }

    /// Sets the reason that counts the request.
    pub(super) fn counted(self, why: Why) -> Self {
        Self {
            why: Some(why),
            ..self
        }
    }

    /// The sender is not authenticated.
    pub(super) fn unauthenticated(refused: NotAdmitted) -> Self {
        let why = refused.why.to_string();
        if let Some(delay) = refused.retry_after() {
            return Self::busy(why, delay);
        }
        let failure = Self::new(Code::Unauthenticated, StatusCode::UNAUTHORIZED, why);
        Self {
            challenge: Some(refused.challenge),
            ..failure
        }
    }

    /// The data itself can't be accepted.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, StatusCode::BAD_REQUEST, message)
    }

    /// The data can't be accepted for what it has in a field.
    pub(super) fn invalid_at(field: &str, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            ..Self::invalid(message)
        }
    }

    /// A temporary refusal.
    pub(super) fn busy(message: impl Into<String>, retry_after: Duration) -> Self {
        let failure = Self::new(Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE, message);
        Self {
            retry_after: Some(retry_after),
            ..failure
        }
    }

    /// A temporary refusal, because memory or processors are short.
    pub(super) fn no_room(of: Of, message: impl Into<String>) -> Self {
        Self::busy(message, MEMORY_RETRY).counted(Why::Short(of))
    }

    /// A permanent refusal: the request would not fit even into an idle gateway.
    pub(super) fn never_fits(bytes: usize, limit: usize) -> Self {
        let (bytes, limit) = (bytes >> 20, limit >> 20);
        let why = format!(
            "the request needs {bytes} MiB of memory, and the limit is {limit} MiB: send smaller ones"
        );
        Self::too_large(why).counted(Why::Short(Of::All))
    }

    fn too_large(message: String) -> Self {
        let failure = Self::new(Code::ResourceExhausted, StatusCode::PAYLOAD_TOO_LARGE, message);
        failure.counted(Why::Short(Of::TooLarge))
    }

    /// The gRPC status with its details: RetryInfo, BadRequest.
    pub(super) fn status(&self) -> Status {
        let mut details = ErrorDetails::new();
        if let Some(delay) = self.retry_after {
            details.set_retry_info(Some(delay));
        }
        if self.code == Code::InvalidArgument {
            details.add_bad_request_violation(&*self.field, self.message.as_str());
        }
        Status::with_error_details(self.code, self.message.as_str(), details)
    }

    /// `google.rpc.Status` in ProtoJSON.
    pub(super) fn json(&self) -> Value {
        let retry = self.retry_after.map(|delay| {
            let delay = format!("{}.{:09}s", delay.as_secs(), delay.subsec_nanos());
            json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})
        });
        let violation = (self.code == Code::InvalidArgument).then(|| {
            let violations = json!([{"field": self.field, "description": self.message}]);
            json!({"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations})
        });
        let details: Vec<_> = retry.into_iter().chain(violation).collect();
        json!({"code": self.code as i32, "message": self.message, "details": details})
    }

    /// `Retry-After` has whole seconds; 0 would mean at once.
    pub(super) fn retry_after_seconds(&self) -> Option<u64> {
        let delay = self.retry_after?;
        Some((delay.as_secs() + u64::from(delay.subsec_nanos() > 0)).max(1))
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused.retry_after {
            Some(delay) => Self::busy(refused.reason, delay),
            // Its items are counted as refused.
            None if refused.is_too_large => Self {
                why: None,
                ..Self::too_large(refused.reason)
            },
            None => Self::invalid(refused.reason),
        }
    }
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Self {
        let (why, message) = (error.why(), error.to_string());
        let failure = match error {
            BodyError::TooLarge { .. } => Self::too_large(message),
            BodyError::Broken(_) => Self::new(Code::Cancelled, StatusCode::BAD_REQUEST, message),
            // Clients of OTLP don't come back after 408.
            BodyError::TimedOut | BodyError::NoRoom(_) | BodyError::TooSlow => {
                Self::busy(message, MEMORY_RETRY)
            }
        };
        failure.counted(why)
    }
}

impl From<DecompressError> for Failure {
    fn from(error: DecompressError) -> Self {
        let (why, message) = (error.why(), error.to_string());
        let failure = match error {
            DecompressError::TooLarge { .. } => Self::too_large(message),
            DecompressError::Corrupt(_) => Self::invalid(message),
            DecompressError::NoRoom(_) | DecompressError::Overloaded(_) => Self::busy(message, MEMORY_RETRY),
            DecompressError::NeverFits { bytes, limit_bytes } => Self::never_fits(bytes, limit_bytes),
        };
        failure.counted(why)
    }
}

impl From<Overloaded> for Failure {
    fn from(overloaded: Overloaded) -> Self {
        Self::no_room(Of::Work, overloaded.to_string())
    }
}

impl From<NoRoom> for Failure {
    fn from(no_room: NoRoom) -> Self {
        Self::no_room(Of::Body, no_room.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_exact_in_retry_info_and_rounded_up_in_the_header() {
        let failure = Failure::busy("full", Duration::from_millis(1500));
        assert_eq!(failure.retry_after_seconds(), Some(2));
        assert_eq!(failure.json()["details"][0]["retryDelay"], "1.500000000s");
        let details = failure.status().get_error_details();
        assert_eq!(
            details.retry_info().unwrap().retry_delay,
            Some(Duration::from_millis(1500))
        );
        assert_eq!(
            Failure::busy("full", Duration::ZERO).retry_after_seconds(),
            Some(1)
        );
    }

    #[test]
    fn a_batch_that_no_queue_has_room_for_is_too_large_and_not_retryable() {
        let failure = Failure::from(Refused::too_large("full"));
        assert_eq!(
            (failure.code, failure.http),
            (Code::ResourceExhausted, StatusCode::PAYLOAD_TOO_LARGE)
        );
        assert_eq!((failure.retry_after_seconds(), failure.why), (None, None));
        assert!(failure.status().get_error_details().retry_info().is_none());
        let failure = Failure::from(Refused::permanent("never"));
        assert_eq!(failure.http, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn long_messages_are_shortened_between_characters() {
        let failure = Failure::invalid("\u{20ac}".repeat(1000));
        assert!(failure.message.len() <= MAX_MESSAGE_BYTES && failure.message.len() > MAX_MESSAGE_BYTES - 3);
    }
}
