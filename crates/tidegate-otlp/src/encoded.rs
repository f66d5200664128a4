// SPDX-License-Identifier: Apache-2.0

//! Requests as wire bytes, and cuts between and in them.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::{Signal, wire};

/// Wire bytes of one or more `Export*ServiceRequest`s of one signal (which are also `*Data` messages:
/// the field numbers agree). Protobuf concatenation joins requests, so the parts one after another are one request;
/// the boundaries are kept so that one poisonous request can be cut out again.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// Which request type.
    pub signal: Signal,
    /// The requests. Never empty in flight.
    pub parts: SmallVec<[Part; 1]>,
}

/// One request as it came in or as a processor left it.
#[derive(Clone, Debug)]
pub struct Part {
    /// Protobuf bytes whose nesting has been checked.
    pub bytes: Bytes,
    /// Points, spans or log records in it.
    pub items: usize,
}

impl Encoded {
    /// One checked request. Use `wire::check` (it counts the items) for bytes from outside.
    #[inline]
    pub fn one(signal: Signal, bytes: Bytes, items: usize) -> Self {
        Self {
            signal,
            parts: SmallVec::from_buf([Part { bytes, items }]),
        }
    }

    /// Points, spans or log records.
    #[inline]
    pub fn items(&self) -> usize {
        self.parts.iter().map(|part| part.items).sum()
    }

    /// Encoded length in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes.len()).sum()
    }

    /// All parts as one request, in one run of bytes; a single part is not copied.
    pub fn joined(&self) -> Bytes {
        match self.parts.as_slice() {
            [only] => only.bytes.clone(),
            parts => {
                let mut whole = Vec::with_capacity(self.bytes());
                parts.iter().for_each(|part| whole.extend_from_slice(&part.bytes));
                whole.into()
            }
        }
    }

    /// The first `at` items and the others. Whole requests go to one side or the other; at most one is cut. `None`: that
    /// one can't be cut there.
    pub fn split_at(&self, at: usize) -> Option<(Self, Self)> {
        let side = || Self {
            signal: self.signal,
            parts: SmallVec::new(),
        };
        let (mut left, mut right) = (side(), side());
        for part in &self.parts {
            let room = at.saturating_sub(left.items());
            match room {
                0 => right.parts.push(part.clone()),
                room if part.items <= room => left.parts.push(part.clone()),
                room => {
                    let (head, tail) = wire::split_part(self.signal, part, room)?;
                    left.parts.push(head);
                    right.parts.push(tail);
                }
            }
        }
        Some((left, right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_requests_stay_whole_where_the_cut_is_between_them() {
        let part = |items| Part {
            bytes: Bytes::from_static(b"opaque"),
            items,
        };
        let encoded = Encoded {
            signal: Signal::Logs,
            parts: [part(2), part(3), part(4)].into_iter().collect(),
        };
        let (left, right) = encoded.split_at(5).unwrap();
        assert_eq!((left.items(), right.items()), (5, 4));
    }
}
