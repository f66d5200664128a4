// SPDX-License-Identifier: Apache-2.0

//! Values of Secrets and ConfigMaps that objects name. Each is read by itself, and read again from time to time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_config::Secret;
use tidegate_kubernetes::{Cluster, DataKind, NamedValue, WatchError};
use tokio::task::JoinSet;

/// The most values.
const MAX_VALUES: usize = 10_000;

/// The most values of a namespace, so that no namespace takes the room of the others.
const MAX_VALUES_OF_NAMESPACE: usize = 500;

/// The most reads at a time.
const MAX_READS: usize = 8;

/// The longest time of the reads of a turn. The next turn goes on.
const READ_TIME: Duration = Duration::from_secs(10);

/// The interval of reads of a value that was there.
pub(super) const REFRESH_INTERVAL: Duration = Duration::from_secs(300);

/// The interval of reads of a value that was not there.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The place of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reference {
    pub(super) kind: DataKind,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) key: String,
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = self.kind.resource();
        write!(f, "{kind} {}/{}, key {}", self.namespace, self.name, self.key)
    }
}

#[derive(Debug)]
struct Known {
    value: Result<NamedValue, String>,
    read: Instant,
    /// The turn that used it last.
    turn: u64,
}

impl Known {
    fn is_due(&self) -> bool {
        let interval = if self.value.is_ok() {
            REFRESH_INTERVAL
        } else {
            RETRY_INTERVAL
        };
        self.read.elapsed() >= interval
    }
}

/// The values so far, and those that are wanted.
#[derive(Debug, Default)]
pub(super) struct Values {
    known: BTreeMap<Reference, Known>,
    wanted: BTreeSet<Reference>,
    /// The known and wanted values of each namespace.
    counts: HashMap<String, usize>,
    turn: u64,
    /// The time that the turn began.
    begun: Option<tokio::time::Instant>,
}

/// The result of a read.
type Read = Result<Option<NamedValue>, WatchError>;

impl Values {
    /// A new turn begins. Values that nobody asks for until [`Self::forget_unused`] go.
    pub(super) fn begin(&mut self) {
        self.turn += 1;
        self.begun = Some(tokio::time::Instant::now());
    }

    pub(super) fn forget_unused(&mut self) {
        let turn = self.turn;
        self.known.retain(|_, known| known.turn == turn);
        self.counts.clear();
        for reference in self.known.keys().chain(&self.wanted) {
            *self.counts.entry(reference.namespace.clone()).or_default() += 1;
        }
    }

    /// A value, or why there is none. `None`: it is not read yet.
    pub(super) fn get(&mut self, reference: &Reference) -> Option<Result<&Secret, &str>> {
        if !self.known.contains_key(reference) {
            return self.want(reference).err().map(Err);
        }
        let known = self.known.get_mut(reference)?;
        known.turn = self.turn;
        Some(
            known
                .value
                .as_ref()
                .map(|value| &value.text)
                .map_err(String::as_str),
        )
    }

