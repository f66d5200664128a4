// SPDX-License-Identifier: Apache-2.0

//! Messages as NATS carries them. Bodies are compressed with zstd if that makes them smaller.

use async_nats::datetime::DateTime;
use async_nats::{HeaderMap, HeaderValue};
use bytes::Bytes;
use tidegate_cluster::{PageLimits, StoreError, StoreMessage, StoredMessage};
use zstd::bulk;

const ENCODING: &str = "Content-Encoding";
const ZSTD: &str = "zstd";

/// The headers that the server gives a meaning.
const SERVER_PREFIX: &str = "Nats-";

/// Compressing a page must not cost more than writing it.
const LEVEL: i32 = 1;

/// Smaller bodies, such as names and numbers, hardly shrink.
const MIN_COMPRESSED: usize = 128;

/// The body that stands for one that is not readable. No OTLP request begins with a zero byte, so the reader counts it as a
/// message that is not readable.
const UNREADABLE: &[u8] = b"\0";

/// Why a body is not readable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body has more than {0} bytes")]
    TooLarge(usize),
    #[error("the body has an encoding other than zstd")]
    Encoding,
    #[error("the body is not valid zstd or has more than {most} bytes: {source}")]
    Zstd { most: usize, source: std::io::Error },
}

/// Headers and payload of a message.
pub(crate) fn encode(message: &StoreMessage, limits: PageLimits) -> Result<(HeaderMap, Bytes), StoreError> {
    if message.body.len() > limits.max_body_bytes {
        return Err(StoreError::TooLarge);
    }
    let mut headers = HeaderMap::new();
    for (name, value) in &message.headers {
        headers.insert(name.as_str(), value.as_str());
    }
    let compressed = compress(&message.body);
    if compressed.is_some() {
        headers.insert(ENCODING, ZSTD);
    }
    Ok((headers, compressed.unwrap_or_else(|| message.body.clone())))
}

/// `None`: the body is small, or it does not shrink.
fn compress(body: &[u8]) -> Option<Bytes> {
    if body.len() < MIN_COMPRESSED {
        return None;
    }
    let compressed = bulk::compress(body, LEVEL).ok()?;
    (compressed.len() < body.len()).then(|| compressed.into())
}

/// A message of the store, as NATS gives it.
pub(crate) struct NatsMessage<'a> {
    pub(crate) subject: &'a str,
    pub(crate) headers: Option<&'a HeaderMap>,
    pub(crate) payload: Bytes,
    pub(crate) sequence: u64,
    pub(crate) time: DateTime,
}

impl NatsMessage<'_> {
    /// The message for a state machine, also if its body is not readable.
    pub(crate) fn decode(self, limits: PageLimits) -> (StoredMessage, Result<(), BodyError>) {
        let (body, result) = match self.body(limits) {
            Ok(body) => (body, Ok(())),
            Err(error) => (Bytes::from_static(UNREADABLE), Err(error)),
        };
        let stored = StoredMessage {
            message: StoreMessage {
                subject: self.subject.to_owned(),
                headers: self.headers.map(headers).unwrap_or_default(),
                body,
            },
            sequence: self.sequence,
            time: u64::try_from(self.time.unix_timestamp_nanos()).unwrap_or_default(),
        };
        (stored, result)
    }

    fn body(&self, limits: PageLimits) -> Result<Bytes, BodyError> {
        let most = limits.max_body_bytes;
        if self.payload.len() > most {
            return Err(BodyError::TooLarge(most));
        }
        let encoding = self.headers.and_then(|headers| headers.get(ENCODING));
        match encoding.map(HeaderValue::as_str) {
            None => Ok(self.payload.clone()),
            // It allocates what the frame declares, and at most the limit.
            Some(ZSTD) => match bulk::decompress(&self.payload, most) {
                Ok(body) => Ok(body.into()),
                Err(source) => Err(BodyError::Zstd { most, source }),
            },
            Some(_) => Err(BodyError::Encoding),
        }
    }
}

fn headers(map: &HeaderMap) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    for (name, values) in map.iter() {
        let name: &str = name.as_ref();
        if name == ENCODING || name.starts_with(SERVER_PREFIX) {
            continue;
        }
        if let Some(value) = values.first() {
            headers.push((name.to_owned(), value.as_str().to_owned()));
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use tidegate_cluster::PageHeaders;
    use tidegate_cluster::testing::{stored_message, stored_zstd};

    use super::*;

    const LIMITS: PageLimits = PageLimits {
        max_body_bytes: 1 << 16,
        max_decoded_bytes: 1 << 20,
    };

    fn message(body: impl Into<Bytes>) -> StoreMessage {
        StoreMessage {
            subject: "tg.c.k.leader".to_owned(),
            headers: vec![("tg-v".to_owned(), "1".to_owned())],
            body: body.into(),
        }
    }

    fn decoded(headers: &HeaderMap, payload: Bytes) -> (StoredMessage, Result<(), BodyError>) {
        let message = NatsMessage {
            subject: "tg.c.k.leader",
            headers: Some(headers),
            payload,
            sequence: 7,
            time: async_nats::datetime::from_nanos(9).unwrap(),
        };
        message.decode(LIMITS)
    }

    #[test]
    fn messages_survive_and_large_bodies_shrink() {
        for body in [vec![], vec![b'x'; 30], vec![b'x'; 1 << 16]] {
            let sent = message(body);
            let (mut headers, payload) = encode(&sent, LIMITS).unwrap();
            assert!(payload.len() <= 30);
            headers.insert("Nats-Expected-Last-Subject-Sequence", "1");
            let (stored, result) = decoded(&headers, payload);
            result.unwrap();
            assert_eq!((stored.sequence, stored.time), (7, 9));
            assert_eq!(stored.message, sent);
        }
    }

    #[test]
    fn a_body_above_the_limit_is_not_sent() {
        let sent = message(vec![0; (1 << 16) + 1]);
        assert_eq!(encode(&sent, LIMITS).unwrap_err(), StoreError::TooLarge);
    }

    #[test]
    fn bodies_that_are_not_readable_are_marked() {
        let bomb = bulk::compress(&vec![0; 1 << 20], LEVEL).unwrap();
        let streamed = zstd::stream::encode_all(&*vec![0; 1 << 20], LEVEL).unwrap();
        let cases = [
            ("zstd", Bytes::from_static(b"no frame")),
            ("zstd", bomb.into()),
            ("zstd", streamed.into()),
            ("br", Bytes::new()),
            ("zstd", vec![0; (1 << 16) + 1].into()),
        ];
        for (encoding, payload) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(ENCODING, encoding);
            let (stored, result) = decoded(&headers, payload);
            assert!(result.is_err());
            assert_eq!(stored.message.body, UNREADABLE);
        }
    }

    #[test]
    fn messages_of_version_1_are_read_and_written_as_zstd() {
        for name in ["page", "stream", "window", "record"] {
            let expected = stored_message(name);
            let (mut headers, payload) = encode(&expected, LIMITS).unwrap();
            assert_eq!(headers.get(ENCODING).unwrap().as_str(), ZSTD);
            assert_eq!(zstd::stream::decode_all(&payload[..]).unwrap(), expected.body);
            headers.insert("Nats-Expected-Last-Subject-Sequence", "1");
            let (stored, result) = decoded(&headers, stored_zstd(name));
            result.unwrap();
            assert_eq!(stored.message.body, expected.body);
            let [read, written] = [&stored.message, &expected].map(|one| PageHeaders::parse(&one.headers));
            assert_eq!(read.unwrap(), written.unwrap());
        }
    }
}
