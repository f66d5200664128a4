// SPDX-License-Identifier: Apache-2.0

//! Why a message was not sent, and what helps.

use std::error::Error;

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::{self, ErrorCode};

use crate::connection::ConnectionError;

/// Why a message was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NatsSendError {
    /// The server or the stream takes no message of this size.
    #[error(
        "{0}: reduce `max_message_size`, or raise `max_payload` of the server or `max_msg_size` of the stream"
    )]
    TooLarge(String),
    /// The servers do not accept the user.
    #[error("{0}: check `auth` and `tls`")]
    Login(String),
    /// A retry may help.
    #[error("{0}")]
    Retry(String),
    /// No stream takes the subject.
    #[error("{0}")]
    NoStream(String),
    /// A retry with a new connection may help.
    #[error("{0}")]
    Broken(String),
    /// A retry gets the same answer.
    #[error("{0}")]
    Permanent(String),
}

/// The codes of messages that are too large for their stream.
const TOO_LARGE: [ErrorCode; 2] = [
    ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM,
    ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM,
];

impl NatsSendError {
    /// What the error of a connection means.
    pub(super) fn of_connection(error: &ConnectionError) -> Self {
        let why = error.to_string();
        match error {
            ConnectionError::Options(_) => Self::Permanent(why),
            _ if error.is_login() => Self::Login(why),
            _ => Self::Retry(why),
        }
    }

    /// What the error of a message means. `denied`: the first permission that the user lacks.
    pub(super) fn of(error: &PublishError, subject: &str, denied: Option<String>) -> Self {
        let cause = error
            .source()
            .and_then(|cause| cause.downcast_ref::<jetstream::Error>());
        let code = cause.map(jetstream::Error::error_code);
        let why = format!("subject `{subject}`: {error}");
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => Self::TooLarge(why),
            _ if code.is_some_and(|code| TOO_LARGE.contains(&code)) => Self::TooLarge(why),
            PublishErrorKind::StreamNotFound => Self::NoStream(no_stream(subject)),
            PublishErrorKind::TimedOut => Self::Retry(match denied {
                Some(denied) => format!(
                    "subject `{subject}`: {denied}: grant the user to publish on `{subject}` and to subscribe to `_INBOX.>`"
                ),
                None => format!("{why}. If that does not end, check that a stream takes the subject"),
            }),
            PublishErrorKind::BrokenPipe => Self::Broken(why),
            // The connection has ended, if the server did not say anything.
            PublishErrorKind::Other if code.is_none() => Self::Broken(why),
            _ => Self::Retry(why),
        }
    }
}

fn no_stream(subject: &str) -> String {
    format!(
        "no stream takes the subject `{subject}`: create one, or set `stream` to let the exporter create it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_server_name_the_cure() {
        let of = |kind, denied: Option<&str>| {
            NatsSendError::of(&PublishError::new(kind), "otlp.logs", denied.map(str::to_owned))
        };
        let absent = of(PublishErrorKind::StreamNotFound, None);
        assert!(matches!(absent, NatsSendError::NoStream(_)));
        assert!(
            absent
                .to_string()
                .contains("no stream takes the subject `otlp.logs`: create one"),
            "{absent}"
        );
        let large = of(PublishErrorKind::MaxPayloadExceeded, None).to_string();
        assert!(large.contains("reduce `max_message_size`"), "{large}");
        let denied = of(PublishErrorKind::TimedOut, Some("Permissions Violation")).to_string();
        assert!(denied.contains("grant the user to publish"), "{denied}");
        assert!(matches!(
            of(PublishErrorKind::BrokenPipe, None),
            NatsSendError::Broken(_)
        ));
    }
}
