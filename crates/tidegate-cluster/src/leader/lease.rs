// SPDX-License-Identifier: Apache-2.0

//! The lease of the leader. A holder trusts it by its own clock, from the moment at which it asked.

use std::time::Duration;

use bytes::Bytes;
use tidegate_engine::UnixNanos;

use crate::{CallId, LeaseRequest, StoreCall, StoreError, StoreMessage, StoreReply, nanos};

/// A replica that holds the lease or asks for it.
#[derive(Debug)]
pub(super) struct LeaseHolder {
    subject: String,
    /// The name of the holder, which no other process has.
    name: Bytes,
    term: Duration,
    /// The sequence of the record to replace; 0: there is none.
    sequence: u64,
    held_until: UnixNanos,
    next: UnixNanos,
    asked: Option<(CallId, UnixNanos)>,
}

impl LeaseHolder {
    pub(super) fn new(subject: String, name: String, term: Duration) -> Self {
        Self {
            subject,
            name: name.into(),
            term,
            sequence: 0,
            held_until: 0,
            next: 0,
            asked: None,
        }
    }

    pub(super) fn is_held(&self, now: UnixNanos) -> bool {
        now < self.held_until
    }

    /// The call that is due: three in each term.
    pub(super) fn poll(&mut self, ids: &mut CallId, now: UnixNanos) -> Option<(CallId, StoreCall)> {
        let is_lost = self
            .asked
            .is_some_and(|(_, at)| now.saturating_sub(at) > nanos(self.term));
        if (self.asked.is_some() && !is_lost) || now < self.next {
            return None;
        }
        let id = ids.advance();
        self.asked = Some((id, now));
        self.next = now.saturating_add(nanos(self.term) / 3);
        let request = LeaseRequest {
            message: StoreMessage {
                subject: self.subject.clone(),
                headers: Vec::new(),
                body: self.name.clone(),
            },
            expected: self.sequence,
            term: self.term,
        };
        Some((id, StoreCall::Lease(request)))
    }

    /// Takes the answer to a call. `false`: the call is not one of the lease.
    pub(super) fn answer(&mut self, id: CallId, result: &Result<StoreReply, StoreError>) -> bool {
        let Some((_, at)) = self.asked.take_if(|(asked, _)| *asked == id) else {
            return false;
        };
        match result {
            Ok(StoreReply::Stored(sequence)) => {
                self.sequence = *sequence;
                self.held_until = at.saturating_add(nanos(self.term));
            }
            Err(StoreError::Conflict(current)) => {
                self.held_until = 0;
                // The record may be ours, if the answer to an earlier call got lost.
                let own = current
                    .as_ref()
                    .filter(|current| current.message.body == self.name);
                self.sequence = own.map_or(0, |own| own.sequence);
                if own.is_some() || current.is_none() {
                    self.next = at;
                }
            }
            Ok(_) | Err(_) => {}
        }
        true
    }
}
