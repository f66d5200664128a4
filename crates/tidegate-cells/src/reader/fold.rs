// SPDX-License-Identifier: Apache-2.0

//! The counts of dead processes in one file: `retained.cells`.
//!
//! The file lists the processes that it contains, and readers leave out the files of these. One rename puts it in place
//! and so moves their counts to it. A crash before or after it, or before the removal of a file, counts nothing twice.
//! A process leaves the list only when its file is gone.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_shm::{LockHolder, PinnedDirectory, is_locked, try_lock};

use super::merge::Bounds;
use super::process::{MAX_RETAINED_BYTES, Source};
use super::{Directory, Files, Problem, RETAINED, Room, common};
use crate::error::Error;
use crate::file::{self, Content, UNFINISHED, now_ns};
use crate::layout::{
    HEADER_SIZE, Header, Identity, MAX_SEGMENT_SIZE, MAX_SEGMENTS, Role, SEGMENT_SIZE, SegmentKind, header,
};
use crate::record::{self, Record, SeriesRole};
use crate::spec::{FamilySpec, GaugeMode, Kind, value_words};
use crate::value::Value;

const LOCK: &str = ".lock";

/// Whether to go on; an error is as if the process had been killed there.
type Step<'a> = &'a mut dyn FnMut() -> Result<(), Error>;

/// The result of [`Directory::fold`].
#[derive(Debug, Default)]
pub struct Folded {
    /// Another process was at it; nothing was done.
    pub busy: bool,
    /// Processes whose counts were taken over.
    pub processes: Vec<Identity>,
    /// Files that were removed.
    pub removed: usize,
    /// Files that could not be read or removed, and why.
    pub problems: Vec<Problem>,
}

/// The content of the next retained file.
#[derive(Default)]
struct Retained {
    /// The attributes that all processes have in common.
    resource: Vec<(String, String)>,
    /// When the oldest process made its file. Its counts stay, so the totals begin then.
    created_ns: u64,
    /// The start time that a reader has shown; 0: none.
    shown_ns: u64,
    folded: Vec<(Identity, u64)>,
    families: Vec<Arc<FamilySpec>>,
    by_spec: HashMap<SameSpec, usize>,
    series: Vec<RetainedSeries>,
    by_series: HashMap<(usize, SeriesRole, Vec<Box<str>>), usize>,
}

/// A family without its help text.
struct SameSpec(Arc<FamilySpec>);

impl PartialEq for SameSpec {
    fn eq(&self, other: &Self) -> bool {
        self.0.same_as(&other.0)
    }
}

impl Eq for SameSpec {}

impl Hash for SameSpec {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let spec = &*self.0;
        (&spec.name, &spec.unit, &spec.labels, spec.kind.name()).hash(state);
        if let Kind::Histogram { bounds } = &spec.kind {
            Bounds(bounds.clone()).hash(state);
        }
    }
}

struct RetainedSeries {
    family: usize,
    role: SeriesRole,
    labels: Vec<Box<str>>,
    value: Value,
    uses: u64,
}

impl Directory {
    /// Takes over the counts of dead processes. It also removes files that were taken over at least `grace` ago. Any
    /// reader may do this; one does at a time. The start time of the values that a reader has saved stays.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot take the lock or make the new file; then nothing has changed.
    pub fn fold(&mut self, grace: Duration) -> Result<Folded, Error> {
        self.fold_by_steps(grace, &mut || Ok(()), &mut |_| true)
    }

    /// The same. It asks before each step in the directory whether to go on, and for room.
    pub(crate) fn fold_by_steps(
        &mut self,
        grace: Duration,
        step: Step<'_>,
        room: Room<'_>,
    ) -> Result<Folded, Error> {
        let pinned = self.pin().map_err(|e| Error::io("open", &self.path, e))?;
        let missing = || Error::io("open", &self.path, io::ErrorKind::NotFound);
        let pinned = pinned.ok_or_else(missing)?;
        let folded = self.fold_in(&pinned, grace, step, room);
        folded.map_err(|error| self.for_people(&pinned, error))
    }

