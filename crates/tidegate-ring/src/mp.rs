// SPDX-License-Identifier: Apache-2.0

//! Multi-process stores: one file `nixl.<pid>.<ns>.<instance>.mmap` per agent, holding cumulative
//! totals (schema 1, NIXL 1.5 and later). Reading disturbs no process, and any number may read.
//!
//! A store is 6,800 bytes of aligned fields that the agent updates with relaxed atomics, so it is read
//! through a guarded mapping with relaxed loads: a counter is never seen half-written, which a
//! plain copy would not promise.
//!
//! The agent holds `flock(LOCK_EX)` on its store for life. [`MpStore::alive`] asks by trying for a
//! *shared* lock and giving it back at once: that disturbs no other reader, no process takes it for
//! an owner's, and it sees holders in other process namespaces, which `/proc/locks` hides. Ask only
//! when `last_update_ns` has stood still: a store that moves is alive.

pub(crate) mod writer;

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use tidegate_shm::{FileId, Mapping, is_locked};

use crate::error::Error;
use crate::kind::KNOWN_KINDS;
use crate::layout::Reject;
use crate::open;

/// Exact size of a store.
pub(crate) const STORE_SIZE: usize = 6800;

/// `NIXLMPS1`, stored last by the agent.
pub(crate) const MAGIC: u64 = 0x3153_504d_4c58_494e;

/// The one schema known.
pub(crate) const SCHEMA: u32 = 1;

/// Most histogram bounds; one more bucket takes what lies above them.
pub(crate) const MAX_BOUNDS: usize = 32;
pub(crate) const MAX_BUCKETS: usize = MAX_BOUNDS + 1;

/// Index of each field in 8-byte words.
pub(crate) mod word {
    use std::ops::Range;

    pub(crate) const MAGIC: usize = 0;
    pub(crate) const SCHEMA_AND_SLOTS: usize = 1;
    pub(crate) const PID: usize = 2;
    pub(crate) const LAST_UPDATE: usize = 3;
    pub(crate) const INSTANCE: usize = 4;
    pub(crate) const BUCKET_COUNT: usize = 5;
    pub(crate) const AGENT_NAME: Range<usize> = 6..38;
    pub(crate) const HOSTNAME: Range<usize> = 38..54;
    pub(crate) const LOCAL_RANK: Range<usize> = 54..62;
    pub(crate) const BOUNDS: usize = 62;
    pub(crate) const COUNTERS: usize = 94;
    pub(crate) const GAUGES: usize = 115;
    pub(crate) const BUCKETS: usize = 136;
    pub(crate) const SUMS: usize = 829;
}

/// Whose store it is; fixed for the life of the file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreIdentity {
    /// Process id in the agent's own namespace.
    pub pid: i64,
    /// Which agent of the process, from 0.
    pub instance: u64,
    /// Name of the agent.
    pub agent_name: String,
    /// Host the agent runs on.
    pub hostname: String,
    /// Its rank, if the agent knew one.
    pub local_rank: Option<String>,
}

/// The totals of a store at one look. Each number is whole; together they may be some events apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// `CLOCK_MONOTONIC` of the agent's host at the last update.
    pub last_update_ns: u64,
    /// Totals by kind.
    pub counters: [u64; KNOWN_KINDS],
    /// Last values by kind (those with [`NixlKind::last`](crate::NixlKind)).
    pub gauges: [u64; KNOWN_KINDS],
    bound_count: usize,
    bounds: [f64; MAX_BOUNDS],
    buckets: [[u64; MAX_BUCKETS]; KNOWN_KINDS],
    sums: [u64; KNOWN_KINDS],
}

/// A histogram of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Histogram<'a> {
    /// Upper bounds, inclusive and rising, in the unit of the kind.
    pub bounds: &'a [f64],
    /// Observations per bucket, not cumulative; one more than bounds, the last above them all.
    pub buckets: &'a [u64],
    /// Sum of the observed values.
    pub sum: u64,
}

impl Histogram<'_> {
    /// Number of observations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }
}

impl Snapshot {
    /// The histogram of a kind; `None` for kinds beyond the table. Only kinds with
    /// [`NixlKind::histogram`](crate::NixlKind) are ever filled by NIXL.
    pub fn histogram(&self, kind: u16) -> Option<Histogram<'_>> {
        Some(Histogram {
            bounds: self.bounds.get(..self.bound_count)?,
            buckets: self.buckets.get(usize::from(kind))?.get(..=self.bound_count)?,
            sum: *self.sums.get(usize::from(kind))?,
        })
    }
}

/// An open store.
#[derive(Debug)]
pub struct MpStore {
    path: PathBuf,
    file: File,
    id: FileId,
    owner_uid: u32,
    mapping: Mapping,
    identity: StoreIdentity,
}

impl MpStore {
    /// Whether a file of this name may be a store: `nixl.*.mmap`.
    pub fn is_store_name(name: &str) -> bool {
        name.starts_with("nixl.") && name.ends_with(".mmap") && name.len() > "nixl.mmap".len()
    }

