// SPDX-License-Identifier: Apache-2.0

//! Notifications: callbacks on a thread of their own, and waiting.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_metrics::{Change, Subscription, Trigger, Watcher};

use crate::answers::Arena;
use crate::any::tg_any;
use crate::arguments::{Growing, borrow, give, growing, nanos, release, retain};
use crate::composite::{tg_snapshot, tg_snapshots};
use crate::local::Local;
use crate::status::tg_status::TG_TIMEOUT;
use crate::status::{Failure, guard, tg_status};

/// When a callback is due. Zero is the default of every field; TG_TRIGGER() makes one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tg_trigger {
    /// sizeof(tg_trigger).
    pub size: usize,
    /// A tg_when.
    pub when: u32,
    /// The threshold of TG_ABOVE and TG_BELOW, the distance of TG_MOVED.
    pub at: f64,
    /// A crossing is over only when the value is back by more than this.
    pub hysteresis: f64,
    /// At least so long between two calls. A change that comes sooner is reported when the time is over, if it still holds.
    pub min_interval_ns: u64,
}

// SAFETY: it begins with its size, and all fields may be zero.
unsafe impl Growing for tg_trigger {}

/// The condition that makes a callback due.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum tg_when {
    /// Any change of the value.
    TG_CHANGED = 0,
    /// The value gets greater than `at`, and that is over.
    TG_ABOVE = 1,
    /// The value gets less than `at`, and that is over.
    TG_BELOW = 2,
    /// The value differs from the last reported one by `at` or more.
    TG_MOVED = 3,
}

/// The argument of a callback; valid during the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tg_change {
    /// Everything about the value.
    pub snapshot: *const tg_snapshot,
    /// The value that made it due.
    pub value: f64,
    /// Whether the threshold is crossed now. (Without a threshold: yes.)
    pub is_crossed: bool,
}

/// A callback. It runs on a thread of the library's that all callbacks of the process share, one at a time; nothing may
/// unwind out of it.
pub type tg_on_change_fn = Option<unsafe extern "C" fn(change: *const tg_change, context: *mut c_void)>;

/// Called when a context is no longer used.
pub type tg_done_fn = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// Keeps a callback in place.
pub struct tg_subscription {
    /// Is dropped first: `Callback::end` then waits for the calls that the subscription began.
    subscription: Option<Local<Subscription>>,
    callback: Local<Arc<Callback>>,
}

/// Waits for what a composite says next.
pub struct tg_watcher(Local<Watcher>);

impl tg_watcher {
    pub(crate) fn new(watcher: Watcher) -> Self {
        Self(Local::new(watcher))
    }
}

/// A function of the program and what it is given.
struct Callback {
    function: unsafe extern "C" fn(*const tg_change, *mut c_void),
    context: *mut c_void,
    done: tg_done_fn,
    /// Held during a call.
    running: Mutex<()>,
    has_ended: AtomicBool,
    /// The process whose thread calls.
    process: u32,
}

// SAFETY: the header says that the function and the context are used on another thread.
unsafe impl Send for Callback {}
// SAFETY: as above; calls come one at a time, under `running`.
unsafe impl Sync for Callback {}

thread_local! {
    /// Whether this thread is within a callback.
    static IS_CALLING: Cell<bool> = const { Cell::new(false) };
}

impl Callback {
    fn call(&self, change: &Change) {
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if self.has_ended.load(SeqCst) {
            return;
        }
        let mut arena = Arena::default();
        let snapshot = tg_snapshot::of(&change.snapshot, &mut arena);
        let told = tg_change {
            snapshot: &raw const snapshot,
            value: change.value,
            is_crossed: change.is_crossed,
        };
        IS_CALLING.set(true);
        // SAFETY: the function takes this, as the header says; all of it lives until it returns.
        unsafe { (self.function)(&raw const told, self.context) };
        IS_CALLING.set(false);
    }

