// SPDX-License-Identifier: Apache-2.0

//! A thread that asks the same thing again and again while a test changes something.

use super::{SOON, wait_until};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{self, JoinHandle};

/// A closure that a thread runs without pause, at least once, until [`Self::stop`] or the drop.
pub(crate) struct Repeated {
    what: String,
    is_over: Arc<AtomicBool>,
    /// The runs without an error.
    runs: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Repeated {
    /// Starts the thread. Its first error or panic ends it. `what` is for messages.
    pub(crate) fn start(what: &str, mut run: impl FnMut() -> Result<(), String> + Send + 'static) -> Self {
        let (is_over, runs) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (over, count) = (is_over.clone(), runs.clone());
        let thread = thread::spawn(move || -> Result<(), String> {
            loop {
                run()?;
                count.fetch_add(1, SeqCst);
                if over.load(SeqCst) {
                    return Ok(());
                }
            }
        });
        Self {
            what: what.to_owned(),
            is_over,
            runs,
            thread: Some(thread),
        }
    }

    /// The number of runs without an error so far.
    pub(crate) fn runs(&self) -> u64 {
        self.runs.load(SeqCst)
    }

    /// Waits for the end of a run that begins after this call.
    ///
    /// # Panics
    /// If a run has failed or panicked.
    pub(crate) fn wait_for_run(&mut self) {
        // One run may be under way.
        let wanted = self.runs() + 2;
        let what = format!("{}: another run", self.what);
        wait_until(SOON, &what, || self.runs() >= wanted || self.has_ended());
        if self.has_ended() {
            self.join();
        }
    }

    /// Ends the thread after its present run. Returns the number of runs.
    ///
    /// # Panics
    /// If a run has failed or panicked.
    pub(crate) fn stop(mut self) -> u64 {
        self.join();
        self.runs()
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn join(&mut self) {
        self.is_over.store(true, SeqCst);
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            None | Some(Ok(Ok(()))) => {}
            Some(Ok(Err(why))) => panic!("{}, after {} runs: {why}", self.what, self.runs()),
            Some(Err(panic)) => resume_unwind(panic),
        }
    }
}

impl Drop for Repeated {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        if let Some(thread) = self.thread.take()
            && let Ok(Err(why)) = thread.join()
        {
            eprintln!("{}: {why}", self.what);
        }
    }
}
