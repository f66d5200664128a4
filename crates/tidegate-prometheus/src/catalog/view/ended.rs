// SPDX-License-Identifier: Apache-2.0

//! Levels that have ended, while they may be missing. A failed scrape ends all series of its target at once, and the end of the
//! last process of a directory its live gauges. Nothing else in the view shows what such a source had.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use tidegate_engine::{Key, Lease, UnixNanos};
use tidegate_promql::{Labels, Millis, NAME, Selection};

/// The most levels that are remembered. A reader walks through all of those that it asks for.
const MANY: usize = 1 << 18;

/// The time for which a level is remembered before its source is known to fail, in milliseconds. The end of a series and
/// the report of the failure may come in two requests.
const APART_MS: u64 = 10_000;

/// A source that its receiver sees dead is missing for so long, in nanoseconds. Composites expect it for the same time.
pub(super) const MISSING_NS: u64 = 600_000_000_000;

/// The time without a look at them after which all levels are forgotten, in milliseconds: nobody asks for them then. A
/// sampler looks each second.
const UNATTENDED_MS: u64 = 60_000;

/// The levels that have ended lately, and those whose sources fail.
#[derive(Default)]
pub(super) struct EndedLevels {
    /// By the metric's full name.
    by_name: HashMap<Arc<str>, HashMap<Labels, EndedLevel, RandomState>>,
    len: usize,
    /// The bytes that they take, estimated.
    bytes: usize,
    /// The number of levels that were not remembered for lack of room.
    refused: u64,
    /// The time of the last look at them. `None`: none has ended yet.
    attended: Option<Millis>,
}

/// A level that has ended.
pub(super) struct EndedLevel {
    /// The key of its source.
    pub(super) source: Key,
    /// The lease of its receiver: the table forgets the source before it is expected no longer. `None`: it lives by its
    /// reports.
    pub(super) lease: Option<Arc<Lease>>,
    pub(super) since: Millis,
}

impl EndedLevel {
    /// Whether its receiver sees the source dead, and it is still expected.
    pub(super) fn is_of_dead(&self, now: UnixNanos) -> bool {
        self.lease.as_ref().is_some_and(|lease| {
            let is_recent = now.saturating_sub(lease.touched()) <= MISSING_NS;
            lease.is_dead() && !lease.is_ended() && is_recent
        })
    }
}

/// The bytes of a level: its entry, and its labels as if no other series had their values.
fn weigh(labels: &Labels) -> usize {
    /// A hash table may be half empty.
    const ENTRY: usize = 2 * size_of::<(Labels, EndedLevel)>();
    /// A pair, and the counts of its value.
    const PAIR: usize = size_of::<[Arc<str>; 2]>() + 16;
    let pairs = labels.iter().map(|(_, value)| PAIR + value.len());
    ENTRY + pairs.sum::<usize>()
}

impl EndedLevels {
    /// The bytes that they take, estimated.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of levels that were not remembered for lack of room.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether there is none. This is a look at them.
    pub(super) fn attend(&mut self, now: Millis) -> bool {
        self.attended = Some(now);
        self.len == 0
    }

    /// Remembers a level that ends at that time, if all of them then take at most so many bytes. It makes the level only then.
    pub(super) fn add(
        &mut self,
        labels: Labels,
        since: Millis,
        most_bytes: usize,
        make: impl FnOnce() -> EndedLevel,
    ) {
        let attended = *self.attended.get_or_insert(since);
        if since.abs_diff(attended) > UNATTENDED_MS {
            // A gateway without a sampler would keep them for good.
            (self.by_name, self.len, self.bytes) = (HashMap::new(), 0, 0);
            return;
        }
        let bytes = weigh(&labels);
        if self.len >= MANY || self.bytes + bytes > most_bytes {
            self.refused += 1;
            return;
        }
        let name: Arc<str> = labels.get(NAME).into();
        let of_name = self.by_name.entry(name).or_default();
        let known = of_name.insert(labels, make());
        if known.is_none() {
            self.len += 1;
            self.bytes += bytes;
        }
    }

    /// The levels that a selection accepts.
    pub(super) fn of<'a>(
        &'a self,
        selection: &'a Selection,
    ) -> impl Iterator<Item = (&'a Labels, &'a EndedLevel)> {
        let (named, all) = match selection.name() {
            Some(name) => (self.by_name.get(name), None),
            None => (None, Some(self.by_name.values())),
        };
        let all = named.into_iter().chain(all.into_iter().flatten()).flatten();
        all.filter(|(labels, _)| selection.accepts(labels))
    }

    /// Forgets the levels that have ended some time ago and whose sources do not fail.
    pub(super) fn forget(&mut self, now: Millis, mut fails: impl FnMut(&EndedLevel) -> bool) {
        let mut gone = 0;
        self.by_name.retain(|_, of_name| {
            of_name.retain(|labels, ended| {
                let stays = now.abs_diff(ended.since) <= APART_MS || fails(ended);
                gone += if stays { 0 } else { weigh(labels) };
                stays
            });
            !of_name.is_empty()
        });
        self.len = self.by_name.values().map(HashMap::len).sum();
        self.bytes = self.bytes.saturating_sub(gone);
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

    fn level(source: Key, since: Millis) -> EndedLevel {
        EndedLevel {
            source,
            lease: None,
            since,
        }
    }

    fn add(ended: &mut EndedLevels, instance: u32, (source, since): (Key, Millis), most_bytes: usize) {
        ended.add(labels(instance), since, most_bytes, || level(source, since));
    }

    #[test]
    fn levels_that_nobody_looks_at_are_forgotten() {
        let (mut ended, source) = (EndedLevels::default(), Key::of_value(&1));
        add(&mut ended, 1, (source, 1_000), usize::MAX);
        add(&mut ended, 2, (source, 1_000 + 60_000), usize::MAX);
        assert_eq!(ended.len, 2);
        add(&mut ended, 3, (source, 1_000 + 60_001), usize::MAX);
        assert_eq!((ended.len, ended.by_name.len(), ended.bytes), (0, 0, 0));
        assert!(ended.attend(70_000));
        add(&mut ended, 4, (source, 71_000), usize::MAX);
        assert!(!ended.attend(72_000));
    }

    #[test]
    fn levels_count_in_bytes_until_they_are_forgotten() {
        let mut ended = EndedLevels::default();
        let [fails, works] = [1, 2].map(|source| Key::of_value(&source));
        let one = weigh(&labels(1));
        for instance in 1..=4 {
            let source = if instance % 2 == 0 { fails } else { works };
            add(&mut ended, instance, (source, 1_000), 3 * one);
        }
        add(&mut ended, 1, (works, 2_000), usize::MAX);
        assert_eq!((ended.len, ended.bytes(), ended.refused()), (3, 3 * one, 1));
        ended.add(labels(5), 2_000, 3 * one, || panic!("there is no room for it"));
        assert_eq!(ended.refused(), 2);
        ended.forget(20_000, |ended| ended.source == fails);
        assert_eq!((ended.len, ended.bytes()), (1, one));
        ended.forget(20_000, |_| false);
        assert_eq!((ended.len, ended.bytes()), (0, 0));
    }
}
