// SPDX-License-Identifier: Apache-2.0

//! The reader: it merges all files of a directory.

mod fold;
mod follow;
mod header;
mod merge;
mod open_files;
mod process;
mod record;
mod rejected;
mod shared;
mod value;
mod weight;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tidegate_shm::{FileId, PinnedDirectory};

use crate::error::Error;
use crate::file::SUFFIX;
use crate::layout::{Identity, Reject, Role};
use crate::store::Refused;
use crate::value::Snapshot;

pub use fold::Folded;
pub use follow::{Changes, Follower};
use merge::Merger;
use open_files::OpenFiles;
pub use open_files::limit_open_files;
use process::{ReadError, Source};
use rejected::Rejected;
pub use shared::SharedDirectory;

/// The name of the file with the counts of dead processes.
pub(crate) const RETAINED: &str = "retained.cells";
/// The most repetitions of a read because another process folded meanwhile.
const ATTEMPTS: usize = 5;

/// The names that a reader looks at in a directory: some, and several for each file that it may read. A user who may write there
/// could keep it busy otherwise.
const NAMES: usize = 1024;
const NAMES_OF_A_FILE: usize = 4;

/// The start of 2020, in nanoseconds since 1970. No file is older: an earlier time is that of a clock that was not set, or a
/// hostile one.
const EARLIEST_NS: u64 = 1_577_836_800_000_000_000;

/// The problem of a file of which a part has no room now.
const PARTLY_READ: &str = "memory is short; the gateway reads the rest of its series later";
/// The problem of a file of which a part never has room.
const TOO_LARGE: &str = "it takes more memory than one file may: raise the memory limit. The rest of its series is not read, and the file is not folded";

/// Asks for room before more is kept of the files. The callback takes a number of bytes, and reserves them if it
/// returns true. The bytes are an estimate, for this reader and for the caller that shows the series.
pub type Room<'a> = &'a mut dyn FnMut(usize) -> bool;

/// The limits of a reader. It omits the excess, and reports a problem.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Files. Default 4,096.
    pub max_files: usize,
    /// Bytes of the file of a process. Default 256 MiB.
    pub max_file_bytes: u64,
    /// Families of the file of a process. Default 10,000.
    pub max_families: usize,
    /// Series of the file of a process. Default 200,000.
    pub max_series: usize,
    /// Bytes kept of the file of a process, by the reader and by callers that show its series: an estimate. Default: no
    /// limit.
    pub max_kept_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_files: 4096,
            max_file_bytes: 256 * 1024 * 1024,
            max_families: 10_000,
            max_series: 200_000,
            max_kept_bytes: usize::MAX,
        }
    }
}

/// A directory of files of cells. It keeps the files open, and their records in memory, so that the next scan reads
/// values only.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    follows_link: bool,
    /// The directory that was read last.
    id: Option<FileId>,
    limits: Limits,
    sources: BTreeMap<Identity, Source>,
    /// The retained file as it was read last. It never changes, another one takes its place.
    last_retained: Option<Arc<Source>>,
    /// The next retained file, until all of it has room.
    next_retained: Option<Source>,
    /// The start time that the caller has shown for the values.
    shown_ns: Option<u64>,
    /// The number of files that have no room, or not for all of their records.
    without_room: usize,
    /// The open files of all readers.
    open_files: Arc<OpenFiles>,
    /// The number of files that wait because too many are open.
    without_files: usize,
    /// Files whose reads took long and failed.
    rejected: HashMap<PathBuf, Rejected>,
    rejected_retained: Option<Rejected>,
}

/// The result of a scan.
#[derive(Debug, Default)]
pub struct Scan {
    /// The processes that have a file, in the order of creation.
    pub processes: Vec<Process>,
    /// Attributes of the resource that all of them have alike.
    pub resource: Vec<(String, String)>,
    /// Their values and those of dead processes before them.
    pub merged: Snapshot,
    /// Files that were not read, and why.
    pub problems: Vec<Problem>,
}

/// A process.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Its identity.
    pub identity: Identity,
    /// Whether it lives: it holds the lock of its file.
    pub alive: bool,
    /// Attributes of its resource.
    pub resource: Vec<(String, String)>,
    /// When its file was made, in nanoseconds since 1970.
    pub created_ns: u64,
    /// The uses that it refused.
    pub refused: Refused,
    /// Number of its series.
    pub series: usize,
}

/// A file that the reader skipped.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

