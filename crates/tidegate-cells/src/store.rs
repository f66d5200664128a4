//! The writer: a store, its families, and what becomes of both in a child of `fork`.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::arena::{Arena, Place};
use crate::cells;
use crate::error::Error;
use crate::exponential;
use crate::family::{Family, FamilyInner, SeriesInner};
use crate::file::{self, Content};
use crate::fork::{self, FileId, Files};
use crate::layout::{
    HEADER_SIZE, Identity, MAX_ATTRIBUTES, MAX_LABEL_VALUE, MAX_NAME, Role, SegmentKind, header,
};
use crate::map::{Backing, Region, Slot};
use crate::record::{self, Record, SeriesRole};
use crate::spec::{FamilySpec, Kind};
use crate::value::{FamilyValues, Snapshot};

/// How long the place of a series that has ended is left alone: longer than any reader takes from the records
/// to the values.
const QUARANTINE: Duration = Duration::from_secs(10);

/// How a store is made.
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

/// What a store did not take. Each is counted where it can be seen: in the file.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Refused {
    /// Look-ups that got the overflow series because their family has as many series as it may.
    pub series: u64,
    /// Look-ups that got the overflow series, and families that were not made, for want of room.
    pub room: u64,
    /// Uses that made no sense: a counter that falls, a value that is no number, labels that don't fit.
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
    /// Where files are made; none of a store in memory.
    directory: Option<PathBuf>,
    file: FileId,
    /// One word that is 0 until this process has its own file: `fork` leaves zeros in the child.
    pub(crate) guard: Slot,
    header: Slot,
    state: Mutex<State>,
    detached: AtomicBool,
    /// What was recorded after `fork` while no memory could be had at all.
    lost: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct State {
    arena: Arena,
    identity: Option<Identity>,
    families: Vec<FamilyState>,
    by_name: HashMap<String, usize>,
    /// Series that have ended, and when; the place of one that nobody holds is used again.
    ended: VecDeque<Ended>,
}

impl State {
    /// All series, those which have ended but may still be held too.
    fn all_series(&self) -> impl Iterator<Item = (&FamilyInner, &Arc<SeriesInner>)> {
        let live = self.families.iter().flat_map(|family| {
            let series = family.series.iter().chain([&family.inner.overflow]);
            series.map(|series| (&*family.inner, series))
        });
        let ended = self.ended.iter();
        live.chain(ended.map(|ended| (&*ended.family, &ended.series)))
    }

