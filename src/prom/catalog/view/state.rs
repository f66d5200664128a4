//! Which series there are, found by the name of their metric, and what they are now.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tidegate_engine::query::{Labels, Millis, Selection};
use tidegate_engine::{Composite, HistoryLimits, Place, Resource, Seen, Series, Table, UnixNanos};

use super::super::Life;
use super::entry::{Books, Entry, Key, Look};
use super::names::{Names, Pairs, hash};
use super::targets::{Found, Targets};
use crate::prom::Style;
use crate::prom::flat::{SUFFIXES, identity};
use crate::prom::name::Kind;
use crate::prom::render::TARGET_INFO;

/// Every series that a look at the tables has met.
pub(super) struct State {
    /// Tables and composites; a place that is free is given to the next one.
    sources: Vec<Option<Source>>,
    pub(super) names: Names,
    pub(super) books: Books,
    /// When it was looked at.
    now: UnixNanos,
}

struct Source {
    of: Of,
    /// How its series are named.
    style: Arc<Style>,
    /// Tables that hold copies of some of its series, which count there.
    copied: Vec<Weak<Table>>,
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
    /// `target_info` of every resource that shows something.
    Targets(Targets),
}

impl Of {
    fn table(&self) -> Option<Arc<Table>> {
        match self {
            Self::Table { table, .. } => table.upgrade(),
            Self::Composite { .. } | Self::Targets(_) => None,
        }
    }
}

/// A table as queries see it.
#[derive(Clone)]
pub struct Shown {
    /// The table.
    pub table: Arc<Table>,
    /// How its series are named.
    pub style: Arc<Style>,
    /// Tables that hold copies of some of its series, which count there.
    pub(super) copied: Vec<Weak<Table>>,
}

