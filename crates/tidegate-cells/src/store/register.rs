// SPDX-License-Identifier: Apache-2.0

//! Adds and removes families and series: it allocates their values and writes their records.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Ended, FamilyState, Locked, StoreInner, StoreState};
use crate::arena::{Arena, CellPosition};
use crate::family::{FamilyInner, SeriesInner};
use crate::layout::header;
use crate::record::{self, Record, SeriesRole};
use crate::spec::{FamilySpec, value_alignment, value_words};

/// The time for which the slot of an ended series stays unused: longer than any reader takes from the records to the
/// values.
const QUARANTINE: Duration = Duration::from_secs(10);

impl StoreInner {
    pub(super) fn make_family(
        &self,
        locked: &mut Locked<'_>,
        spec: &FamilySpec,
    ) -> io::Result<Arc<FamilyInner>> {
        let Locked { files, state } = locked;
        let file = files.get(self.file);
        let words = value_words(&spec.kind) + 1;
        let place = state.arena.allocate(file, words, value_alignment(&spec.kind))?;
        let number = state.families.len();
        let spec = Arc::new(spec.clone());
        let inner = FamilyInner::new(spec.clone(), number, self.options.max_series, place);
        let mut records = Vec::new();
        record::put(&mut records, &Record::Family(FamilySpec::clone(&spec)));
        let overflow = inner.overflow.record(number as u32, SeriesRole::Overflow);
        record::put(&mut records, &overflow);
        if let Err(error) = self.append(file, &mut state.arena, &records) {
            state.arena.release(inner.overflow.word, words);
            return Err(error);
        }
        state.by_name.insert(spec.name.clone(), number);
        let inner = Arc::new(inner);
        state.families.push(FamilyState {
            inner: inner.clone(),
            series: Vec::new(),
        });
        Ok(inner)
    }

    fn append(&self, file: Option<&File>, arena: &mut Arena, records: &[u8]) -> io::Result<()> {
        match (&self.directory, file) {
            (Some(_), Some(file)) if !self.detached.load(Ordering::Relaxed) => arena.append(file, records),
            _ => Ok(()), // written when there is a file
        }
    }

    /// A new series of a family that has no such, or why there is none.
    pub(crate) fn make_series(
        &self,
        locked: &mut Locked<'_>,
        family: &FamilyInner,
        hash: u64,
        values: &[&str],
    ) -> io::Result<Arc<SeriesInner>> {
        let Locked { files, state } = locked;
        let state = &mut **state;
        reuse(state);
        let file = files.get(self.file);
        let kind = &family.spec.kind;
        let CellPosition { word, slot } =
            state
                .arena
                .allocate(file, value_words(kind), value_alignment(kind))?;
        let series = Arc::new(SeriesInner::new(hash, values, word, slot));
        series.init(kind);
        let mut records = Vec::new();
        record::put(
            &mut records,
            &series.record(family.number as u32, SeriesRole::Normal),
        );
        if let Err(error) = self.append(file, &mut state.arena, &records) {
            state.arena.release(word, value_words(kind));
            return Err(error);
        }
        let all = &mut state.families[family.number].series;
        family.table.insert(series.clone(), all);
        all.push(series.clone());
        Ok(series)
    }

    /// Ends a series. False if there is none.
    pub(crate) fn end_series(&self, family: &FamilyInner, hash: u64, values: &[&str]) -> bool {
        let mut locked = self.lock();
        let Some(series) = family.table.find(hash, values) else {
            return false;
        };
        let Locked { files, state } = &mut locked;
        let state = &mut **state;
        let mut records = Vec::new();
        record::put(&mut records, &Record::End { slot: series.word });
        if self
            .append(files.get(self.file), &mut state.arena, &records)
            .is_err()
        {
            self.count(header::REFUSED_ROOM);
            return false;
        }
        series.ended.store(true, Ordering::Release);
        let all = &mut state.families[family.number].series;
        all.retain(|other| !Arc::ptr_eq(other, &series));
        family.live.store(all.len(), Ordering::Relaxed);
        let family = state.families[family.number].inner.clone();
        let at = Instant::now();
        state.ended.push_back(Ended { family, series, at });
        true
    }
}

/// Frees the slots of series that ended long ago, unless a handle to them exists.
fn reuse(state: &mut StoreState) {
    let old = |ended: &Ended| ended.at.elapsed() >= QUARANTINE;
    while state.ended.front().is_some_and(old) {
        let Some(Ended { family, series, at }) = state.ended.pop_front() else {
            return;
        };
        match Arc::try_unwrap(series) {
            Ok(series) => state.arena.release(series.word, value_words(&family.spec.kind)),
            Err(series) => {
                state.ended.push_back(Ended { family, series, at });
                return;
            }
        }
    }
}
