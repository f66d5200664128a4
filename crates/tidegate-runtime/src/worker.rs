// SPDX-License-Identifier: Apache-2.0

//! Threads beside the runtime's. A component has one for work that blocks or needs finer timing. Background threads of
//! low priority do work that grows with the number of series.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tidegate_engine::clock;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task;
use tokio::time::timeout;

use crate::account::Held;

/// The nice value of background work: when cores are short, it gets a third of the time of other threads.
const NICE: i32 = 5;

/// Lowers the priority of this thread below that of the receiving threads. The scheduler gives a thread several
/// milliseconds at a time, and a thread that wakes for a request must not wait for that.
pub fn lower_priority() {
    use rustix::process::{getpid, getpriority_process, setpriority_process};
    // On Linux the priorities are those of the first thread and of this one. The system never refuses a lower priority.
    let others = getpriority_process(Some(getpid())).unwrap_or(0);
    let _ = setpriority_process(None, others + NICE);
}

/// Does work that blocks or takes long on a background thread of low priority. It has the runtime of the caller.
///
/// While the clock is set by hand, a task of the runtime does the work: the clock stands still until all tasks are done.
pub fn in_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> task::JoinHandle<T> {
    /// The stack size in bytes. Queries are evaluated by recursion, as deep as their parser allows. Without
    /// optimisation a level takes up to 20 KiB.
    const STACK: usize = 8 << 20;
    /// The blocking threads of this runtime do all the work.
    static THREADS: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
        Builder::new_current_thread()
            .thread_name("tidegate-background")
            .thread_stack_size(STACK)
            .on_thread_start(lower_priority)
            .build()
    });
    if clock::is_manual() {
        return task::spawn(async move { work() });
    }
    match &*THREADS {
        Ok(threads) => {
            let caller = Handle::current();
            threads.spawn_blocking(move || {
                let _in = caller.enter();
                work()
            })
        }
        Err(_) => task::spawn_blocking(work),
    }
}

/// Background work that clients may request at any rate. A fixed number runs at a time; the rest waits its turn. Work
/// without a waiting caller keeps its turn until it ends.
pub struct Turns(Semaphore);

impl Turns {
    /// Runs at most `at_a_time` pieces of work at a time.
    pub const fn of(at_a_time: usize) -> Self {
        Self(Semaphore::const_new(at_a_time))
    }

    /// Runs work like [`in_background`] does. `None`: it panicked.
    pub async fn in_background<T: Send + 'static>(
        &'static self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        // Never closed.
        let turn = self.0.acquire().await.ok()?;
        let work = move || {
            let _until_done = turn;
            work()
        };
        in_background(work).await.ok()
    }
}

/// The most requests that wait for a slot...
const MAX_WAITING: usize = 256;

/// ...the most of one sender...
const MAX_WAITING_OF_ONE: usize = MAX_WAITING / 2;

/// ...and the longest time that each waits. A refused sender retries; one that waits longer gives up and retries too.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Slots for received data, one for each processor: more would only hold memory.
static SLOTS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(processors()));

/// Slots for sent data, one for each processor. Received data can use all other slots, and only sending frees memory.
static OUTGOING: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(processors()));

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// More work waits than can soon be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the gateway has too much work waiting: try again later")]
pub struct Overloaded;

/// A slot for work that takes longer than about 1 ms: to unpack, check, decode or fold a large received request, or to
/// build a large one to send. It keeps the runtime's threads free for short answers, such as health checks.
pub struct Slot {
    _permit: SemaphorePermit<'static>,
}

impl Slot {
    /// Waits for a slot for the work that `of` has reserved memory for. Keep it for all the work on a request: each
    /// slot costs a wait.
    ///
    /// # Errors
    /// Too many requests wait already, in all or of the same sender, or no slot comes free within 2 s.
    pub async fn get(of: Option<&Held>) -> Result<Self, Overloaded> {
        static WAITING: AtomicUsize = AtomicUsize::new(0);
        struct Waiting;
        impl Drop for Waiting {
            fn drop(&mut self) {
                WAITING.fetch_sub(1, Relaxed);
            }
        }
        let in_line = of.map(|of| of.wait_in_line(MAX_WAITING_OF_ONE).ok_or(Overloaded));
        let _of_sender = in_line.transpose()?;
        let before = WAITING.fetch_add(1, Relaxed);
        let _waiting = Waiting;
        if before < MAX_WAITING {
            Self::soon_of(&SLOTS).await
        } else {
            Err(Overloaded)
        }
    }

