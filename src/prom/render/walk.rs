//! Writing all series of a page.

use tidegate_engine::{Seen, UnixNanos, Value};

use super::column::{Cell, Column};
use super::family::Family;
use super::origin::Origins;
use super::records::Record;
use super::sheet::{Sheet, Shot};
use super::source::Reader;
use super::texts::Texts;

/// Series that are looked up before the first of them is written: looking up waits for memory, and many can wait at
/// once.
const BLOCK: usize = 64;

/// Room that a page has when a series is begun, for all its lines but its labels.
const SERIES_ROOM: usize = 16 << 10;

/// One walk over all series.
pub(super) struct Walk<'a> {
    /// The numbers of each source; of composites there are none.
    pub(super) columns: Vec<Option<Column>>,
    /// For what is no number.
    pub(super) reader: Reader<'a>,
    pub(super) shot: Shot,
    /// Whether the format has exemplars.
    pub(super) with_exemplars: bool,
    /// The number of this page.
    pub(super) page: u64,
    pub(super) now: UnixNanos,
    /// Series of the present family that have ended, by where they stand.
    pub(super) gone: Vec<usize>,
    pub(super) has_ended: bool,
}

impl Walk<'_> {
    /// Writes a family.
    pub(super) fn family<S: Sheet>(
        &mut self,
        sheet: &mut S,
        name: &str,
        family: &mut Family,
        origins: &mut Origins,
        texts: &mut Texts,
    ) {
        let start = sheet.page().len();
        sheet.begin(name, family);
        let (mut shown, mut unsaid, mut before) = (0, 0, 0);
        for records in family.series.blocks(BLOCK) {
            let mut cells = [Cell::Gone; BLOCK];
            for (cell, record) in cells.iter_mut().zip(records) {
                *cell = self.look(record, origins);
            }
            for (at, (cell, record)) in cells.iter().zip(records).enumerate() {
                let labels = texts.get(record.text);
                make_room(sheet.page(), labels);
                let is_said = match *cell {
                    Cell::Number(number, times) => Some(sheet.number(family, labels, number, times)),
                    Cell::Complex => self.complex(sheet, family, labels, record, origins),
                    Cell::Hidden => None,
                    Cell::Gone => {
                        self.gone.push(before + at);
                        None
                    }
                };
                match is_said {
                    Some(true) => {
                        shown += 1;
                        origins.show(record.origin, self.page);
                    }
                    Some(false) => {
                        unsaid += 1;
                        family.unsaid.source = origins.source(record.origin).unwrap_or(u16::MAX);
                    }
                    None => {}
                }
            }
            before += records.len();
        }
        match shown {
            0 => sheet.page().truncate(start),
            _ => sheet.end(family),
        }
        family.unsaid.note(unsaid, self.now);
        family.size = sheet.page().len() - start;
        self.bury(family, origins, texts);
    }

    #[inline]
    fn look(&mut self, record: &Record, origins: &Origins) -> Cell {
        let Some(source) = origins.source(record.origin) else {
            return Cell::Gone;
        };
        match self.columns.get(usize::from(source)) {
            Some(Some(column)) => column.at(record.place),
            _ => match self.reader.at(source, record.place) {
                Seen::Shown(_) => Cell::Complex,
                Seen::Hidden(_) => Cell::Hidden,
                Seen::Gone => Cell::Gone,
            },
        }
    }

    /// Writes what is more than a number. No lock is held while it is written.
    fn complex<S: Sheet>(
        &mut self,
        sheet: &mut S,
        family: &Family,
        labels: &[u8],
        record: &Record,
        origins: &Origins,
    ) -> Option<bool> {
        let source = origins.source(record.origin)?;
        // It may have ended since it was looked up: then it is found gone the next time.
        let is_there = match self.reader.at(source, record.place) {
            Seen::Shown(reading) if !matches!(reading.value, Value::NoRecordedValue) => {
                let has_exemplars = self.with_exemplars && family.of_type.has_exemplars();
                let exemplars = if has_exemplars { reading.exemplars } else { &[] };
                self.shot.take(&reading, exemplars);
                true
            }
            _ => false,
        };
        self.reader.release();
        is_there.then(|| sheet.sample(family, labels, &self.shot))
    }

    fn bury(&mut self, family: &mut Family, origins: &mut Origins, texts: &mut Texts) {
        if self.gone.is_empty() {
            return;
        }
        self.has_ended = true;
        let (mut at, mut gone) = (0, self.gone.drain(..).peekable());
        family.series.retain(|record| {
            let is_gone = gone.next_if_eq(&at).is_some();
            at += 1;
            if is_gone {
                origins.leave(record.origin);
                texts.leave(record.text);
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
