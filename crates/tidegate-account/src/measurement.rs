// SPDX-License-Identifier: Apache-2.0

//! The last measurement of the process, read without a lock.

use crate::sync::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
    fence, spin_loop,
};

/// The measured bytes, and the bytes of reservations that were filled then. The two belong together: one of them beside
/// that of another measurement would forgive bytes without a measurement.
#[derive(Debug)]
pub(crate) struct Measurement {
    /// The current one, and the next one while it is written.
    slots: [Slot; 2],
    /// Which measurement is current: its slot is that of its lowest bit.
    number: AtomicUsize,
    is_writing: AtomicBool,
}

#[derive(Debug)]
struct Slot {
    bytes: AtomicUsize,
    filled: AtomicUsize,
}

impl Slot {
    fn new() -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            filled: AtomicUsize::new(0),
        }
    }
}

impl Measurement {
    pub(crate) fn new() -> Self {
        Self {
            slots: [Slot::new(), Slot::new()],
            number: AtomicUsize::new(0),
            is_writing: AtomicBool::new(false),
        }
    }

    /// The measured bytes, and the bytes of reservations that were filled then.
    pub(crate) fn read(&self) -> (usize, usize) {
        loop {
            let number = self.number.load(Acquire);
            let slot = self.slot(number);
            let read = (slot.bytes.load(Relaxed), slot.filled.load(Relaxed));
            fence(Acquire);
            // The slot is written again by the measurement after the next.
            if self.number.load(Relaxed) == number {
                return read;
            }
            spin_loop();
        }
    }

    /// Replaces it. Where another thread does so at this moment, that one's measurement is as good.
    pub(crate) fn write(&self, bytes: usize, filled: usize) {
        if self.is_writing.swap(true, Acquire) {
            return;
        }
        let next = self.number.load(Relaxed).wrapping_add(1);
        // A reader that sees the writes below also sees that the slot is not the current one any more.
        fence(Release);
        let slot = self.slot(next);
        slot.bytes.store(bytes, Relaxed);
        slot.filled.store(filled, Relaxed);
        self.number.store(next, Release);
        self.is_writing.store(false, Release);
    }

    fn slot(&self, number: usize) -> &Slot {
        let [even, odd] = &self.slots;
        match number % 2 {
            0 => even,
            _ => odd,
        }
    }
}
