//! Data on disk that must outlive the process: a segmented, append-only log with a checksum a record.
//!
//! [`record`] is how bytes lie in a segment, `segment` one file, [`log`] the order of segments, what of them is
//! settled and what has been read; none of them knows a thread. [`store`] runs a log on a thread of its own (`worker`), so that
//! nobody who pushes ever waits for a disk, and writes for all who wait with one `fsync`.

pub mod log;
mod pieces;
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
mod unsynced;
mod window;
mod worker;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub use log::Log;
pub use record::Stored;
pub use recovery::Recovered;
pub use store::{Append, Done, Outbox, READ_BYTES, ReadRoom, Store};

/// When written data is made to survive a loss of power. What is written survives the end of the process at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Before anything is acknowledged; all that came in meanwhile shares one call.
    Always,
    /// At most this long after it was written.
    Every(Duration),
    /// When the kernel likes.
    Never,
}

/// What appended data is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To be read back when its owner asks, and settled by it.
    Unread,
    /// The same, but the owner has it in memory: only a later run reads it back.
    Claimed,
    /// To be part of the owner's state: nobody settles it, a snapshot takes its place.
    State,
}

/// When data becomes part of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joins {
    /// Before it is handed to the log.
    BeforeAppend,
    /// When the log tells that it is kept, on the log's thread.
    WhenKept,
}

/// What the data of a log adds up to, where that must be known again after a restart.
pub trait State: Send + Sync {
    /// When data becomes part of the state.
    fn joins(&self) -> Joins;

    /// Takes up a snapshot of a former run.
    fn restore(&self, snapshot: &[u8]);

    /// Takes up data that was appended after that, in its order.
    fn replay(&self, payload: &[u8]);

    /// A snapshot of now. Where data joins before it is appended, `between` is called when none is on its way to the log.
    fn save(&self, between: &mut dyn FnMut()) -> Saving;
}

/// Writes the bytes of a snapshot as they are made, on another thread, while the state goes on; in pieces that are worth
/// a call of the system. There is one at a time.
pub type Saving = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// How logs are kept.
#[derive(Clone, Debug)]
pub struct Rules {
    /// When data is forced to the disk.
    pub fsync: Fsync,
    /// A segment of this size is closed and another begun.
    pub segment_bytes: u64,
}

/// A directory for logs, and how much they may hold together. What a storage extension offers.
#[derive(Debug)]
pub struct Storage {
    /// Where the directories of the logs are.
    pub directory: PathBuf,
    /// How the logs are kept.
    pub rules: Rules,
    /// What they may hold.
    pub quota: Arc<Quota>,
}

impl Storage {
    /// The directory of one owner's log: its id, with `/` and whatever else a file name should not have replaced.
    pub fn directory_of(&self, owner: &str) -> PathBuf {
        let plain = |c: char| match c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_') {
            true => c.to_string(),
            false => format!("%{:02X}", u32::from(c)),
        };
        let name: String = owner.chars().map(plain).collect();
        Path::new(&self.directory).join(name)
    }
}

/// How many bytes the logs of one storage may hold, and hold.
#[derive(Debug)]
pub struct Quota {
    limit: u64,
    used: AtomicU64,
}

impl Quota {
    /// So many bytes.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicU64::new(0),
        })
    }

    /// Sets bytes aside for what is to be written.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Share> {
        let sum = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.used.fetch_update(Relaxed, Relaxed, sum).ok()?;
        Some(Share {
            quota: self.clone(),
            bytes,
        })
    }

    /// Whether so much could ever be written.
    pub fn could_hold(&self, bytes: u64) -> bool {
        bytes <= self.limit
    }

    /// How many.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes set aside or written.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// The log's files have grown or shrunk: they are what they are, whatever was set aside before.
    fn resize(&self, before: u64, now: u64) {
        match now >= before {
            true => self.used.fetch_add(now - before, Relaxed),
            false => self.used.fetch_sub(before - now, Relaxed),
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
