//! A thread of a component's own, for work that blocks, needs finer timing than the runtime's, or gives way to it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A thread that is started once and asked to stop.
pub(crate) struct Worker {
    name: &'static str,
    pause: Arc<Pause>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How the thread waits, and learns that it is to stop.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Pause {
    /// Waits for `time`; false as soon as the worker is to stop.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(stopped, time, |stopped| !*stopped);
        let (stopped, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !*stopped
    }

    fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

impl Worker {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            pause: Arc::default(),
            thread: Mutex::default(),
        }
    }

    /// Runs `work` on the thread; it returns when `Pause::wait` says false.
    pub(crate) fn start(&self, work: impl FnOnce(&Pause) + Send + 'static) -> std::io::Result<()> {
        let pause = self.pause.clone();
        let thread = std::thread::Builder::new()
            .name(self.name.to_owned())
            .spawn(move || work(&pause))?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Asks it to stop and waits until it has, or until `deadline`.
    pub(crate) async fn stop(&self, deadline: Instant) {
        self.pause.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
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