impl State {
    pub(super) fn new(limits: HistoryLimits) -> Self {
        Self {
            sources: Vec::new(),
            names: Names::default(),
            books: Books::new(limits),
            now: 0,
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
        let keys = stems(name).flat_map(|stem| self.names.keys(stem));
        keys.filter_map(|key| self.entry(key))
    }

    /// The series that may have numbers of this name which a selection accepts.
    pub(super) fn asked<'a>(&'a self, name: &str, selection: &Selection) -> impl Iterator<Item = &'a Entry> {
        let keys = self.keys(name, selection);
        keys.filter_map(|key| self.entry(key))
    }

    /// In order, name by name.
    fn keys(&self, name: &str, selection: &Selection) -> impl Iterator<Item = Key> {
        stems(name).flat_map(|stem| self.names.asked(stem, &selection.matchers))
    }

    /// Makes what a selection asks for quick to find.
    pub(super) fn prepare(&mut self, selection: &Selection) {
        for stem in selection.name().into_iter().flat_map(stems) {
            while let Some(label) = self.names.missing(stem, selection, self.now) {
                let value = |key: Key| {
                    let source = self.sources.get(key.0 as usize)?.as_ref()?;
                    let entry = source.entries.get(key.1 as usize)?.as_ref()?;
                    Some((hash(&entry.value(label, &source.style)), key))
                };
                let values: Vec<_> = self.names.keys(stem).filter_map(value).collect();
                self.names.index(stem, label, values, self.now);
            }
        }
    }

    /// The series that lie behind a key.
    pub(super) fn entry(&self, key: Key) -> Option<&Entry> {
        let source = self.sources.get(key.0 as usize)?.as_ref()?;
        source.entries.get(key.1 as usize)?.as_ref()
    }

    fn entry_mut(&mut self, key: Key) -> Option<&mut Entry> {
        let source = self.sources.get_mut(key.0 as usize)?.as_mut()?;
        source.entries.get_mut(key.1 as usize)?.as_mut()
    }

    /// The names of all metrics.
    pub(super) fn metrics(&self) -> impl Iterator<Item = &str> {
        self.names.all()
    }

    /// Learns which series these tables have by now.
    pub(super) fn meet(&mut self, shown: &[Shown], look: Look<'_>) {
        self.now = look.now;
        self.names.forget_unused(look.now);
        let composites = |shown: &Shown| {
            let style = shown.style.clone();
            let attached = shown.table.attached().into_iter();
            attached.map(move |composite| (composite, style.clone()))
        };
        let composites: Vec<_> = shown.iter().flat_map(composites).collect();
        for number in 0..self.sources.len() {
            let is_there = |source: &Source| {
                let has_style = |style: &Arc<Style>| Arc::ptr_eq(style, &source.style);
                match &source.of {
                    Of::Table { table, .. } => {
                        let mut shown = shown.iter();
                        shown.any(|other| is(table, &other.table) && has_style(&other.style))
                    }
                    Of::Composite { composite, .. } => {
                        let mut composites = composites.iter();
                        composites.any(|(other, style)| is(composite, other) && has_style(style))
                    }
                    Of::Targets(_) => true,
                }
            };
            if let Some(gone) = self.sources[number].take_if(|source| !is_there(source)) {
                for (at, entry) in (0u32..).zip(gone.entries) {
                    entry
                        .into_iter()
                        .for_each(|entry| self.let_go(entry, (number as u32, at), look.time));
                }
            }
        }
        for Shown { table, style, copied } in shown {
            let is_known = |of: &Of| matches!(of, Of::Table { table: known, .. } if is(known, table));
            let (table, arrivals) = (Arc::downgrade(table), 0);
            self.learn(is_known, style, copied, || Of::Table { table, arrivals });
        }
        for (composite, style) in &composites {
            let is_known =
                |of: &Of| matches!(of, Of::Composite { composite: known, .. } if is(known, composite));
            self.learn(is_known, style, &[], || Of::Composite {
                composite: Arc::downgrade(composite),
                name: style
                    .naming
                    .metric(&composite.declaration().name, "", Kind::Gauge),
                places: HashMap::new(),
            });
        }
        if let Some(shown) = shown.first() {
            let is_known = |of: &Of| matches!(of, Of::Targets(_));
            self.learn(is_known, &shown.style, &[], || Of::Targets(Targets::default()));
        }
        (0..self.sources.len()).for_each(|number| self.take_up_arrivals(number, look));
    }

    fn learn(
        &mut self,
        is_known: impl Fn(&Of) -> bool,
        style: &Arc<Style>,
        copied: &[Weak<Table>],
        make: impl FnOnce() -> Of,
    ) {
        if let Some(known) = self
            .sources
            .iter_mut()
            .flatten()
            .find(|source| is_known(&source.of))
        {
            if known.copied.len() != copied.len() {
                known.copied = copied.to_vec();
            }
            return;
        }
        let source = Some(Source {
            of: make(),
            style: style.clone(),
            copied: copied.to_vec(),
            entries: Vec::new(),
        });
        match self.sources.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = source,
            None => self.sources.push(source),
        }
    }

    fn take_up_arrivals(&mut self, number: usize, look: Look<'_>) {
        let mut replaced = Vec::new();
        let (names, strings) = (&mut self.names, &mut self.books.strings);
        let Some(Source {
            of, style, entries, ..
        }) = &mut self.sources[number]
        else {
            return;
        };
        let look = look.of(style);
        let Of::Table { table, arrivals } = of else { return };
        let Some(table) = table.upgrade() else { return };
        let mut senders: Vec<(Arc<Resource>, Place)> = Vec::new();
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
            let is_same = |(last, _): &(Arc<Resource>, Place)| Arc::ptr_eq(last, &series.resource);
            if !senders.last().is_some_and(is_same) {
                senders.push((series.resource.clone(), place));
            }
            let entry = Entry::new(series, Some(place), look, strings);
            let name = entry.name.clone();
            // What was there before goes by the same key: its name goes first.
            if let Some(old) = entries[at].replace(entry) {
                forget_name(names, &old, key);
                replaced.push((old, key));
            }
            if let Some(name) = name {
                names.add(name, key, || labels(series, style));
            }
        });
        for (resource, place) in senders {
            look.senders.meet(&resource, &table, place, look.now);
        }
        for (mut old, key) in replaced {
            old.end(key, look.time, &mut self.books);
        }
    }

    fn let_go(&mut self, mut entry: Entry, key: Key, now: Millis) {
        forget_name(&mut self.names, &entry, key);
        entry.end(key, now, &mut self.books);
    }

    /// Reads what the series are now that these ask for, each by name.
    pub(super) fn read_asked(&mut self, selections: &[Selection], now: UnixNanos, look: Look<'_>) {
        let names: Vec<&str> = selections.iter().filter_map(Selection::name).collect();
        for number in 0..self.sources.len() {
            let of = self.sources[number].as_ref().map(|source| &source.of);
            if let Some(Of::Composite { name: Some(name), .. }) = of
                && names.contains(&&**name)
            {
                self.read_composite(number, now, look);
            }
        }
        selections.iter().for_each(|selection| self.prepare(selection));
        let asked = selections.iter().zip(&names);
        let asked = asked.flat_map(|(selection, name)| self.keys(name, selection));
        let mut keys: Vec<Key> = asked.collect();
        keys.sort_unstable();
        keys.dedup();
        self.read(&keys, look);
        self.share_freed(keys.into_iter());
        if self.asks_for_targets(&names) {
            self.read_targets(look);
        }
        self.settle(look);
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
        self.settle(look);
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
            Some(Source {
                of: Of::Targets(_), ..
            }) => {
                self.read_targets(look);
                0
            }
            Some(source) => source.entries.len() as u32,
        };
        let until = end.min(from.saturating_add(u32::try_from(count).unwrap_or(u32::MAX)));
        let keys: Vec<Key> = (from..until).map(|at| (number, at)).collect();
        self.read(&keys, look);
        self.settle(look);
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
                style,
                copied,
            })) = self.sources.get_mut(number)
            else {
                continue;
            };
            let Some(table) = table.upgrade() else { continue };
            let look = look.of(style);
            let copied: Vec<Arc<Table>> = copied.iter().filter_map(Weak::upgrade).collect();
            let mut looker = table.looker();
            for key in of_source {
                let Some(slot) = entries.get_mut(key.1 as usize) else {
                    continue;
                };
                let Some(entry) = slot else { continue };
                let Some(place) = entry.place else { continue };
                if copied.iter().any(|other| other.has(&entry.series)) {
                    entry.end(*key, look.time, &mut self.books);
                    continue;
                }
                match looker.at(place) {
                    Seen::Shown(reading) => entry.see(*key, &reading, look, &mut self.books),
                    Seen::Hidden(_) => entry.end(*key, look.time, &mut self.books),
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
            style,
            ..
        })) = self.sources.get_mut(number)
        else {
            return;
        };
        let Some(composite) = composite.upgrade() else {
            return;
        };
        let look = look.of(style);
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
                let entry = Entry::new(reading.series, None, look, &mut self.books.strings);
                if let Some(name) = &entry.name {
                    self.names
                        .add(name.clone(), key, || labels(reading.series, style));
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

impl State {
    /// Whose number of the same name and labels is seen: the owner's that lives.
    fn settle(&mut self, look: Look<'_>) {
        let mut last: Option<((Key, Key), Verdict)> = None;
        for (labels, key) in std::mem::take(&mut self.books.claims) {
            let owner = self.books.owner(&labels).filter(|owner| *owner != key);
            let Some(owner) = owner else { continue };
            let verdict = match last {
                Some((pair, verdict)) if pair == (owner, key) => verdict,
                _ => self.judge(owner, key, look),
            };
            last = Some(((owner, key), verdict));
            if verdict.gives_way {
                self.hand_over(&labels, owner, key, look.time);
            }
            let loser = if verdict.gives_way { owner } else { key };
            self.contest(&labels, loser, verdict.is_contested);
        }
    }

    fn judge(&self, owner: Key, other: Key, look: Look<'_>) -> Verdict {
        // The other is its own copy, which a rule behind it has taken in.
        let is_of_composite = self.is_composite(owner) || self.is_composite(other);
        let (owner, other) = (self.life(owner, look), self.life(other, look));
        let gives_way =
            other.is_some_and(|other| owner.is_none_or(|owner| owner.gives_way_to(&other, look.now)));
        let (winner, loser) = if gives_way { (other, owner) } else { (owner, other) };
        Verdict {
            gives_way,
            is_contested: !is_of_composite
                && loser
                    .zip(winner)
                    .is_some_and(|(loser, winner)| loser.collides_with(&winner, look.now)),
        }
    }

    fn is_composite(&self, key: Key) -> bool {
        let source = self.sources.get(key.0 as usize).and_then(Option::as_ref);
        source.is_some_and(|source| matches!(source.of, Of::Composite { .. }))
    }

    /// The life of a series; `None`: it has no value.
    fn life(&self, key: Key, look: Look<'_>) -> Option<Life> {
        let entry = self.entry(key).filter(|entry| !entry.numbers.is_empty())?;
        let table = self.sources.get(key.0 as usize)?.as_ref()?.of.table();
        let resource = &entry.series.resource;
        Some(look.senders.life(resource, entry.times, table.as_deref()))
    }

    fn hand_over(&mut self, labels: &Labels, owner: Key, other: Key, now: Millis) {
        let Some(mut old) = self.entry_mut(owner).and_then(|entry| entry.take(labels)) else {
            return;
        };
        let source = self.sources.get_mut(other.0 as usize).and_then(Option::as_mut);
        let entry = source.and_then(|source| source.entries.get_mut(other.1 as usize)?.as_mut());
        if let Some(number) = entry.and_then(|entry| entry.number(labels)) {
            old.1.hand_over(number, now, &mut self.books);
            self.books.give(labels, other);
        }
        if let Some(entry) = self.entry_mut(owner) {
            entry.put_back(old);
        }
    }

    /// Notes whether the number of these labels, which is not seen, is of a series that reports.
    fn contest(&mut self, labels: &Labels, loser: Key, is_contested: bool) {
        let Some(entry) = self.entry_mut(loser) else {
            return;
        };
        if let Some(number) = entry.number(labels) {
            number.is_contested = is_contested;
        }
        let any = entry
            .numbers
            .iter()
            .any(|number| number.is_shadowed && number.is_contested);
        match any {
            true => _ = self.books.contested.insert(loser),
            false => _ = self.books.contested.remove(&loser),
        }
    }

    /// Whether one of these names is that of `target_info`.
    pub(super) fn asks_for_targets(&self, names: &[&str]) -> bool {
        let mut sources = self.sources.iter().flatten();
        sources.any(|source| names.contains(&&*source.style.naming.own(TARGET_INFO)))
    }

    /// Reads which resources show something now.
    fn read_targets(&mut self, look: Look<'_>) {
        let is_targets = |source: &Option<Source>| {
            matches!(
                source,
                Some(Source {
                    of: Of::Targets(_),
                    ..
                })
            )
        };
        let Some(number) = self.sources.iter().position(is_targets) else {
            return;
        };
        // Taken out, so that all others can be looked at.
        let Some(Source {
            of: Of::Targets(mut targets),
            mut entries,
            style,
            copied,
        }) = self.sources[number].take()
        else {
            return;
        };
        let mut found = Found::default();
        for source in self.sources.iter().flatten() {
            let table = source.of.table();
            for entry in source
                .entries
                .iter()
                .flatten()
                .filter(|entry| !entry.numbers.is_empty())
            {
                found.meet(&entry.series, entry.times, &source.style, table.as_ref());
            }
        }
        let known: Vec<Key> = targets.take_up(
            found,
            look,
            &mut entries,
            number as u32,
            &mut self.books,
            &mut self.names,
        );
        for key in known {
            if let Some(slot) = entries.get_mut(key.1 as usize)
                && let Some(mut entry) = slot.take()
            {
                forget_name(&mut self.names, &entry, key);
                entry.end(key, look.time, &mut self.books);
            }
        }
        let of = Of::Targets(targets);
        self.sources[number] = Some(Source {
            of,
            style,
            copied,
            entries,
        });
    }
}

/// What becomes of two series of the same name and labels.
#[derive(Clone, Copy)]
struct Verdict {
    gives_way: bool,
    is_contested: bool,
}

fn is<T>(known: &Weak<T>, other: &Arc<T>) -> bool {
    std::ptr::eq(known.as_ptr(), Arc::as_ptr(other))
}

fn forget_name(names: &mut Names, entry: &Entry, key: Key) {
    if let Some(name) = &entry.name {
        names.remove(name, key);
    }
}

/// What the series are called that may have numbers of this name.
fn stems(name: &str) -> impl Iterator<Item = &str> {
    SUFFIXES.iter().filter_map(|suffix| name.strip_suffix(suffix))
}

fn labels(series: &Series, style: &Style) -> Pairs {
    identity(series, style)
        .map(|(_, pairs)| pairs)
        .unwrap_or_default()
}
