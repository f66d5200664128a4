// SPDX-License-Identifier: Apache-2.0

//! Messages as a consumer gets them, and answers to them.

use std::time::Duration;

use async_nats::jetstream::{self, AckKind};
use async_nats::{HeaderMap, HeaderName, Subject};
use bytes::Bytes;

/// The header with the compression of the content.
const CONTENT_ENCODING: &str = "Content-Encoding";

/// The bytes of a message in the gateway, beside its content.
const MESSAGE_BYTES: usize = 512;

/// The bytes of a header in a message, beside its content.
const HEADER_BYTES: usize = 64;

/// The identity of a message of a stream. A stream that was deleted and created again begins to count again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageKey {
    /// The number in the stream.
    pub sequence: u64,
    /// When the stream took it, in nanoseconds.
    pub published: u64,
}

/// Where the answer to a message goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplySubject(pub(super) Subject);

impl From<&str> for ReplySubject {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

/// An answer to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// It is done.
    Done,
    /// It is not done, and may come again at once.
    Again,
    /// The work on it goes on: its time begins again.
    InProgress,
    /// Nobody can take it: it does not come again.
    Never,
}

impl Acknowledgement {
    pub(super) fn payload(self) -> Bytes {
        let kind = match self {
            Self::Done => AckKind::Ack,
            Self::Again => AckKind::Nak(None::<Duration>),
            Self::InProgress => AckKind::Progress,
            Self::Never => AckKind::Term,
        };
        kind.into()
    }
}

/// A message of a stream.
#[derive(Clone, Debug)]
pub struct NatsMessageIn {
    /// Its number and time.
    pub key: MessageKey,
    /// Its subject.
    pub subject: String,
    /// Where its answer goes.
    pub reply: ReplySubject,
    /// Its content. It is a copy, so that a message that waits does not keep the buffer of the connection.
    pub payload: Bytes,
    /// How its content is compressed.
    pub content_encoding: Option<String>,
    /// The first header of each wanted name.
    pub headers: Vec<(String, String)>,
    /// Its memory, about.
    pub bytes: usize,
}

/// The memory of the messages of a pull, beside their contents and headers.
pub(super) fn messages_bytes(messages: usize, headers: usize) -> usize {
    messages * (MESSAGE_BYTES + headers * HEADER_BYTES)
}

/// A message with the headers that are wanted. `None`: it has no position in a stream.
pub(super) fn incoming(message: &jetstream::Message, wanted: &[String]) -> Option<NatsMessageIn> {
    let info = message.info().ok()?;
    let key = MessageKey {
        sequence: info.stream_sequence,
        published: u64::try_from(info.published.unix_timestamp_nanos()).unwrap_or_default(),
    };
    let headers = message.headers.as_ref();
    let kept = wanted_headers(headers, wanted);
    let content_encoding = headers.and_then(content_encoding);
    let content: usize = kept.iter().map(|(name, value)| name.len() + value.len()).sum();
    Some(NatsMessageIn {
        key,
        subject: message.subject.to_string(),
        reply: ReplySubject(message.reply.clone()?),
        bytes: messages_bytes(1, kept.len()) + content + message.payload.len(),
        payload: Bytes::copy_from_slice(&message.payload),
        content_encoding,
        headers: kept,
    })
}

/// The compression that the headers name. Clients write the name of the header in several ways.
fn content_encoding(headers: &HeaderMap) -> Option<String> {
    let is_coding = |name: &HeaderName| AsRef::<str>::as_ref(name).eq_ignore_ascii_case(CONTENT_ENCODING);
    let (_, values) = headers.iter().find(|(name, _)| is_coding(name))?;
    values.first().map(|value| value.as_str().to_owned())
}

/// The first header of each wanted name.
fn wanted_headers(headers: Option<&HeaderMap>, wanted: &[String]) -> Vec<(String, String)> {
    let first = |name: &String| {
        let value = headers?.get(name.as_str())?;
        Some((name.clone(), value.as_str().to_owned()))
    };
    wanted.iter().filter_map(first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_the_first_header_of_each_wanted_name() {
        let mut headers = HeaderMap::new();
        headers.append("tenant", "a");
        headers.append("tenant", "b");
        headers.append("other", "c");
        let wanted = ["tenant".to_owned(), "absent".to_owned()];
        let kept = wanted_headers(Some(&headers), &wanted);
        assert_eq!(kept, [("tenant".to_owned(), "a".to_owned())]);
        assert!(wanted_headers(None, &wanted).is_empty());
    }

    #[test]
    fn the_compression_is_found_in_any_case() {
        let mut headers = HeaderMap::new();
        headers.insert("content-encoding", "zstd");
        assert_eq!(content_encoding(&headers).as_deref(), Some("zstd"));
        assert_eq!(content_encoding(&HeaderMap::new()), None);
    }

    #[test]
    fn answers_are_those_of_jetstream() {
        assert_eq!(Acknowledgement::Done.payload(), "+ACK");
        assert_eq!(Acknowledgement::Again.payload(), "-NAK");
        assert_eq!(Acknowledgement::InProgress.payload(), "+WPI");
        assert_eq!(Acknowledgement::Never.payload(), "+TERM");
    }
}
