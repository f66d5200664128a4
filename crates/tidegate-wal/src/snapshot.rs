// SPDX-License-Identifier: Apache-2.0

//! A snapshot of the state that the data of a log adds up to. Its file is beside the segments, and complete or absent.
//!
//! | bytes | |
//! | --- | --- |
//! | 8 | magic `tidesna`, version 1 |
//! | 8 | number of the last data that it covers |
//! | 4 | CRC-32 of the number and of what follows |
//! | | the state |

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use tidegate_runtime::files;
use tidegate_runtime::worker::lower_priority;

use super::{Saving, State};

const MAGIC: [u8; 8] = *b"tidesna\x01";
const HEAD: usize = 20;
const NAME: &str = "state";
/// The name of a snapshot that is being written, or of an older one that will be overwritten.
const NEW: &str = "state.new";

/// A check reads this many bytes at a time.
const PIECE: usize = 1 << 20;

/// A write forces this many bytes to the disk at a time: the log uses the disk in between.
const UNSYNCED: usize = 4 << 20;

/// A piece that took longer than this waited for the disk.
const LONGEST_REST: Duration = Duration::from_millis(1);

/// Takes the snapshot of a log that writes none while it runs. It has the state at the stop, and is valid once.
pub fn take(directory: &Path, state: &dyn State) {
    read(directory, state);
    // Not there, most often; if it can't be removed, it is written over at the stop.
    let _ = std::fs::remove_file(directory.join(NAME));
}

/// Gives the state of the snapshot to the owner, if there is a sound one, and the last number that it covers.
pub(super) fn read(directory: &Path, state: &dyn State) -> u64 {
    match load(&directory.join(NAME)) {
        Ok(Some((seq, saved))) => {
            state.restore(&saved);
            seq
        }
        Ok(None) => {
            tracing::warn!(directory = %directory.display(), "the snapshot is damaged: it is not used");
            0
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => {
            tracing::warn!(directory = %directory.display(), %error, "the snapshot can't be read: it is not used");
            0
        }
    }
}

/// Number and state of a snapshot. It is checked piece by piece first: only a sound one is in memory as a whole.
fn load(path: &Path) -> io::Result<Option<(u64, Vec<u8>)>> {
    let file = files::open(path)?;
    let Some(length) = file.metadata()?.len().checked_sub(HEAD as u64) else {
        return Ok(None);
    };
    let mut head = [0; HEAD];
    file.read_exact_at(&mut head, 0)?;
    let Some((seq, crc)) = parse(&head) else {
        return Ok(None);
    };
    if checksum_of(&file, seq, length)? != crc {
        return Ok(None);
    }
    let Ok(length) = usize::try_from(length) else {
        return Ok(None);
    };
    let mut state = vec![0; length];
    file.read_exact_at(&mut state, HEAD as u64)?;
    Ok(Some((seq, state)))
}

/// The number and the checksum in the head.
fn parse(head: &[u8; HEAD]) -> Option<(u64, u32)> {
    let seq = head.get(8..16)?.try_into().ok().map(u64::from_le_bytes)?;
    let crc = head.get(16..20)?.try_into().ok().map(u32::from_le_bytes)?;
    head.starts_with(&MAGIC).then_some((seq, crc))
}

/// The checksum of a state in a file.
fn checksum_of(file: &File, seq: u64, length: u64) -> io::Result<u32> {
    let (mut checksum, mut piece) = (checksum(seq), vec![0_u8; PIECE]);
    let mut at = 0;
    while at < length {
        let size = usize::try_from(length - at).map_or(PIECE, |left| left.min(PIECE));
        let piece = &mut piece[..size];
        file.read_exact_at(piece, HEAD as u64 + at)?;
        checksum.update(piece);
        at += size as u64;
    }
    Ok(checksum.finalize())
}

/// Writes a snapshot in place of the one before, as it is made. Gives the size of the state in bytes.
///
/// # Errors
/// `saving` fails, or the file can't be written, renamed or synced.
pub fn write(directory: &Path, seq: u64, saving: Saving) -> io::Result<u64> {
    write_at_leisure(directory, seq, saving, &AtomicBool::new(true))
}

/// The same, with rests between writes until `waited_for` is set.
fn write_at_leisure(directory: &Path, seq: u64, saving: Saving, waited_for: &AtomicBool) -> io::Result<u64> {
    let new = directory.join(NEW);
    let mut file = Growing::begin(&new, seq, waited_for)?;
    saving(&mut file)?;
    let bytes = file.end()?;
    put_in_place(&new, &directory.join(NAME))?;
    File::open(directory)?.sync_all()?;
    Ok(bytes)
}

/// Keeps the old file under the other name, to be overwritten. Freeing its blocks and allocating others costs more, and
/// writers of the log would wait for the file system's journal.
fn put_in_place(new: &Path, name: &Path) -> io::Result<()> {
    // The name does not exist yet, or the file system cannot exchange two names.
    renameat_with(CWD, new, CWD, name, RenameFlags::EXCHANGE).or_else(|_| std::fs::rename(new, name))
}

/// A snapshot that is being written: no reader uses the name of an incomplete file.
struct Growing<'a> {
    file: File,
    seq: u64,
    bytes: u64,
    unsynced: usize,
    checksum: crc32fast::Hasher,
    waited_for: &'a AtomicBool,
    rested: Instant,
}

