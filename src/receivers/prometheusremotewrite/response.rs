// SPDX-License-Identifier: Apache-2.0

//! The answers to senders (Remote-Write 2.0, "Response").

use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body_util::Full;

use crate::component::Refused;
use crate::component::worker::Overloaded;
use crate::net::auth::NotAdmitted;
use crate::net::refused::{Of, Why};
use crate::net::{BodyError, DecompressError};
use crate::prom::remote::{Version, WRITTEN_HEADERS};

/// The longest message in an answer, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024;

/// A request of which nothing is taken.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    message: String,
    retry_after: Option<Duration>,
    challenge: Option<HeaderValue>,
    /// The reason that counts the request. `None` if its items count elsewhere, or its sender is not
    /// authenticated.
    why: Option<Why>,
}

/// The retry delay while memory is short. Memory is measured once a second by default.
const MEMORY_RETRY: Duration = Duration::from_secs(1);

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
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

    pub(super) fn unsupported(why: Why, message: String) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message).counted(why)
    }

    /// A temporary refusal.
    pub(super) fn busy(message: impl Into<String>, retry_after: Duration) -> Self {
        Self {
            retry_after: Some(retry_after),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
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
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, message).counted(Why::Short(Of::TooLarge))
    }

    /// Whether the request itself is wrong.
    pub(super) fn is_malformed(&self) -> bool {
        self.status == StatusCode::BAD_REQUEST
    }

    pub(super) fn answer(self) -> Response<Full<Bytes>> {
        let mut answer = text(self.status, self.message);
        let headers = answer.headers_mut();
        if let Some(delay) = self.retry_after {
            // Rounds up to whole seconds, because 0 would mean at once.
            let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, seconds.max(1).into());
        }
        if let Some(challenge) = self.challenge {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static("POST"));
        }
        match self.why {
            Some(why) => why.mark(answer),
            None => answer,
        }
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        match refused.retry_after {
            Some(delay) => Self::busy(refused.reason, delay),
            // Its items are counted as refused.
            None if refused.is_too_large => Self::new(StatusCode::PAYLOAD_TOO_LARGE, refused.reason),
            None => Self::new(StatusCode::BAD_REQUEST, refused.reason),
        }
    }
}

/// The sender is not authenticated.
impl From<NotAdmitted> for Refusal {
    fn from(refused: NotAdmitted) -> Self {
        if let Some(delay) = refused.retry_after() {
            return Self::busy(refused.why.to_string(), delay);
        }
        Self {
            challenge: Some(refused.challenge),
            ..Self::new(StatusCode::UNAUTHORIZED, refused.why.to_string())
        }
    }
}

impl From<Overloaded> for Refusal {
    fn from(overloaded: Overloaded) -> Self {
        Self::no_room(Of::Work, overloaded.to_string())
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        let (why, message) = (error.why(), error.to_string());
        let refusal = match error {
            BodyError::TooLarge { .. } => Self::too_large(message),
            BodyError::Broken(_) => Self::new(StatusCode::BAD_REQUEST, message),
            // Senders don't come back after 408.
            BodyError::TimedOut | BodyError::NoRoom(_) | BodyError::TooSlow => {
                Self::busy(message, MEMORY_RETRY)
            }
        };
        refusal.counted(why)
    }
}

impl From<DecompressError> for Refusal {
    fn from(error: DecompressError) -> Self {
        let (why, message) = (error.why(), error.to_string());
        let refusal = match error {
            DecompressError::TooLarge { .. } => Self::too_large(message),
            DecompressError::Corrupt(_) => Self::new(StatusCode::BAD_REQUEST, message),
            DecompressError::NoRoom(_) | DecompressError::Overloaded(_) => Self::busy(message, MEMORY_RETRY),
            DecompressError::NeverFits { bytes, limit_bytes } => Self::never_fits(bytes, limit_bytes),
        };
        refusal.counted(why)
    }
}

/// The numbers of written items of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) samples: usize,
    pub(super) histograms: usize,
    pub(super) exemplars: usize,
    /// Samples that are not, and why the first of them is not.
    pub(super) missing: Vec<(usize, String)>,
}

impl Written {
    /// Subtracts items that the pipelines did not accept.
    pub(super) fn reject(&mut self, items: usize, why: String) {
        let of_samples = items.min(self.samples);
        self.samples -= of_samples;
        self.histograms = self.histograms.saturating_sub(items - of_samples);
        self.missing.push((items, why));
    }

    /// 204 for all of it; else 400: sending it again would give the same answer.
    pub(super) fn answer(self, version: Version) -> Response<Full<Bytes>> {
        let mut answer = if self.missing.is_empty() {
            let mut answer = Response::new(Full::default());
            *answer.status_mut() = StatusCode::NO_CONTENT;
            answer
        } else {
            let missing = self
                .missing
                .iter()
                .map(|(samples, why)| format!("{samples} not written: {why}"));
            text(StatusCode::BAD_REQUEST, missing.collect::<Vec<_>>().join("; "))
        };
        if version == Version::Two {
            let counts = [self.samples, self.histograms, self.exemplars];
            for (name, count) in WRITTEN_HEADERS.into_iter().zip(counts) {
                answer.headers_mut().insert(name, count.into());
            }
        }
        answer
    }
}

fn text(status: StatusCode, mut message: String) -> Response<Full<Bytes>> {
    message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
    let mut answer = Response::new(Full::new(message.into()));
    *answer.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, plain);
    answer
}
