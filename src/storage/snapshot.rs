//! A snapshot of what the data of a log adds up to, in a file beside the segments, written whole or not at all.
//!
//! | bytes | |
//! | --- | --- |
//! | 8 | magic `tidesna`, version 1 |
//! | 8 | number of the last data that it covers |
//! | 4 | CRC-32 of the number and of what follows |
//! | | the state |

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::{Saving, State};

const MAGIC: [u8; 8] = *b"tidesna\x01";
const HEAD: usize = 20;
const NAME: &str = "state";

/// The snapshot of a log that none is made of while it runs: it holds what was true at the stop, and is good once.
pub fn take(directory: &Path, state: &dyn State) {
    read(directory, state);
    // Not there, most often; if it can't be removed, it is written over at the stop.
    let _ = std::fs::remove_file(directory.join(NAME));
}

/// Gives the state of the snapshot to the owner, if there is a sound one, and the last number that it covers.
pub(super) fn read(directory: &Path, state: &dyn State) -> u64 {
    let Ok(bytes) = std::fs::read(directory.join(NAME)) else {
        return 0;
    };
    let Some((seq, saved)) = parse(&bytes) else {
        tracing::warn!(directory = %directory.display(), "the snapshot is damaged: it is not used");
        return 0;
    };
    state.restore(saved);
    seq
}

fn parse(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (head, state) = bytes.split_at_checked(HEAD)?;
    let seq = head.get(8..16)?.try_into().ok().map(u64::from_le_bytes)?;
    let crc = head.get(16..20)?.try_into().ok().map(u32::from_le_bytes)?;
    (head.starts_with(&MAGIC) && checksum(seq, state) == crc).then_some((seq, state))
}

fn checksum(seq: u64, state: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&seq.to_le_bytes());
    hasher.update(state);
    hasher.finalize()
}

/// Writes a snapshot in place of the one before.
pub fn write(directory: &Path, seq: u64, state: &[u8]) -> io::Result<()> {
    let new = directory.join("state.new");
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(&MAGIC)?;
    file.write_all(&seq.to_le_bytes())?;
    file.write_all(&checksum(seq, state).to_le_bytes())?;
    file.write_all(state)?;
    file.sync_data()?;
    std::fs::rename(&new, directory.join(NAME))?;
    File::open(directory)?.sync_all()
}

/// A snapshot that a thread of its own writes.
pub(super) struct Underway {
    /// The number of the last data that it covers.
    pub(super) seq: u64,
    /// What had been written to the log since the one before it, in bytes.
    pub(super) covered: u64,
    outcome: Receiver<io::Result<u64>>,
}

/// Tells what came of it, also when that is a panic.
struct Telling<F: Fn()> {
    outcome: Option<io::Result<u64>>,
    to: SyncSender<io::Result<u64>>,
    ended: F,
}

impl<F: Fn()> Drop for Telling<F> {
    fn drop(&mut self) {
        let panicked = || Err(io::Error::other("making a snapshot panicked (a bug)"));
        // There is room for one; who does not wait need not know.
        let _ = self.to.send(self.outcome.take().unwrap_or_else(panicked));
        (self.ended)();
    }
}

impl Underway {
    /// Begins; `ended` is called when it is over.
    pub(super) fn start(
        directory: &Path,
        seq: u64,
        saving: Saving,
        covered: u64,
        ended: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let directory = directory.to_owned();
        let (to, outcome) = sync_channel(1);
        let work = move || {
            let mut telling = Telling {
                outcome: None,
                to,
                ended,
            };
            let state = saving();
            telling.outcome = Some(write(&directory, seq, &state).map(|()| state.len() as u64));
        };
        std::thread::Builder::new()
            .name("storage-snapshot".into())
            .spawn(work)?;
        Ok(Self {
            seq,
            covered,
            outcome,
        })
    }

    /// How many bytes it has, when it is over. The thread may still be there: giving back what it took can take longer
    /// than anybody should wait.
    pub(super) fn wait(self) -> io::Result<u64> {
        let gone = |_| Err(io::Error::other("the snapshot was not made"));
        self.outcome.recv().unwrap_or_else(gone)
    }
}