    /// The same for a limited number of callers: they wait without a time limit. At most as many of them as there are
    /// slots queue among the other requests. So other requests do not wait for all of them.
    ///
    /// # Errors
    /// None in practice: the semaphores are never closed.
    pub async fn get_in_any_case() -> Result<Self, Overloaded> {
        static NEXT: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(processors()));
        let _turn = NEXT.acquire().await.map_err(|_| Overloaded)?;
        Self::of(&SLOTS).await
    }

    /// The same for work on data to send: to write, compress or sign a large request. Senders wait only for each other.
    ///
    /// # Errors
    /// None in practice: the semaphore is never closed.
    pub async fn to_send() -> Result<Self, Overloaded> {
        Self::of(&OUTGOING).await
    }

    async fn soon_of(slots: &'static Semaphore) -> Result<Self, Overloaded> {
        let slot = timeout(LONGEST_WAIT, Self::of(slots)).await;
        slot.unwrap_or(Err(Overloaded))
    }

    async fn of(slots: &'static Semaphore) -> Result<Self, Overloaded> {
        // Never closed.
        let permit = slots.acquire().await.map_err(|_| Overloaded)?;
        Ok(Self { _permit: permit })
    }

    /// Takes the slot that the caller has, or waits for a free one.
    ///
    /// # Errors
    /// Those of [`Slot::get`].
    pub async fn get_unless(slot: &mut Option<Self>, of: &Held) -> Result<Self, Overloaded> {
        match slot.take() {
            Some(slot) => Ok(slot),
            None => Self::get(Some(of)).await,
        }
    }

    /// Runs the work to its end, even when the caller no longer waits for it.
    ///
    /// # Errors
    /// It has panicked, or the gateway stops.
    pub async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Overloaded> {
        self.run_on(work).await.map(|(done, _)| done)
    }

    /// The same, and gives the slot back for more work.
    ///
    /// # Errors
    /// It has panicked, or the gateway stops.
    pub async fn run_on<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Self), Overloaded> {
        let done = task::spawn_blocking(move || (work(), self));
        done.await.map_err(|_| Overloaded)
    }
}

/// A thread that is started once and asked to stop.
pub struct Worker {
    name: &'static str,
    pause: Arc<Pause>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The wait of the thread, which a stop ends.
#[derive(Debug, Default)]
pub struct Pause {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Pause {
    /// Waits for `time`; false as soon as the worker is to stop.
    pub fn wait(&self, time: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        self.changed
            .wait_while_for(&mut stopped, |stopped| !*stopped, time);
        !*stopped
    }

    fn stop(&self) {
        *self.stopped.lock() = true;
        self.changed.notify_all();
    }
}

impl Worker {
    /// A worker that is not started; its thread gets this name.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            pause: Arc::default(),
            thread: Mutex::default(),
        }
    }

    /// Runs `work` on the thread; it returns when `Pause::wait` says false.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn start(&self, work: impl FnOnce(&Pause) + Send + 'static) -> std::io::Result<()> {
        let pause = self.pause.clone();
        let thread = std::thread::Builder::new()
            .name(self.name.to_owned())
            .spawn(move || work(&pause))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Asks it to stop and waits until it has, or until `deadline`.
    pub async fn stop(&self, deadline: Instant) {
        self.pause.stop();
        let thread = self.thread.lock().take();
        let Some(thread) = thread else { return };
        let name = self.name;
        let joined = tokio::task::spawn_blocking(move || thread.join());
        match tokio::time::timeout_at(deadline.into(), joined).await {
            Ok(Ok(Ok(()))) => {}
            Ok(_) => tracing::error!(thread = name, "a worker ended by a panic"),
            Err(_) => tracing::warn!(thread = name, "a worker did not stop in time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn long_work_has_as_many_places_as_there_are_processors() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let work = (0..4 * processors).map(|_| {
            let (running, most) = (running.clone(), most.clone());
            let work = move || {
                most.fetch_max(running.fetch_add(1, Relaxed) + 1, Relaxed);
                std::thread::sleep(Duration::from_millis(5));
                running.fetch_sub(1, Relaxed);
            };
            // Other tests have places too.
            tokio::spawn(async { Slot::get_in_any_case().await?.run(work).await })
        });
        for done in work.collect::<Vec<_>>() {
            done.await.unwrap().unwrap();
        }
        assert!(most.load(Relaxed) <= processors, "{most:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_is_kept_for_the_next_work_and_a_wait_for_one_ends_after_2_s() {
        static ONE: Semaphore = Semaphore::const_new(1);
        let slot = Slot::soon_of(&ONE).await.unwrap();
        let (one, slot) = slot.run_on(|| 1).await.unwrap();
        let mut kept = Some(slot);
        let begun = tokio::time::Instant::now();
        assert!(Slot::soon_of(&ONE).await.is_err());
        assert_eq!(begun.elapsed().as_secs(), LONGEST_WAIT.as_secs());
        let of = Held::new(Arc::default());
        let slot = Slot::get_unless(&mut kept, &of).await.unwrap();
        assert_eq!((one, slot.run(|| 2).await), (1, Ok(2)));
        assert!(kept.is_none() && Slot::soon_of(&ONE).await.is_ok());
    }

    #[tokio::test]
    async fn work_in_turns_keeps_its_turn_until_it_is_done() {
        static TURNS: Turns = Turns::of(2);
        static WORKING: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let work = || {
            MOST.fetch_max(WORKING.fetch_add(1, Relaxed) + 1, Relaxed);
            std::thread::sleep(Duration::from_millis(5));
            WORKING.fetch_sub(1, Relaxed);
        };
        // No caller waits for these.
        for _ in 0..4 {
            let _ = timeout(Duration::from_millis(1), TURNS.in_background(work)).await;
        }
        let all: Vec<_> = (0..8).map(|_| tokio::spawn(TURNS.in_background(work))).collect();
        for one in all {
            assert_eq!(one.await.unwrap(), Some(()));
        }
        assert!(MOST.load(Relaxed) <= 2);
    }

    #[tokio::test]
    async fn background_work_gives_way_and_has_its_callers_runtime() {
        let others = getpriority_process(None).unwrap();
        let work = || (getpriority_process(None).unwrap(), tokio::spawn(async { 7 }));
        let (nice, spawned) = in_background(work).await.unwrap();
        // As much as there is, at most.
        assert_eq!(nice, (others + NICE).min(19));
        assert_eq!(spawned.await.unwrap(), 7);
        assert_eq!(getpriority_process(None).unwrap(), others);
    }
}
