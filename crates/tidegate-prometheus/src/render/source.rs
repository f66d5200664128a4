// SPDX-License-Identifier: Apache-2.0

//! The sources of a renderer: tables, and their composites.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use tidegate_engine::{
    Composite, LookupResult, Reading, Series, SeriesReader, SlotId, Table, UnixNanos, Value, clock,
};

use super::column::Column;
use crate::catalog::{Times, refers_to};

/// Tables and composites by number; a number that is free is given to the next one.
#[derive(Default)]
pub(super) struct PageSources(Vec<Option<PageSource>>);

enum PageSource {
    Table {
        table: Weak<Table>,
        owner: Arc<str>,
        /// The arrivals that are known.
        arrivals: u64,
        /// The version before the last look.
        version: u64,
    },
    Composite {
        composite: Weak<Composite>,
        owner: Arc<str>,
        answers: Answers,
    },
}

/// The answers of a composite at the last look, by series address. The map keeps the series, so the address stays
/// valid.
#[derive(Default)]
pub(super) struct Answers(HashMap<u64, CompositeAnswer, RandomState>);

struct CompositeAnswer {
    series: Arc<Series>,
    value: Value,
    time: UnixNanos,
}

/// A series that was not there before.
pub(super) struct New {
    pub(super) source: u16,
    pub(super) place: u64,
    pub(super) series: Arc<Series>,
}

/// The depth of a look at sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadDepth {
    /// New series, and whether anything has changed.
    Changes,
    /// All values are wanted as they are now.
    Values,
}

/// The changes that a look has found.
#[derive(Default)]
pub(super) struct SourceChanges {
    /// Sources that are gone: their numbers mean nothing any more.
    pub(super) gone: Vec<u16>,
    /// New series, and some that are known.
    pub(super) series: Vec<New>,
    /// Whether anything may show another value than before.
    pub(super) has_changed: bool,
}

impl PageSources {
    /// Compares the sources with these tables and their composites, and returns the changes.
    pub(super) fn read(&mut self, tables: &[Arc<Table>], now: UnixNanos, depth: ReadDepth) -> SourceChanges {
        let mut changes = SourceChanges::default();
        let of_table = |table: &'_ Arc<Table>| (table.clone(), table.attached());
        let attached: Vec<_> = tables.iter().map(of_table).collect();
        let composites: Vec<_> = attached
            .iter()
            .flat_map(|(table, composites)| composites.iter().map(move |composite| (table, composite)))
            .collect();
        for (number, source) in (0u16..).zip(&mut self.0) {
            let is_there = |source: &PageSource| match source {
                PageSource::Table { table, .. } => tables.iter().any(|other| refers_to(table, other)),
                PageSource::Composite { composite, .. } => {
                    composites.iter().any(|(_, other)| refers_to(composite, other))
                }
            };
            if source.take_if(|source| !is_there(source)).is_some() {
                changes.gone.push(number);
                changes.has_changed = true;
            }
        }
        for table in tables {
            let is_known = |source: &PageSource| matches!(source, PageSource::Table { table: known, .. } if refers_to(known, table));
            self.add(is_known, || PageSource::Table {
                table: Arc::downgrade(table),
                owner: table.owner().clone(),
                arrivals: 0,
                version: u64::MAX,
            });
        }
        for (table, composite) in &composites {
            let is_known = |source: &PageSource| matches!(source, PageSource::Composite { composite: known, .. } if refers_to(known, composite));
            self.add(is_known, || PageSource::Composite {
                composite: Arc::downgrade(composite),
                owner: table.owner().clone(),
                answers: Answers::default(),
            });
        }
        for (number, source) in (0u16..).zip(&mut self.0) {
            if let Some(source) = source {
                source.read(number, now, depth, &mut changes);
            }
        }
        changes.has_changed |= !changes.series.is_empty();
        changes
    }

    fn add(&mut self, is_known: impl Fn(&PageSource) -> bool, make: impl FnOnce() -> PageSource) {
        if self.0.iter().flatten().any(is_known) {
            return;
        }
        // More would not fit in an origin, but no gateway has that number of tables.
        let is_full = self.0.len() >= usize::from(u16::MAX);
        match self.0.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(make()),
            None if is_full => {}
            None => self.0.push(Some(make())),
        }
    }

    /// The owner of a source.
    pub(super) fn owner(&self, number: u16) -> Arc<str> {
        match self.0.get(usize::from(number)) {
            Some(Some(PageSource::Table { owner, .. } | PageSource::Composite { owner, .. })) => {
                owner.clone()
            }
            _ => Arc::default(),
        }
    }

    /// The sources that are readable now.
    pub(super) fn open(&self) -> Vec<Open<'_>> {
        self.0.iter().map(|source| Open::of(source.as_ref())).collect()
    }
}

