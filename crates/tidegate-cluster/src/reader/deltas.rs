// SPDX-License-Identifier: Apache-2.0

//! The record of deltas in the store: its holder is the replica that exported the newest ones.

use bytes::Bytes;
use tidegate_engine::UnixNanos;

use crate::StoredMessage;

/// The newest known state of the record.
#[derive(Debug, Default)]
pub(crate) struct DeltaRecord {
    sequence: u64,
    /// When the store took it, by the clock of the store; 0: not known.
    time: UnixNanos,
    holder: Bytes,
}

impl DeltaRecord {
    /// Notes the record. An older one counts only if the store has it now.
    pub(super) fn note(&mut self, stored: &StoredMessage, is_current: bool) {
        // A store that has lost its messages counts from the beginning.
        if is_current || stored.sequence > self.sequence || stored.time > self.time {
            self.set(stored.sequence, &stored.message.body);
            self.time = stored.time;
        }
    }

    /// Notes the record that a replica has written. The sequence 0 says that the store has none.
    pub(crate) fn set(&mut self, sequence: u64, holder: &Bytes) {
        self.sequence = sequence;
        self.holder.clone_from(holder);
    }

    /// Its sequence; 0: there is none.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// When the store took it, by the clock of the store; 0: not known.
    pub(crate) fn time(&self) -> UnixNanos {
        self.time
    }

    /// Whether another replica than `name` holds it.
    pub(crate) fn is_of_another(&self, name: &Bytes) -> bool {
        self.sequence > 0 && self.holder != *name
    }
}
