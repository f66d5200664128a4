// SPDX-License-Identifier: Apache-2.0

//! A directory for all threads of a process and of its forked children.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use super::{Directory, Limits};
use crate::error::Error;

/// Attempts to learn which directory is this process's, and the pause between them. Threads need some nanoseconds for it.
const ATTEMPTS: usize = 100;
const PAUSE: Duration = Duration::from_millis(1);

/// A [`Directory`] under a lock that a fork can't leave locked.
///
/// A fork copies only its own thread. A lock that another thread holds stays locked in the child forever, and a scan
/// holds it for milliseconds. So a child reads the directory with a reader of its own.
#[derive(Debug)]
pub struct SharedDirectory {
    fresh: Directory,
    current: Mutex<Current>,
}

/// The reader of a process. Users clone it before they lock it. A child replaces it, and a change by a thread that is
/// gone may be half-made: the clone of that thread prevents the drop.
#[derive(Debug)]
struct Current {
    process: u32,
    directory: Arc<Mutex<Directory>>,
}

impl SharedDirectory {
    /// Opens a directory, which need not exist yet.
    ///
    /// # Errors
    /// [`Error::Io`] if the path exists but is not a directory.
    pub fn open(path: impl AsRef<Path>, limits: Limits) -> Result<Self, Error> {
        let fresh = Directory::open(path, limits)?;
        let current = Mutex::new(Current {
            process: std::process::id(),
            directory: Arc::new(Mutex::new(fresh.unread())),
        });
        Ok(Self { fresh, current })
    }

    /// Calls `read` with the directory. Other threads of this process wait.
    pub fn with<T>(&self, read: impl FnOnce(&mut Directory) -> T) -> T {
        let directory = self.directory();
        // It can read the files again.
        let mut directory = directory.lock().unwrap_or_else(PoisonError::into_inner);
        read(&mut directory)
    }

    fn directory(&self) -> Arc<Mutex<Directory>> {
        let process = std::process::id();
        for _ in 0..ATTEMPTS {
            let mut current = match self.current.try_lock() {
                Ok(current) => current,
                Err(TryLockError::Poisoned(current)) => current.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
            };
            if current.process != process {
                *current = Current {
                    process,
                    directory: Arc::new(Mutex::new(self.fresh.unread())),
                };
            }
            return current.directory.clone();
        }
        // A thread held even this lock at the fork.
        Arc::new(Mutex::new(self.fresh.unread()))
    }
}
