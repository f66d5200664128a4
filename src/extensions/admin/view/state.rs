//! Which series there are, found by the name of their metric, and what they are now.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use tidegate_engine::query::Millis;
use tidegate_engine::{Composite, History, HistoryLimits, Seen, Table, UnixNanos};

use super::entry::{Books, Entry, Key, Look};
use crate::prom::flat::SUFFIXES;
use crate::prom::name::Kind;

/// Every series that a look at the tables has met.
pub(super) struct State {
    /// Tables and composites; a place that is free is given to the next one.
    sources: Vec<Option<Source>>,
    names: Names,
    pub(super) books: Books,
}

/// Series by the name of their metric.
type Names = HashMap<Arc<str>, BTreeSet<Key>>;

struct Source {
    of: Of,
    /// By the number of the place.
    entries: Vec<Option<Entry>>,
}

enum Of {
    Table {
        table: Weak<Table>,
        /// How far its arrivals are known.
        arrivals: u64,
    },
    Composite {
        composite: Weak<Composite>,
        /// What its metric is called; `None`: it can't be told.
        name: Option<String>,
        /// Entries by the address of the series, which they hold.
        places: HashMap<usize, u32>,
    },
}

impl State {
    pub(super) fn new(limits: HistoryLimits) -> Self {
        Self {
            sources: Vec::new(),
            names: HashMap::new(),
            books: Books {
                history: History::new(limits),
                owners: HashMap::new(),
                gone: HashMap::new(),
                has_freed: false,
            },
        }
    }

    /// Places of series, taken or not.
    pub(super) fn len(&self) -> usize {
        let sources = self.sources.iter().flatten();
        sources.map(|source| source.entries.len()).sum()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        let sources = self.sources.iter().flatten();
        sources.flat_map(|source| source.entries.iter().flatten())
    }

    /// The series that may have numbers of this name.
    pub(super) fn named(&self, name: &str) -> impl Iterator<Item = &Entry> {
        self.keys(name).filter_map(|(source, at)| {
            let source = self.sources.get(source as usize)?.as_ref()?;
            source.entries.get(at as usize)?.as_ref()
        })
    }

    /// In order, name by name.
    fn keys(&self, name: &str) -> impl Iterator<Item = Key> {
        let stems = SUFFIXES.iter().filter_map(|suffix| name.strip_suffix(suffix));
        let stems = stems.filter_map(|stem| self.names.get(stem));
        stems.flatten().copied()
    }

    /// Learns which series these tables have by now.
    pub(super) fn meet(&mut self, tables: &[Arc<Table>], look: Look<'_>) {
        let composites: Vec<_> = tables.iter().flat_map(|table| table.attached()).collect();
        for number in 0..self.sources.len() {
            let is_there = |source: &Source| match &source.of {
                Of::Table { table, .. } => tables.iter().any(|other| is(table, other)),
                Of::Composite { composite, .. } => composites.iter().any(|other| is(composite, other)),
            };
            if let Some(gone) = self.sources[number].take_if(|source| !is_there(source)) {
                for (at, entry) in (0u32..).zip(gone.entries) {
                    entry
                        .into_iter()
                        .for_each(|entry| self.let_go(entry, (number as u32, at), look.time));
                }
            }
        }
        for table in tables {
            let is_known = |of: &Of| matches!(of, Of::Table { table: known, .. } if is(known, table));
            let (table, arrivals) = (Arc::downgrade(table), 0);
            self.learn(is_known, || Of::Table { table, arrivals });
        }
        for composite in &composites {
            let is_known =
                |of: &Of| matches!(of, Of::Composite { composite: known, .. } if is(known, composite));
            self.learn(is_known, || Of::Composite {
                composite: Arc::downgrade(composite),
                name: look.naming.metric(&composite.declaration().name, "", Kind::Gauge),
                places: HashMap::new(),
            });
        }
        (0..self.sources.len()).for_each(|number| self.take_up_arrivals(number, look));
    }

