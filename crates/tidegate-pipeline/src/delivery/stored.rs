// SPDX-License-Identifier: Apache-2.0

//! The format of batches on disk.
//!
//! | bytes | |
//! | --- | --- |
//! | 4 | length of the following field |
//! | | position of the temporality conversion in each stream of the batch |
//! | 1 | version of this layout |
//! | 8 | arrival, nanoseconds since 1970 |
//! | 1 + 8 + 8 + 8 + 1 | whether to join it; time-out in nanoseconds, two sizes, the unit of the sizes |
//! | 2 | number of kept headers; each has 2 bytes length of the name, 4 of the value, and both texts |
//! | 4 | number of requests; each has 4 bytes number of items, 4 bytes length |
//! | | the requests |

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;
use tidegate_wal::Stored;

use crate::batch::{Batch, Batching, ClientMetadata, Encoded, Part, Payload, Signal, Sizer};
use crate::component::wall_now;

const VERSION: u8 = 1;
const SIZERS: [Sizer; 3] = [Sizer::Requests, Sizer::Items, Sizer::Bytes];

/// Encodes the payload of a batch as it is stored.
pub(super) fn encode(batch: Batch) -> Batch {
    match &batch.payload {
        Payload::Encoded(_) => batch,
        payload => batch.with(payload.encode()),
    }
}

/// The bytes of a batch, with the positions of its streams. The requests are shared, not copied.
pub(super) fn to_bytes(batch: &Batch, cursor: &[u8]) -> SmallVec<[Bytes; 2]> {
    let encoded = batch.payload.encode();
    let mut head = BytesMut::new();
    head.put_u32_le(cursor.len() as u32);
    head.put_slice(cursor);
    head.put_u8(VERSION);
    let age = u64::try_from(batch.arrived.elapsed().as_nanos()).unwrap_or(u64::MAX);
    head.put_u64_le(wall_now().saturating_sub(age));
    put_batching(&mut head, batch.batching.as_ref());
    let none = HeaderMap::new();
    let headers = batch.client.as_ref().map_or(&none, |client| client.headers());
    head.put_u16_le(headers.len() as u16);
    for (name, value) in headers {
        head.put_u16_le(name.as_str().len() as u16);
        head.put_u32_le(value.len() as u32);
        head.put_slice(name.as_str().as_bytes());
        head.put_slice(value.as_bytes());
    }
    head.put_u32_le(encoded.parts.len() as u32);
    for part in &encoded.parts {
        head.put_u32_le(part.items as u32);
        head.put_u32_le(part.bytes.len() as u32);
    }
    let requests = encoded.parts.into_iter().map(|part| part.bytes);
    std::iter::once(head.freeze()).chain(requests).collect()
}

fn put_batching(to: &mut BytesMut, batching: Option<&Batching>) {
    let Some(batching) = batching else {
        return to.put_u8(0);
    };
    to.put_u8(1);
    to.put_u64_le(u64::try_from(batching.timeout.as_nanos()).unwrap_or(u64::MAX));
    to.put_u64_le(batching.min_size as u64);
    to.put_u64_le(batching.max_size as u64);
    let sizer = SIZERS.iter().position(|sizer| *sizer == batching.sizer);
    to.put_u8(sizer.unwrap_or_default() as u8);
}

/// The stream positions of a stored batch.
pub(super) fn cursor(mut payload: &[u8]) -> Option<&[u8]> {
    let length = payload.try_get_u32_le().ok()? as usize;
    payload.get(..length)
}

