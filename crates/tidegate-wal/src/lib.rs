// SPDX-License-Identifier: Apache-2.0

//! Data on disk that must outlive the process: a segmented, append-only log with a checksum for each record.
//!
//! [`record`] is the layout of bytes in a segment, and `segment` is one file. [`log`] orders segments and tracks which
//! of their data is settled and which has been read. None of them uses threads.
//!
//! [`store`] runs a log on a thread of its own (`worker`), so that no producer waits for a disk. It writes all waiting
//! data with one `fsync`.

pub mod log;
mod pending_fsync;
pub mod record;
mod recovery;
mod rescue;
mod segment;
mod segment_pool;
pub mod snapshot;
pub mod store;
mod syncer;
#[cfg(test)]
mod tests;
mod window;
mod worker;
mod write_batch;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub use log::Log;
pub use record::Stored;
pub use recovery::Recovered;
pub use store::{Append, Completions, Done, NotKept, READ_BYTES, ReadRoom, Store};

/// The time at which written data survives a loss of power. It survives the end of the process at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Before it is acknowledged; all data that arrives meanwhile shares one call.
    Always,
    /// At most this long after it was written.
    Every(Duration),
    /// When the kernel writes it.
    Never,
}

/// The use of appended data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The owner reads it back on demand, and settles it.
    Unread,
    /// The same, but the owner has it in memory: only a later run reads it back.
    Claimed,
    /// It is part of the owner's state: a snapshot replaces it, so no caller settles it.
    State,
}

/// The time at which data becomes part of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joins {
    /// Before it is handed to the log.
    BeforeAppend,
    /// When the log reports that it is kept, on the log's thread.
    WhenKept,
}

/// State that the data of a log adds up to, and that must survive a restart.
pub trait State: Send + Sync {
    /// When data becomes part of the state.
    fn joins(&self) -> Joins;

    /// Restores a snapshot of an earlier run.
    fn restore(&self, snapshot: &[u8]);

    /// Adds data that was appended after the snapshot, in its order.
    fn replay(&self, payload: &[u8]);

    /// Whether a snapshot may replace the one before and the data that it covers. Otherwise the log keeps both, and asks again
    /// later.
    fn may_save(&self) -> bool {
        true
    }

    /// Begins a snapshot of the present state. If data joins before it is appended, `between` is called while none is
    /// on its way to the log.
    fn save(&self, between: &mut dyn FnMut()) -> Saving;
}

/// Writes the bytes of a snapshot on another thread, while the state changes. Pieces are large enough for a system call
/// each. One runs at a time.
pub type Saving = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// The rules for keeping logs.
#[derive(Clone, Debug)]
pub struct Rules {
    /// When data is forced to the disk.
    pub fsync: Fsync,
    /// The size in bytes at which a segment is closed and the next begins.
    pub segment_bytes: u64,
}

/// A directory for logs, and their common quota: the offer of a storage extension.
#[derive(Debug)]
pub struct Storage {
    /// The parent of the directories of the logs.
    pub directory: PathBuf,
    /// The rules for keeping the logs.
    pub rules: Rules,
    /// The quota that the logs share.
    pub quota: Arc<Quota>,
}

impl Storage {
    /// The directory of one owner's log: its id, with `/` and other characters unsuitable for a file name replaced.
    pub fn directory_of(&self, owner: &str) -> PathBuf {
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_') {
                c.to_string()
            } else {
                format!("%{:02X}", u32::from(c))
            }
        };
        let name: String = owner.chars().map(plain).collect();
        Path::new(&self.directory).join(name)
    }
}

/// The quota of the logs of one storage, in bytes, and its use.
#[derive(Debug)]
pub struct Quota {
    limit: u64,
    used: AtomicU64,
}

impl Quota {
    /// A quota of `limit` bytes.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicU64::new(0),
        })
    }

    /// Reserves bytes for data to be written; `None`: the quota leaves no room.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Share> {
        let sum = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.used.fetch_update(Relaxed, Relaxed, sum).ok()?;
        Some(Share {
            quota: self.clone(),
            bytes,
        })
    }

    /// Whether the quota could ever hold `bytes`.
    pub fn could_hold(&self, bytes: u64) -> bool {
        bytes <= self.limit
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes set aside or written.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Updates the use after the log's files have grown or shrunk: their sizes count, not earlier reservations.
    fn resize(&self, before: u64, now: u64) {
        if now >= before {
            self.used.fetch_add(now - before, Relaxed)
        } else {
            self.used.fetch_sub(before - now, Relaxed)
        };
    }
}

/// Bytes of a quota that are set aside; given back on drop.
#[derive(Debug)]
pub struct Share {
    quota: Arc<Quota>,
    bytes: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.quota.used.fetch_sub(self.bytes, Relaxed);
    }
}
