// SPDX-License-Identifier: Apache-2.0

//! Bounds the open files of all readers of a process. A user who may write to a directory of cells could take all descriptors
//! of the process otherwise, also those of its connections.

use std::fs::File;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tidegate_shm::open_files_limit;

/// The readers leave the limit of the system divided by this to the rest of the program, unless it sets another number.
const REST: u64 = 4;

/// Sets the most files that all readers of this process together have open. The first call counts. Without one, it is three
/// quarters of the limit of the system, which a process can raise.
pub fn limit_open_files(most: usize) {
    OpenFiles::shared().limit(most);
}

/// The number of open files, and the most of them.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    open: AtomicUsize,
    /// Unset: by the limit of the system.
    most: OnceLock<usize>,
}

/// The permit for one open file, and for the one that replaces it.
#[derive(Debug)]
pub(super) struct Permit(Arc<OpenFiles>);

/// An open file with its permit.
#[derive(Debug)]
pub(super) struct OpenFile {
    // Fields drop in order: it is closed before the permit is free.
    file: File,
    permit: Arc<Permit>,
}

impl OpenFiles {
    /// Those of this process.
    pub(super) fn shared() -> Arc<Self> {
        static SHARED: OnceLock<Arc<OpenFiles>> = OnceLock::new();
        SHARED.get_or_init(Arc::default).clone()
    }

    #[cfg(test)]
    pub(super) fn at_most(most: usize) -> Arc<Self> {
        Arc::new(Self {
            open: AtomicUsize::new(0),
            most: OnceLock::from(most),
        })
    }

    fn limit(&self, most: usize) {
        let _ = self.most.set(most); // the first one stays
    }

    /// The most open files.
    fn most(&self) -> usize {
        let set = self.most.get().copied();
        set.unwrap_or_else(|| most_by_default(open_files_limit()))
    }

    /// `None`: as many are open as may be.
    pub(super) fn permit(self: &Arc<Self>) -> Option<Arc<Permit>> {
        let most = self.most();
        let more = |open: usize| (open < most).then_some(open + 1);
        let taken = self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Arc::new(Permit(self.clone())))
    }
}

fn most_by_default(limit: u64) -> usize {
    usize::try_from(limit - limit / REST).unwrap_or(usize::MAX)
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OpenFile {
    pub(super) fn new(file: File, permit: Arc<Permit>) -> Self {
        Self { file, permit }
    }

    /// Its permit, for the file that replaces it.
    pub(super) fn permit(&self) -> Arc<Permit> {
        self.permit.clone()
    }
}

impl Deref for OpenFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_file_makes_room_for_another() {
        let files = OpenFiles::at_most(2);
        let (first, _second) = (files.permit().unwrap(), files.permit().unwrap());
        assert!(files.permit().is_none());
        drop(OpenFile::new(tempfile::tempfile().unwrap(), first));
        assert!(files.permit().is_some());
    }

    #[test]
    fn the_readers_of_a_process_share_a_part_of_its_limit() {
        assert!(Arc::ptr_eq(&OpenFiles::shared(), &OpenFiles::shared()));
        assert!(OpenFiles::shared().permit().is_some());
        assert_eq!(most_by_default(1024), 768);
        let files = OpenFiles::default();
        assert_eq!(files.most(), most_by_default(open_files_limit()));
        files.limit(1);
        files.limit(5);
        assert_eq!(files.most(), 1);
    }
}
