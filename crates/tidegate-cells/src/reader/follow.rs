// SPDX-License-Identifier: Apache-2.0

//! Repeated reads of a directory: each costs a few system calls a file, plus the changes.

use std::collections::{HashMap, HashSet};

use super::merge::{Part, narrowed};
use super::process::Source;
use super::{Directory, Files, Folded, Process, Room, common};
use crate::error::Error;
use crate::file::now_ns;
use crate::layout::Identity;
use crate::reader::Problem;
use crate::spec::Kind;
use crate::value::{Snapshot, Value};

/// Keeps the merged values of a directory up to date.
#[derive(Debug)]
pub struct Follower {
    directory: Directory,
    merged: Snapshot,
    resource: Vec<(String, String)>,
    /// The parts of each series: by family and series.
    parts: Vec<Vec<Vec<ValueKey>>>,
    /// The series of each value of each file.
    places: HashMap<ValueKey, (usize, usize), foldhash::fast::RandomState>,
    shape: Shape,
}

/// A value: which file, and where in it.
type ValueKey = (Identity, u64);

/// The structure of the merged values. While it stays the same, only values change.
#[derive(Debug, Default, Eq, PartialEq)]
struct Shape {
    /// The retained file. Each process has the state of its records, whether it lives, and whether it counts.
    retained: Option<Identity>,
    processes: Vec<(Identity, (u64, usize), bool, bool)>,
}

/// The changes since the last look.
#[derive(Debug, Default)]
pub struct Changes {
    /// Families and series are others than before: all numbers of [`Follower::merged`] have a new meaning, and
    /// `series` is empty.
    pub all: bool,
    /// The series with new values: number of the family, number of the series in it. Each is listed once.
    pub series: Vec<(usize, usize)>,
    /// Files that were not read, and why.
    pub problems: Vec<Problem>,
}

impl Follower {
    /// Follows a directory. Nothing is read yet.
    pub fn new(directory: Directory) -> Self {
        Follower {
            directory,
            merged: Snapshot::default(),
            resource: Vec::new(),
            parts: Vec::new(),
            places: HashMap::default(),
            shape: Shape::default(),
        }
    }

    /// Sets the most bytes that are kept of a file ([`Limits::max_kept_bytes`](super::Limits::max_kept_bytes)). Beyond
    /// that, new series of the file are omitted. Known series stay readable.
    pub fn limit_files(&mut self, bytes: usize) {
        self.directory.limits.max_kept_bytes = bytes;
    }

    /// Reads all files, and merges their changes.
    pub fn look(&mut self) -> Changes {
        self.look_within(&mut |_| true)
    }

    /// The same, as far as there is room. New files and series without room wait for a later look; known ones stay
    /// readable.
    pub fn look_within(&mut self, room: Room<'_>) -> Changes {
        let mut problems = Vec::new();
        let files = self.directory.read(&mut problems, room);
        let shape = self.directory.shape(&files);
        if shape != self.shape {
            self.shape = shape;
            return self.rebuild(&files, problems);
        }
        let mut dirty = HashSet::<_, foldhash::fast::RandomState>::default();
        let mut is_unknown = false;
        let counted = |identity: &Identity| !files.folded_files.contains(identity);
        for source in self.directory.sources.values_mut() {
            let identity = source.header.identity;
            if counted(&identity) {
                source.changed(|slot| match self.places.get(&(identity, slot)) {
                    Some(place) => _ = dirty.insert(*place),
                    // An overflow series that is used for the first time.
                    None => is_unknown = true,
                });
            }
        }
        if is_unknown {
            return self.rebuild(&files, problems);
        }
        let mut series: Vec<_> = dirty.into_iter().collect();
        series.sort_unstable();
        series.retain(|(family, series)| self.merge_again(*family, *series, files.retained.as_deref()));
        Changes {
            all: false,
            series,
            problems,
        }
    }

    /// The values as of the last look.
    pub fn merged(&self) -> &Snapshot {
        &self.merged
    }

    /// Attributes of the resource that all processes have alike, the dead ones too.
    pub fn resource(&self) -> &[(String, String)] {
        &self.resource
    }

    /// The processes whose files were there at the last look, in the order in which they were made.
    pub fn processes(&self) -> Vec<Process> {
        self.directory.processes()
    }

    /// The start time of the values for a caller that has not shown one yet, in nanoseconds since 1970, at most `now`. It is
    /// the time that an earlier reader has saved in the retained file, or else the time when the oldest process made its file.
    /// `None`: there are no counts.
    pub fn start_ns(&self, now: u64) -> Option<u64> {
        self.directory.start_ns(now)
    }

