// SPDX-License-Identifier: Apache-2.0

//! The messages of a consumer that the gateway has, and those that it had.
//!
//! An answer may be lost with its connection or its server. The server then delivers the message again. The receiver knows it,
//! so it only repeats the answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use parking_lot::Mutex;
use tidegate_nats::transport::{MessageKey, ReplySubject};

/// The messages that are remembered after their answers.
const REMEMBERED: usize = 8192;

/// What is known of a message that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is new.
    New,
    /// The gateway has it already.
    InHand,
    /// It was answered before.
    Answered,
}

#[derive(Default)]
pub(super) struct Deliveries {
    state: Mutex<DeliveryState>,
}

#[derive(Default)]
struct DeliveryState {
    /// When the consumer was created, in nanoseconds.
    consumer: i128,
    /// The messages without an answer, and where their answers go.
    in_hand: BTreeMap<MessageKey, ReplySubject>,
    answered: BTreeSet<MessageKey>,
    /// The same, the oldest first.
    oldest: VecDeque<MessageKey>,
}

impl Deliveries {
    /// Notes the consumer. One that was created again delivers messages again on purpose, so the gateway forgets its answers.
    pub(super) fn open(&self, created: i128) {
        let mut state = self.state.lock();
        if state.consumer != created {
            state.consumer = created;
            state.answered.clear();
            state.oldest.clear();
        }
    }

    /// Notes a message. Its answer goes to its last delivery.
    pub(super) fn arrive(&self, key: MessageKey, reply: &ReplySubject) -> Arrival {
        let mut state = self.state.lock();
        if state.answered.contains(&key) {
            return Arrival::Answered;
        }
        match state.in_hand.insert(key, reply.clone()) {
            Some(_) => Arrival::InHand,
            None => Arrival::New,
        }
    }

    /// The message gets its answer now. Returns where it goes.
    pub(super) fn finish(&self, key: MessageKey) -> Option<ReplySubject> {
        let mut state = self.state.lock();
        let reply = state.in_hand.remove(&key)?;
        if state.answered.insert(key) {
            state.oldest.push_back(key);
        }
        if state.oldest.len() > REMEMBERED
            && let Some(oldest) = state.oldest.pop_front()
        {
            state.answered.remove(&oldest);
        }
        Some(reply)
    }

    /// The gateway does not have the message after all.
    pub(super) fn forget(&self, key: MessageKey) {
        self.state.lock().in_hand.remove(&key);
    }

    /// Where the answers of all messages without one go.
    pub(super) fn in_hand(&self) -> Vec<ReplySubject> {
        self.state.lock().in_hand.values().cloned().collect()
    }

    /// Forgets the messages without an answer. They may come again.
    pub(super) fn give_up(&self) -> Vec<ReplySubject> {
        let in_hand = std::mem::take(&mut self.state.lock().in_hand);
        in_hand.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(sequence: u64) -> MessageKey {
        MessageKey {
            sequence,
            published: 7,
        }
    }

    #[test]
    fn a_message_that_comes_again_is_known() {
        let deliveries = Deliveries::default();
        let arrive = |sequence, reply: &str| deliveries.arrive(key(sequence), &reply.into());
        assert_eq!(arrive(1, "a"), Arrival::New);
        assert_eq!(arrive(1, "b"), Arrival::InHand);
        assert_eq!(deliveries.in_hand(), [ReplySubject::from("b")]);
        assert_eq!(deliveries.finish(key(1)), Some("b".into()));
        assert_eq!(deliveries.finish(key(1)), None);
        assert_eq!(arrive(1, "c"), Arrival::Answered);
        assert!(deliveries.in_hand().is_empty());
        // A new stream counts from 1 again.
        let other = MessageKey {
            published: 8,
            ..key(1)
        };
        assert_eq!(deliveries.arrive(other, &"d".into()), Arrival::New);
    }

    #[test]
    fn a_consumer_that_was_created_again_delivers_answered_messages() {
        let deliveries = Deliveries::default();
        deliveries.open(1);
        deliveries.arrive(key(1), &"a".into());
        deliveries.finish(key(1));
        deliveries.open(1);
        assert_eq!(deliveries.arrive(key(1), &"b".into()), Arrival::Answered);
        deliveries.open(2);
        assert_eq!(deliveries.arrive(key(1), &"c".into()), Arrival::New);
    }

    #[test]
    fn messages_that_were_given_up_are_new_again() {
        let deliveries = Deliveries::default();
        deliveries.arrive(key(1), &"a".into());
        assert_eq!(deliveries.give_up(), [ReplySubject::from("a")]);
        assert_eq!(deliveries.arrive(key(1), &"b".into()), Arrival::New);
    }

    #[test]
    fn the_memory_of_answers_is_bounded() {
        let deliveries = Deliveries::default();
        for sequence in 0..=REMEMBERED as u64 {
            deliveries.arrive(key(sequence), &"a".into());
            deliveries.finish(key(sequence));
        }
        assert_eq!(deliveries.arrive(key(0), &"a".into()), Arrival::New);
        assert_eq!(deliveries.arrive(key(1), &"a".into()), Arrival::Answered);
        assert_eq!(deliveries.state.lock().answered.len(), REMEMBERED);
    }
}