    /// No call begins after this, and none still runs, unless we are within one.
    fn end(&self) {
        self.has_ended.store(true, SeqCst);
        let is_elsewhere = self.process != std::process::id();
        if !is_elsewhere && !IS_CALLING.get() {
            drop(self.running.lock());
        }
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        if let Some(done) = self.done {
            // SAFETY: no other reference to the context is left, so this is its last use.
            unsafe { done(self.context) }
        }
    }
}

impl Drop for tg_subscription {
    fn drop(&mut self) {
        drop(self.subscription.take());
        self.callback.end();
    }
}

/// # Safety
/// `given` is as the header says.
unsafe fn trigger(given: *const tg_trigger) -> Result<Trigger, Failure> {
    // SAFETY: the caller's promise.
    let given = unsafe { growing(given, "trigger") }?;
    let trigger = match given.when {
        0 => Trigger::changed(),
        1 => Trigger::above(given.at),
        2 => Trigger::below(given.at),
        3 => Trigger::moved(given.at),
        other => return Err(Failure::invalid(format!("`when`: {other} is none"))),
    };
    Ok(trigger
        .hysteresis(given.hysteresis)
        .min_interval(nanos(given.min_interval_ns)))
}

/// Calls `callback` with `context` when a counter, an up-down counter, a gauge or a group of a composite makes the trigger
/// due, a few milliseconds later, until the subscription is released. `trigger` may be NULL: any change. `done` (may be
/// NULL) is called with the context once, when the callback won't be called any more; also when this call fails, unless
/// `callback` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_on_change(
    of: tg_any,
    trigger: *const tg_trigger,
    callback: tg_on_change_fn,
    context: *mut c_void,
    done: tg_done_fn,
    subscription: *mut *mut tg_subscription,
) -> tg_status {
    guard(|| {
        let process = std::process::id();
        let made = callback.map(|function| {
            Arc::new(Callback {
                function,
                context,
                done,
                running: Mutex::new(()),
                has_ended: AtomicBool::new(false),
                process,
            })
        });
        let subscribe = || {
            let callback = made.ok_or_else(|| Failure::null("callback"))?;
            let called = callback.clone();
            // SAFETY: the contract of the header, here and below.
            let trigger = unsafe { crate::watch::trigger(trigger) }?;
            let made = unsafe { of.borrow() }?.on_change(trigger, move |change| called.call(change))?;
            Ok(tg_subscription {
                subscription: Some(Local::new(made)),
                callback: Local::new(callback),
            })
        };
        unsafe { give(subscription, subscribe) }
    })
}

/// One owner more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_subscription_retain(subscription: *const tg_subscription) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { retain(subscription) }
}

/// One owner less. In a child of the process that made it nothing happens, and `done` is not called. Else, with the last
/// one, the calls end: this waits for one that runs, unless it is called from within a
/// callback. So don't hold a lock that the callback takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_subscription_release(subscription: *const tg_subscription) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { release(subscription) }
}

/// Waits until the composite says something that was not taken yet, which is all groups as they are then; at most so
/// long (TG_TIMEOUT).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_watcher_wait(
    watcher: *const tg_watcher,
    at_most_ns: u64,
    snapshots: *mut *mut tg_snapshots,
) -> tg_status {
    let make = || {
        // SAFETY: the contract of the header.
        let news = unsafe { borrow(watcher, "watcher") }?.0.wait(nanos(at_most_ns));
        let news = news.ok_or_else(|| Failure::new(TG_TIMEOUT, "nothing new in time"))?;
        Ok(tg_snapshots::of(&news))
    };
    // SAFETY: the contract of the header.
    guard(|| unsafe { give(snapshots, make) })
}

/// One owner more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_watcher_retain(watcher: *const tg_watcher) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { retain(watcher) }
}

/// One owner less.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_watcher_release(watcher: *const tg_watcher) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { release(watcher) }
}