/// The result of [`Directory::read`] beside the processes.
#[derive(Debug, Default)]
struct Files {
    retained: Option<Arc<Source>>,
    unreadable_retained: Option<(PathBuf, String)>,
    /// The directory could not be listed: some files are unknown.
    is_unlisted: bool,
    /// Existing files whose processes the retained file contains.
    folded_files: HashSet<Identity>,
}

impl Directory {
    /// Opens a directory, which need not exist yet.
    ///
    /// # Errors
    /// [`Error::Io`] if the path exists but is not a directory.
    pub fn open(path: impl AsRef<Path>, limits: Limits) -> Result<Self, Error> {
        let path = path.as_ref();
        Directory::new(path.to_owned(), limits, true).checked(std::fs::metadata(path))
    }

    /// The same for a path that must not be a symbolic link, now and later: a user who may make links could show the files of
    /// another directory a second time.
    ///
    /// # Errors
    /// [`Error::Io`] if the path exists but is not a directory.
    pub fn open_unlinked(path: impl AsRef<Path>, limits: Limits) -> Result<Self, Error> {
        let path = path.as_ref();
        Directory::new(path.to_owned(), limits, false).checked(std::fs::symlink_metadata(path))
    }

    fn checked(self, found: io::Result<std::fs::Metadata>) -> Result<Self, Error> {
        match found {
            Ok(found) if !found.is_dir() => Err(Error::io("read", &self.path, io::ErrorKind::NotADirectory)),
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("read", &self.path, e)),
            _ => Ok(self),
        }
    }

    fn new(path: PathBuf, limits: Limits, follows_link: bool) -> Self {
        Directory {
            path,
            follows_link,
            id: None,
            limits,
            sources: BTreeMap::new(),
            last_retained: None,
            next_retained: None,
            shown_ns: None,
            without_room: 0,
            open_files: OpenFiles::shared(),
            without_files: 0,
            rejected: HashMap::new(),
            rejected_retained: None,
        }
    }

    /// The same directory, of which nothing has been read.
    fn unread(&self) -> Self {
        Directory::new(self.path.clone(), self.limits, self.follows_link)
    }

    /// Reads the changes, and merges all values.
    pub fn scan(&mut self) -> Scan {
        let mut problems = Vec::new();
        let files = self.read(&mut problems, &mut |_| true);
        Scan {
            processes: self.processes(),
            resource: common(files.retained.as_deref(), self.by_age()),
            merged: self.merge(&files).finish(),
            problems,
        }
    }

    /// All that counts, as of the last look.
    fn merge(&self, files: &Files) -> Merger {
        let mut merger = Merger::default();
        let counted = self
            .by_age()
            .filter(|source| !files.folded_files.contains(&source.header.identity));
        let all: Vec<_> = files.retained.as_deref().into_iter().chain(counted).collect();
        all.iter().for_each(|source| merger.announce(source));
        all.iter().for_each(|source| merger.add(source));
        merger
    }

    fn by_age(&self) -> impl Iterator<Item = &Source> {
        let mut sources: Vec<_> = self.sources.values().collect();
        sources.sort_unstable_by_key(|source| (source.header.created_ns, source.header.identity));
        sources.into_iter()
    }

    /// The start time of the values for a reader that has not shown one yet. `None`: there are no counts.
    fn start_ns(&self, now: u64) -> Option<u64> {
        let retained = self.last_retained.as_deref();
        if self.sources.is_empty() && retained.is_none() {
            return None;
        }
        let shown = retained.and_then(Source::shown_ns);
        let start = shown.or_else(|| self.oldest_ns()).unwrap_or(now);
        Some(start.min(now))
    }

    /// When the oldest process whose counts are there made its file, by the files whose times are possible.
    fn oldest_ns(&self) -> Option<u64> {
        let all = self.sources.values().chain(self.last_retained.as_deref());
        let times = all.map(|source| source.header.created_ns);
        times.filter(|time| *time >= EARLIEST_NS).min()
    }

    /// The start time in the retained file. A time of the future does not count, unless it was shown here.
    fn saved_start(&self, now: u64) -> Option<u64> {
        let saved = self.last_retained.as_deref().and_then(Source::shown_ns);
        saved.filter(|saved| *saved <= now || self.shown_ns == Some(*saved))
    }

    /// Whether another reader would find another start time than the one that was shown.
    fn is_start_due(&self, now: u64) -> bool {
        let Some(shown) = self.shown_ns else { return false };
        let retained = self.last_retained.as_deref();
        let is_found = match retained.and_then(Source::shown_ns) {
            // If it is another one, a reader showed it before this one did.
            Some(_) => self.saved_start(now).is_some(),
            None => self.oldest_ns() == Some(shown),
        };
        !is_found && (retained.is_some() || self.whole().next().is_some())
    }

    /// The files of processes that are read as a whole.
    fn whole(&self) -> impl Iterator<Item = &Source> {
        self.sources.values().filter(|source| !source.is_short())
    }

    fn processes(&self) -> Vec<Process> {
        let process = |source: &Source| Process {
            identity: source.header.identity,
            alive: source.alive,
            resource: source.resource.clone(),
            created_ns: source.header.created_ns,
            refused: source.refused(),
            series: source.series.len(),
        };
        self.by_age().map(process).collect()
    }

    /// The values of one process as of the last scan, unmerged.
    pub fn process(&self, identity: &Identity) -> Option<Snapshot> {
        let mut merger = Merger::default();
        merger.add(self.sources.get(identity)?);
        Some(merger.finish())
    }

    /// The bytes kept of the files: an estimate, without the merged values.
    fn bytes(&self) -> usize {
        let retained = self.last_retained.as_deref().into_iter();
        let retained = retained.chain(&self.next_retained);
        self.sources.values().chain(retained).map(Source::bytes).sum()
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory that the path leads to now; `None`: there is none.
    fn pin(&self) -> io::Result<Option<PinnedDirectory>> {
        match PinnedDirectory::open(&self.path, self.follows_link) {
            Ok(pinned) => Ok(Some(pinned)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn read(&mut self, problems: &mut Vec<Problem>, room: Room<'_>) -> Files {
        match self.pin() {
            Ok(Some(pinned)) => self.read_in(&pinned, problems, room),
            Ok(None) => {
                self.forget();
                Files::default()
            }
            Err(e) => {
                problems.push(Problem {
                    path: self.path.clone(),
                    why: e.to_string(),
                });
                (self.without_room, self.without_files) = (0, 0);
                self.unlisted(self.last_retained.clone(), room)
            }
        }
    }

    /// Forgets all files.
    fn forget(&mut self) {
        self.sources.clear();
        self.rejected.clear();
        self.rejected_retained = None;
        (self.last_retained, self.next_retained, self.id) = (None, None, None);
        (self.without_room, self.without_files) = (0, 0);
    }

    /// What is known of a directory that can't be listed. Its known files are open, and are read on.
    fn unlisted(&mut self, retained: Option<Arc<Source>>, room: Room<'_>) -> Files {
        for source in self.sources.values_mut() {
            // It keeps the values that it has: a later look lists the directory, and says what is wrong with the file.
            let _ = source.update(&self.limits, room);
            self.without_room += usize::from(source.is_short());
        }
        let folded = retained.iter().flat_map(|retained| &retained.folded);
        let folded = folded.map(|(identity, _)| *identity);
        Files {
            is_unlisted: true,
            folded_files: folded
                .filter(|identity| self.sources.contains_key(identity))
                .collect(),
            retained,
            ..Files::default()
        }
    }

    /// Reads files until the retained file is the same before and after. Then no counts have moved from an unread file
    /// to one that was already read.
    fn read_in(&mut self, pinned: &PinnedDirectory, problems: &mut Vec<Problem>, room: Room<'_>) -> Files {
        if self.id != Some(pinned.id()) {
            // Files of one directory say nothing about those of another, although their names are the same.
            self.forget();
            self.id = Some(pinned.id());
        }
        let mut files = Files::default();
        for _ in 0..ATTEMPTS {
            problems.clear();
            files = self.read_once(pinned, problems, room);
            let inode = std::fs::symlink_metadata(pinned.at(RETAINED))
                .ok()
                .map(|found| found.ino());
            if inode == files.retained.as_ref().map(|retained| retained.inode)
                || files.unreadable_retained.is_some()
            {
                break;
            }
        }
        files
    }

    fn read_once(&mut self, pinned: &PinnedDirectory, problems: &mut Vec<Problem>, room: Room<'_>) -> Files {
        let mut files = Files::default();
        (self.without_room, self.without_files) = (0, 0);
        let path = self.path.join(RETAINED);
        let retained = self.retained(pinned, &path, room);
        let is_held_back = matches!(retained, Err(ReadError::NoRoom(_) | ReadError::NoFile));
        match retained {
            Ok(retained) => files.retained = Some(retained),
            Err(ReadError::Io(e)) if e.kind() == io::ErrorKind::NotFound => {
                (self.last_retained, self.next_retained) = (None, None);
            }
            Err(error) => {
                if is_held_back {
                    files.retained.clone_from(&self.last_retained);
                    self.note_held_back(&error);
                }
                let why = error.to_string();
                problems.push(Problem {
                    path: path.clone(),
                    why: why.clone(),
                });
                files.unreadable_retained = Some((path, why));
            }
        }
        if is_held_back && files.retained.is_none() && self.sources.is_empty() {
            // No values were shown yet. Without the counts of dead processes all totals would be too small, and grow
            // later.
            return files;
        }
        let folded = files.retained.iter().flat_map(|retained| &retained.folded);
        let folded: HashMap<_, _> = folded
            .map(|(identity, _)| (format!("{identity}{SUFFIX}"), *identity))
            .collect();
        let Some((mut paths, is_cut)) = self.list(pinned, problems) else {
            return Files {
                unreadable_retained: files.unreadable_retained,
                ..self.unlisted(files.retained, room)
            };
        };
        let mut known = std::mem::take(&mut self.sources);
        // By its name: a file that can't be read now is still there, and may be readable later.
        let names = paths.iter().filter_map(|path| path.file_name()?.to_str());
        files.folded_files = names.filter_map(|name| folded.get(name)).copied().collect();
        let by_path: HashMap<PathBuf, Identity> = known
            .iter()
            .map(|(identity, source)| (source.path.clone(), *identity))
            .collect();
        if is_cut {
            // Known files and those of folded processes may be among the names that were not read.
            let is_there = |name: &OsStr| {
                let found = pinned.at(name).symlink_metadata();
                !found.is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
            };
            let left = folded.iter().filter(|(name, _)| is_there(OsStr::new(name)));
            files.folded_files.extend(left.map(|(_, identity)| *identity));
            let listed: HashSet<_> = paths.iter().cloned().collect();
            let is_left =
                |path: &&PathBuf| !listed.contains(*path) && is_there(path.file_name().unwrap_or_default());
            paths.extend(by_path.keys().filter(is_left).cloned());
        }
        // New files must not take the turn of known ones. Those of folded processes count nothing.
        paths.sort_by_cached_key(|path| {
            let name = path.file_name().and_then(OsStr::to_str);
            let is_folded = name.is_some_and(|name| folded.contains_key(name));
            (is_folded, !by_path.contains_key(path), path.clone())
        });
        if is_cut || paths.len() > self.limits.max_files {
            paths.truncate(self.limits.max_files);
            problems.push(Problem {
                path: self.path.clone(),
                why: Reject::Limit("files").to_string(),
            });
        }
        let mut rejected = std::mem::take(&mut self.rejected);
        for path in paths {
            let before = by_path.get(&path).and_then(|identity| known.remove(identity));
            let at = pinned.at(path.file_name().unwrap_or_default());
            let now = Instant::now();
            if let Some(known) = rejected.remove(&path).filter(|known| known.holds(&at, now)) {
                let why = known.why.clone();
                self.rejected.insert(path.clone(), known);
                problems.push(Problem { path, why });
                continue;
            }
            let read = self.process_file(&path, &at, before, room);
            if let Err(ReadError::Rejected(why)) = &read {
                let noted = Rejected::new(&at, why.to_string(), Instant::now(), now.elapsed());
                self.rejected
                    .extend(noted.map(|rejected| (path.clone(), rejected)));
            }
            let why = self.keep(read);
            problems.extend(why.map(|why| Problem { path, why }));
        }
        if is_held_back {
            // Another process has folded these and removed their files: their counts are in the file without room.
            files.folded_files.extend(
                folded
                    .into_values()
                    .filter(|identity| known.contains_key(identity)),
            );
            self.sources.append(&mut known);
        }
        files
    }

    /// Keeps a file of a process. Says why it was not read, or not as a whole.
    fn keep(&mut self, read: Result<Source, ReadError>) -> Option<String> {
        match read {
            Ok(source) => {
                let why = match (source.is_short(), source.is_large()) {
                    (false, _) => None,
                    (true, false) => Some(PARTLY_READ),
                    (true, true) => Some(TOO_LARGE),
                };
                self.without_room += usize::from(source.is_short());
                self.sources.insert(source.header.identity, source);
                why.map(str::to_owned)
            }
            Err(ReadError::Io(e)) if e.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                self.note_held_back(&error);
                Some(error.to_string())
            }
        }
    }

    /// Counts a file that waits.
    fn note_held_back(&mut self, error: &ReadError) {
        self.without_room += usize::from(matches!(error, ReadError::NoRoom(_)));
        self.without_files += usize::from(matches!(error, ReadError::NoFile));
    }

    /// The files of processes, and whether there are more names than a reader looks at; `None`: the directory can't be listed.
    fn list(&self, pinned: &PinnedDirectory, problems: &mut Vec<Problem>) -> Option<(Vec<PathBuf>, bool)> {
        let entries = match std::fs::read_dir(pinned.path()) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Some((Vec::new(), false)),
            Err(e) => {
                problems.push(Problem {
                    path: self.path.clone(),
                    why: e.to_string(),
                });
                return None;
            }
        };
        let most = NAMES.saturating_add(self.limits.max_files.saturating_mul(NAMES_OF_A_FILE));
        let mut count = 0;
        let entries = entries.take(most).inspect(|_| count += 1);
        let named = entries.flatten().filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.ends_with(SUFFIX) && !name.starts_with('.') && name != RETAINED
        });
        let paths = named.map(|entry| self.path.join(entry.file_name())).collect();
        Some((paths, count == most))
    }

    fn process_file(
        &self,
        path: &Path,
        at: &Path,
        known: Option<Source>,
        room: Room<'_>,
    ) -> Result<Source, ReadError> {
        let is_new = known.is_none();
        let mut source = match known {
            Some(source) => source,
            None => Source::open(path, at, self.open_files.permit())?,
        };
        let identity = source.header.identity;
        let name = format!("{identity}{SUFFIX}");
        if source.header.role != Role::Process || path.file_name() != Some(name.as_ref()) {
            return Err(Reject::OtherName.into());
        }
        if is_new && !room(weight::FILE) {
            return Err(ReadError::NoRoom(identity));
        }
        source.update(&self.limits, room)?;
        if source.is_short() && source.is_unread() {
            Err(ReadError::NoRoom(identity))
        } else {
            Ok(source)
        }
    }

    /// The retained file, unless an earlier read of it took long and failed.
    fn retained(
        &mut self,
        pinned: &PinnedDirectory,
        path: &Path,
        room: Room<'_>,
    ) -> Result<Arc<Source>, ReadError> {
        let (at, now) = (pinned.at(RETAINED), Instant::now());
        let known = self.rejected_retained.as_ref();
        if let Some(known) = known.filter(|known| known.holds(&at, now)) {
            return Err(ReadError::RejectedBefore(known.why.clone()));
        }
        let read = self.read_retained(&at, path, room);
        self.rejected_retained = match &read {
            Err(ReadError::Rejected(why)) => {
                Rejected::new(&at, why.to_string(), Instant::now(), now.elapsed())
            }
            _ => None,
        };
        read
    }

    /// The retained file. It is read as a whole or not at all: the files of the processes that it lists are skipped.
    fn read_retained(&mut self, at: &Path, path: &Path, room: Room<'_>) -> Result<Arc<Source>, ReadError> {
        let inode = std::fs::symlink_metadata(at)?.ino();
        // While it is open, no other file gets its number.
        if let Some(last) = self.last_retained.as_ref().filter(|last| last.inode == inode) {
            return Ok(last.clone());
        }
        let mut source = match self.next_retained.take().filter(|next| next.inode == inode) {
            Some(begun) => begun,
            None => {
                // It takes over the permit: the last one is closed when this one is read.
                let last = self.last_retained.as_deref().and_then(Source::permit);
                Source::open(path, at, last.or_else(|| self.open_files.permit()))?
            }
        };
        if source.header.role != Role::Retained {
            return Err(Reject::OtherName.into());
        }
        source.update(&self.limits, room)?;
        if source.is_short() {
            let identity = source.header.identity;
            self.next_retained = Some(source);
            return Err(ReadError::NoRoom(identity));
        }
        let source = Arc::new(source);
        self.last_retained = Some(source.clone());
        Ok(source)
    }
}

/// The resource attributes that all sources have in common: the resource of the merged values.
pub(super) fn common<'a>(
    retained: Option<&'a Source>,
    sources: impl IntoIterator<Item = &'a Source>,
) -> Vec<(String, String)> {
    let mut resources = retained.into_iter().chain(sources).map(|source| &source.resource);
    let mut common = resources.next().cloned().unwrap_or_default();
    resources.for_each(|other| common.retain(|attribute| other.contains(attribute)));
    common
}

#[cfg(test)]
mod tests;
