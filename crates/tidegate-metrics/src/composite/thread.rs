// SPDX-License-Identifier: Apache-2.0

//! The two threads of a process that watches: they look and call back.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use tidegate_engine::UnixNanos;

/// The interval of looks while there are callbacks. A crossing is seen after half of it on average.
pub const LOOK_EVERY: Duration = Duration::from_millis(4);

/// The thread looks at a composite without callbacks at every sixth look only: often enough for sub-windows of 100 ms.
const REST: u64 = 6;

/// Calls that wait for those before them. When they are full, the next look sees the crossing again.
const WAITING: usize = 1024;

/// A call that is due.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Takes a call; `false`: the queue of calls is full.
pub(super) type Dispatch<'a> = dyn FnMut(Job) -> bool + 'a;

/// Something to be looked at.
pub(super) trait Target: Send + Sync {
    /// Whether there are callbacks.
    fn is_urgent(&self) -> bool;

    /// Looks.
    fn turn(&self, now: UnixNanos, dispatch: &mut Dispatch<'_>);
}

/// Keeps a callback in place until it is dropped.
#[must_use = "the callback ends when this is dropped"]
pub struct Subscription(Option<Box<dyn Any + Send + Sync>>);

impl Subscription {
    pub(super) fn new(keeps: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(keeps)))
    }

    /// Of something that never changes.
    pub(super) fn of_nothing() -> Self {
        Self(None)
    }

    /// The callback stays as long as the process.
    pub fn forget(mut self) {
        std::mem::forget(self.0.take());
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

static PANICS: AtomicU64 = AtomicU64::new(0);

/// How often a callback of this process has panicked.
pub fn callback_panics() -> u64 {
    PANICS.load(Relaxed)
}

/// Runs a call; nothing that it does harms others.
pub(super) fn run(job: Job) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    // A callback is responsible for the state that it shares with others; it does not touch ours.
    let result = catch_unwind(AssertUnwindSafe(job));
    if let Err(panic) = result {
        PANICS.fetch_add(1, Relaxed);
        if !TOLD.swap(true, Relaxed) {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no text");
            crate::report::error(&format!(
                "a callback panicked ({text}); further ones are only counted"
            ));
        }
    }
}

/// The threads of this process: two that take turns. One looks; when a callback is due and no thread calls, it calls, at once,
/// and the other one looks on. So a call waits for one thread to be woken, not for two.
struct Threads {
    /// Of the process that they are in: a fork takes none of them along.
    process: u32,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    targets: Mutex<Vec<Weak<dyn Target>>>,
    turns: Mutex<Turns>,
    /// Wakes the one that waits for its turn to look.
    relieved: Condvar,
    /// Wakes the one that looks.
    bell: Condvar,
}

#[derive(Default)]
struct Turns {
    is_polling: bool,
    is_calling: bool,
    is_rung: bool,
    due: VecDeque<Job>,
}

static THREADS: Mutex<Option<Threads>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has this target looked at as long as it is there.
pub(super) fn attend(target: Weak<dyn Target>) {
    let mut threads = lock(&THREADS);
    if threads
        .as_ref()
        .is_none_or(|threads| threads.process != std::process::id())
    {
        *threads = start();
    }
    if let Some(threads) = threads.as_ref() {
        lock(&threads.shared.targets).push(target);
        threads.shared.ring();
    }
}

/// Callbacks exist from now on.
pub(super) fn wake() {
    if let Some(threads) = lock(&THREADS).as_ref() {
        threads.shared.ring();
    }
}

/// `None`: the system has no threads left; composites still answer when asked.
fn start() -> Option<Threads> {
    let shared: Arc<Shared> = Arc::default();
    for name in ["metrics-watch-1", "metrics-watch-2"] {
        let shared = shared.clone();
        let thread = thread::Builder::new().name(name.to_owned());
        if let Err(error) = thread.spawn(move || shared.run()) {
            crate::report::error(&format!("no thread for callbacks: {error}"));
            return None;
        }
    }
    let process = std::process::id();
    Some(Threads { process, shared })
}

impl Shared {
    fn ring(&self) {
        lock(&self.turns).is_rung = true;
        self.bell.notify_one();
    }

    fn run(&self) {
        loop {
            {
                let turns = lock(&self.turns);
                let waited = self.relieved.wait_while(turns, |turns| turns.is_polling);
                waited.unwrap_or_else(PoisonError::into_inner).is_polling = true;
            }
            self.poll();
            self.relieved.notify_one();
            self.call();
        }
    }

    /// Polls, until a callback is due that no other thread calls.
    fn poll(&self) {
        let mut rounds = 0u64;
        loop {
            let rest = self.poll_once(&mut rounds);
            let mut turns = lock(&self.turns);
            if !turns.due.is_empty() && !turns.is_calling {
                turns.is_calling = true;
                turns.is_polling = false;
                return;
            }
            turns = match rest {
                Some(rest) => {
                    let waited = self.bell.wait_timeout_while(turns, rest, |turns| !turns.is_rung);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.bell.wait_while(turns, |turns| !turns.is_rung);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
            turns.is_rung = false;
        }
    }

    /// How long to rest then; `None`: there is nothing to poll.
    fn poll_once(&self, rounds: &mut u64) -> Option<Duration> {
        let present: Vec<Arc<dyn Target>> = {
            let mut targets = lock(&self.targets);
            targets.retain(|target| target.strong_count() > 0);
            targets.iter().filter_map(Weak::upgrade).collect()
        };
        if present.is_empty() {
            return None;
        }
        let is_rested = rounds.is_multiple_of(REST);
        *rounds += 1;
        let mut is_urgent = false;
        for target in &present {
            let urgent = target.is_urgent();
            is_urgent |= urgent;
            if urgent || is_rested {
                target.turn(super::now(), &mut |job| self.dispatch(job));
            }
        }
        // A target that ends here must not be kept by the thread that sleeps.
        drop(present);
        if !is_urgent {
            *rounds = 0;
        }
        Some(LOOK_EVERY * if is_urgent { 1 } else { REST as u32 })
    }

    fn dispatch(&self, job: Job) -> bool {
        let mut turns = lock(&self.turns);
        let is_room = turns.due.len() < WAITING;
        if is_room {
            turns.due.push_back(job);
        }
        is_room
    }

    /// Calls what is due, and what becomes due meanwhile.
    fn call(&self) {
        while let Some(job) = self.next_due() {
            run(job);
        }
    }

    fn next_due(&self) -> Option<Job> {
        let mut turns = lock(&self.turns);
        let next = turns.due.pop_front();
        turns.is_calling = next.is_some();
        next
    }
}
