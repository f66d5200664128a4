// SPDX-License-Identifier: Apache-2.0

//! The sequence lock of a slot: one writer, readers that write nothing.
//!
//! A reader that sees any word of a write sees, by the two fences that meet over that word, also
//! the odd number stored before it, and so discards what it copied. Writer: odd, release fence, words,
//! even with release. Reader: number, acquire fence, words, acquire fence, the same number again.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use tidegate_shm::Loads;

use crate::layout::{SLOT_WORDS, slot};

/// The attempts of a reader: some microseconds. A write takes a tenth of one. So a reader that finds the slot odd for
/// longer has met a writer that was descheduled, or killed, in the middle.
pub(crate) const ATTEMPTS: u32 = 200;

const LOCK_WORD: usize = slot::LOCK / 8;

/// Runs `change`, which stores into the words that `lock` guards. Readers see all of it at once, or nothing.
#[inline]
pub(crate) fn write(lock: &AtomicU64, change: impl FnOnce()) {
    let odd = lock.load(Ordering::Relaxed) | 1;
    lock.store(odd, Ordering::Relaxed);
    fence(Ordering::Release);
    change();
    lock.store(odd.wrapping_add(1), Ordering::Release);
}

/// The result of `copy` on words that no write changed meanwhile; `None` after [`ATTEMPTS`].
#[inline]
pub(crate) fn read<T>(
    words: Loads<'_, SLOT_WORDS>,
    mut copy: impl FnMut(Loads<'_, SLOT_WORDS>) -> T,
) -> Option<T> {
    for _ in 0..ATTEMPTS {
        let before = words.load(LOCK_WORD);
        fence(Ordering::Acquire);
        if before.is_multiple_of(2) {
            let copied = copy(words);
            fence(Ordering::Acquire);
            if words.load(LOCK_WORD) == before {
                return Some(copied);
            }
        }
        spin_loop();
    }
    None
}
