// SPDX-License-Identifier: Apache-2.0

//! The writer: a store and its families. [`register`] makes and ends series. [`replace`] puts a file or memory under
//! the existing cells, for a new store and in a child of `fork`.

mod register;
mod replace;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tidegate_shm::{Backing, Region, Slot};

use crate::arena::Arena;
use crate::error::Error;
use crate::exponential;
use crate::family::{Family, FamilyInner, SeriesInner};
use crate::file;
use crate::fork::{self, FileId, Files};
use crate::layout::{HEADER_SIZE, Identity, MAX_ATTRIBUTES, MAX_LABEL_VALUE, MAX_NAME, SegmentKind, header};
use crate::record::{self, Record};
use crate::spec::{FamilySpec, Kind};
use crate::value::{FamilyValues, Snapshot};

/// The options of a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// Attributes of the resource, like `service.name`.
    pub resource: Vec<(String, String)>,
    /// Series a family may have besides the overflow series. Default 2,000, as of OpenTelemetry's SDKs.
    pub max_series: usize,
    /// Bytes that a file may have. Default 64 MiB.
    pub max_bytes: u64,
    /// Permissions of the file. Default 0644.
    pub mode: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            resource: Vec::new(),
            max_series: 2000,
            max_bytes: 64 * 1024 * 1024,
            mode: 0o644,
        }
    }
}

/// The uses that a store refused. The file has these counts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Refused {
    /// Look-ups that got the overflow series because their family has as many series as it may.
    pub series: u64,
    /// Look-ups that got the overflow series, and families that were not made, because of a lack of room.
    pub room: u64,
    /// Uses that made no sense: a counter that falls, a value that is not a number, labels that don't fit.
    pub invalid: u64,
}

/// The values of a process. Cloning it is cheap; all clones are the same store.
///
/// A file stays in its directory when the store is dropped: counts outlive their process.
#[derive(Clone, Debug)]
pub struct Store(pub(crate) Arc<StoreInner>);

#[derive(Debug)]
pub(crate) struct StoreInner {
    options: Options,
    /// The directory of its files; none for a store in memory.
    directory: Option<PathBuf>,
    file: FileId,
    /// One word that is 0 until this process has its own file: `fork` leaves zeros in the child.
    pub(crate) guard: Slot,
    header: Slot,
    state: Mutex<StoreState>,
    detached: AtomicBool,
    /// The records lost after `fork` while no memory was available.
    lost: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct StoreState {
    arena: Arena,
    identity: Option<Identity>,
    families: Vec<FamilyState>,
    by_name: HashMap<String, usize>,
    /// Series that have ended, with the time; a slot without handles is used again.
    ended: VecDeque<Ended>,
}

impl StoreState {
    /// All series, those which have ended but may still be held too.
    fn all_series(&self) -> impl Iterator<Item = (&FamilyInner, &Arc<SeriesInner>)> {
        let live = self.families.iter().flat_map(|family| {
            let series = family.series.iter().chain([&family.inner.overflow]);
            series.map(|series| (&*family.inner, series))
        });
        let ended = self.ended.iter();
        live.chain(ended.map(|ended| (&*ended.family, &ended.series)))
    }

    /// The non-zero bytes of values without counts, by their offset in the file. Exponential histograms start with the
    /// generation that `generation` gives.
    fn shapes(&self, generation: &dyn Fn(&SeriesInner) -> u64) -> Vec<(u64, Vec<u8>)> {
        let shape = |(family, series): (&FamilyInner, &Arc<SeriesInner>)| match family.spec.kind {
            Kind::ExponentialHistogram { max_scale } => {
                let (word, words) = exponential::empty(max_scale, generation(series));
                let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                Some(((series.word + word as u64) * 8, bytes))
            }
            _ => None,
        };
        self.all_series().filter_map(shape).collect()
    }
}

/// A series that has ended.
#[derive(Debug)]
struct Ended {
    family: Arc<FamilyInner>,
    series: Arc<SeriesInner>,
    at: Instant,
}

#[derive(Debug)]
struct FamilyState {
    inner: Arc<FamilyInner>,
    series: Vec<Arc<SeriesInner>>,
}

/// Both locks. The lock that blocks forks is taken first. Fields drop in order, so it is released last: no child
/// inherits the other lock in a locked state.
pub(crate) struct Locked<'a> {
    pub(crate) state: MutexGuard<'a, StoreState>,
    files: MutexGuard<'static, Files>,
}

