// SPDX-License-Identifier: Apache-2.0

//! Rejected files: those whose read takes long are not read again in each look.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use tidegate_shm::FileId;

/// A read that takes less is repeated in each look: a living process may write the rest of its file meanwhile.
const CHEAP: Duration = Duration::from_millis(1);
/// The pause after a read, as a multiple of its time, and the longest one.
const PAUSE: u32 = 16;
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The state of a file. While it is the same, the file was probably not written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Stamp {
    id: FileId,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let found = path.symlink_metadata().ok()?;
        Some(Self {
            id: FileId::of(&found),
            size: found.size(),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// A file whose read took long and failed.
#[derive(Debug)]
pub(super) struct Rejected {
    stamp: Stamp,
    pub(super) why: String,
    until: Instant,
}

impl Rejected {
    /// `None`: its read is so cheap that the next look may repeat it.
    pub(super) fn new(path: &Path, why: String, now: Instant, elapsed: Duration) -> Option<Self> {
        if elapsed < CHEAP {
            return None;
        }
        Some(Self {
            stamp: Stamp::of(path)?,
            why,
            until: now + LONGEST_PAUSE.min(elapsed.saturating_mul(PAUSE)),
        })
    }

    /// Whether the file need not be read yet.
    pub(super) fn holds(&self, path: &Path, now: Instant) -> bool {
        now < self.until && Stamp::of(path) == Some(self.stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_whose_read_takes_long_is_read_again_later_or_when_it_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, b"one").unwrap();
        let (now, took) = (Instant::now(), Duration::from_millis(100));
        let rejected = |took| Rejected::new(&path, "damaged".to_owned(), now, took);
        assert!(rejected(CHEAP / 2).is_none());
        let known = rejected(took).unwrap();
        assert!(known.holds(&path, now + took * PAUSE / 2));
        assert!(!known.holds(&path, now + took * PAUSE));
        let known = rejected(Duration::from_mins(1)).unwrap();
        assert!(!known.holds(&path, now + LONGEST_PAUSE));
        std::fs::write(&path, b"another").unwrap();
        assert!(!known.holds(&path, now));
    }
}
