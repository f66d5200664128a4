// SPDX-License-Identifier: Apache-2.0

//! The agent's side of a multi-process store, for simulation and tests.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use rustix::fs::FlockOperation;
use rustix::time::{ClockId, clock_gettime};
use tidegate_shm::{LockHolder, Mapping};

use crate::error::Error;
use crate::kind::{KNOWN_KINDS, NixlKind};
use crate::mp::{MAGIC, MAX_BOUNDS, MAX_BUCKETS, SCHEMA, STORE_SIZE, StoreIdentity, word};

/// NIXL's built-in histogram bounds in microseconds.
pub const DEFAULT_BOUNDS_US: [f64; 18] = [
    10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 2.5e4, 5e4, 1e5, 2.5e5, 5e5, 1e6, 5e6, 1e7,
];

/// A store being written. Dropping it gives up the lock and leaves the file, as when an agent dies.
#[derive(Debug)]
pub struct MpStoreWriter {
    path: PathBuf,
    /// Holds the lock that says the agent lives.
    _file: LockHolder,
    mapping: Mapping,
    bounds: Vec<f64>,
}

impl MpStoreWriter {
    /// Makes a store of this identity in `directory`, under NIXL's file name. At most 32 `bounds` are used.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn create(
        directory: impl AsRef<Path>,
        identity: &StoreIdentity,
        bounds: &[f64],
    ) -> Result<Self, Error> {
        let name = format!(
            "nixl.{}.{}.{}.mmap",
            identity.pid,
            now_ns(ClockId::Realtime),
            identity.instance
        );
        let path = directory.as_ref().join(name);
        let file = make_file(&path)?;
        let mapping = Mapping::new(&file, STORE_SIZE, true);
        let mapping = mapping.map_err(|e| Error::io("map", &path, e))?;
        let mut store = MpStoreWriter {
            path,
            _file: LockHolder::new(file),
            mapping,
            bounds: bounds.iter().copied().take(MAX_BOUNDS).collect(),
        };
        store.write_header(identity);
        Ok(store)
    }

    /// Adds one event to the totals, as NIXL's exporter does. Kinds beyond the table are ignored.
    pub fn record(&mut self, kind: u16, value: u64) {
        let index = usize::from(kind);
        let Some(row) = NixlKind::by_id(kind).filter(|_| index < KNOWN_KINDS) else {
            return;
        };
        self.add(word::COUNTERS + index, value);
        if row.last.is_some() {
            self.set(word::GAUGES + index, value);
        }
        if row.histogram.is_some() {
            let bucket = self.bounds.partition_point(|bound| *bound < value as f64);
            self.add(word::BUCKETS + index * MAX_BUCKETS + bucket, 1);
            self.add(word::SUMS + index, value);
        }
        self.set(word::LAST_UPDATE, now_ns(ClockId::Monotonic));
    }

    /// Where the store is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write_header(&mut self, identity: &StoreIdentity) {
        let slots = (KNOWN_KINDS as u64) << 32;
        self.set(word::SCHEMA_AND_SLOTS, slots | u64::from(SCHEMA));
        self.set(word::PID, identity.pid as u64); // the field is signed
        self.set(word::LAST_UPDATE, now_ns(ClockId::Monotonic));
        self.set(word::INSTANCE, identity.instance);
        self.set(word::BUCKET_COUNT, self.bounds.len() as u64);
        self.set_text(word::AGENT_NAME, &identity.agent_name);
        self.set_text(word::HOSTNAME, &identity.hostname);
        self.set_text(word::LOCAL_RANK, identity.local_rank.as_deref().unwrap_or(""));
        for (index, bound) in self.bounds.iter().enumerate() {
            self.set(word::BOUNDS + index, bound.to_bits());
        }
        self.mapping.store_u64(word::MAGIC * 8, MAGIC, Ordering::Release);
    }

    fn set(&self, word: usize, value: u64) {
        self.mapping.store_u64(word * 8, value, Ordering::Relaxed);
    }

    /// The agent is the only writer, so a load and a store are enough.
    fn add(&self, word: usize, value: u64) {
        let total = self.mapping.load_u64(word * 8, Ordering::Relaxed);
        self.set(word, total.wrapping_add(value));
    }

    /// The text cut to its field, NUL-terminated.
    fn set_text(&self, field: std::ops::Range<usize>, text: &str) {
        let longest = field.len() * 8 - 1;
        let bytes = &text.as_bytes()[..text.len().min(longest)];
        for (word, chunk) in field.zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            self.set(word, u64::from_le_bytes(padded));
        }
    }
}

fn make_file(path: &Path) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(path).map_err(|e| Error::io("create", path, e))?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|e| Error::io("lock", path, e))?;
    rustix::fs::ftruncate(&file, STORE_SIZE as u64).map_err(|e| Error::io("resize", path, e))?;
    Ok(file)
}

fn now_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64 // neither clock is negative
}
