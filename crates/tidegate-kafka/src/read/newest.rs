// SPDX-License-Identifier: Apache-2.0

//! The newest message of each subject, kept while a read catches up.
//!
//! The log also has the earlier messages of a subject, until the broker compacts it: minutes of them. Merging each of them
//! takes longer than reading it, and only the newest one counts.

use std::collections::HashMap;

use bytes::Bytes;
use tidegate_cluster::StoredMessage;

/// The most bytes that are kept. The read gives all messages when there are more.
const MAX_BYTES: usize = 16 << 20;

#[derive(Default)]
pub(super) struct NewestMessages {
    by_subject: HashMap<String, StoredMessage>,
    bytes: usize,
}

impl NewestMessages {
    /// Keeps a message in place of the earlier one of its subject. Messages come in the order of the log.
    pub(super) fn insert(&mut self, mut stored: StoredMessage) {
        // A part of a batch would keep the whole batch in memory.
        stored.message.body = Bytes::copy_from_slice(&stored.message.body);
        self.bytes += stored.message.memory_bytes();
        let earlier = self.by_subject.insert(stored.message.subject.clone(), stored);
        self.bytes -= earlier.map_or(0, |earlier| earlier.message.memory_bytes());
    }

    /// Whether the messages take as many bytes as they may.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= MAX_BYTES
    }

    /// Gives all messages, in their order.
    pub(super) fn take(&mut self) -> Vec<StoredMessage> {
        self.bytes = 0;
        let mut all: Vec<_> = std::mem::take(&mut self.by_subject).into_values().collect();
        all.sort_unstable_by_key(|stored| stored.sequence);
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_cluster::StoreMessage;

    use super::*;

    fn stored(subject: u8, sequence: u64, body: Bytes) -> StoredMessage {
        StoredMessage {
            message: StoreMessage {
                subject: format!("subject {subject}"),
                headers: vec![("name".to_owned(), "value".to_owned())],
                body,
            },
            sequence,
            time: sequence,
        }
    }

    #[test]
    fn messages_are_full_by_their_bytes_and_not_by_those_of_earlier_ones() {
        let mut newest = NewestMessages::default();
        let body = Bytes::from(vec![0; 1 << 20]);
        for sequence in 0..100 {
            newest.insert(stored(1, sequence, body.clone()));
            assert!(!newest.is_full());
        }
        for subject in 2..=16 {
            assert!(!newest.is_full());
            newest.insert(stored(subject, 100, body.clone()));
        }
        assert!(newest.is_full());
        assert_eq!(newest.take().len(), 16);
        assert!(!newest.is_full());
    }

    #[test]
    fn a_kept_message_does_not_keep_its_batch() {
        let batch = Bytes::from(vec![1; 1 << 20]);
        let mut newest = NewestMessages::default();
        newest.insert(stored(1, 1, batch.slice(..8)));
        assert!(batch.is_unique());
        assert_eq!(newest.take()[0].message.body, vec![1; 8]);
    }

    proptest! {
        #[test]
        fn the_last_message_of_each_subject_is_left(
            changes in proptest::collection::vec((0_u8..8, 0_usize..64), 0..100),
        ) {
            let mut newest = NewestMessages::default();
            let mut model = std::collections::BTreeMap::new();
            for (sequence, (subject, length)) in changes.into_iter().enumerate() {
                let stored = stored(subject, sequence as u64, Bytes::from(vec![0; length]));
                model.insert(subject, stored.clone());
                newest.insert(stored);
                let bytes: usize = model.values().map(|stored| stored.message.memory_bytes()).sum();
                prop_assert_eq!(newest.bytes, bytes);
            }
            let mut left: Vec<_> = model.into_values().collect();
            left.sort_unstable_by_key(|stored| stored.sequence);
            prop_assert_eq!(newest.take(), left);
            prop_assert_eq!(newest.take(), Vec::new());
        }
    }
}
