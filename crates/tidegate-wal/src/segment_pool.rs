// SPDX-License-Identifier: Apache-2.0

//! Recycled segment files. Their disk blocks are allocated and their pages are cached, so that overwriting one costs less
//! than creating a file.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use tidegate_runtime::files;
use tidegate_runtime::worker::lower_priority;

use super::record::{self, Epoch};
use super::segment::Segment;

/// The pool keeps at least this many files: while one is written, those before it wait for their last acknowledgements.
const LEAST: usize = 2;

/// The extension of their names.
pub(super) const EXTENSION: &str = "spare";

/// The recycled files of a log and their sizes in bytes, oldest first.
#[derive(Debug, Default)]
pub(super) struct SegmentPool(VecDeque<(PathBuf, u64)>);

impl SegmentPool {
    /// Keeps the file of an acknowledged segment, or deletes it if the pool has enough files for `ahead` bytes.
    pub(super) fn keep(&mut self, segment: &Segment, ahead: u64) {
        let path = segment.path.with_extension(EXTENSION);
        let are_few = self.0.len() < LEAST || self.bytes() < ahead;
        if are_few && std::fs::rename(&segment.path, &path).is_ok() {
            self.0.push_back((path, segment.weight()));
        } else {
            delete(&segment.path);
        }
    }

    /// Makes one the segment of this first number, if there is one.
    pub(super) fn take(&mut self, directory: &Path, first: u64, salt: u32) -> Option<(Segment, File)> {
        let (spare, bytes) = self.0.pop_front()?;
        let (path, epoch) = (Segment::path(directory, first), Epoch::reused(salt));
        // A head with a name that is not its own would be a segment in the wrong place: the name comes last.
        let begin = || -> io::Result<File> {
            let file = files::open_as(OpenOptions::new().write(true), &spare)?;
            file.write_all_at(&record::segment_head(first, epoch), 0)?;
            renameat_with(CWD, &spare, CWD, &path, RenameFlags::NOREPLACE)?;
            Ok(file)
        };
        let begun = begin().inspect_err(|_| delete(&spare));
        Some((Segment::over(path, first, epoch, bytes), begun.ok()?))
    }

    /// The bytes that they take on the disk.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Deletes all files of the pool.
    pub(super) fn clear(&mut self) {
        self.0.drain(..).for_each(|(path, _)| delete(&path));
    }
}

/// Deletes a file; a later run deletes it if this fails. The name goes now. The blocks go on a thread of their own once
/// no process has the file open: freeing a large file takes long (the file system may discard each block on the disk).
pub(super) fn delete(path: &Path) {
    let open = files::open(path);
    let _ = std::fs::remove_file(path);
    // Without a thread it is closed here.
    let _ = std::thread::Builder::new()
        .name("storage-free".into())
        .spawn(move || {
            lower_priority();
            drop(open);
        });
}
