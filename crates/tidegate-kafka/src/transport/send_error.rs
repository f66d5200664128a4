// SPDX-License-Identifier: Apache-2.0

//! Why a message was not sent, and what helps.

use krafka::KrafkaError;
use krafka::error::{ErrorCode, ProtocolErrorKind};

/// Why a message was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The broker takes no message of this size.
    #[error(
        "{0}: reduce `producer::max_message_bytes`, or raise the limit of the topic (`max.message.bytes`)"
    )]
    TooLarge(String),
    /// The brokers do not accept the user.
    #[error("{0}: check `auth` and `tls`")]
    Login(String),
    /// The user lacks a right.
    #[error("{0}: the user needs the ACL `Write` on the topic")]
    Access(String),
    /// A retry may help.
    #[error("{0}")]
    Retry(String),
    /// A retry with a new connection may help.
    #[error("{0}")]
    Broken(String),
    /// A retry gets the same answer.
    #[error("{0}")]
    Permanent(String),
}

impl SendError {
    /// What an error of the library means.
    pub(super) fn of(error: &KrafkaError, topic: &str) -> Self {
        let why = format!("topic `{topic}`: {error}");
        match error {
            KrafkaError::Broker { code, .. } => of_code(*code, topic, why),
            KrafkaError::UnknownTopic { .. } => Self::Retry(absent(topic)),
            KrafkaError::Protocol {
                kind: ProtocolErrorKind::FrameTooLarge,
                ..
            } => Self::TooLarge(why),
            KrafkaError::Auth { .. } => Self::Login(why),
            _ if error.is_fatal() => Self::Broken(why),
            _ if error.is_retriable() => Self::Retry(why),
            KrafkaError::Config { .. }
            | KrafkaError::Compression { .. }
            | KrafkaError::Serialization { .. } => Self::Permanent(why),
            _ => Self::Retry(why),
        }
    }
}

fn of_code(code: ErrorCode, topic: &str, why: String) -> SendError {
    match code {
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => SendError::TooLarge(why),
        ErrorCode::TopicAuthorizationFailed | ErrorCode::ClusterAuthorizationFailed => SendError::Access(why),
        ErrorCode::SaslAuthenticationFailed => SendError::Login(why),
        ErrorCode::UnknownTopicOrPartition => SendError::Retry(absent(topic)),
        ErrorCode::OutOfOrderSequenceNumber
        | ErrorCode::ProducerFenced
        | ErrorCode::InvalidProducerEpoch
        | ErrorCode::UnknownProducerId => SendError::Broken(why),
        code if code.is_retriable() => SendError::Retry(why),
        _ => SendError::Permanent(why),
    }
}

fn absent(topic: &str) -> String {
    format!("the topic `{topic}` does not exist: create it, or let the brokers create topics")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_brokers_have_their_meaning() {
        let of = |code| SendError::of(&KrafkaError::broker(code, "m"), "t");
        assert!(matches!(of(ErrorCode::MessageTooLarge), SendError::TooLarge(_)));
        assert!(matches!(
            of(ErrorCode::TopicAuthorizationFailed),
            SendError::Access(_)
        ));
        assert!(matches!(of(ErrorCode::NotEnoughReplicas), SendError::Retry(_)));
        assert!(matches!(
            of(ErrorCode::UnknownTopicOrPartition),
            SendError::Retry(_)
        ));
        assert!(matches!(
            of(ErrorCode::InvalidRequiredAcks),
            SendError::Permanent(_)
        ));
        let login = SendError::of(&KrafkaError::auth("no"), "t");
        assert!(login.to_string().contains("check `auth`"), "{login}");
        let gone = SendError::of(&KrafkaError::unknown_topic("t"), "t");
        assert!(gone.to_string().contains("`t` does not exist"), "{gone}");
        assert!(matches!(
            SendError::of(&KrafkaError::timeout("x"), "t"),
            SendError::Retry(_)
        ));
        assert!(matches!(
            SendError::of(&KrafkaError::closed("x"), "t"),
            SendError::Broken(_)
        ));
    }
}
