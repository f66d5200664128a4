// SPDX-License-Identifier: Apache-2.0

//! The part of a request that one message has, with the id by which the stream recognises it.
//!
//! A part keeps its id in all attempts. Its halves have ids of their own, which begin with that of the whole.

use std::fmt::Write;

use crate::batch::Encoded;
use crate::exporters::progress::MessagePart;

/// The digits of a random id.
const DIGITS: usize = 32;

/// The most halvings of a request: it has less than 2^32 items.
const HALVINGS: usize = 33;

/// The most bytes of an id.
pub(super) const ID_BYTES: usize = DIGITS + 1 + HALVINGS;

#[derive(Clone, Debug)]
pub(super) struct NatsPart {
    pub(super) id: String,
    pub(super) encoded: Encoded,
}

impl NatsPart {
    /// A whole request. The id is random, so that equal requests do not count as duplicates.
    pub(super) fn whole(encoded: Encoded) -> Self {
        let mut id = String::with_capacity(DIGITS);
        // A `String` takes all text.
        let _ = write!(id, "{:032x}", rand::random::<u128>());
        Self { id, encoded }
    }

    fn half(&self, digit: char, encoded: Encoded) -> Self {
        let mut id = self.id.clone();
        if id.len() == DIGITS {
            id.push('-');
        }
        id.push(digit);
        Self { id, encoded }
    }
}

impl MessagePart for NatsPart {
    fn items(&self) -> usize {
        self.encoded.items()
    }

    fn bytes(&self) -> usize {
        self.encoded.bytes()
    }

    fn halves(&self) -> Option<[Self; 2]> {
        let half = self.encoded.items() / 2;
        if half == 0 {
            return None;
        }
        let (left, right) = self.encoded.split_at(half)?;
        Some([self.half('0', left), self.half('1', right)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exporters::testing::points;

    #[test]
    fn halves_have_ids_of_their_own_that_stay_the_same() {
        let encoded = points(4).payload.encode();
        let whole = NatsPart::whole(encoded.clone());
        let again = NatsPart::whole(encoded);
        assert_ne!(whole.id, again.id, "equal requests do not count as duplicates");
        let [left, right] = whole.halves().unwrap();
        assert_ne!(left.id, right.id);
        let [same, _] = whole.halves().unwrap();
        assert_eq!(left.id, same.id);
        let [deep, _] = left.halves().unwrap();
        assert_eq!(deep.id, format!("{}-00", whole.id));
        assert!(deep.halves().is_none());
    }
}
