// SPDX-License-Identifier: Apache-2.0

//! The state that the series of a view share: their history, their strings, and the owners of names.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tidegate_engine::Key as Whose;
use tidegate_promql::{History, HistoryLimits, Labels, Millis, NAME, SeriesId};

use super::super::{Contests, KeyMap};
use super::ended::{EndedLevel, EndedLevels};
use super::entry::{Key, Number, Past, SeriesEntry};
use super::interner::StringInterner;

/// A number that has gone and can still be asked for.
pub(super) struct Gone {
    pub(super) labels: Labels,
    pub(super) past: SeriesId,
    pub(super) since: Millis,
}

/// The state that all series share. It is part of [`ViewState`](super::state::ViewState) and under the same lock.
pub(super) struct SharedState {
    pub(super) history: History,
    pub(super) interner: StringInterner,
    /// The owners of names and labels. A series has all its possible names, or none.
    pub(super) owners: KeyMap<Key>,
    /// Names and labels that several series claim, by [`SeriesEntry::identity`].
    pub(super) contests: Contests<Key>,
    /// Series that others keep from being seen, met since claims were settled the last time.
    pub(super) claims: Vec<Key>,
    /// Series that are not seen, and report beside the series that is.
    pub(super) contested: BTreeSet<Key>,
    /// By the metric's full name.
    pub(super) gone: HashMap<Arc<str>, Vec<Gone>>,
    /// Levels that may be missing.
    pub(super) ended: EndedLevels,
    /// Whether something was let go that another series may show from now on.
    pub(super) has_freed: bool,
    /// The time of the last record of the past.
    recorded: Millis,
}

impl SharedState {
    pub(super) fn new(limits: HistoryLimits) -> Self {
        Self {
            history: History::new(limits),
            interner: StringInterner::default(),
            owners: KeyMap::default(),
            contests: Contests::default(),
            claims: Vec::new(),
            contested: BTreeSet::new(),
            gone: HashMap::new(),
            ended: EndedLevels::default(),
            has_freed: false,
            recorded: 0,
        }
    }

    /// The past is recorded as of `now`. If the wall clock was set back, this drops the samples after `now`.
    pub(super) fn follow(&mut self, now: Millis) {
        if std::mem::replace(&mut self.recorded, now) > now {
            self.history.forget_after(now);
            for gone in self.gone.values_mut().flatten() {
                gone.since = gone.since.min(now);
            }
        }
    }

    /// The earliest time of which there may be a sample of its own; `None`: nothing is recorded.
    pub(super) fn history_begins(&self) -> Option<Millis> {
        self.history.begins(self.recorded)
    }

    /// The time of the oldest sample that is kept.
    pub(super) fn history_ends(&self) -> Millis {
        self.recorded.saturating_sub(self.history.limits().span_ms)
    }

    /// Keeps samples for so many milliseconds from now on.
    pub(super) fn keep_for(&mut self, span_ms: Millis) {
        self.history.keep_for(span_ms, self.recorded);
    }

    /// Keeps the past of a number that has gone.
    pub(super) fn bury(&mut self, labels: Labels, past: Past, now: Millis) {
        if let Past::Kept(past) = past {
            let name: Arc<str> = labels.get(NAME).into();
            let gone = Gone {
                labels,
                past,
                since: now,
            };
            self.gone.entry(name).or_default().push(gone);
        }
    }

    /// Remembers a level that has ended. All of them take at most a quarter of the memory of the past, and samples make room
    /// for them: without them, a reader would not learn that a value is incomplete.
    pub(super) fn add_ended(&mut self, labels: Labels, since: Millis, make: impl FnOnce() -> EndedLevel) {
        let most_bytes = self.history.limits().max_bytes / 4;
        self.ended.add(labels, since, most_bytes, make);
        self.history.share(self.ended.bytes());
    }

    /// See [`EndedLevels::forget`].
    pub(super) fn forget_ended(&mut self, now: Millis, fails: impl FnMut(&EndedLevel) -> bool) {
        self.ended.forget(now, fails);
        self.history.share(self.ended.bytes());
    }

    /// Another series that has a name of this one.
    pub(super) fn blocker(&self, entry: &SeriesEntry, key: Key) -> Option<Key> {
        let owners = entry.names().filter_map(|name| self.owners.get(&name).copied());
        owners.into_iter().find(|owner| *owner != key)
    }

    /// A series contests its place no longer.
    pub(super) fn leave(&mut self, entry: &SeriesEntry, key: Key) {
        if !self.contests.is_empty() {
            self.contests.remove_contender(entry.identity(), key);
        }
    }

    pub(super) fn release(&mut self, names: impl Iterator<Item = Whose>, key: Key) {
        for name in names {
            if self.owners.get(&name) == Some(&key) {
                self.owners.remove(&name);
                self.has_freed = true;
            }
        }
    }

    /// Lets a number go with its past.
    pub(super) fn forget(&mut self, number: Number) {
        if let Past::Kept(past) = number.past {
            self.history.remove(past);
        }
    }

    /// Forgets the numbers that ended too long ago.
    pub(super) fn forget_gone(&mut self, now: Millis) {
        let history = &mut self.history;
        let span = history.limits().span_ms;
        self.gone.retain(|_, of_name| {
            of_name.retain(|gone| {
                let stays = now.saturating_sub(gone.since) <= span;
                if !stays {
                    history.remove(gone.past);
                }
                stays
            });
            !of_name.is_empty()
        });
    }
}