    fn learn(&mut self, is_known: impl Fn(&Of) -> bool, make: impl FnOnce() -> Of) {
        if self.sources.iter().flatten().any(|source| is_known(&source.of)) {
            return;
        }
        let source = Some(Source {
            of: make(),
            entries: Vec::new(),
        });
        match self.sources.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = source,
            None => self.sources.push(source),
        }
    }

    fn take_up_arrivals(&mut self, number: usize, look: Look<'_>) {
        let mut replaced = Vec::new();
        let names = &mut self.names;
        let Some(Source { of, entries }) = &mut self.sources[number] else {
            return;
        };
        let Of::Table { table, arrivals } = of else { return };
        let Some(table) = table.upgrade() else { return };
        *arrivals = table.arrivals(*arrivals, &mut |place, series| {
            let key = (number as u32, place.number());
            let at = key.1 as usize;
            if entries.len() <= at {
                entries.resize_with(at + 1, || None);
            }
            if entries[at]
                .as_ref()
                .is_some_and(|known| known.place == Some(place))
            {
                return;
            }
            let entry = Entry::new(series, Some(place), look);
            let name = entry.name.clone();
            // What was there before goes by the same key: its name goes first.
            if let Some(old) = entries[at].replace(entry) {
                forget_name(names, &old, key);
                replaced.push((old, key));
            }
            if let Some(name) = name {
                names.entry(name).or_default().insert(key);
            }
        });
        for (mut old, key) in replaced {
            old.end(key, look.time, &mut self.books);
        }
    }

    fn let_go(&mut self, mut entry: Entry, key: Key, now: Millis) {
        forget_name(&mut self.names, &entry, key);
        entry.end(key, now, &mut self.books);
    }

    /// Reads what the series are now that have numbers of one of these names.
    pub(super) fn read_named(&mut self, names: &[String], now: UnixNanos, look: Look<'_>) {
        for number in 0..self.sources.len() {
            let of = self.sources[number].as_ref().map(|source| &source.of);
            if let Some(Of::Composite { name: Some(name), .. }) = of
                && names.contains(name)
            {
                self.read_composite(number, now, look);
            }
        }
        let mut keys: Vec<Key> = names.iter().flat_map(|name| self.keys(name)).collect();
        keys.sort_unstable();
        keys.dedup();
        self.read(&keys, look);
        self.share_freed(keys.into_iter());
    }

    /// Reads what all series are now.
    pub(super) fn read_all(&mut self, now: UnixNanos, look: Look<'_>) {
        let mut next = Some((0, 0));
        while let Some(from) = next {
            next = self.read_some(from, usize::MAX, now, look);
        }
        let ends = |(number, source): (usize, &Option<Source>)| {
            (
                number as u32,
                source.as_ref().map_or(0, |source| source.entries.len() as u32),
            )
        };
        let ends: Vec<Key> = self.sources.iter().enumerate().map(ends).collect();
        let keys = ends
            .into_iter()
            .flat_map(|(number, end)| (0..end).map(move |at| (number, at)));
        self.share_freed(keys);
    }

    /// Reads what about `count` series are now, from a place on. Gives where to go on.
    pub(super) fn read_some(
        &mut self,
        (number, from): Key,
        count: usize,
        now: UnixNanos,
        look: Look<'_>,
    ) -> Option<Key> {
        let end = match self.sources.get(number as usize)? {
            None => 0,
            Some(Source {
                of: Of::Composite { .. },
                ..
            }) => {
                self.read_composite(number as usize, now, look);
                0
            }
            Some(source) => source.entries.len() as u32,
        };
        let until = end.min(from.saturating_add(u32::try_from(count).unwrap_or(u32::MAX)));
        let keys: Vec<Key> = (from..until).map(|at| (number, at)).collect();
        self.read(&keys, look);
        Some(if until < end {
            (number, until)
        } else {
            (number + 1, 0)
        })
    }

    /// Reads series of tables, quickest in order.
    fn read(&mut self, keys: &[Key], look: Look<'_>) {
        for of_source in keys.chunk_by(|a, b| a.0 == b.0) {
            let number = of_source[0].0 as usize;
            let Some(Some(Source {
                of: Of::Table { table, .. },
                entries,
            })) = self.sources.get_mut(number)
            else {
                continue;
            };
            let Some(table) = table.upgrade() else { continue };
            let mut looker = table.looker();
            for key in of_source {
                let Some(slot) = entries.get_mut(key.1 as usize) else {
                    continue;
                };
                let Some(entry) = slot else { continue };
                let Some(place) = entry.place else { continue };
                match looker.at(place) {
                    Seen::Shown(reading) => entry.see(*key, &reading, look, &mut self.books),
                    Seen::Hidden => entry.end(*key, look.time, &mut self.books),
                    Seen::Gone => {
                        entry.end(*key, look.time, &mut self.books);
                        forget_name(&mut self.names, entry, *key);
                        *slot = None;
                    }
                }
            }
        }
    }

    fn read_composite(&mut self, number: usize, now: UnixNanos, look: Look<'_>) {
        let Some(Some(Source {
            of: Of::Composite {
                composite, places, ..
            },
            entries,
        })) = self.sources.get_mut(number)
        else {
            return;
        };
        let Some(composite) = composite.upgrade() else {
            return;
        };
        let mut is_shown = vec![false; entries.len()];
        composite.show(now, &mut |reading| {
            let address = Arc::as_ptr(reading.series).addr();
            let at = *places.entry(address).or_insert_with(|| {
                let free = entries.iter().position(Option::is_none);
                free.unwrap_or(entries.len()) as u32
            });
            let (key, at) = ((number as u32, at), at as usize);
            if entries.len() <= at {
                entries.resize_with(at + 1, || None);
                is_shown.resize(at + 1, false);
            }
            is_shown[at] = true;
            let entry = entries[at].get_or_insert_with(|| {
                let entry = Entry::new(reading.series, None, look);
                if let Some(name) = &entry.name {
                    self.names.entry(name.clone()).or_default().insert(key);
                }
                entry
            });
            entry.see(key, &reading, look, &mut self.books);
        });
        for (at, slot) in entries.iter_mut().enumerate().filter(|(at, _)| !is_shown[*at]) {
            if let Some(mut entry) = slot.take() {
                let key = (number as u32, at as u32);
                entry.end(key, look.time, &mut self.books);
                forget_name(&mut self.names, &entry, key);
                places.remove(&Arc::as_ptr(&entry.series).addr());
            }
        }
    }

    /// What one of two has let go is shown by the other from now on.
    fn share_freed(&mut self, keys: impl Iterator<Item = Key>) {
        if !std::mem::take(&mut self.books.has_freed) {
            return;
        }
        for key in keys {
            let source = self.sources.get_mut(key.0 as usize).and_then(Option::as_mut);
            let entry = source.and_then(|source| source.entries.get_mut(key.1 as usize)?.as_mut());
            entry
                .into_iter()
                .for_each(|entry| entry.claim(key, &mut self.books));
        }
    }
}

fn is<T>(known: &Weak<T>, other: &Arc<T>) -> bool {
    std::ptr::eq(known.as_ptr(), Arc::as_ptr(other))
}

fn forget_name(names: &mut Names, entry: &Entry, key: Key) {
    let Some(name) = &entry.name else { return };
    if let Some(keys) = names.get_mut(name) {
        keys.remove(&key);
        if keys.is_empty() {
            names.remove(name);
        }
    }
}