    /// Folds in one directory, wherever its path leads meanwhile.
    fn fold_in(
        &mut self,
        pinned: &PinnedDirectory,
        grace: Duration,
        step: Step<'_>,
        room: Room<'_>,
    ) -> Result<Folded, Error> {
        let mut done = Folded::default();
        let Some(_lock) = lock(pinned.path())? else {
            done.busy = true;
            return Ok(done);
        };
        let mut files = self.read_in(pinned, &mut done.problems, room);
        if let Some((path, why)) = files.unreadable_retained.take() {
            // Its counts would be lost.
            return Err(Error::io("fold into", &path, io::Error::other(why)));
        }
        if files.is_unlisted {
            // Files of folded processes would be taken for removed, and count again when they are seen.
            let why = io::Error::other("it can't be listed");
            return Err(Error::io("fold", &self.path, why));
        }
        step()?;
        tidy(pinned.path());
        let now = now_ns();
        let dead = self.dead(&files);
        let old = files
            .retained
            .as_ref()
            .map_or(&[][..], |retained| &retained.folded);
        let gone = |(identity, _): &&(Identity, u64)| !files.folded_files.contains(identity);
        let is_due = !dead.is_empty() || old.iter().any(|folded| gone(&folded)) || self.is_start_due(now);
        let taken_over = dead.iter().filter_map(|identity| self.sources.get(identity));
        let taken_over: Vec<&Source> = taken_over.collect();
        let all = taken_over.iter().copied().chain(files.retained.as_deref());
        let has_room = !is_due || room(all.map(Source::bytes).sum::<usize>());
        if is_due && has_room {
            let mut next = Retained {
                folded: old.iter().filter(|folded| !gone(folded)).copied().collect(),
                ..Retained::default()
            };
            if let Some(retained) = &files.retained {
                next.add(retained);
            }
            next.resource = if files.retained.is_none() && taken_over.is_empty() {
                // It has only the start time. Its attributes must not make those in common fewer.
                common(None, self.whole())
            } else {
                common(files.retained.as_deref(), taken_over.iter().copied())
            };
            let all = taken_over.iter().copied().chain(files.retained.as_deref());
            let oldest = all.map(|source| source.header.created_ns).min();
            next.created_ns = oldest.unwrap_or(now);
            next.shown_ns = self.saved_start(now).or(self.shown_ns).unwrap_or(0);
            for source in &taken_over {
                next.add(source);
                next.folded.push((source.header.identity, now));
            }
            step()?;
            next.write(&pinned.at(RETAINED))?;
            self.remove(pinned, &next.folded, (now, grace), step, &mut done)?;
            done.processes = dead;
        } else {
            self.remove(pinned, old, (now, grace), step, &mut done)?;
        }
        if has_room {
            Ok(done)
        } else {
            let why = io::Error::other("memory is short; the next fold tries again");
            Err(Error::io("fold", &self.path, why))
        }
    }

    /// Dead processes that are not in the retained file yet, and of which everything is read.
    fn dead(&self, files: &Files) -> Vec<Identity> {
        let is_dead = |source: &Source| !source.alive && !source.is_short();
        let dead = self.sources.iter().filter(|(_, source)| is_dead(source));
        let mut dead: Vec<_> = dead.map(|(identity, _)| *identity).collect();
        dead.retain(|identity| !files.folded_files.contains(identity));
        dead.sort_unstable_by_key(|identity| {
            self.sources.get(identity).map(|source| source.header.created_ns)
        });
        dead
    }

    /// An error with the path of the directory.
    fn for_people(&self, pinned: &PinnedDirectory, error: Error) -> Error {
        match error {
            Error::Io {
                operation,
                path,
                source,
            } => {
                let shown = path.strip_prefix(pinned.path());
                let shown = shown.map(|rest| self.path.join(rest));
                Error::Io {
                    operation,
                    path: shown.unwrap_or(path),
                    source,
                }
            }
            other => other,
        }
    }

