// SPDX-License-Identifier: Apache-2.0

//! Levels that have ended, while they may be missing. A failed scrape ends all series of its target at once, and nothing else
//! in the view shows what the target had.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use tidegate_engine::Key;
use tidegate_promql::{Labels, Millis, NAME, Selection};

/// The most levels that are remembered.
const MANY: usize = 1 << 18;

/// The time for which a level is remembered before its target is known to fail, in milliseconds. The end of a series and
/// the report of the failure may come in two requests.
const APART_MS: u64 = 10_000;

/// The time without a look at them after which all levels are forgotten, in milliseconds: nobody asks for them then. A
/// sampler looks each second.
const UNATTENDED_MS: u64 = 60_000;

/// The levels that have ended lately, and those whose targets fail.
#[derive(Default)]
pub(super) struct EndedLevels {
    /// By the metric's full name.
    by_name: HashMap<Arc<str>, HashMap<Labels, EndedLevel, RandomState>>,
    len: usize,
    /// The time of the last look at them. `None`: none has ended yet.
    attended: Option<Millis>,
}

struct EndedLevel {
    /// The key of its source.
    source: Key,
    since: Millis,
}

impl EndedLevels {
    /// Whether there is none. This is a look at them.
    pub(super) fn attend(&mut self, now: Millis) -> bool {
        self.attended = Some(now);
        self.len == 0
    }

    pub(super) fn add(&mut self, labels: Labels, source: Key, since: Millis) {
        let attended = *self.attended.get_or_insert(since);
        if since.abs_diff(attended) > UNATTENDED_MS {
            // A gateway without a sampler would keep them for good.
            (self.by_name, self.len) = (HashMap::new(), 0);
            return;
        }
        if self.len >= MANY {
            return;
        }
        let name: Arc<str> = labels.get(NAME).into();
        let of_name = self.by_name.entry(name).or_default();
        let known = of_name.insert(labels, EndedLevel { source, since });
        self.len += usize::from(known.is_none());
    }

    /// The levels that a selection accepts, with the keys of their sources.
    pub(super) fn of<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = (&'a Labels, Key)> {
        let (named, all) = match selection.name() {
            Some(name) => (self.by_name.get(name), None),
            None => (None, Some(self.by_name.values())),
        };
        let all = named.into_iter().chain(all.into_iter().flatten()).flatten();
        all.filter(|(labels, _)| selection.accepts(labels))
            .map(|(labels, ended)| (labels, ended.source))
    }

    /// Forgets the levels that have ended some time ago and whose sources do not fail.
    pub(super) fn forget(&mut self, now: Millis, fails: impl Fn(&Key) -> bool) {
        let stays = |ended: &EndedLevel| now.abs_diff(ended.since) <= APART_MS || fails(&ended.source);
        self.by_name.retain(|_, of_name| {
            of_name.retain(|_, ended| stays(ended));
            !of_name.is_empty()
        });
        self.len = self.by_name.values().map(HashMap::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(instance: u32) -> Labels {
        let pairs = [(NAME, "depth".to_owned()), ("instance", instance.to_string())];
        pairs
            .map(|(name, value)| (name.to_owned(), value))
            .into_iter()
            .collect()
    }

    #[test]
    fn levels_that_nobody_looks_at_are_forgotten() {
        let (mut ended, source) = (EndedLevels::default(), Key::of_value(&1));
        ended.add(labels(1), source, 1_000);
        ended.add(labels(2), source, 1_000 + 60_000);
        assert_eq!(ended.len, 2);
        ended.add(labels(3), source, 1_000 + 60_001);
        assert_eq!((ended.len, ended.by_name.len()), (0, 0));
        assert!(ended.attend(70_000));
        ended.add(labels(4), source, 71_000);
        assert!(!ended.attend(72_000));
    }
}
