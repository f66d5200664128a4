// SPDX-License-Identifier: Apache-2.0

//! An index of series by metric name, and by the values of labels that queries use.
//!
//! The first query for a label value of a large metric builds an index of that label. Arrivals are added to it.
//! Removed series stay in it until they are half of it, and then the next query rebuilds it. So an index may find
//! too many series, but never too few. Its results are compared with the selection like every series.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use tidegate_engine::UnixNanos;
use tidegate_promql::{Matcher, NAME, Selection};

use super::entry::Key;

/// A metric with fewer series is scanned.
const MANY: usize = if cfg!(test) { 4 } else { 256 };

/// With this few results, no further label is used.
const FEW: usize = if cfg!(test) { 1 } else { 256 };

/// Labels of a metric that are indexed at one time.
const INDEXES: usize = 8;

/// An index without queries for this long is dropped. In nanoseconds.
const FORGET_NS: u64 = 600_000_000_000;

/// Labels that distinguish the numbers of one series.
const OF_NUMBERS: [&str; 3] = [NAME, "le", "quantile"];

/// Name and value of each label of a series.
pub(super) type Pairs = Vec<(String, String)>;

/// Series by the name of their metric.
#[derive(Default)]
pub(super) struct NameIndex {
    keys: HashMap<Arc<str>, BTreeSet<Key>>,
    indexes: HashMap<Arc<str>, Vec<Index>>,
}

/// The series of a metric by the value of one label.
struct Index {
    label: Box<str>,
    /// Hashes of values. Rows after `sorted` came later.
    rows: Vec<(u32, Key)>,
    sorted: usize,
    /// Rows of series that have gone.
    gone: usize,
    asked: UnixNanos,
}

impl NameIndex {
    /// The names of all metrics.
    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(|name| &**name)
    }

    /// The series of this name, in order.
    pub(super) fn keys(&self, name: &str) -> impl Iterator<Item = Key> {
        self.keys.get(name).into_iter().flatten().copied()
    }

    /// The series that may match the matchers, in order.
    pub(super) fn asked(&self, name: &str, matchers: &[Matcher]) -> Box<dyn Iterator<Item = Key> + '_> {
        let Some(keys) = self.keys.get(name) else {
            return Box::new(std::iter::empty());
        };
        match self.found(name, matchers) {
            None => Box::new(keys.iter().copied()),
            Some(mut found) => {
                found.sort_unstable();
                found.dedup();
                found.retain(|key| keys.contains(key));
                Box::new(found.into_iter())
            }
        }
    }

    /// The result of the most selective index; `None`: no index helps.
    fn found(&self, name: &str, matchers: &[Matcher]) -> Option<Vec<Key>> {
        let indexes = self.indexes.get(name)?;
        let found = matchers.iter().filter_map(|matcher| {
            let index = indexes.iter().find(|index| *index.label == *matcher.name())?;
            Some(index.find(&matcher.values()?))
        });
        found.min_by_key(Vec::len)
    }

    /// The label to index before a search for the selection; `None`: no other label helps.
    pub(super) fn missing<'s>(
        &mut self,
        name: &str,
        selection: &'s Selection,
        now: UnixNanos,
    ) -> Option<&'s str> {
        if self.keys.get(name)?.len() < MANY {
            return None;
        }
        let helps = |matcher: &&Matcher| {
            let values = matcher.values();
            // Most series don't have most labels.
            values.is_some_and(|values| values.iter().all(|value| !value.is_empty()))
                && !OF_NUMBERS.contains(&matcher.name())
        };
        let labels = selection.matchers.iter().filter(helps).map(Matcher::name);
        let indexes = self.indexes.get_mut(name);
        let indexes = indexes.map_or(&mut [][..], |indexes| &mut indexes[..]);
        let asked = |index: &&mut Index| labels.clone().any(|label| *label == *index.label);
        indexes.iter_mut().filter(asked).for_each(|index| index.sort(now));
        if indexes.len() >= INDEXES {
            return None;
        }
        let is_known = |label: &&str| indexes.iter().any(|index| *index.label == **label);
        let missing = labels.clone().find(|label| !is_known(label))?;
        let found = self.found(name, &selection.matchers);
        found.is_none_or(|found| found.len() > FEW).then_some(missing)
    }

    /// Adds an index of a label. The rows are hashes of the series' values; a missing label counts as an empty
    /// value.
    pub(super) fn index(&mut self, name: &str, label: &str, rows: Vec<(u32, Key)>, now: UnixNanos) {
        let Some((name, _)) = self.keys.get_key_value(name) else {
            return;
        };
        let mut index = Index {
            label: label.into(),
            rows,
            sorted: 0,
            gone: 0,
            asked: now,
        };
        index.sort(now);
        index.rows.shrink_to_fit();
        self.indexes.entry(name.clone()).or_default().push(index);
    }

    /// Adds a series; `pairs` are its labels.
    pub(super) fn add(&mut self, name: Arc<str>, key: Key, pairs: impl FnOnce() -> Pairs) {
        if let Some(indexes) = self.indexes.get_mut(&name) {
            let pairs = pairs();
            for index in indexes {
                let own = pairs.iter().find(|(label, _)| **label == *index.label);
                let value = own.map_or("", |(_, value)| value);
                index.rows.push((hash(value), key));
            }
        }
        self.keys.entry(name).or_default().insert(key);
    }

    /// Takes a series out.
    pub(super) fn remove(&mut self, name: &str, key: Key) {
        let Some(keys) = self.keys.get_mut(name) else {
            return;
        };
        if !keys.remove(&key) {
            return;
        }
        if keys.is_empty() {
            self.keys.remove(name);
        }
        if let Some(indexes) = self.indexes.get_mut(name) {
            indexes.iter_mut().for_each(|index| index.gone += 1);
            indexes.retain(|index| 2 * index.gone <= index.rows.len());
            if indexes.is_empty() {
                self.indexes.remove(name);
            }
        }
    }

    /// Lets the indexes of a metric go: its series have other labels than they had.
    pub(super) fn reset(&mut self, name: &str) {
        self.indexes.remove(name);
    }

    /// Drops unused indexes.
    pub(super) fn forget_unused(&mut self, now: UnixNanos) {
        self.indexes.retain(|_, indexes| {
            indexes.retain(|index| now.saturating_sub(index.asked) < FORGET_NS);
            !indexes.is_empty()
        });
    }

    /// Labels that are indexed, of all metrics.
    #[cfg(test)]
    pub(super) fn indexes(&self) -> usize {
        self.indexes.values().map(Vec::len).sum()
    }
}

impl Index {
    fn sort(&mut self, now: UnixNanos) {
        self.asked = self.asked.max(now);
        if self.sorted < self.rows.len() {
            // A stable sort is fast if most rows are in order.
            self.rows.sort_unstable();
            self.sorted = self.rows.len();
        }
    }

    fn find(&self, values: &[String]) -> Vec<Key> {
        let (sorted, rest) = self.rows.split_at(self.sorted);
        let mut found = Vec::new();
        for value in values {
            let wanted = hash(value);
            let from = sorted.partition_point(|(hash, _)| *hash < wanted);
            let here = sorted[from..].iter().take_while(|(hash, _)| *hash == wanted);
            let later = rest.iter().filter(|(hash, _)| *hash == wanted);
            found.extend(here.chain(later).map(|(_, key)| *key));
        }
        found
    }
}

/// The hash of a value in an index.
pub(super) fn hash(value: &str) -> u32 {
    let mut hasher = foldhash::fast::FixedState::with_seed(0).build_hasher();
    hasher.write(value.as_bytes());
    hasher.finish() as u32
}