    fn remove(
        &self,
        pinned: &PinnedDirectory,
        folded: &[(Identity, u64)],
        (now, grace): (u64, Duration),
        step: Step<'_>,
        done: &mut Folded,
    ) -> Result<(), Error> {
        for (identity, at_ns) in folded {
            if u128::from(now.saturating_sub(*at_ns)) < grace.as_nanos() {
                continue;
            }
            step()?;
            let name = format!("{identity}{}", file::SUFFIX);
            let at = pinned.at(&name);
            let removed = if is_held(&at) {
                Err(io::Error::other("a process has its lock"))
            } else {
                std::fs::remove_file(&at)
            };
            match removed {
                Ok(()) => done.removed += 1,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => done.problems.push(Problem {
                    path: self.path.join(name),
                    why: e.to_string(),
                }),
            }
        }
        Ok(())
    }
}

/// The lock for folding; `None` if another process has it.
fn lock(directory: &Path) -> Result<Option<LockHolder>, Error> {
    let path = directory.join(LOCK);
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o644);
    let opened = tidegate_shm::open(&mut options, &path);
    let (file, _) = opened.map_err(|e| Error::io("open", &path, e))?;
    let file = LockHolder::new(file);
    let locked = try_lock(&file).map_err(|e| Error::io("lock", &path, e))?;
    Ok(locked.then_some(file))
}

/// Removes unfinished files of killed processes. Living ones hold a lock on theirs.
fn tidy(directory: &Path) {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let unfinished = name.starts_with('.') && name.ends_with(&format!("{}{UNFINISHED}", file::SUFFIX));
        if unfinished && is_left(&entry.path()) {
            let _ = std::fs::remove_file(entry.path()); // tried again next time
        }
    }
}

/// Whether it is a file without a lock. A pipe does not block it, and it follows no link.
fn is_left(path: &Path) -> bool {
    let opened = tidegate_shm::open(OpenOptions::new().read(true), path);
    opened.is_ok_and(|(file, _)| is_locked(&file).is_ok_and(|locked| !locked))
}

/// Whether it is the file of a living process.
fn is_held(path: &Path) -> bool {
    let opened = tidegate_shm::open(OpenOptions::new().read(true), path);
    opened.is_ok_and(|(file, _)| is_locked(&file).is_ok_and(|locked| locked))
}

impl Retained {
    fn add(&mut self, source: &Source) {
        let families: Vec<_> = source.families.iter().map(|spec| self.family(spec)).collect();
        for series in source.series.values() {
            let Some(family) = families.get(series.family as usize).copied() else {
                continue; // never: checked when it was read
            };
            let kind = &self.families[family].kind;
            let mode = kind.gauge_mode();
            if mode.is_some_and(GaugeMode::is_live) {
                continue;
            }
            let per_process = mode.is_some_and(GaugeMode::is_per_process);
            let role = match series.role {
                SeriesRole::Normal if per_process => SeriesRole::Of(source.header.identity),
                role => role,
            };
            if let Some((value, uses)) = source.value(series, kind) {
                let labels = series.label_values(&self.families[family]);
                self.merge(family, role, labels, value, uses);
            }
        }
    }

    fn family(&mut self, spec: &Arc<FamilySpec>) -> usize {
        let next = self.families.len();
        let at = *self.by_spec.entry(SameSpec(spec.clone())).or_insert(next);
        if at == next {
            self.families.push(spec.clone());
        }
        at
    }

    fn merge(&mut self, family: usize, role: SeriesRole, labels: Vec<Box<str>>, value: Value, uses: u64) {
        let next = self.series.len();
        let at = *self
            .by_series
            .entry((family, role, labels.clone()))
            .or_insert(next);
        match self.series.get_mut(at) {
            Some(existing) => {
                existing.value.merge(&value, &self.families[family].kind);
                existing.uses = existing.uses.wrapping_add(uses);
            }
            None => self.series.push(RetainedSeries {
                family,
                role,
                labels,
                value,
                uses,
            }),
        }
    }