    /// What differs from zero in values without counts: bytes by their offset in the file.
    fn shapes(&self) -> Vec<(u64, [u8; 8])> {
        let shape = |(family, series): (&FamilyInner, &Arc<SeriesInner>)| match family.spec.kind {
            Kind::ExponentialHistogram { max_scale } => {
                let (word, shape) = exponential::empty(max_scale);
                Some(((series.word + word as u64) * 8, shape.to_le_bytes()))
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

/// Both locks. The one that holds up forks is taken first and, as fields are dropped in their order, let go last:
/// no child is born with the other one locked.
pub(crate) struct Locked<'a> {
    pub(crate) state: MutexGuard<'a, State>,
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
            store.0.make_file(&mut locked)?;
        }
        store.0.ready_now();
        Ok(store)
    }

    /// The same cells in memory of their own, which nobody else reads. A child of `fork` has a copy.
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
        let state = State {
            arena,
            identity: None,
            families: Vec::new(),
            by_name: HashMap::new(),
            ended: VecDeque::new(),
        };
        Ok(Store(Arc::new(StoreInner {
            options,
            directory: directory.map(Path::to_owned),
            file: fork::lock().take_place(),
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
            return match existing.spec.same_as(spec) {
                true => Ok(Family::new(self.0.clone(), existing.clone())),
                false => Err(Error::Conflict {
                    name: spec.name.clone(),
                    existing: existing.spec.kind.name(),
                    labels: existing.spec.labels.clone(),
                }),
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

    /// What was not taken.
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

    /// Who this process is in its file. `None` if there is none.
    pub fn identity(&self) -> Option<Identity> {
        self.0.lock().state.identity
    }

    /// Where its files are. `None` of a store in memory.
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
        fork::lock().leave_place(self.file);
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

    /// In a child that uses the store for the first time.
    #[cold]
    fn after_fork(&self) -> bool {
        let mut locked = self.lock_unchecked();
        if self.guard.words()[0].load(Ordering::Acquire) != 0 {
            return true; // another thread was faster
        }
        // Of a child made without the C library's fork, which had it open until now.
        locked.files.set(self.file, None);
        // Locks of threads that the child does not have.
        locked.state.all_series().for_each(|(_, series)| series.unlock());
        let replaced = match &self.directory {
            None => true,
            Some(_) => self.make_file(&mut locked).is_ok() || self.detach(&mut locked).is_ok(),
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
    fn make_file(&self, locked: &mut Locked<'_>) -> Result<(), Error> {
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
        let shapes = state.shapes();
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
        let shapes = state.shapes();
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
    /// Cells go on recording meanwhile, in the memory until the file is under their addresses and in the file from
    /// then on; what the memory holds is then added to the file.
    pub(crate) fn attach(&self, locked: &mut Locked<'_>) {
        if !self.detached.load(Ordering::Relaxed) {
            return;
        }
        // Without memory that can be kept aside there is no such moment.
        let Some(memory) = locked
            .files
            .get(self.file)
            .and_then(|memory| memory.try_clone().ok())
        else {
            return;
        };
        let is_exponential =
            |family: &FamilyInner| matches!(family.spec.kind, Kind::ExponentialHistogram { .. });
        let exponentials: Vec<_> = {
            let all = locked
                .state
                .all_series()
                .filter(|(family, _)| is_exponential(family));
            all.map(|(_, series)| series.clone()).collect()
        };
        // They are several steps each, which must not fall apart.
        exponentials.iter().for_each(|series| series.take_lock());
        if self.make_file(locked).is_ok() {
            self.carry_over(&locked.state, &memory);
        }
        exponentials.iter().for_each(|series| series.unlock());
    }

    fn carry_over(&self, state: &State, memory: &File) {
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
    fn records(&self, state: &State) -> Result<Vec<u8>, Error> {
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

    fn make_family(&self, locked: &mut Locked<'_>, spec: &FamilySpec) -> io::Result<Arc<FamilyInner>> {
        let Locked { files, state } = locked;
        let file = files.get(self.file);
        let words = spec.kind.words() + 1;
        let place = state.arena.allocate(file, words, spec.kind.align())?;
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
        let Place { word, slot } = state.arena.allocate(file, kind.words(), kind.align())?;
        let series = Arc::new(SeriesInner::new(hash, values, word, slot));
        series.init(kind);
        let mut records = Vec::new();
        record::put(
            &mut records,
            &series.record(family.number as u32, SeriesRole::Normal),
        );
        if let Err(error) = self.append(file, &mut state.arena, &records) {
            state.arena.release(word, kind.words());
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

/// Makes the places of series that ended long ago free, but for those that somebody has a handle of.
fn reuse(state: &mut State) {
    let old = |ended: &Ended| ended.at.elapsed() >= QUARANTINE;
    while state.ended.front().is_some_and(old) {
        let Some(Ended { family, series, at }) = state.ended.pop_front() else {
            return;
        };
        match Arc::try_unwrap(series) {
            Ok(series) => state.arena.release(series.word, family.spec.kind.words()),
            Err(series) => {
                state.ended.push_back(Ended { family, series, at });
                return;
            }
        }
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

/// Makes zero words an empty value.
pub(crate) fn init(kind: &Kind, slot: &Slot) {
    if let Kind::ExponentialHistogram { max_scale } = kind {
        let (word, shape) = exponential::empty(*max_scale);
        slot.words()[word].store(shape, Ordering::Relaxed);
    }
}
