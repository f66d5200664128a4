// SPDX-License-Identifier: Apache-2.0

//! Copies of messages: their order, their compression, and their form on the wire.

use bytes::Bytes;
use tidegate_cluster::{MessageStore, StoreError, StoreMessage, StoredMessage};
use tidegate_engine::UnixNanos;
use zstd::bulk;
use zstd::zstd_safe::get_frame_content_size;

use crate::wire::MessageCopy;

/// The order of a record. The replica that decides sets it.
const ORDER: &str = "tg-order";

/// The order of a page: the sequence of its producer.
const SEQUENCE: &str = "tg-seq";

/// The compression of a body.
const CODING: &str = "tg-coding";

/// The one value of [`CODING`].
const ZSTD: &str = "zstd";

/// The compression must not cost more than the page.
const LEVEL: i32 = 1;

/// Shorter bodies are not compressed, in bytes.
const MIN_COMPRESSED: usize = 128;

/// The most headers of a message.
const MAX_HEADERS: usize = 16;

/// Of two messages of a subject, the one with the higher order is newer. `None`: the message has no order.
pub(crate) fn order(message: &StoreMessage) -> Option<u64> {
    let headers = message.headers.iter();
    order_in(headers.map(|(name, value)| (name.as_str(), value.as_str())))
}

/// The order of a message on the wire.
pub(crate) fn copy_order(copy: &MessageCopy) -> Option<u64> {
    order_in(copied_headers(copy))
}

fn order_in<'a>(headers: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Option<u64> {
    let value = |wanted: &str| {
        let mut headers = headers.clone();
        headers.find_map(|(name, value)| (name == wanted).then_some(value))
    };
    value(ORDER).or_else(|| value(SEQUENCE))?.parse().ok()
}

/// The order of a message in the store; 0: there is none.
pub(crate) fn stored_order(stored: Option<&StoredMessage>) -> u64 {
    stored.and_then(|stored| order(&stored.message)).unwrap_or(0)
}

/// Sets the order of a record.
pub(crate) fn set_order(message: &mut StoreMessage, order: u64) {
    message.headers.retain(|(name, _)| name != ORDER);
    message.headers.push((ORDER.to_owned(), order.to_string()));
}

/// Stores a message if it is newer than that of its subject.
///
/// # Errors
/// The store refuses it.
pub(crate) fn put_newer(
    store: &mut MessageStore,
    message: StoreMessage,
    time: UnixNanos,
    lease_end: Option<UnixNanos>,
) -> Result<(), StoreError> {
    if order(&message).unwrap_or(0) > stored_order(store.get(&message.subject)) {
        store.put_until(message, time, lease_end)?;
    }
    Ok(())
}

/// Compresses the body, if that makes it shorter.
pub(crate) fn packed(mut message: StoreMessage) -> StoreMessage {
    if message.body.len() < MIN_COMPRESSED {
        return message;
    }
    let compressed = bulk::compress(&message.body, LEVEL).unwrap_or_default();
    if !compressed.is_empty() && compressed.len() < message.body.len() {
        message.body = compressed.into();
        message.headers.push((CODING.to_owned(), ZSTD.to_owned()));
    }
    message
}

/// Undoes [`packed`], and removes what only stores need. A body that can't be decompressed stays as it is, and its reader
/// counts it as unreadable.
pub(crate) fn unpacked(mut message: StoreMessage, max_body_bytes: usize) -> StoreMessage {
    let is_compressed = message.headers.iter().any(|(name, _)| name == CODING);
    message
        .headers
        .retain(|(name, _)| name != CODING && name != ORDER);
    if is_compressed && let Some(body) = decompressed(&message.body, max_body_bytes) {
        message.body = body;
    }
    message
}

fn decompressed(body: &[u8], most: usize) -> Option<Bytes> {
    let bytes = usize::try_from(get_frame_content_size(body).ok()??).ok()?;
    let body = (bytes <= most).then(|| bulk::decompress(body, bytes))?;
    body.ok().map(Bytes::from)
}

/// The message as it travels.
pub(crate) fn to_copy(stored: &StoredMessage, lease_end: Option<UnixNanos>, now: UnixNanos) -> MessageCopy {
    MessageCopy {
        age_ns: now.saturating_sub(stored.time),
        lease_ns: lease_end.map_or(0, |end| end.saturating_sub(now)),
        ..new_copy(&stored.message)
    }
}

/// A message that no store has taken yet.
pub(crate) fn new_copy(message: &StoreMessage) -> MessageCopy {
    let mut headers = String::new();
    for (name, value) in &message.headers {
        for part in [name, ":", value, "\n"] {
            headers.push_str(part);
        }
    }
    MessageCopy {
        subject: message.subject.clone(),
        headers,
        body: message.body.clone(),
        age_ns: 0,
        lease_ns: 0,
    }
}

/// The message of a copy. It owns its memory: a part of a large buffer would keep all of the buffer.
pub(crate) fn of_copy(copy: &MessageCopy) -> StoreMessage {
    StoreMessage {
        subject: copy.subject.as_str().to_owned(),
        headers: copied_headers(copy)
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        body: Bytes::copy_from_slice(&copy.body),
    }
}

fn copied_headers(copy: &MessageCopy) -> impl Iterator<Item = (&str, &str)> + Clone {
    let headers = copy.headers.lines().take(MAX_HEADERS);
    headers.filter_map(|line| line.split_once(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(sequence: u64, body: Vec<u8>) -> StoreMessage {
        StoreMessage {
            subject: "tg.c.p.00.p.1.1".to_owned(),
            headers: vec![(SEQUENCE.to_owned(), sequence.to_string())],
            body: body.into(),
        }
    }

    #[test]
    fn a_message_survives_compression_and_its_copy() {
        for bytes in [0, 10, 100_000] {
            let original = message(7, vec![5; bytes]);
            let mut packed = packed(original.clone());
            assert!(packed.body.len() <= 100, "{}", packed.body.len());
            set_order(&mut packed, 9);
            assert_eq!(order(&packed), Some(9));
            assert_eq!(unpacked(of_copy(&new_copy(&packed)), bytes), original);
        }
    }

    #[test]
    fn a_body_above_the_limit_or_of_garbage_is_not_decompressed() {
        let large = packed(message(7, vec![5; 100_000]));
        assert_eq!(unpacked(large.clone(), 99_999).body, large.body);
        let garbage = StoreMessage {
            body: Bytes::from_static(b"garbage"),
            ..large
        };
        assert_eq!(unpacked(garbage, 99_999).body, "garbage");
    }

    #[test]
    fn an_older_message_replaces_none() {
        let mut store = MessageStore::default();
        for (sequence, expected) in [(5, 5), (4, 5), (5, 5), (6, 6)] {
            put_newer(&mut store, message(sequence, Vec::new()), 0, None).unwrap();
            assert_eq!(stored_order(store.get("tg.c.p.00.p.1.1")), expected);
        }
        assert_eq!(store.sequence(), 2);
    }
}
