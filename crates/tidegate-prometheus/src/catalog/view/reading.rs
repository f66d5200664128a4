// SPDX-License-Identifier: Apache-2.0

//! Reads the current state of series: those of a query, some of them in turn, or all.

use std::sync::{Arc, Weak};

use tidegate_engine::{LookupResult, Table, UnixNanos};
use tidegate_promql::Selection;

use super::entry::{Key, SeriesEntry, ViewPass};
use super::state::{SourceContent, ViewSource, ViewState, forget_name, labels};
use super::targets::ResourceIndex;
use crate::render::TARGET_INFO;

/// The most keys that are held twice.
const MANY: usize = 1 << 20;

impl ViewState {
    /// Reads what the series are now that these ask for, each by name.
    pub(super) fn read_asked(&mut self, selections: &[Selection], now: UnixNanos, pass: ViewPass<'_>) {
        let names: Vec<&str> = selections.iter().filter_map(Selection::name).collect();
        for number in 0..self.sources.len() {
            let of = self.sources[number].as_ref().map(|source| &source.of);
            if let Some(SourceContent::Composite { name: Some(name), .. }) = of
                && names.contains(&&**name)
            {
                self.read_composite(number, now, pass);
            }
        }
        selections.iter().for_each(|selection| self.prepare(selection));
        let mut keys: Vec<Key> = Vec::new();
        let mut distinct = 0;
        for (selection, name) in selections.iter().zip(&names) {
            keys.extend(self.keys(name, selection));
            // Thousands of selectors may ask for the same series.
            if keys.len() > MANY + 2 * distinct {
                keys.sort_unstable();
                keys.dedup();
                distinct = keys.len();
            }
        }
        keys.sort_unstable();
        keys.dedup();
        self.read(&keys, pass);
        self.share_freed(keys.into_iter());
        if self.asks_for_targets(&names) {
            self.read_targets(pass);
        }
        self.resolve_contests(pass);
    }

