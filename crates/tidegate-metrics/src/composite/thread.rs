//! The two threads of a process that watches: one looks, one calls back.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

use tidegate_engine::UnixNanos;

/// How often the thread looks while somebody is to be called back. A crossing is seen after half of it on average.
pub const LOOK_EVERY: Duration = Duration::from_millis(4);

/// Who only answers when asked is looked at every so many times: often enough for sub-windows of 100 ms.
const REST: u64 = 6;

/// Calls that wait for those before them. When there is no room the crossing is seen again at the next look.
const WAITING: usize = 1024;

/// A call that is due.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Takes a call; `false`: there is no room.
pub(super) type Dispatch<'a> = dyn FnMut(Job) -> bool + 'a;

/// Something to be looked at.
pub(super) trait Target: Send + Sync {
    /// Whether somebody is to be told.
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
    // What a callback shares with others is its own affair; ours is not touched while it runs.
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

/// The threads of this process.
struct Threads {
    /// Of the process that they are in: a fork takes none of them along.
    process: u32,
    looking: Thread,
    targets: Arc<Mutex<Vec<Weak<dyn Target>>>>,
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
        lock(&threads.targets).push(target);
        threads.looking.unpark();
    }
}

/// Somebody is to be told from now on.
pub(super) fn wake() {
    if let Some(threads) = lock(&THREADS).as_ref() {
        threads.looking.unpark();
    }
}

/// `None`: the system has no threads left; composites still answer when asked.
fn start() -> Option<Threads> {
    let (sender, receiver) = sync_channel(WAITING);
    let targets: Arc<Mutex<Vec<Weak<dyn Target>>>> = Arc::default();
    let shared = targets.clone();
    let named = |name: &str| thread::Builder::new().name(name.to_owned());
    let started = named("metrics-call")
        .spawn(move || call(&receiver))
        .and_then(|_| named("metrics-look").spawn(move || look(&shared, &sender)));
    match started {
        Ok(looking) => Some(Threads {
            process: std::process::id(),
            looking: looking.thread().clone(),
            targets,
        }),
        Err(error) => {
            crate::report::error(&format!("no thread for callbacks: {error}"));
            None
        }
    }
}

fn call(jobs: &Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        run(job);
    }
}

fn look(targets: &Mutex<Vec<Weak<dyn Target>>>, sender: &SyncSender<Job>) {
    let mut rounds = 0u64;
    loop {
        let present: Vec<Arc<dyn Target>> = {
            let mut targets = lock(targets);
            targets.retain(|target| target.strong_count() > 0);
            targets.iter().filter_map(Weak::upgrade).collect()
        };
        if present.is_empty() {
            thread::park();
            continue;
        }
        let is_rested = rounds.is_multiple_of(REST);
        rounds += 1;
        let mut is_urgent = false;
        for target in &present {
            let urgent = target.is_urgent();
            is_urgent |= urgent;
            if urgent || is_rested {
                target.turn(super::now(), &mut |job| sender.try_send(job).is_ok());
            }
        }
        // A target that ends here must not be kept by the thread that sleeps.
        drop(present);
        let rest = if is_urgent { 1 } else { REST as u32 };
        if !is_urgent {
            rounds = 0;
        }
        thread::park_timeout(LOOK_EVERY * rest);
    }
}
