// SPDX-License-Identifier: Apache-2.0

//! The handling of `fork`. One lock of the process guards every change of a store's structure, and the process holds it
//! while it forks. So a child never inherits a partial change, nor a lock that no thread will release. Recording and
//! looking up known series take no lock.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use crate::file::Open;

/// The files of this process' stores, each with the lock that says that the process lives.
#[derive(Debug, Default)]
pub(crate) struct Files {
    places: Vec<FileSlot>,
}

#[derive(Debug, Default)]
struct FileSlot {
    taken: bool,
    open: Option<Open>,
}

/// A place in [`Files`]: of the thread that took it, until it leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileId(usize);

static FILES: Mutex<Files> = Mutex::new(Files { places: Vec::new() });

thread_local! {
    /// The lock, in a thread that is inside `fork`.
    static HELD: Cell<Option<MutexGuard<'static, Files>>> = const { Cell::new(None) };
}

/// The lock under which stores change.
pub(crate) fn lock() -> MutexGuard<'static, Files> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has `fork` call us, from the first store on.
pub(crate) fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Option<i32>> = OnceLock::new();
    let refused = INSTALLED.get_or_init(|| {
        let installed = tidegate_shm::at_fork(prepare, parent, child);
        installed.err().and_then(|error| error.raw_os_error())
    });
    refused.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
}

impl Files {
    /// A place without a file.
    pub(crate) fn take_slot(&mut self) -> FileId {
        let free = self.places.iter().position(|place| !place.taken);
        let at = free.unwrap_or(self.places.len());
        if free.is_none() {
            self.places.push(FileSlot::default());
        }
        self.places[at].taken = true;
        FileId(at)
    }

    pub(crate) fn free_slot(&mut self, id: FileId) {
        self.places[id.0] = FileSlot::default();
    }

    /// Releases the lock of a file that this process has made. Closing the file is not enough: a child that a thread starts
    /// has a copy of the descriptor until it executes its program.
    pub(crate) fn unlock(&self, id: FileId) {
        let open = self.places[id.0].open.as_ref();
        if let Some(lock) = open.and_then(|open| open.lock.as_ref()) {
            let _ = lock.unlock(); // where it fails, closing the file is all there is to do
        }
    }

    pub(crate) fn get(&self, id: FileId) -> Option<&File> {
        self.places[id.0].open.as_ref().map(|open| &open.file)
    }

    /// Puts another file in its place; the one before is closed, and its lock given up.
    pub(crate) fn set(&mut self, id: FileId, open: Option<Open>) {
        self.places[id.0].open = open;
    }
}

extern "C" fn prepare() {
    let guard = lock();
    // A thread that is ending has no place for it any more, and forks without the lock.
    let _ = HELD.try_with(|held| held.set(Some(guard)));
}

extern "C" fn parent() {
    let _ = HELD.try_with(Cell::take);
}

/// The files are the parent's: were they open here, the parent would seem alive as long as this process is.
/// Closing them is a system call each, all that a child of several threads may do.
extern "C" fn child() {
    let held = HELD.try_with(Cell::take).ok().flatten();
    let held = held.or_else(|| match FILES.try_lock() {
        Ok(files) => Some(files),
        Err(TryLockError::Poisoned(files)) => Some(files.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    });
    if let Some(mut files) = held {
        files.places.iter_mut().for_each(|place| drop(place.open.take()));
    }
}
