// SPDX-License-Identifier: Apache-2.0

//! A timer wheel: it finds due items without a look at the others.
//!
//! It is lazy. A deadline that moves does not move here, and a deadline beyond the wheel's term comes up early. The
//! caller checks whether each item is really due, and adds it again if it is not.

use crate::UnixNanos;

/// Slots of a wheel: something is found due at most a 64th of its term late.
const SLOTS: u64 = 64;

/// Further slots, for deadlines that are added when the last look was some time ago.
const SPARE: u64 = 4;

/// Items by their deadlines.
#[derive(Debug)]
pub(crate) struct Wheel<T> {
    slots: Box<[Vec<T>]>,
    slot_ns: u64,
    /// The slot, counted from the epoch, up to which everything was taken.
    taken: u64,
}

impl<T> Wheel<T> {
    /// For deadlines up to `term_ns` ahead.
    pub(crate) fn new(term_ns: u64) -> Self {
        Self {
            slots: (0..SLOTS + SPARE).map(|_| Vec::new()).collect(),
            slot_ns: term_ns.div_ceil(SLOTS).max(1),
            taken: 0,
        }
    }

    /// The duration of a slot, in nanoseconds.
    #[cfg(test)]
    fn slot_ns(&self) -> u64 {
        self.slot_ns
    }

    /// Adds an item with deadline `at`. A deadline beyond the wheel's term is due at the end of the term.
    pub(crate) fn add(&mut self, at: UnixNanos, item: T) {
        // The slot of `at` is over when the next one begins.
        let slot = (at / self.slot_ns).saturating_add(1);
        let slot = slot.clamp(self.taken + 1, self.taken + self.slots.len() as u64);
        let slots = self.slots.len() as u64;
        self.slots[(slot % slots) as usize].push(item);
    }

    /// Takes all items that are due at `now`.
    pub(crate) fn take(&mut self, now: UnixNanos) -> Vec<T> {
        let until = now / self.slot_ns;
        let slots = self.slots.len() as u64;
        let from = (self.taken + 1).max(until.saturating_sub(slots - 1));
        let mut due = Vec::new();
        for slot in from..=until {
            due.append(&mut self.slots[(slot % slots) as usize]);
        }
        self.taken = self.taken.max(until);
        due
    }

    /// Starts at `now`, before anything is added.
    pub(crate) fn start(&mut self, now: UnixNanos) {
        if self.taken == 0 {
            self.taken = now / self.slot_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn everything_is_due_once_not_before_its_time_and_hardly_after_it(
            steps in prop::collection::vec((0u64..3_000, prop::option::of(0u64..1_000)), 1..200),
        ) {
            let mut wheel = Wheel::new(1_000);
            let mut now = 1_700_000_000_000;
            wheel.start(now);
            let mut waiting: Vec<(u64, usize)> = Vec::new();
            for (number, (step, ahead)) in steps.into_iter().enumerate() {
                now += step / 10;
                let mut due = wheel.take(now);
                if let Some(ahead) = ahead {
                    wheel.add(now + ahead, number);
                    waiting.push((now + ahead, number));
                }
                due.extend(wheel.take(now));
                for due in due {
                    let at = waiting.iter().position(|(_, other)| *other == due);
                    let (at, _) = waiting.remove(at.expect("due twice"));
                    prop_assert!(at <= now, "{at} at {now}");
                }
                let slack = wheel.slot_ns();
                prop_assert!(waiting.iter().all(|(at, _)| at + slack >= now), "{waiting:?} at {now}");
            }
        }
    }

    #[test]
    fn a_clock_that_jumps_loses_nothing() {
        let mut wheel = Wheel::new(64);
        wheel.start(1_000);
        wheel.add(1_010, 'a');
        wheel.add(9_999_999, 'b');
        assert!(wheel.take(500).is_empty());
        let mut all = wheel.take(u64::MAX / 2);
        all.sort_unstable();
        assert_eq!(all, ['a', 'b']);
        wheel.add(5, 'c');
        assert_eq!(wheel.take(u64::MAX / 2 + 64), ['c']);
    }
}