impl<'a> Growing<'a> {
    fn begin(path: &Path, seq: u64, waited_for: &'a AtomicBool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        // Another kind of file at this name would block every later snapshot.
        let file = files::open_as(&mut options, path).or_else(|error| match std::fs::remove_file(path) {
            Ok(()) => files::open_as(&mut options, path),
            Err(_) => Err(error),
        })?;
        Ok(Self {
            file,
            seq,
            bytes: 0,
            unsynced: 0,
            checksum: checksum(seq),
            waited_for,
            rested: Instant::now(),
        })
    }

    /// Gives its core up for as long as it had it: a thread that wants it would else have it at the next turn, which is some
    /// milliseconds away.
    fn rest(&mut self) {
        if !self.waited_for.load(Relaxed) {
            thread::sleep(self.rested.elapsed().min(LONGEST_REST));
            self.rested = Instant::now();
        }
    }

    /// Makes it whole, and makes it survive a loss of power.
    fn end(self) -> io::Result<u64> {
        let head = [
            MAGIC.as_slice(),
            &self.seq.to_le_bytes(),
            &self.checksum.finalize().to_le_bytes(),
        ];
        self.file.write_all_at(&head.concat(), 0)?;
        // The overwritten file may have been longer.
        self.file.set_len(HEAD as u64 + self.bytes)?;
        self.file.sync_data()?;
        Ok(self.bytes)
    }
}

impl Write for Growing<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.file.write_all_at(piece, HEAD as u64 + self.bytes)?;
        self.checksum.update(piece);
        self.bytes += piece.len() as u64;
        self.unsynced += piece.len();
        if self.unsynced >= UNSYNCED {
            self.flush()?;
        }
        self.rest();
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unsynced = 0;
        self.file.sync_data()
    }
}

/// The checksum of a state that follows.
fn checksum(seq: u64) -> crc32fast::Hasher {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&seq.to_le_bytes());
    checksum
}

/// A snapshot that a thread of its own writes.
pub(super) struct Underway {
    /// The number of the last data that it covers.
    pub(super) seq: u64,
    /// Bytes that the log had written since the snapshot before.
    pub(super) covered: u64,
    waited_for: Arc<AtomicBool>,
    outcome: Receiver<io::Result<u64>>,
}

/// Reports the outcome, even after a panic.
struct OutcomeReporter<F: Fn()> {
    outcome: Option<io::Result<u64>>,
    to: SyncSender<io::Result<u64>>,
    ended: F,
}

impl<F: Fn()> Drop for OutcomeReporter<F> {
    fn drop(&mut self) {
        let panicked = || Err(io::Error::other("making a snapshot panicked (a bug)"));
        // The channel has room for one; a caller that does not wait does not need it.
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
        let waited_for = Arc::new(AtomicBool::new(false));
        let is_waited_for = waited_for.clone();
        let work = move || {
            lower_priority();
            let mut telling = OutcomeReporter {
                outcome: None,
                to,
                ended,
            };
            telling.outcome = Some(write_at_leisure(&directory, seq, saving, &is_waited_for));
        };
        std::thread::Builder::new()
            .name("storage-snapshot".into())
            .spawn(work)?;
        Ok(Self {
            seq,
            covered,
            waited_for,
            outcome,
        })
    }

    /// Gives the size of the snapshot in bytes once it is complete. The thread may still run: freeing its memory can
    /// take longer than a caller should wait.
    pub(super) fn wait(self) -> io::Result<u64> {
        self.waited_for.store(true, Relaxed);
        let gone = |_| Err(io::Error::other("the snapshot was not made"));
        self.outcome.recv().unwrap_or_else(gone)
    }
}