    /// Asks for a value, unless there are too many. Nothing is stored beyond the limits.
    fn want(&mut self, reference: &Reference) -> Result<(), &'static str> {
        if self.wanted.contains(reference) {
            return Ok(());
        }
        let count = self.counts.get(&reference.namespace).copied().unwrap_or(0);
        if count >= MAX_VALUES_OF_NAMESPACE {
            return Err("there are more than 500 values of this namespace");
        }
        if self.known.len() + self.wanted.len() >= MAX_VALUES {
            return Err("there are more than 10000 values");
        }
        self.wanted.insert(reference.clone());
        self.counts.insert(reference.namespace.clone(), count + 1);
        Ok(())
    }

    /// Reads the values that are wanted, and those that are due, several at a time. Those for which time is short are read in
    /// the next turn.
    pub(super) async fn read(&mut self, cluster: &Arc<Cluster>) {
        let due = self.known.iter().filter(|(_, known)| known.is_due());
        let due: Vec<_> = due.map(|(reference, _)| reference.clone()).collect();
        let mut queue = std::mem::take(&mut self.wanted).into_iter().chain(due);
        let now = tokio::time::Instant::now;
        let deadline = self.begun.unwrap_or_else(now) + READ_TIME;
        let mut reads = JoinSet::new();
        let mut unanswered = BTreeSet::new();
        loop {
            while reads.len() < MAX_READS
                && now() < deadline
                && let Some(reference) = queue.next()
            {
                unanswered.insert(reference.clone());
                reads.spawn(read(cluster.clone(), reference));
            }
            match tokio::time::timeout_at(deadline, reads.join_next()).await {
                Ok(Some(Ok((reference, read)))) => {
                    unanswered.remove(&reference);
                    self.take(reference, read);
                }
                // A read never panics. If it does, it counts as one without an answer.
                Ok(Some(Err(_))) => {}
                Ok(None) | Err(_) => break,
            }
        }
        // The others come first in the next turn.
        for reference in unanswered {
            self.take(reference, Err(WatchError::TimedOut(READ_TIME)));
        }
        let rest = queue.filter(|reference| !self.known.contains_key(reference));
        self.wanted.extend(rest);
    }

    /// Stores the result of a read.
    fn take(&mut self, reference: Reference, read: Read) {
        let value = match read {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err("the object has no such key".to_owned()),
            Err(error) if self.keeps(&reference, &error) => return,
            Err(error) => Err(error.to_string()),
        };
        self.note(reference, value);
    }

    fn note(&mut self, reference: Reference, value: Result<NamedValue, String>) {
        let known = Known {
            value,
            read: Instant::now(),
            turn: self.turn,
        };
        self.known.insert(reference, known);
    }

    /// Whether a value that was there stays after an error. An object that the server refuses or lacks is gone.
    fn keeps(&mut self, reference: &Reference, error: &WatchError) -> bool {
        let is_refused = matches!(error, WatchError::Status(status, _) if status.is_client_error());
        match self.known.get_mut(reference).filter(|known| known.value.is_ok()) {
            Some(known) if !is_refused => {
                known.read = Instant::now();
                true
            }
            _ => false,
        }
    }

    /// Whether a value is wanted that is not read yet.
    pub(super) fn has_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// The time until the next value is due. `None`: no value is known or wanted.
    pub(super) fn next_read(&self) -> Option<Duration> {
        if self.has_wanted() {
            return Some(Duration::ZERO);
        }
        let due = self.known.values().map(|known| {
            let interval = if known.value.is_ok() {
                REFRESH_INTERVAL
            } else {
                RETRY_INTERVAL
            };
            interval.saturating_sub(known.read.elapsed())
        });
        due.min()
    }
}

async fn read(cluster: Arc<Cluster>, reference: Reference) -> (Reference, Read) {
    let object = (reference.namespace.as_str(), reference.name.as_str());
    let read = cluster.named_value(reference.kind, object, &reference.key).await;
    (reference, read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(namespace: &str, at: usize) -> Reference {
        Reference {
            kind: DataKind::Secret,
            namespace: namespace.to_owned(),
            name: format!("s{at}"),
            key: "k".to_owned(),
        }
    }

    #[test]
    fn a_namespace_has_at_most_its_share_of_the_values() {
        let mut values = Values::default();
        values.begin();
        for at in 0..MAX_VALUES_OF_NAMESPACE {
            assert!(values.get(&reference("a", at)).is_none());
        }
        let beyond = values.get(&reference("a", MAX_VALUES_OF_NAMESPACE));
        assert!(beyond.unwrap().unwrap_err().contains("more than 500"));
        assert!(values.get(&reference("a", 0)).is_none(), "it is wanted already");
        assert!(values.get(&reference("b", 0)).is_none());
        assert_eq!(values.wanted.len(), MAX_VALUES_OF_NAMESPACE + 1);
    }
}
