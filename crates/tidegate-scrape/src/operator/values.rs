// SPDX-License-Identifier: Apache-2.0

//! Values of Secrets and ConfigMaps that objects name. Each is read by itself, and read again from time to time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tidegate_config::Secret;
use tidegate_kubernetes::{Cluster, DataKind, NamedValue, WatchError};

/// The most values.
const MAX_VALUES: usize = 10_000;

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
    wanted: Vec<Reference>,
    turn: u64,
}

impl Values {
    /// A new turn begins. Values that nobody asks for until [`Self::forget_unused`] go.
    pub(super) fn begin(&mut self) {
        self.turn += 1;
    }

    pub(super) fn forget_unused(&mut self) {
        let turn = self.turn;
        self.known.retain(|_, known| known.turn == turn);
    }

    /// A value, or why there is none. `None`: it is not read yet.
    pub(super) fn get(&mut self, reference: &Reference) -> Option<Result<&Secret, &str>> {
        if let Some(known) = self.known.get_mut(reference) {
            known.turn = self.turn;
        } else {
            self.wanted.push(reference.clone());
        }
        let known = self.known.get(reference)?;
        Some(
            known
                .value
                .as_ref()
                .map(|value| &value.text)
                .map_err(String::as_str),
        )
    }

    /// Reads the values that are wanted, and those that are due.
    pub(super) async fn read(&mut self, cluster: &Cluster) {
        let due = self.known.iter().filter(|(_, known)| known.is_due());
        let due: Vec<_> = due.map(|(reference, _)| reference.clone()).collect();
        let wanted = std::mem::take(&mut self.wanted);
        for reference in wanted.into_iter().chain(due) {
            let place = (reference.namespace.as_str(), reference.name.as_str());
            let is_new = !self.known.contains_key(&reference);
            if is_new && self.known.len() >= MAX_VALUES {
                let value = Err(format!("there are more than {MAX_VALUES} values"));
                self.note(reference, value);
                continue;
            }
            let read = cluster.named_value(reference.kind, place, &reference.key).await;
            let value = match read {
                Ok(Some(value)) => Ok(value),
                Ok(None) => Err("the object has no such key".to_owned()),
                Err(error) if self.keeps(&reference, &error) => continue,
                Err(error) => Err(error.to_string()),
            };
            self.note(reference, value);
        }
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

    /// The time until the next value is due. `None`: no value is known.
    pub(super) fn next_read(&self) -> Option<Duration> {
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