    /// Opens the store at `path`, never through a symbolic link.
    ///
    /// # Errors
    /// [`Error::PermissionDenied`] (stores have mode 0600), [`Error::Rejected`] if it is not a store, or [`Error::Io`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let (file, metadata) = open::open(path, false)?;
        check_size(path, metadata.len())?;
        let mapping = Mapping::new(&file, STORE_SIZE, false);
        let mapping = mapping.map_err(|e| Error::io("map", path, e))?;
        let identity = check(&mapping).map_err(|reject| Error::rejected(path, reject))?;
        Ok(MpStore {
            path: path.to_owned(),
            id: FileId::of(&metadata),
            owner_uid: metadata.uid(),
            file,
            mapping,
            identity,
        })
    }

    /// Takes the totals of this moment.
    ///
    /// # Errors
    /// [`Error::Rejected`] if it is no longer a store; drop it then.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let metadata = self.file.metadata();
        let metadata = metadata.map_err(|e| Error::io("stat", &self.path, e))?;
        check_size(&self.path, metadata.len())?;
        let reject = |reject| Error::rejected(&self.path, reject);
        check_fixed_fields(&self.mapping).map_err(reject)?;
        let snapshot = self.load();
        if self.mapping.faulted() {
            return Err(reject(Reject::Truncated));
        }
        snapshot.map_err(reject)
    }

    /// Whether the agent still holds its lock.
    ///
    /// # Errors
    /// [`Error::Io`] when the system cannot lock.
    pub fn alive(&self) -> Result<bool, Error> {
        is_locked(&self.file).map_err(|e| Error::io("lock", &self.path, e))
    }

    /// Whose store it is.
    pub fn identity(&self) -> &StoreIdentity {
        &self.identity
    }

    /// Where the store was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which file it is.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Owner of the file. NIXL's own collectors skip stores of other users.
    pub fn owner_uid(&self) -> u32 {
        self.owner_uid
    }

    fn load(&self) -> Result<Snapshot, Reject> {
        let word = |index| load(&self.mapping, index);
        let buckets = word(word::BUCKET_COUNT);
        let bad = Reject::BadBuckets { buckets };
        let bound_count = usize::try_from(buckets)
            .ok()
            .filter(|n| *n <= MAX_BOUNDS)
            .ok_or(bad)?;
        let bounds: [f64; MAX_BOUNDS] = std::array::from_fn(|i| f64::from_bits(word(word::BOUNDS + i)));
        let used = &bounds[..bound_count];
        if !used.is_sorted_by(|a, b| a < b) || !used.iter().all(|bound| bound.is_finite()) {
            return Err(bad);
        }
        Ok(Snapshot {
            last_update_ns: word(word::LAST_UPDATE),
            counters: std::array::from_fn(|i| word(word::COUNTERS + i)),
            gauges: std::array::from_fn(|i| word(word::GAUGES + i)),
            bound_count,
            bounds,
            buckets: std::array::from_fn(|kind| {
                std::array::from_fn(|i| word(word::BUCKETS + kind * MAX_BUCKETS + i))
            }),
            sums: std::array::from_fn(|i| word(word::SUMS + i)),
        })
    }
}

fn load(mapping: &Mapping, word: usize) -> u64 {
    mapping.load_u64(word * 8, Ordering::Relaxed)
}

fn check_size(path: &Path, file_size: u64) -> Result<(), Error> {
    let reject = match file_size {
        0 => Reject::BeingCreated,
        size if size == STORE_SIZE as u64 => return Ok(()),
        _ => Reject::WrongStoreSize { file_size },
    };
    Err(Error::rejected(path, reject))
}

fn check(mapping: &Mapping) -> Result<StoreIdentity, Reject> {
    check_fixed_fields(mapping)?;
    let text = |range| text(mapping, range);
    let rank = text(word::LOCAL_RANK);
    let identity = StoreIdentity {
        pid: load(mapping, word::PID) as i64, // the field is signed
        instance: load(mapping, word::INSTANCE),
        agent_name: text(word::AGENT_NAME),
        hostname: text(word::HOSTNAME),
        local_rank: (!rank.is_empty()).then_some(rank),
    };
    if mapping.faulted() {
        Err(Reject::Truncated)
    } else {
        Ok(identity)
    }
}

fn check_fixed_fields(mapping: &Mapping) -> Result<(), Reject> {
    match mapping.load_u64(word::MAGIC * 8, Ordering::Acquire) {
        MAGIC => {}
        0 if mapping.faulted() => return Err(Reject::Truncated),
        0 => return Err(Reject::BeingCreated),
        _ => return Err(Reject::BadMagic),
    }
    let both = load(mapping, word::SCHEMA_AND_SLOTS);
    let (schema, slots) = (both as u32, (both >> 32) as u32); // two 32-bit fields
    if schema != SCHEMA {
        return Err(Reject::UnknownSchema { schema });
    }
    if slots as usize != KNOWN_KINDS {
        return Err(Reject::BadSlotCount { slots });
    }
    Ok(())
}

/// The text in a range of words up to the first NUL; bytes that are not UTF-8 are replaced.
fn text(mapping: &Mapping, range: std::ops::Range<usize>) -> String {
    let bytes = range.flat_map(|word| load(mapping, word).to_le_bytes());
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