impl PageSource {
    fn read(&mut self, number: u16, now: UnixNanos, depth: ReadDepth, changes: &mut SourceChanges) {
        match self {
            Self::Table {
                table,
                arrivals,
                version,
                ..
            } => {
                let Some(table) = table.upgrade() else { return };
                // The version before the look, so that later changes are seen or change the version.
                let latest = table.version();
                // A table without news is not read, unless values are needed.
                let seen = if depth == ReadDepth::Values || table.arrived() != *arrivals {
                    table.flush_and_list_arrivals(*arrivals, &mut |place, series| {
                        changes.series.push(New {
                            source: number,
                            place: place.to_bits(),
                            series: series.clone(),
                        });
                    })
                } else {
                    *arrivals
                };
                changes.has_changed |= latest != *version || seen != *arrivals;
                (*arrivals, *version) = (seen, latest);
            }
            Self::Composite {
                composite, answers, ..
            } => {
                if let Some(composite) = composite.upgrade() {
                    answers.read(number, &composite, now, changes);
                }
            }
        }
    }
}

impl Answers {
    fn read(&mut self, source: u16, composite: &Composite, now: UnixNanos, changes: &mut SourceChanges) {
        let before = self.0.len();
        let mut shown = 0;
        composite.show(now, &mut |reading| {
            let place = Arc::as_ptr(reading.series).addr() as u64;
            shown += 1;
            let answer = self.0.entry(place).or_insert_with(|| {
                changes.series.push(New {
                    source,
                    place,
                    series: reading.series.clone(),
                });
                CompositeAnswer {
                    series: reading.series.clone(),
                    value: Value::NoRecordedValue,
                    time: 0,
                }
            });
            answer.time = now;
            if answer.value != *reading.value {
                answer.value = reading.value.clone();
                changes.has_changed = true;
            }
        });
        // Answers that are no longer shown have an older time.
        self.0.retain(|_, answer| answer.time == now);
        changes.has_changed |= before != shown;
    }
}

/// A source that is being read.
pub(super) enum Open<'a> {
    Gone,
    Table(Arc<Table>),
    Composite(&'a Answers),
}

impl<'a> Open<'a> {
    fn of(source: Option<&'a PageSource>) -> Self {
        match source {
            Some(PageSource::Table { table, .. }) => table.upgrade().map_or(Self::Gone, Self::Table),
            Some(PageSource::Composite { answers, .. }) => Self::Composite(answers),
            None => Self::Gone,
        }
    }
}

impl Open<'_> {
    /// The table that it is.
    pub(super) fn table(&self) -> Option<&Arc<Table>> {
        match self {
            Self::Table(table) => Some(table),
            Self::Composite(_) | Self::Gone => None,
        }
    }

    /// The numbers of a table.
    pub(super) fn column(&self, with_times: bool, with_exemplars: bool) -> Option<Column> {
        match self {
            Self::Table(table) => Some(Column::read(table, with_times, with_exemplars)),
            Self::Composite(_) | Self::Gone => None,
        }
    }
}

/// The result of a look at one series.
pub(super) enum Glance {
    /// No series, or another one.
    Gone,
    /// The series has no value, or has said that it ended.
    Silent(Arc<Series>),
    /// The series has a value.
    Shown(Arc<Series>, Times),
}

/// Reads series by source and place. Holds a lock of a table between two reads in it.
pub(super) struct SourceReader<'a> {
    sources: &'a [Open<'a>],
    reader: Option<(u16, SeriesReader<'a>)>,
}

impl<'a> SourceReader<'a> {
    pub(super) fn new(sources: &'a [Open<'a>]) -> Self {
        Self {
            sources,
            reader: None,
        }
    }

    /// Gives the lock back.
    pub(super) fn release(&mut self) {
        if let Some((_, reader)) = &mut self.reader {
            reader.release();
        }
    }

    /// The series at this place with the times of its value. The lock is given back.
    pub(super) fn glance(&mut self, source: u16, place: u64) -> Glance {
        let glance = match self.at(source, place) {
            LookupResult::Gone => Glance::Gone,
            LookupResult::Hidden(series) => Glance::Silent(series.clone()),
            LookupResult::Shown(reading) => match Times::of(&reading) {
                Some(times) => Glance::Shown(reading.series.clone(), times),
                None => Glance::Silent(reading.series.clone()),
            },
        };
        self.release();
        glance
    }

    /// The table of this number.
    pub(super) fn table(&self, source: u16) -> Option<&'a Arc<Table>> {
        self.sources.get(usize::from(source))?.table()
    }

    /// The current content of this place.
    #[inline]
    pub(super) fn at(&mut self, source: u16, place: u64) -> LookupResult<'_> {
        if self.reader.as_ref().is_none_or(|(open, _)| *open != source) {
            self.reader = None;
            match self.sources.get(usize::from(source)) {
                Some(Open::Table(table)) => self.reader = Some((source, table.series_reader())),
                Some(Open::Composite(answers)) => return answers.at(place),
                Some(Open::Gone) | None => return LookupResult::Gone,
            }
        }
        match &mut self.reader {
            Some((_, reader)) => reader.at(SlotId::from_bits(place)),
            None => LookupResult::Gone,
        }
    }
}

impl Answers {
    fn at(&self, place: u64) -> LookupResult<'_> {
        match self.0.get(&place) {
            None => LookupResult::Gone,
            Some(answer) => LookupResult::Shown(Reading {
                series: &answer.series,
                start: 0,
                time: clock::wall(answer.time),
                seen: answer.time,
                value: &answer.value,
                exemplars: &[],
            }),
        }
    }
}
