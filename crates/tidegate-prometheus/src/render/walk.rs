// SPDX-License-Identifier: Apache-2.0

//! Writes all series of a page.

use tidegate_engine::{LookupResult, UnixNanos, Value};

use super::column::{Cell, Column};
use super::encoder::{Encoder, SampleSnapshot};
use super::family::PageFamily;
use super::interner::LabelInterner;
use super::kind;
use super::records::Record;
use super::source::SourceReader;
use super::targets::TargetTable;

/// The number of series that are looked up before the first is written. A lookup waits for memory, and many waits
/// can overlap.
const BLOCK: usize = 64;

/// Room that a page has when a series is begun, for all its lines but its labels.
const SERIES_ROOM: usize = 16 << 10;

/// One walk over all series.
pub(super) struct Walk<'a> {
    /// The numbers of each source; of composites there are none.
    pub(super) columns: Vec<Option<Column>>,
    /// For what is not a number.
    pub(super) reader: SourceReader<'a>,
    pub(super) snapshot: SampleSnapshot,
    /// Whether the format has exemplars.
    pub(super) with_exemplars: bool,
    /// The number of this page.
    pub(super) page: u64,
    pub(super) now: UnixNanos,
    /// Indexes of the current family's ended series.
    pub(super) gone: Vec<usize>,
    pub(super) has_ended: bool,
}

impl Walk<'_> {
    /// Writes a family.
    pub(super) fn family<S: Encoder>(
        &mut self,
        encoder: &mut S,
        name: &str,
        family: &mut PageFamily,
        targets: &mut TargetTable,
        interner: &mut LabelInterner,
    ) {
        let start = encoder.page().len();
        encoder.begin(name, family);
        let (mut shown, mut omitted, mut before) = (0, 0, 0);
        for records in family.series.blocks(BLOCK) {
            let mut cells = [Cell::Gone; BLOCK];
            for (cell, record) in cells.iter_mut().zip(records) {
                *cell = self.cell(record, targets);
            }
            for (at, (cell, record)) in cells.iter().zip(records).enumerate() {
                let labels = interner.get(record.text);
                make_room(encoder.page(), labels);
                let is_said = match *cell {
                    Cell::Number(number, times) => Some(encoder.number(family, labels, number, times)),
                    Cell::Complex => self.complex(encoder, family, labels, record, targets),
                    Cell::Hidden => None,
                    Cell::Gone => {
                        self.gone.push(before + at);
                        None
                    }
                };
                match is_said {
                    Some(true) => {
                        shown += 1;
                        targets.show(record.origin, self.page);
                    }
                    Some(false) => {
                        omitted += 1;
                        family.omitted.source = targets.source(record.origin).unwrap_or(u16::MAX);
                    }
                    None => {}
                }
            }
            before += records.len();
        }
        match shown {
            0 => encoder.page().truncate(start),
            _ => encoder.end(family),
        }
        family.omitted.note(omitted, self.now);
        family.size = encoder.page().len() - start;
        self.bury(family, targets, interner);
    }

    #[inline]
    fn cell(&mut self, record: &Record, targets: &TargetTable) -> Cell {
        let Some(source) = targets.source(record.origin) else {
            return Cell::Gone;
        };
        match self.columns.get(usize::from(source)) {
            Some(Some(column)) => column.at(record.place),
            _ => match self.reader.at(source, record.place) {
                LookupResult::Shown(_) => Cell::Complex,
                LookupResult::Hidden(_) => Cell::Hidden,
                LookupResult::Gone => Cell::Gone,
            },
        }
    }

    /// Writes what is more than a number. No lock is held while it is written.
    fn complex<S: Encoder>(
        &mut self,
        encoder: &mut S,
        family: &PageFamily,
        labels: &[u8],
        record: &Record,
        targets: &TargetTable,
    ) -> Option<bool> {
        let source = targets.source(record.origin)?;
        // It may have ended after the lookup. The next page removes it then.
        let is_there = match self.reader.at(source, record.place) {
            LookupResult::Shown(reading) if !matches!(reading.value, Value::NoRecordedValue) => {
                let has_exemplars = self.with_exemplars && kind::has_exemplars(family.of_type);
                let exemplars = if has_exemplars { reading.exemplars } else { &[] };
                self.snapshot.take(&reading, exemplars);
                true
            }
            _ => false,
        };
        self.reader.release();
        is_there.then(|| encoder.sample(family, labels, &self.snapshot))
    }

    fn bury(&mut self, family: &mut PageFamily, targets: &mut TargetTable, interner: &mut LabelInterner) {
        if self.gone.is_empty() {
            return;
        }
        self.has_ended = true;
        let (mut at, mut gone) = (0, self.gone.drain(..).peekable());
        family.series.retain(|record| {
            let is_gone = gone.next_if_eq(&at).is_some();
            at += 1;
            if is_gone {
                targets.release(record.origin);
                interner.release(record.text);
            }
            !is_gone
        });
    }
}

/// A page that has to grow grows by a part of itself.
#[inline]
fn make_room(page: &mut Vec<u8>, labels: &[u8]) {
    // A number has two lines at most.
    let room = SERIES_ROOM + 2 * labels.len();
    if page.capacity() - page.len() < room {
        page.reserve_exact((page.len() / 4).max(room));
    }
}