    /// Takes the start time that the caller has shown. The next fold saves it in the retained file, unless another reader
    /// has saved one.
    pub fn keep_start(&mut self, start_ns: u64) {
        self.directory.shown_ns = Some(start_ns);
    }

    /// Whether a fold is due although no process has died: without it, the next reader would find another start time.
    pub fn is_start_due(&self) -> bool {
        self.directory.is_start_due(now_ns())
    }

    /// Folds as [`Directory::fold`] does. The next look sees the result.
    ///
    /// # Errors
    /// Those of [`Directory::fold`].
    pub fn fold(&mut self, grace: std::time::Duration) -> Result<Folded, Error> {
        self.directory.fold(grace)
    }

    /// The same, if `room` has room for it.
    ///
    /// # Errors
    /// The same; also if it has no room.
    pub fn fold_within(&mut self, grace: std::time::Duration, room: Room<'_>) -> Result<Folded, Error> {
        self.directory.fold_by_steps(grace, &mut || Ok(()), room)
    }

    /// The bytes kept of the files: an estimate, without the merged values.
    pub fn bytes(&self) -> usize {
        self.directory.bytes()
    }

    /// The number of files that had no room at the last look, or not for all of their series.
    pub fn without_room(&self) -> usize {
        self.directory.without_room
    }

    /// The number of files that were not read at the last look because this process has too many files open.
    pub fn without_files(&self) -> usize {
        self.directory.without_files
    }

    fn rebuild(&mut self, files: &Files, problems: Vec<Problem>) -> Changes {
        let mut merger = self.directory.merge(files);
        let parts = std::mem::take(&mut merger.parts);
        self.merged = merger.finish();
        self.resource = common(files.retained.as_deref(), self.directory.by_age());
        let families = self.merged.families.iter();
        self.parts = families
            .map(|family| vec![Vec::new(); family.series.len()])
            .collect();
        self.places.clear();
        for Part {
            identity,
            slot,
            family,
            series,
        } in parts
        {
            self.places.insert((identity, slot), (family, series));
            let made_of = self
                .parts
                .get_mut(family)
                .and_then(|family| family.get_mut(series));
            made_of.into_iter().for_each(|parts| parts.push((identity, slot)));
        }
        self.directory
            .sources
            .values_mut()
            .for_each(|source| source.changed(|_| ()));
        Changes {
            all: true,
            series: Vec::new(),
            problems,
        }
    }

    /// Whether its value is another one now.
    fn merge_again(&mut self, family: usize, series: usize, retained: Option<&Source>) -> bool {
        let parts = self.parts.get(family).and_then(|family| family.get(series));
        let merged = self.merged.families.get_mut(family);
        let (Some(parts), Some(merged)) = (parts, merged) else {
            return false; // never: both were made together
        };
        let (kind, mut result) = (&merged.spec.kind, None::<(Value, u64)>);
        for (identity, slot) in parts {
            let source = self.directory.sources.get(identity).or(retained);
            let part = source.and_then(|source| part(source, *slot, kind));
            let Some((value, uses)) = part else { continue };
            match &mut result {
                None => result = Some((value, uses)),
                Some((sum, overflowed)) => {
                    sum.merge(&value, kind);
                    *overflowed = overflowed.wrapping_add(uses);
                }
            }
        }
        match (merged.series.get_mut(series), result) {
            (Some(series), Some((value, overflowed))) => {
                let differs = series.value != value || series.overflowed != overflowed;
                (series.value, series.overflowed) = (value, overflowed);
                differs
            }
            _ => false,
        }
    }
}

/// A part of a merged value, with the bounds of the whole.
fn part(source: &Source, slot: u64, kind: &Kind) -> Option<(Value, u64)> {
    let series = source.series.get(&slot)?;
    let own = &source.families.get(series.family as usize)?.kind;
    let (value, uses) = source.value(series, own)?;
    match (own, kind) {
        (Kind::Histogram { bounds }, Kind::Histogram { bounds: common }) if bounds != common => {
            Some((narrowed(value, bounds, common), uses))
        }
        _ => Some((value, uses)),
    }
}

impl Directory {
    fn shape(&self, files: &Files) -> Shape {
        let process = |source: &Source| {
            let identity = source.header.identity;
            let counts = !files.folded_files.contains(&identity);
            (identity, source.seen(), source.alive, counts)
        };
        Shape {
            retained: files.retained.as_ref().map(|retained| retained.header.identity),
            processes: self.by_age().map(process).collect(),
        }
    }
}
