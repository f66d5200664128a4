// SPDX-License-Identifier: Apache-2.0

//! Every interleaving of a few threads, as far as their atomics allow it. Run by `cargo xtask loom`.

use loom::model::Builder;
use loom::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire},
};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::*;

/// Of what else the process uses, in bytes.
const OWN: usize = 100;

/// An account, and the process that it is of.
struct Model {
    counters: Counters,
    limit: usize,
    /// Bytes of reservations that are allocated.
    allocated: AtomicUsize,
    /// How often those who wait were woken.
    woken: Mutex<usize>,
    wake: Condvar,
}

impl Model {
    fn new(limit: usize) -> Arc<Self> {
        let counters = Counters::default();
        counters.note(counters.begin(), OWN);
        Arc::new(Self {
            counters,
            limit,
            allocated: AtomicUsize::new(0),
            woken: Mutex::new(0),
            wake: Condvar::new(),
        })
    }

    fn measure(&self) {
        let begun = self.counters.begin();
        let bytes = OWN + self.allocated.load(Acquire);
        self.counters.note(begun, bytes);
        self.notify(self.counters.has_waiting());
    }

    fn reserve(&self, bytes: usize) -> bool {
        self.counters.reserve(bytes, self.limit)
    }

    /// Fills a reservation.
    fn fill(&self, bytes: usize) {
        self.allocated.fetch_add(bytes, AcqRel);
        self.counters.fill(bytes, 0);
    }

    fn free(&self, bytes: usize) {
        self.allocated.fetch_sub(bytes, AcqRel);
        self.notify(self.counters.give_back(bytes, bytes));
    }

    fn give_up(&self, bytes: usize) {
        self.notify(self.counters.give_back(bytes, 0));
    }

    fn notify(&self, has_waiters: bool) {
        if has_waiters {
            *self.woken.lock().unwrap() += 1;
            self.wake.notify_all();
        }
    }

    /// Waits without a limit of time: a lost wake-up is a deadlock, which loom finds.
    fn reserve_in_time(&self, bytes: usize) {
        if self.reserve(bytes) {
            return;
        }
        self.counters.wait();
        loop {
            // As `Notified::enable` does: later notifications arrive.
            let heard = *self.woken.lock().unwrap();
            if self.reserve(bytes) {
                break;
            }
            let mut woken = self.woken.lock().unwrap();
            while *woken == heard {
                woken = self.wake.wait(woken).unwrap();
            }
        }
        self.counters.go_on();
    }

    fn is_at_rest(&self) -> bool {
        let Counters {
            reserved,
            filled,
            waiting,
            ..
        } = &self.counters;
        [reserved, filled, waiting]
            .iter()
            .all(|count| count.load(Acquire) == 0)
    }
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Two threads reserve and fill while a third measures. For any measurement, used and reserved bytes stay within the
/// limit, and the account never shows less than the filled bytes.
#[test]
fn reservations_stay_within_the_limit_whatever_is_measured_meanwhile() {
    check(2, || {
        let model = Model::new(OWN + 50);
        let threads = [0, 1].map(|_| {
            let model = model.clone();
            thread::spawn(move || {
                let has_room = model.reserve(24);
                if has_room {
                    model.fill(24);
                }
                has_room
            })
        });
        model.measure();
        let reserved: usize = threads
            .into_iter()
            .map(|thread| if thread.join().unwrap() { 24 } else { 0 })
            .sum();
        assert!(OWN + reserved <= OWN + 50, "{reserved}");
        assert!(model.counters.used() >= OWN + reserved);
        assert!(!model.reserve(24), "there is no space for a third");
        model.measure();
        if reserved > 0 {
            assert_eq!(model.counters.used(), OWN + reserved);
        }
    });
}

/// The account may forgive bytes that are released during a measurement until the next one, and no others. A
/// reservation that comes in between exceeds the limit by those bytes at most.
#[test]
fn a_measurement_forgives_no_more_than_what_is_let_go_of_meanwhile() {
    const FREED: usize = 40;
    check(3, || {
        let model = Model::new(OWN + 50);
        assert!(model.reserve(FREED));
        model.fill(FREED);
        model.measure();
        let other = model.clone();
        let freeing = thread::spawn(move || other.free(FREED));
        model.measure();
        freeing.join().unwrap();
        let used = model.counters.used();
        assert!((OWN - FREED..=OWN + FREED).contains(&used), "{used}");
        model.measure();
        assert_eq!(model.counters.used(), OWN);
        assert!(model.is_at_rest());
    });
}

/// Two measurements at a time leave one of the two, never half of each.
#[test]
fn measurements_at_a_time_leave_one_of_them() {
    check(3, || {
        let measurement = Arc::new(Measurement::new());
        measurement.write(1, 1);
        let threads = [2, 3].map(|number| {
            let measurement = measurement.clone();
            thread::spawn(move || measurement.write(number, number))
        });
        for _ in 0..2 {
            let (bytes, filled) = measurement.read();
            assert_eq!(bytes, filled);
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let (bytes, filled) = measurement.read();
        assert!(bytes == filled && bytes > 1);
    });
}

/// A waiting request gets the room that is given back, whatever the order of its wait and the release.
#[test]
fn no_wake_up_is_lost_when_room_is_given_back() {
    check(4, || {
        let model = Model::new(OWN + 50);
        assert!(model.reserve(40));
        model.fill(40);
        let waiting = {
            let model = model.clone();
            thread::spawn(move || {
                model.reserve_in_time(40);
                model.give_up(40);
            })
        };
        model.free(40);
        waiting.join().unwrap();
        assert!(model.is_at_rest());
    });
}

/// The same where a measurement says that there is room again.
#[test]
fn no_wake_up_is_lost_when_the_process_has_shrunk() {
    check(4, || {
        let model = Model::new(OWN + 50);
        model.counters.note(model.counters.begin(), OWN + 50);
        let waiting = {
            let model = model.clone();
            thread::spawn(move || {
                model.reserve_in_time(40);
                model.give_up(40);
            })
        };
        model.measure();
        waiting.join().unwrap();
        assert!(model.is_at_rest());
    });
}

/// Two wait for the room of one: both get it, one after the other.
#[test]
fn waiters_get_room_in_turn() {
    check(2, || {
        let model = Model::new(OWN + 50);
        assert!(model.reserve(40));
        let waiting = [0, 1].map(|_| {
            let model = model.clone();
            thread::spawn(move || {
                model.reserve_in_time(40);
                model.give_up(40);
            })
        });
        model.give_up(40);
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(model.is_at_rest());
    });
}

/// At rest the account is zero, after any mix of reservations, allocations without one, and reservations given up.
#[test]
fn at_rest_the_account_is_zero() {
    check(3, || {
        let model = Model::new(OWN + 100);
        let other = model.clone();
        let unasked = thread::spawn(move || {
            other.allocated.fetch_add(20, AcqRel);
            other.counters.fill(20, 20);
            other.free(20);
        });
        if model.reserve(30) {
            // A third of it comes, the rest is given up.
            model.fill(10);
            model.allocated.fetch_sub(10, AcqRel);
            model.notify(model.counters.give_back(30, 10));
        }
        unasked.join().unwrap();
        assert!(model.is_at_rest());
        model.measure();
        assert_eq!(model.counters.used(), OWN);
    });
}