/// The stored batch. `None` if another version wrote it.
pub(super) fn from_bytes(stored: Stored) -> Option<Batch> {
    let signal = *Signal::ALL.get(usize::from(stored.tag))?;
    let mut from = stored.payload;
    let cursor = from.try_get_u32_le().ok()? as usize;
    take(&mut from, cursor)?;
    if from.try_get_u8().ok()? != VERSION {
        return None;
    }
    let age = Duration::from_nanos(wall_now().saturating_sub(from.try_get_u64_le().ok()?));
    let batching = match from.try_get_u8().ok()? {
        0 => None,
        _ => Some(Batching {
            timeout: Duration::from_nanos(from.try_get_u64_le().ok()?),
            min_size: usize::try_from(from.try_get_u64_le().ok()?).ok()?,
            max_size: usize::try_from(from.try_get_u64_le().ok()?).ok()?,
            sizer: *SIZERS.get(usize::from(from.try_get_u8().ok()?))?,
            metrics: None,
        }),
    };
    let headers = headers(&mut from)?;
    let parts = from.try_get_u32_le().ok()?;
    let mut sizes = Vec::new();
    for _ in 0..parts {
        sizes.push((from.try_get_u32_le().ok()?, from.try_get_u32_le().ok()?));
    }
    let mut encoded = Encoded {
        signal,
        parts: SmallVec::new(),
    };
    for (items, length) in sizes {
        encoded.parts.push(Part {
            items: items as usize,
            bytes: take(&mut from, length as usize)?,
        });
    }
    let now = Instant::now();
    Some(Batch {
        payload: encoded.into(),
        arrived: now.checked_sub(age).unwrap_or(now),
        batching,
        client: (!headers.is_empty()).then(|| Arc::new(ClientMetadata::new(headers))),
        peer: None,
        snapshot_of: None,
        is_snapshot: false,
        lease: None,
    })
}

fn headers(from: &mut Bytes) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for _ in 0..from.try_get_u16_le().ok()? {
        let (name, value) = (from.try_get_u16_le().ok()?, from.try_get_u32_le().ok()?);
        let name = HeaderName::from_bytes(&take(from, name.into())?).ok()?;
        let value = HeaderValue::from_bytes(&take(from, value as usize)?).ok()?;
        headers.append(name, value);
    }
    Some(headers)
}

fn take(from: &mut Bytes, length: usize) -> Option<Bytes> {
    (length <= from.len()).then(|| from.split_to(length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stored(batch: &Batch) -> Stored {
        Stored {
            seq: 1,
            tag: batch.signal() as u8,
            items: batch.items() as u32,
            payload: to_bytes(batch, b"cursor").concat().into(),
        }
    }

    #[test]
    fn a_batch_comes_back_with_all_that_travels_with_it() {
        let mut headers = HeaderMap::new();
        headers.append("x-tenant", HeaderValue::from_static("a"));
        headers.append("x-tenant", HeaderValue::from_bytes(b"\xFFb").unwrap());
        let mut encoded = Encoded::one(Signal::Logs, Bytes::from_static(b"one"), 3);
        encoded.parts.push(Part {
            bytes: Bytes::from_static(b"three"),
            items: 4,
        });
        let batch = Batch {
            batching: Some(Batching {
                timeout: Duration::from_millis(200),
                min_size: 5,
                max_size: 0,
                sizer: Sizer::Bytes,
                metrics: None,
            }),
            client: Some(Arc::new(ClientMetadata::new(headers))),
            ..Batch::new(encoded)
        };
        let stored = stored(&batch);
        assert_eq!(cursor(&stored.payload), Some(&b"cursor"[..]));
        let back = from_bytes(stored).unwrap();
        assert_eq!((back.signal(), back.items()), (Signal::Logs, 7));
        assert_eq!(back.batching, batch.batching);
        assert_eq!(back.client, batch.client);
        let Payload::Encoded(encoded) = back.payload else {
            panic!("not encoded")
        };
        let parts: Vec<_> = encoded
            .parts
            .iter()
            .map(|part| (&*part.bytes, part.items))
            .collect();
        assert_eq!(parts, [(&b"one"[..], 3), (b"three", 4)]);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(payload in prop::collection::vec(any::<u8>(), 0..200), tag: u8) {
            let payload = [vec![0, 0, 0, 0, VERSION], payload].concat();
            from_bytes(Stored { seq: 1, tag, items: 1, payload: payload.into() });
        }
    }
}
