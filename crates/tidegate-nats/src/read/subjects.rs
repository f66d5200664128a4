// SPDX-License-Identifier: Apache-2.0

//! Whether a read has given a message of each subject.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

use tokio::time::Instant;

/// The subjects that a read has given, until it has given all once.
///
/// A new message of a subject replaces the old one. It lies behind the goal of a read that has not reached the old one. So a
/// read that has reached its first goal may lack subjects. It is complete only if it has given a message of each subject.
/// Hashes of 64 bits stand for the texts.
#[derive(Default)]
pub(super) struct SubjectCheck {
    hasher: RandomState,
    given: HashSet<u64>,
    /// Listed subjects without a message; `None`: the list has not come yet.
    missing: Option<HashSet<u64>>,
    /// When the read began, until it has said that it is current as of then.
    listed: Option<Instant>,
}

impl SubjectCheck {
    pub(super) fn is_complete(&self) -> bool {
        self.missing.as_ref().is_some_and(HashSet::is_empty)
    }

    /// Notes a message.
    pub(super) fn give(&mut self, subject: &str) {
        if self.is_complete() {
            return;
        }
        let hash = self.hasher.hash_one(subject);
        self.given.insert(hash);
        if let Some(missing) = &mut self.missing {
            missing.remove(&hash);
        }
        self.forget_if_complete();
    }

    /// Takes the list of all subjects, which was asked for when a goal was reached. `begun`: when the read began. What it gave
    /// was the newest message of its subject then. A list that comes when the read is complete says nothing new.
    pub(super) fn list(&mut self, subjects: impl IntoIterator<Item = String>, begun: Instant) {
        if self.is_complete() {
            return;
        }
        self.listed = Some(begun);
        let hashes = subjects.into_iter().map(|subject| self.hasher.hash_one(subject));
        self.missing = Some(hashes.filter(|hash| !self.given.contains(hash)).collect());
        self.forget_if_complete();
    }

    /// Whether the last listed subject has come, and the read began at most `max_age` ago. It is said once.
    pub(super) fn take_listed(&mut self, now: Instant, max_age: Duration) -> bool {
        let is_complete = self.is_complete();
        let listed = self.listed.take_if(|_| is_complete);
        listed.is_some_and(|begun| now.duration_since(begun) <= max_age)
    }

    fn forget_if_complete(&mut self) {
        if self.is_complete() {
            self.given = HashSet::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_AGE: Duration = Duration::from_secs(1);

    #[test]
    fn a_read_is_complete_when_it_has_given_a_message_of_each_subject() {
        let asked = Instant::now();
        let list = || ["a", "b", "c"].map(str::to_owned);
        let mut check = SubjectCheck::default();
        check.give("a");
        assert!(!check.is_complete(), "the list has not come yet");
        check.list(list(), asked);
        check.give("b");
        check.give("b");
        assert!(!check.is_complete() && !check.take_listed(asked, MAX_AGE));
        check.give("c");
        assert!(check.is_complete() && check.take_listed(asked, MAX_AGE));
        assert!(!check.take_listed(asked, MAX_AGE), "it is said once");
    }

    #[test]
    fn a_complete_read_stays_complete() {
        let asked = Instant::now();
        let list = || ["a", "b"].map(str::to_owned);
        let mut check = SubjectCheck::default();
        check.give("a");
        check.list(list(), asked);
        // The next list is on its way when the last message comes.
        check.give("b");
        check.list(list(), asked);
        assert!(check.is_complete());
        assert!(check.take_listed(asked, MAX_AGE));
    }

    #[test]
    fn a_later_list_lacks_what_a_purge_has_removed() {
        let asked = Instant::now();
        let mut check = SubjectCheck::default();
        check.list(["a", "b", "c"].map(str::to_owned), asked);
        check.give("a");
        check.give("b");
        check.list(["a", "b"].map(str::to_owned), asked);
        assert!(check.is_complete());
        assert!(
            !check.take_listed(asked + 2 * MAX_AGE, MAX_AGE),
            "that was long ago"
        );
    }
}
