// SPDX-License-Identifier: Apache-2.0

//! The arithmetic of the gateway's account of memory: the last measurement, the reservations since, and the number of
//! waiting requests.
//!
//! No I/O, no clock, no runtime: `cargo xtask loom` runs it under every interleaving of threads (`src/tests.rs`).

mod measurement;
mod sync;
#[cfg(all(test, loom))]
mod tests;

use measurement::Measurement;
use sync::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire, SeqCst},
    fence,
};

/// The counters of an account. Bytes are reserved, then filled, then given back.
#[derive(Debug)]
pub struct Counters {
    measurement: Measurement,
    reserved: AtomicUsize,
    filled: AtomicUsize,
    /// The number of requests that wait for room.
    waiting: AtomicUsize,
}

/// A measurement that has begun: how many bytes of reservations were there before it.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    filled: usize,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            measurement: Measurement::new(),
            reserved: AtomicUsize::new(0),
            filled: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        }
    }
}

impl Counters {
    /// Bytes that are reserved.
    pub fn reserved(&self) -> usize {
        self.reserved.load(Acquire)
    }

    /// Bytes of reservations that are there.
    pub fn filled(&self) -> usize {
        self.filled.load(Acquire)
    }

    /// The result of the last measurement, in bytes.
    pub fn measured(&self) -> usize {
        self.measurement.read().0
    }

    /// To be called before the process is measured.
    pub fn begin(&self) -> Begun {
        Begun {
            filled: self.filled(),
        }
    }

    /// The process was measured: it uses `bytes` bytes. Of the bytes of reservations, only those that were there before
    /// and after can be among them. Bytes that fill reservations meanwhile count twice until the next measurement.
    pub fn note(&self, begun: Begun, bytes: usize) {
        self.measurement.write(bytes, begun.filled.min(self.filled()));
    }

    /// The bytes of the last measurement, and those that were reserved since.
    pub fn used(&self) -> usize {
        self.used_with(self.reserved())
    }

    /// The bytes in use if `reserved` bytes in all were reserved.
    pub fn used_with(&self, reserved: usize) -> usize {
        let (measured, then) = self.measurement.read();
        match reserved.checked_sub(then) {
            Some(more) => measured.saturating_add(resident(more)),
            // A share of what was measured is gone. Queues that share bytes each have them on their own account, so the
            // filled bytes may exceed the measured ones.
            None => {
                let share = (then - reserved) as u128 * measured.min(then) as u128 / then.max(1) as u128;
                measured - usize::try_from(share).unwrap_or(measured)
            }
        }
    }

    /// Reserves `bytes` bytes, if then no more than `limit` is used.
    #[must_use]
    pub fn reserve(&self, bytes: usize, limit: usize) -> bool {
        let grown = |reserved: usize| {
            let reserved = reserved.checked_add(bytes)?;
            (self.used_with(reserved) <= limit).then_some(reserved)
        };
        self.reserved.fetch_update(AcqRel, Acquire, grown).is_ok()
    }

    /// Reserves `bytes` bytes whether there is room or not.
    pub fn promise(&self, bytes: usize) {
        self.reserved.fetch_add(bytes, AcqRel);
    }

    /// Records bytes that exist, of which `unreserved` are reserved only now: existing bytes can't be refused.
    pub fn fill(&self, bytes: usize, unreserved: usize) {
        // In this order, so that filled bytes are always reserved.
        if unreserved > 0 {
            self.reserved.fetch_add(unreserved, AcqRel);
        }
        self.filled.fetch_add(bytes, AcqRel);
    }

    /// Gives back reserved bytes, of which `filled` existed. Returns whether a waiter must be woken.
    #[must_use]
    pub fn give_back(&self, reserved: usize, filled: usize) -> bool {
        self.filled.fetch_sub(filled, AcqRel);
        self.reserved.fetch_sub(reserved, AcqRel);
        reserved > 0 && self.has_waiting()
    }

    /// Whether a waiter exists. Call it after room was made: a waiter that is not counted here sees the room.
    pub fn has_waiting(&self) -> bool {
        fence(SeqCst);
        self.waiting.load(Acquire) > 0
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Acquire)
    }

    /// A waiter begins. It must listen for a wake-up before it tries again.
    pub fn wait(&self) {
        self.waiting.fetch_add(1, AcqRel);
        fence(SeqCst);
    }

    /// A waiter ends.
    pub fn go_on(&self) {
        self.waiting.fetch_sub(1, AcqRel);
    }
}

/// The memory that `bytes` bytes make resident. It is a quarter more: the allocator rounds up, and connections have
/// windows.
pub fn resident(bytes: usize) -> usize {
    bytes.saturating_add(bytes / 4)
}
