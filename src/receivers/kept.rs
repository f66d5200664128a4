// SPDX-License-Identifier: Apache-2.0

//! The memory reservation for all files that a receiver follows.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::component::{Account, Held};
use crate::receivers::printable::printable_path;

/// The reason of refusing files, and series in files, while memory is short.
pub(super) const MEMORY: &str = "memory";

/// The divisor of the memory limit for one file (at least 1 MiB), so that others also fit.
const SHARE_OF_A_FILE: usize = 16;
const LEAST_SHARE: usize = 1 << 20;

/// The pause after a lack of memory, in which nothing new is accepted.
const RETRY: Duration = Duration::from_secs(1);

/// Room for the contents of files that a receiver keeps. New contents must find room; known contents are never refused.
pub(super) struct Kept {
    held: Held,
    /// The bytes in use at the last count, plus those reserved since.
    used: usize,
    retry: Option<Instant>,
}

impl Kept {
    /// An empty reservation.
    pub(super) fn new(memory: &Arc<Account>) -> Self {
        Self {
            held: Held::new(memory.clone()),
            used: 0,
            retry: None,
        }
    }

    /// The limit for one file, in bytes.
    pub(super) fn share_of_a_file(&self) -> usize {
        let limit = self.held.account().limit_under(self.held.ceiling());
        (limit / SHARE_OF_A_FILE).max(LEAST_SHARE)
    }

    /// Reserves bytes for something new. Returns false while memory is short.
    pub(super) fn take(&mut self, bytes: usize, now: Instant) -> bool {
        if self.retry.is_some_and(|retry| now < retry) {
            return false;
        }
        let has_room = self.take_in_any_case(bytes);
        self.retry = (!has_room).then(|| now + RETRY);
        has_room
    }

    /// Like [`Self::take`], without the pause, for work that frees memory later.
    pub(super) fn take_in_any_case(&mut self, bytes: usize) -> bool {
        let used = self.used.saturating_add(bytes);
        let missing = used.saturating_sub(self.held.bytes());
        let has_room = self.held.try_grow_quietly(missing).is_ok();
        if has_room {
            self.used = used;
        }
        has_room
    }

    /// Sets the bytes in use. The reservation above them can be reused.
    pub(super) fn count(&mut self, bytes: usize) {
        self.used = bytes;
    }

    /// Sets the bytes in use, and releases the reservation above them.
    pub(super) fn set_used(&mut self, bytes: usize) {
        self.used = bytes;
        self.held.keep(bytes);
    }
}

/// The overhead of a file in bytes, for its path and its state.
pub(super) fn note(path: &Path) -> usize {
    /// The overhead without the path.
    const NOTE: usize = 256;
    NOTE + path.as_os_str().len()
}

/// The message about a file without memory.
pub(super) fn no_room(path: &Path) -> String {
    format!("{}: memory is short; it is read later", printable_path(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::{Ceiling, Limit};

    #[test]
    fn a_file_may_take_a_sixteenth_of_the_limit_or_a_mebibyte() {
        let memory = Arc::new(Account::default());
        let kept = Kept::new(&memory);
        for (limit, share) in [(1 << 30, 64 << 20), (1 << 20, 1 << 20)] {
            let limit = Limit::of(limit);
            memory.add_limit(limit);
            assert_eq!(kept.share_of_a_file(), share);
            memory.remove_limit(limit);
        }
    }

    #[test]
    fn what_is_new_needs_room_and_what_is_kept_has_it() {
        let memory = Arc::new(Account::default());
        memory.add_limit(Limit::of(1000));
        let (mut kept, now) = (Kept::new(&memory), Instant::now());
        assert!(kept.take(300, now) && kept.take(300, now));
        assert!(!kept.take(300, now), "600 of them take 750 already");
        assert!(!memory.is_short(Ceiling::Soft), "others still have memory");
        kept.set_used(500);
        assert_eq!(memory.reserved_bytes(), 500);
        assert!(!kept.take(1, now), "not so soon");
        assert!(kept.take_in_any_case(1));
        kept.set_used(500);
        let later = now + RETRY;
        assert!(kept.take(300, later));
        // Bytes reserved only for a while can be reserved again.
        kept.count(500);
        assert!(kept.take(300, later));
        assert_eq!(memory.reserved_bytes(), 800);
        kept.set_used(2000);
        assert_eq!(memory.reserved_bytes(), 2000, "what is known is kept");
        kept.set_used(0);
        assert_eq!(memory.reserved_bytes(), 0);
    }
}