    /// Settles what is seen after all series have been read.
    pub(super) fn resolve_all(&mut self, pass: ViewPass<'_>) {
        let ends = |(number, source): (usize, &Option<ViewSource>)| {
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
        self.resolve_contests(pass);
    }

    /// Reads the state of about `count` series from a place on. Returns the next place, and the number of places read.
    pub(super) fn read_some(
        &mut self,
        (number, from): Key,
        count: usize,
        now: UnixNanos,
        pass: ViewPass<'_>,
    ) -> Option<(Key, usize)> {
        let after = (number + 1, 0);
        let Some(source) = self.sources.get(number as usize)? else {
            return Some((after, 0));
        };
        let places = source.entries.len();
        let end = match source.of {
            SourceContent::Table { .. } => places as u32,
            SourceContent::Composite { .. } => {
                self.read_composite(number as usize, now, pass);
                0
            }
            SourceContent::Targets(_) => {
                self.read_targets(pass);
                0
            }
        };
        let until = end.min(from.saturating_add(u32::try_from(count).unwrap_or(u32::MAX)));
        let keys: Vec<Key> = (from..until).map(|at| (number, at)).collect();
        self.read(&keys, pass);
        self.resolve_contests(pass);
        let read = if end == 0 { places } else { keys.len() };
        Some((if until < end { (number, until) } else { after }, read))
    }

    /// Reads series of tables, quickest in order.
    fn read(&mut self, keys: &[Key], pass: ViewPass<'_>) {
        for of_source in keys.chunk_by(|a, b| a.0 == b.0) {
            let number = of_source[0].0 as usize;
            let Some(Some(ViewSource {
                of: SourceContent::Table { table, .. },
                entries,
                style,
                copied,
            })) = self.sources.get_mut(number)
            else {
                continue;
            };
            let Some(table) = table.upgrade() else { continue };
            let pass = pass.of_table(style, &table);
            let copied: Vec<Arc<Table>> = copied.iter().filter_map(Weak::upgrade).collect();
            let mut reader = table.series_reader();
            for key in of_source {
                let Some(slot) = entries.get_mut(key.1 as usize) else {
                    continue;
                };
                let Some(entry) = slot else { continue };
                let Some(place) = entry.place else { continue };
                if copied.iter().any(|other| other.has(&entry.series)) {
                    entry.end(*key, pass, &mut self.shared);
                    continue;
                }
                match reader.at(place) {
                    LookupResult::Shown(reading) => entry.observe(*key, &reading, pass, &mut self.shared),
                    LookupResult::Hidden(_) => entry.end(*key, pass, &mut self.shared),
                    LookupResult::Gone => {
                        entry.end(*key, pass, &mut self.shared);
                        forget_name(&mut self.names, entry, *key);
                        *slot = None;
                    }
                }
            }
        }
    }

    fn read_composite(&mut self, number: usize, now: UnixNanos, pass: ViewPass<'_>) {
        let Some(Some(ViewSource {
            of: SourceContent::Composite {
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
        let pass = pass.of(style);
        let mut is_shown = vec![false; entries.len()];
        let mut free = 0;
        composite.show(now, &mut |reading| {
            let address = Arc::as_ptr(reading.series).addr();
            let at = *places.entry(address).or_insert_with(|| {
                // Earlier places are taken. Each place is checked once.
                while entries.get(free).is_some_and(Option::is_some) {
                    free += 1;
                }
                free as u32
            });
            let (key, at) = ((number as u32, at), at as usize);
            if entries.len() <= at {
                entries.resize_with(at + 1, || None);
                is_shown.resize(at + 1, false);
            }
            is_shown[at] = true;
            let entry = entries[at].get_or_insert_with(|| {
                let entry = SeriesEntry::new(reading.series, None, pass, &mut self.shared.interner);
                if let Some(name) = &entry.name {
                    self.names
                        .add(name.clone(), key, || labels(reading.series, style));
                }
                entry
            });
            entry.observe(key, &reading, pass, &mut self.shared);
        });
        for (at, slot) in entries.iter_mut().enumerate().filter(|(at, _)| !is_shown[*at]) {
            if let Some(mut entry) = slot.take() {
                let key = (number as u32, at as u32);
                entry.end(key, pass, &mut self.shared);
                forget_name(&mut self.names, &entry, key);
                places.remove(&Arc::as_ptr(&entry.series).addr());
            }
        }
    }

    /// Gives the names that some series have released to others.
    fn share_freed(&mut self, keys: impl Iterator<Item = Key>) {
        if !std::mem::take(&mut self.shared.has_freed) {
            return;
        }
        for key in keys {
            let source = self.sources.get_mut(key.0 as usize).and_then(Option::as_mut);
            let entry = source.and_then(|source| source.entries.get_mut(key.1 as usize)?.as_mut());
            entry
                .into_iter()
                .for_each(|entry| entry.claim(key, &mut self.shared));
        }
    }

    /// Whether one of these names is that of `target_info`.
    pub(super) fn asks_for_targets(&self, names: &[&str]) -> bool {
        let mut sources = self.sources.iter().flatten();
        sources.any(|source| names.contains(&&*source.style.naming.own(TARGET_INFO)))
    }

    /// Reads which resources show something now.
    fn read_targets(&mut self, pass: ViewPass<'_>) {
        let is_targets = |source: &Option<ViewSource>| {
            matches!(
                source,
                Some(ViewSource {
                    of: SourceContent::Targets(_),
                    ..
                })
            )
        };
        let Some(number) = self.sources.iter().position(is_targets) else {
            return;
        };
        // Removed during the read, so that all others are accessible.
        let Some(ViewSource {
            of: SourceContent::Targets(mut targets),
            mut entries,
            style,
            copied,
        }) = self.sources[number].take()
        else {
            return;
        };
        let mut found = ResourceIndex::default();
        for source in self.sources.iter().flatten() {
            for entry in source.entries.iter().flatten() {
                found.add_series(entry, &source.style);
            }
        }
        let known: Vec<Key> = targets.update(
            found,
            pass,
            &mut entries,
            number as u32,
            &mut self.shared,
            &mut self.names,
        );
        for key in known {
            if let Some(slot) = entries.get_mut(key.1 as usize)
                && let Some(mut entry) = slot.take()
            {
                forget_name(&mut self.names, &entry, key);
                entry.end(key, pass, &mut self.shared);
            }
        }
        let of = SourceContent::Targets(targets);
        self.sources[number] = Some(ViewSource {
            of,
            style,
            copied,
            entries,
        });
    }
}