impl Store {
    /// Makes a file in `directory`, which is made too if need be.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Resource`].
    pub fn create(directory: &Path, options: Options) -> Result<Store, Error> {
        let resource = resource(&options)?;
        file::create_directory(directory)?;
        let io = |operation| move |e: io::Error| Error::io(operation, directory, e);
        fork::install().map_err(io("prepare for fork in"))?;
        let guard = Region::wiped_on_fork(HEADER_SIZE).map_err(io("map memory for"))?;
        let header = Region::new(Backing::Anonymous, HEADER_SIZE).map_err(io("map memory for"))?;
        let arena = Arena::new(header, options.max_bytes).map_err(io("map memory for"))?;
        let store = Store::of(Some(directory), options, guard, arena).map_err(io("map memory for"))?;
        {
            let mut locked = store.0.lock_unchecked();
            let state = &mut *locked.state;
            // Planned with anonymous memory; `make_file` then puts the file under it.
            let planned = state
                .arena
                .grow(None, SegmentKind::Descriptors, resource.len() as u64);
            let planned = planned.and_then(|()| state.arena.grow(None, SegmentKind::Values, 1));
            planned.map_err(io("map memory for"))?;
            store.0.make_file(&mut locked, &|_| 0)?;
        }
        store.0.ready_now();
        Ok(store)
    }

    /// A store in memory of its own, which no other process reads. A child of `fork` has a copy.
    ///
    /// # Panics
    /// When the system has no memory left.
    pub fn in_memory(options: Options) -> Store {
        let made = fork::install().and_then(|()| {
            let guard = Region::wiped_on_fork(HEADER_SIZE)?;
            let header = Region::new(Backing::Anonymous, HEADER_SIZE)?;
            let arena = Arena::new(header, options.max_bytes)?;
            Store::of(None, options, guard, arena)
        });
        match made {
            Ok(store) => {
                store.0.ready_now();
                store
            }
            Err(error) => panic!("no memory for a store of metrics: {error}"),
        }
    }

    fn of(directory: Option<&Path>, options: Options, guard: Arc<Region>, arena: Arena) -> io::Result<Store> {
        let guard = guard.slot(0, 1).ok_or(io::ErrorKind::InvalidInput)?;
        let header = arena.header.clone();
        let state = StoreState {
            arena,
            identity: None,
            families: Vec::new(),
            by_name: HashMap::new(),
            ended: VecDeque::new(),
        };
        Ok(Store(Arc::new(StoreInner {
            options,
            directory: directory.map(Path::to_owned),
            file: fork::lock().take_slot(),
            guard,
            header,
            state: Mutex::new(state),
            detached: AtomicBool::new(false),
            lost: AtomicU64::new(0),
        })))
    }

    /// The family of that specification; the same one if it was asked for before.
    ///
    /// # Errors
    /// [`Error::Spec`], [`Error::Conflict`] if the name has another instrument, unit or other labels,
    /// [`Error::NoRoom`].
    pub fn family(&self, spec: &FamilySpec) -> Result<Family, Error> {
        let bad = |why| Error::Spec {
            name: spec.name.clone(),
            why,
        };
        spec.check().map_err(bad)?;
        let mut locked = self.0.lock();
        self.0.attach(&mut locked);
        if let Some(at) = locked.state.by_name.get(&spec.name).copied() {
            let existing = &locked.state.families[at].inner;
            return if existing.spec.same_as(spec) {
                Ok(Family::new(self.0.clone(), existing.clone()))
            } else {
                Err(Error::Conflict {
                    name: spec.name.clone(),
                    existing: existing.spec.kind.name(),
                    labels: existing.spec.labels.clone(),
                })
            };
        }
        let made = self.0.make_family(&mut locked, spec);
        let inner = made.map_err(|error| {
            self.0.count(header::REFUSED_ROOM);
            let why = error.to_string();
            Error::NoRoom {
                name: spec.name.clone(),
                why,
            }
        })?;
        Ok(Family::new(self.0.clone(), inner))
    }

