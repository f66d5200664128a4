// SPDX-License-Identifier: Apache-2.0

//! The memory under the cells of a store: its file, or plain memory without one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use super::{Locked, StoreInner, StoreState, resource};
use crate::cells;
use crate::error::Error;
use crate::exponential;
use crate::family::SeriesInner;
use crate::file::{self, Content};
use crate::layout::{Role, header};
use crate::record::{self, Record, SeriesRole};
use crate::spec::FamilySpec;

impl StoreInner {
    /// In a child that uses the store for the first time.
    #[cold]
    pub(super) fn after_fork(&self) -> bool {
        let mut locked = self.lock_unchecked();
        if self.guard.words()[0].load(Ordering::Acquire) != 0 {
            return true; // another thread was faster
        }
        // The file of a child made without the C library's fork, which had it open until now.
        locked.files.set(self.file, None);
        let replaced = match &self.directory {
            None => true,
            Some(_) => self.make_file(&mut locked, &|_| 0).is_ok() || self.detach(&mut locked).is_ok(),
        };
        if replaced {
            self.ready_now();
        } else {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        replaced
    }

    /// Makes a file of the segments there are, with the records of all that is registered and zero values, and
    /// puts it under their addresses.
    pub(super) fn make_file(
        &self,
        locked: &mut Locked<'_>,
        generation: &dyn Fn(&SeriesInner) -> u64,
    ) -> Result<(), Error> {
        let Some(directory) = &self.directory else {
            return Ok(());
        };
        let header = file::header(Role::Process);
        let path = directory.join(format!("{}{}", header.identity, file::SUFFIX));
        let state = &mut *locked.state;
        let records = self.records(state)?;
        let room = state.arena.plan(records.len() as u64);
        room.map_err(|error| Error::io("create", &path, error))?;
        let mut page = header.bytes();
        state.arena.fill_header(&mut page, records.len() as u64);
        let shapes = state.shapes(generation);
        let mut parts = vec![(0, page.as_slice())];
        parts.extend(state.arena.spread(0, &records));
        parts.extend(shapes.iter().map(|(offset, shape)| (*offset, shape.as_slice())));
        let content = Content {
            size: state.arena.size(),
            parts: &parts,
            mode: self.options.mode,
        };
        let open = file::create(&path, &content)?;
        if let Err(error) = state.arena.replace(Some(&open.file)) {
            let _ = std::fs::remove_file(&path); // the first error is the one to tell
            return Err(Error::io("map", &path, error));
        }
        state.arena.descriptors = records.len() as u64;
        state.identity = Some(header.identity);
        locked.files.set(self.file, Some(open));
        self.detached.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Puts memory under all addresses that can be kept when a file comes in its place.
    fn detach(&self, locked: &mut Locked<'_>) -> io::Result<()> {
        let state = &mut *locked.state;
        state.identity = None;
        self.detached.store(true, Ordering::Relaxed);
        let shapes = state.shapes(&|_| 0);
        let parts: Vec<_> = shapes
            .iter()
            .map(|(offset, shape)| (*offset, shape.as_slice()))
            .collect();
        let content = Content {
            size: state.arena.size(),
            parts: &parts,
            mode: 0,
        };
        let memory = file::memory(&content).ok();
        state.arena.replace(memory.as_ref().map(|memory| &memory.file))?;
        if memory.is_none() {
            let all = state.all_series();
            all.for_each(|(family, series)| series.init(&family.spec.kind));
        }
        locked.files.set(self.file, memory);
        Ok(())
    }

    /// Tries again to make a file, if there was none to be had.
    ///
    /// Cells go on recording meanwhile, in the memory until the file is under their addresses and in the file from then
    /// on; the values in memory are then added to the file.
    pub(crate) fn attach(&self, locked: &mut Locked<'_>) {
        if !self.detached.load(Ordering::Relaxed) {
            return;
        }
        // Without memory that can be kept aside there is no moment for it.
        let Some(memory) = locked
            .files
            .get(self.file)
            .and_then(|memory| memory.try_clone().ok())
        else {
            return;
        };
        // A thread that still records in the memory while the file replaces it may be in the middle of a switch.
        let ahead = |series: &SeriesInner| exponential::generation(series.slot.words()) + exponential::AHEAD;
        if self.make_file(locked, &ahead).is_ok() {
            self.carry_over(&locked.state, &memory);
        }
    }

    fn carry_over(&self, state: &StoreState, memory: &File) {
        let read = |word: u64| {
            let mut bytes = [0; 8];
            let read = memory.read_exact_at(&mut bytes, word * 8);
            read.map_or(0, |()| u64::from_le_bytes(bytes)) // it was reserved, and is ours alone
        };
        for offset in [header::REFUSED_SERIES, header::REFUSED_ROOM, header::INVALID] {
            let word = offset / 8;
            self.header.words()[word].fetch_add(read(word as u64), Ordering::Relaxed);
        }
        for (family, series) in state.all_series() {
            cells::carry_over(&family.spec.kind, series.slot.words(), |word| {
                read(series.word + word as u64)
            });
        }
    }

    /// The records of all that is registered.
    fn records(&self, state: &StoreState) -> Result<Vec<u8>, Error> {
        let mut records = resource(&self.options)?;
        for (number, family) in state.families.iter().enumerate() {
            let number = number as u32; // limited by the size of the file
            record::put(
                &mut records,
                &Record::Family(FamilySpec::clone(&family.inner.spec)),
            );
            let overflow = &family.inner.overflow;
            record::put(&mut records, &overflow.record(number, SeriesRole::Overflow));
            for series in &family.series {
                record::put(&mut records, &series.record(number, SeriesRole::Normal));
            }
        }
        Ok(records)
    }
}
