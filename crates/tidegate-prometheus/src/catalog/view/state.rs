// SPDX-License-Identifier: Apache-2.0

//! The known series by metric name, with their current state.
//!
//! Invariants:
//!
//! - The key of a series is the number of its source and its place there. A later source gets the number of one that
//!   has gone. So `update_sources` ends all series of a source that has gone before it adds sources.
//! - `names` has the key of a series as long as the series is in `entries` and has a name. Code that removes or
//!   replaces an entry calls `forget_name` and `SeriesEntry::end`. `end` releases names and contests, and keeps the past.
//! - A series that is shown owns all its names in `shared.owners`, and no other series has one of them.
//! - `shared.claims` may have keys of series that have gone. `resolve_contests` looks each of them up.
//!
//! Locks: one lock of `View` guards the whole state. The order is this lock, then the senders, then a table. `Senders`
//! reads tables under its own lock, so the lock of a table must be free when the senders are asked.
//!
//! Callers lock the state before they list the tables. Otherwise a list from before a reload may replace that of a later
//! reader. The list has locks too: that of the tables, then that of the expositions, then those of exporters. The lock of
//! the composites follows that of the tables. Code that holds one of these four locks must not ask for the state.
//!
//! Ownership: sources refer to tables and composites weakly, so a query keeps no table alive. Entries hold their
//! series, so the address of a composite's series stays valid as its key.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tidegate_engine::{Composite, Series, Table, UnixNanos};
use tidegate_promql::{HistoryLimits, Millis, Selection};

use super::super::{Newcomers, refers_to};
use super::borrowed::MergedTables;
use super::entry::{Key, SeriesEntry, ViewPass};
use super::names::{NameIndex, Pairs, hash};
use super::shared::SharedState;
use super::targets::Targets;
use crate::Style;
use crate::flat::{SUFFIXES, identity};
use crate::name::Kind;

/// All series of the tables so far.
pub(super) struct ViewState {
    /// Tables and composites; a place that is free is given to the next one.
    pub(super) sources: Vec<Option<ViewSource>>,
    pub(super) names: NameIndex,
    pub(super) shared: SharedState,
    /// The time of the last look.
    now: UnixNanos,
    /// The number of sources that have ended.
    pub(super) ended: u64,
    /// The number of arrivals.
    pub(super) arrived: u64,
    /// The number of arrivals at the last read of all series.
    pub(super) read: u64,
    /// The series with a history from another replica, and when that begins.
    pub(super) borrowed: Option<(MergedTables, Millis)>,
}

pub(super) struct ViewSource {
    pub(super) of: SourceContent,
    /// The style of its names.
    pub(super) style: Arc<Style>,
    /// Tables that hold copies of some of its series, which count there.
    pub(super) copied: Vec<Weak<Table>>,
    /// By the number of the place.
    pub(super) entries: Vec<Option<SeriesEntry>>,
}

pub(super) enum SourceContent {
    Table {
        table: Weak<Table>,
        /// The arrivals that are known.
        arrivals: u64,
    },
    Composite {
        composite: Weak<Composite>,
        /// The name of its metric; `None`: it can't be expressed.
        name: Option<String>,
        /// Entries by the address of the series, which they hold.
        places: HashMap<usize, u32>,
    },
    /// `target_info` of every resource that shows something.
    Targets(Targets),
}

/// A table with the style that names its series in queries.
#[derive(Clone)]
pub struct NamedTable {
    /// The table.
    pub table: Arc<Table>,
    /// The style of its names.
    pub style: Arc<Style>,
    /// Tables that hold copies of some of its series, which count there.
    pub(super) copied: Vec<Weak<Table>>,
}

impl ViewState {
    pub(super) fn new(limits: HistoryLimits) -> Self {
        Self {
            sources: Vec::new(),
            names: NameIndex::default(),
            shared: SharedState::new(limits),
            now: 0,
            ended: 0,
            arrived: 0,
            read: 0,
            borrowed: None,
        }
    }

