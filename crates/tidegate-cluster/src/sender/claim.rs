// SPDX-License-Identifier: Apache-2.0

//! A producer claims the number of a run. The number is higher than all earlier ones, even if the clock was set back.

use bytes::Bytes;
use tidegate_engine::UnixNanos;

use crate::{CallId, StoreCall, StoreError, StoreMessage, StoreReply};

/// The distance of two runs if the clock was set back. The sequences of a run begin with its number, and a run has fewer
/// sequences than this. So a later run with the same start times has the higher sequences.
const RUN_DISTANCE: u64 = 1 << 36;

/// The time of a clock that is this far (1 s) after the last number is the next number. So it is higher than one whose claim
/// the store has lost. It matters only if
/// the clock was set back meanwhile.
const CLOCK_DISTANCE: u64 = 1 << 30;

/// The highest number. Sequences that begin with it do not overflow.
const MAX_NUMBER: UnixNanos = i64::MAX as u64;

/// The bits of the nonce that a number has: 1 ms. A store that lost the last number can't cause two equal ones.
const NONCE_MASK: u64 = (1 << 20) - 1;

/// A claim, until it is granted.
#[derive(Debug)]
pub(super) struct EpochClaim {
    /// The last number that is known.
    last: UnixNanos,
    /// The sequence of the record with it.
    sequence: u64,
    asked: Option<(CallId, UnixNanos)>,
    retry_at: UnixNanos,
}

impl EpochClaim {
    /// A claim of a number above `last`.
    pub(super) fn new(last: UnixNanos) -> Self {
        Self {
            last,
            sequence: 0,
            asked: None,
            retry_at: 0,
        }
    }

    /// The call that is due. `wall` is the time by the wall clock.
    pub(super) fn poll(
        &mut self,
        ids: &mut CallId,
        subject: &str,
        nonce: u32,
        (now, wall): (UnixNanos, UnixNanos),
    ) -> Option<(CallId, StoreCall)> {
        if self.asked.is_some() || now < self.retry_at {
            return None;
        }
        let is_later = self.last == 0 || wall >= self.last.saturating_add(CLOCK_DISTANCE);
        let least = if is_later {
            wall
        } else {
            self.last.saturating_add(RUN_DISTANCE)
        };
        let epoch = least.saturating_add(u64::from(nonce) & NONCE_MASK);
        let id = ids.advance();
        self.asked = Some((id, epoch));
        let message = StoreMessage {
            subject: subject.to_owned(),
            headers: Vec::new(),
            body: epoch.to_string().into(),
        };
        Some((id, StoreCall::CompareAndSet(message, self.sequence)))
    }

    /// Takes the answer to a call. `None`: the call is not one of this claim, or the claim goes on.
    pub(super) fn answer(
        &mut self,
        id: CallId,
        result: &Result<StoreReply, StoreError>,
        retry_at: UnixNanos,
    ) -> Option<UnixNanos> {
        let (_, epoch) = self.asked.take_if(|(asked, _)| *asked == id)?;
        match result {
            Ok(_) => return Some(epoch),
            Err(StoreError::Conflict(Some(current))) => {
                self.last = self.last.max(epoch_of(&current.message.body));
                self.sequence = current.sequence;
            }
            Err(StoreError::Conflict(None)) => self.sequence = 0,
            Err(_) => self.retry_at = retry_at,
        }
        None
    }
}

/// The number in a record; 0: the record has none that a producer has claimed. No clock is that far (the year 2262).
fn epoch_of(body: &Bytes) -> UnixNanos {
    let text = std::str::from_utf8(body).unwrap_or_default();
    let number = text.parse().ok().filter(|number| *number <= MAX_NUMBER);
    number.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoredMessage;

    const LAST: UnixNanos = 1_000_000_000_000_000_000;
    const SECOND: u64 = 1_000_000_000;

    /// The number of a run that begins so long after the last one that the store knows.
    fn claimed(after: u64, nonce: u32) -> UnixNanos {
        let wall = LAST + after;
        let (mut claim, mut ids) = (EpochClaim::new(0), CallId::default());
        let (id, _) = claim.poll(&mut ids, "s", nonce, (wall, wall)).unwrap();
        let message = StoreMessage {
            subject: "s".to_owned(),
            headers: Vec::new(),
            body: LAST.to_string().into(),
        };
        let current = StoredMessage {
            message,
            sequence: 7,
            time: LAST,
        };
        let conflict = Err(StoreError::Conflict(Some(Box::new(current))));
        assert_eq!(claim.answer(id, &conflict, 0), None);
        let (id, _) = claim.poll(&mut ids, "s", nonce, (wall, wall)).unwrap();
        claim.answer(id, &Ok(StoreReply::Stored(8)), 0).unwrap()
    }

    #[test]
    fn a_run_after_a_claim_that_the_store_lost_has_the_higher_number() {
        let lost = claimed(10 * SECOND, u32::MAX);
        assert!(claimed(15 * SECOND, 0) > lost + SECOND);
    }

    #[test]
    fn a_run_has_a_higher_number_although_its_clock_was_set_back() {
        assert_eq!(claimed(0, 5), LAST + RUN_DISTANCE + 5);
        assert!(claimed(SECOND, 0) >= LAST + RUN_DISTANCE);
    }

    #[test]
    fn a_number_that_no_clock_has_is_not_a_claim() {
        assert_eq!(epoch_of(&u64::MAX.to_string().into()), 0);
        assert_eq!(epoch_of(&MAX_NUMBER.to_string().into()), MAX_NUMBER);
    }
}