    /// All values, as of now.
    pub fn read(&self) -> Snapshot {
        let families: Vec<_> = {
            let locked = self.0.lock();
            let families = locked.state.families.iter();
            families
                .map(|family| (family.inner.clone(), family.series.clone()))
                .collect()
        };
        let values = families.into_iter().map(|(family, series)| {
            let overflow = family.overflow_value();
            let series = series.iter().map(|series| family.value_of(series));
            FamilyValues {
                spec: family.spec.clone(),
                series: series.chain(overflow).collect(),
            }
        });
        Snapshot {
            families: values.collect(),
        }
    }

    /// The uses that it refused.
    pub fn refused(&self) -> Refused {
        self.0.ready();
        let word = |offset: usize| self.0.header.words()[offset / 8].load(Ordering::Relaxed);
        Refused {
            series: word(header::REFUSED_SERIES),
            room: word(header::REFUSED_ROOM),
            invalid: word(header::INVALID).wrapping_add(self.0.lost.load(Ordering::Relaxed)),
        }
    }

    /// Whether this process could not make its file after a `fork`: its values are kept in memory, and put in a
    /// file as soon as one can be made; that is tried whenever a family or series is registered.
    pub fn is_detached(&self) -> bool {
        self.0.ready();
        self.0.detached.load(Ordering::Relaxed)
    }

    /// The identity of this process in its file; `None` without a file.
    pub fn identity(&self) -> Option<Identity> {
        self.0.lock().state.identity
    }

    /// The directory of its files; `None` for a store in memory.
    pub fn directory(&self) -> Option<&Path> {
        self.0.directory.as_deref()
    }

    /// Bytes of the file, or of memory without one.
    pub fn size(&self) -> u64 {
        self.0.lock().state.arena.size()
    }
}

impl Drop for StoreInner {
    fn drop(&mut self) {
        let mut files = fork::lock();
        // A child that has not used the store yet may have its parent's file, and the parent needs the lock.
        if self.guard.words()[0].load(Ordering::Relaxed) != 0 {
            files.unlock(self.file);
        }
        files.free_slot(self.file);
    }
}

impl StoreInner {
    /// Whether values may be recorded: always, but for the first time after `fork`, when this prepares for it, and
    /// may fail.
    #[inline]
    pub(crate) fn ready(&self) -> bool {
        self.guard.words()[0].load(Ordering::Relaxed) != 0 || self.after_fork()
    }

    fn ready_now(&self) {
        self.guard.words()[0].store(1, Ordering::Release);
    }

    /// Counts in the header.
    pub(crate) fn count(&self, offset: usize) {
        if self.ready() {
            self.header.words()[offset / 8].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        self.ready();
        self.lock_unchecked()
    }

    fn lock_unchecked(&self) -> Locked<'_> {
        let files = fork::lock();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Locked { state, files }
    }
}

fn resource(options: &Options) -> Result<Vec<u8>, Error> {
    let too_long = |(key, value): &(String, String)| key.len() > MAX_NAME || value.len() > MAX_LABEL_VALUE;
    if options.resource.len() > MAX_ATTRIBUTES || options.resource.iter().any(too_long) {
        return Err(Error::Resource);
    }
    let mut record = Vec::new();
    record::put(&mut record, &Record::Resource(options.resource.clone()));
    Ok(record)
}