    /// Places of series, taken or not.
    pub(super) fn len(&self) -> usize {
        let sources = self.sources.iter().flatten();
        sources.map(|source| source.entries.len()).sum()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &SeriesEntry> {
        let sources = self.sources.iter().flatten();
        sources.flat_map(|source| source.entries.iter().flatten())
    }

    /// The series that may have numbers of this name.
    pub(super) fn named(&self, name: &str) -> impl Iterator<Item = &SeriesEntry> {
        let keys = stems(name).flat_map(|stem| self.names.keys(stem));
        keys.filter_map(|key| self.entry(key))
    }

    /// The series that may have numbers of this name which a selection accepts.
    pub(super) fn asked<'a>(
        &'a self,
        name: &str,
        selection: &Selection,
    ) -> impl Iterator<Item = &'a SeriesEntry> {
        let keys = self.keys(name, selection);
        keys.filter_map(|key| self.entry(key))
    }

    /// In order, name by name.
    pub(super) fn keys(&self, name: &str, selection: &Selection) -> impl Iterator<Item = Key> {
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

    /// The series with this key.
    pub(super) fn entry(&self, key: Key) -> Option<&SeriesEntry> {
        let source = self.sources.get(key.0 as usize)?.as_ref()?;
        source.entries.get(key.1 as usize)?.as_ref()
    }

    /// The names of all metrics.
    pub(super) fn metrics(&self) -> impl Iterator<Item = &str> {
        self.names.all()
    }

    /// Updates the sources to these tables and their composites, and registers the series that have come.
    pub(super) fn update_sources(&mut self, tables: &[NamedTable], pass: ViewPass<'_>) {
        self.now = pass.now;
        self.names.forget_unused(pass.now);
        self.shared.contests.begin_pass();
        let composites = |named: &NamedTable| {
            let style = named.style.clone();
            let attached = named.table.attached().into_iter();
            attached.map(move |composite| (composite, style.clone()))
        };
        let composites: Vec<_> = tables.iter().flat_map(composites).collect();
        for number in 0..self.sources.len() {
            let is_there = |source: &ViewSource| {
                let has_style = |style: &Arc<Style>| Arc::ptr_eq(style, &source.style);
                match &source.of {
                    SourceContent::Table { table, .. } => {
                        let mut tables = tables.iter();
                        tables.any(|other| refers_to(table, &other.table) && has_style(&other.style))
                    }
                    SourceContent::Composite { composite, .. } => {
                        let mut composites = composites.iter();
                        composites.any(|(other, style)| refers_to(composite, other) && has_style(style))
                    }
                    SourceContent::Targets(_) => true,
                }
            };
            if let Some(gone) = self.sources[number].take_if(|source| !is_there(source)) {
                self.ended += 1;
                for (at, entry) in (0u32..).zip(gone.entries) {
                    entry
                        .into_iter()
                        .for_each(|entry| self.let_go(entry, (number as u32, at), pass));
                }
            }
        }
        for NamedTable { table, style, copied } in tables {
            let is_known = |of: &SourceContent| matches!(of, SourceContent::Table { table: known, .. } if refers_to(known, table));
            let (table, arrivals) = (Arc::downgrade(table), 0);
            self.add_source(is_known, style, copied, || SourceContent::Table {
                table,
                arrivals,
            });
        }
        for (composite, style) in &composites {
            let is_known = |of: &SourceContent| matches!(of, SourceContent::Composite { composite: known, .. } if refers_to(known, composite));
            self.add_source(is_known, style, &[], || SourceContent::Composite {
                composite: Arc::downgrade(composite),
                name: style
                    .naming
                    .metric(&composite.declaration().name, "", Kind::Gauge),
                places: HashMap::new(),
            });
        }
        if let Some(first) = tables.first() {
            let is_known = |of: &SourceContent| matches!(of, SourceContent::Targets(_));
            self.add_source(is_known, &first.style, &[], || {
                SourceContent::Targets(Targets::default())
            });
        }
        (0..self.sources.len()).for_each(|number| self.register_arrivals(number, pass));
    }

    fn add_source(
        &mut self,
        is_known: impl Fn(&SourceContent) -> bool,
        style: &Arc<Style>,
        copied: &[Weak<Table>],
        make: impl FnOnce() -> SourceContent,
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
        let source = Some(ViewSource {
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

    fn register_arrivals(&mut self, number: usize, pass: ViewPass<'_>) {
        let mut replaced = Vec::new();
        let (names, interner) = (&mut self.names, &mut self.shared.interner);
        let Some(ViewSource {
            of, style, entries, ..
        }) = &mut self.sources[number]
        else {
            return;
        };
        let SourceContent::Table { table, arrivals } = of else {
            return;
        };
        let Some(table) = table.upgrade() else { return };
        let pass = pass.of_table(style, &table);
        let mut newcomers = Newcomers::default();
        let mut arrived = 0;
        *arrivals = table.flush_and_list_arrivals(*arrivals, &mut |place, series| {
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
            newcomers.note(&series.resource, place);
            arrived += 1;
            let entry = SeriesEntry::new(series, Some(place), pass, interner);
            let name = entry.name.clone();
            // An earlier series had the same key, so its name is removed first.
            if let Some(old) = entries[at].replace(entry) {
                forget_name(names, &old, key);
                replaced.push((old, key));
            }
            if let Some(name) = name {
                names.add(name, key, || labels(series, style));
            }
        });
        pass.senders.record_all(&table, newcomers, pass.now);
        self.arrived += arrived;
        for (mut old, key) in replaced {
            old.end(key, pass, &mut self.shared);
        }
    }

    fn let_go(&mut self, mut entry: SeriesEntry, key: Key, pass: ViewPass<'_>) {
        forget_name(&mut self.names, &entry, key);
        entry.end(key, pass, &mut self.shared);
    }
}

pub(super) fn forget_name(names: &mut NameIndex, entry: &SeriesEntry, key: Key) {
    if let Some(name) = &entry.name {
        names.remove(name, key);
    }
}

/// The names of series that may have a number with this name.
fn stems(name: &str) -> impl Iterator<Item = &str> {
    SUFFIXES.iter().filter_map(|suffix| name.strip_suffix(suffix))
}

pub(super) fn labels(series: &Series, style: &Style) -> Pairs {
    identity(series, style)
        .map(|(_, pairs)| pairs)
        .unwrap_or_default()
}