    /// Values come first, so that their offsets do not depend on the length of the records.
    fn write(&self, path: &Path) -> Result<(), Error> {
        let mut records = Vec::new();
        record::put(&mut records, &Record::Resource(self.resource.clone()));
        for (identity, at_ns) in &self.folded {
            record::put(
                &mut records,
                &Record::Folded {
                    identity: *identity,
                    at_ns: *at_ns,
                },
            );
        }
        for spec in &self.families {
            record::put(&mut records, &Record::Family(FamilySpec::clone(spec)));
        }
        let mut values: Vec<u64> = Vec::new();
        for series in &self.series {
            let kind = &self.families[series.family].kind;
            let overflow = usize::from(series.role == SeriesRole::Overflow);
            let start = room(&mut values, value_words(kind) + overflow);
            series
                .value
                .encode(kind, |word, value| values[start + word] = value);
            if overflow == 1 {
                values[start + value_words(kind)] = series.uses;
            }
            record::put(
                &mut records,
                &Record::Series {
                    family: series.family as u32, // limited by the size of the file
                    slot: (HEADER_SIZE / 8 + start) as u64,
                    role: series.role,
                    values: series.labels.clone(),
                },
            );
        }
        self.write_parts(path, &values, &records)
    }

    fn write_parts(&self, path: &Path, values: &[u64], records: &[u8]) -> Result<(), Error> {
        let values: Vec<u8> = values.iter().flat_map(|word| word.to_le_bytes()).collect();
        let header = Header {
            created_ns: self.created_ns,
            ..file::header(Role::Retained)
        };
        let mut page = header.bytes();
        let value_segments = segments(values.len());
        let record_segments = segments(records.len());
        let kinds = value_segments.iter().map(|len| (SegmentKind::Values, *len));
        let kinds = kinds.chain(record_segments.iter().map(|len| (SegmentKind::Descriptors, *len)));
        let entries: Vec<_> = kinds.map(|(kind, len)| kind.entry(len)).collect();
        if entries.len() > MAX_SEGMENTS {
            return Err(Error::io("write", path, io::ErrorKind::StorageFull));
        }
        let mut put = |at: usize, word: u64| page[at..at + 8].copy_from_slice(&word.to_le_bytes());
        put(header::SEGMENTS, entries.len() as u64);
        put(header::DESCRIPTORS, records.len() as u64);
        put(header::SHOWN_NS, self.shown_ns);
        entries
            .iter()
            .enumerate()
            .for_each(|(at, entry)| put(header::TABLE + at * 8, *entry));
        let first_record = HEADER_SIZE as u64 + value_segments.iter().sum::<u64>();
        let size = first_record + record_segments.iter().sum::<u64>();
        if size > MAX_RETAINED_BYTES {
            // No reader would read it. The files of the dead stay.
            return Err(Error::io("write", path, io::ErrorKind::FileTooLarge));
        }
        let content = Content {
            size,
            parts: &[(0, &page), (HEADER_SIZE as u64, &values), (first_record, records)],
            mode: 0o644,
        };
        file::create(path, &content).map(drop)
    }
}

/// Adds room for a value, which does not go over the end of a segment.
fn room(values: &mut Vec<u64>, words: usize) -> usize {
    let segment = MAX_SEGMENT_SIZE as usize / 8;
    if values.len() / segment != (values.len() + words - 1) / segment {
        values.resize(values.len().next_multiple_of(segment), 0);
    }
    let start = values.len();
    values.resize(start + words, 0);
    start
}

/// Lengths of the segments for `bytes` bytes.
fn segments(bytes: usize) -> Vec<u64> {
    let mut left = (bytes as u64).next_multiple_of(SEGMENT_SIZE);
    let mut lengths = Vec::new();
    while left > 0 {
        lengths.push(left.min(MAX_SEGMENT_SIZE));
        left -= left.min(MAX_SEGMENT_SIZE);
    }
    lengths
}

#[cfg(test)]
mod tests;
