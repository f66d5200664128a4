// SPDX-License-Identifier: Apache-2.0

//! A producer claims the number of a run. The number is higher than all earlier ones, even if the clock was set back.

use bytes::Bytes;
use tidegate_engine::UnixNanos;

use crate::{CallId, StoreCall, StoreError, StoreMessage, StoreReply};

/// The distance of two runs. The sequences of a run begin with its number, and a run has fewer sequences than this. So a
/// later run with the same start times has the higher sequences.
const RUN_DISTANCE: u64 = 1 << 36;

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
        let after_last = match self.last {
            0 => 0,
            last => last.saturating_add(RUN_DISTANCE),
        };
        let epoch = wall.max(after_last).saturating_add(u64::from(nonce) & NONCE_MASK);
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

/// The number in a record; 0: the record has none.
fn epoch_of(body: &Bytes) -> UnixNanos {
    let text = std::str::from_utf8(body).unwrap_or_default();
    text.parse().unwrap_or_default()
}
