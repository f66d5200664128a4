// SPDX-License-Identifier: Apache-2.0

//! Requests for a reload of the configuration, and the results of past reloads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

/// The reloads that the history lists.
const LISTED: usize = 20;

/// The most requests that wait for the next reload.
const WAITING: usize = 64;

/// The result of a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadResult {
    /// When it ended.
    pub at: SystemTime,
    /// What asked for it: `SIGHUP`, `POST /-/reload`, `--watch-config`.
    pub cause: &'static str,
    /// The components that were built again, added or removed.
    pub changed: Vec<String>,
    /// Why the configuration was refused; `None`: it runs.
    pub error: Option<String>,
}

/// A request for a reload was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReloaded {
    /// The process runs a configuration that it can't read again.
    #[error("this process can't reload its configuration: restart it to apply changes")]
    Unsupported,
    /// Too many requests wait.
    #[error("too many requests for a reload wait: try again after the present one")]
    Busy,
    /// The gateway stops.
    #[error("the gateway stops")]
    Stopping,
}

/// One that waits for the next reload.
struct Waiter {
    cause: &'static str,
    answer: oneshot::Sender<ReloadResult>,
}

/// Requests and results of reloads.
#[derive(Default)]
pub struct Reloads {
    is_supported: AtomicBool,
    waiting: Mutex<Vec<Waiter>>,
    wake: Notify,
    past: Mutex<VecDeque<Arc<ReloadResult>>>,
}

impl Reloads {
    /// Accepts requests from now on.
    pub fn support(&self) {
        self.is_supported.store(true, Relaxed);
    }

    /// Asks for a reload, and waits for its result. Requests that come during a reload share the next one.
    ///
    /// # Errors
    /// The gateway can't reload, too many requests wait, or it stops first.
    pub async fn ask(&self, cause: &'static str) -> Result<ReloadResult, NotReloaded> {
        if !self.is_supported.load(Relaxed) {
            return Err(NotReloaded::Unsupported);
        }
        let (answer, result) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock();
            if waiting.len() >= WAITING {
                return Err(NotReloaded::Busy);
            }
            waiting.push(Waiter { cause, answer });
        }
        self.wake.notify_one();
        result.await.map_err(|_| NotReloaded::Stopping)
    }

    /// Accepts no more requests, and answers those that wait that the gateway stops.
    pub fn close(&self) {
        self.is_supported.store(false, Relaxed);
        self.waiting.lock().clear();
    }

    /// Waits for requests. Returns the cause of the first one.
    pub async fn asked(&self) -> &'static str {
        loop {
            if let Some(first) = self.waiting.lock().first() {
                return first.cause;
            }
            self.wake.notified().await;
        }
    }

    /// Takes the requests that wait now; [`Answers::give`] answers them.
    pub fn take(&self) -> Answers {
        Answers(std::mem::take(&mut *self.waiting.lock()))
    }

    /// Adds a result to the history.
    pub fn note(&self, result: ReloadResult) {
        let mut past = self.past.lock();
        past.truncate(LISTED - 1);
        past.push_front(Arc::new(result));
    }

    /// The results, newest first.
    pub fn past(&self) -> Vec<Arc<ReloadResult>> {
        self.past.lock().iter().cloned().collect()
    }
}

/// Those that wait for the result of one reload.
#[derive(Default)]
pub struct Answers(Vec<Waiter>);

impl Answers {
    /// Answers all.
    pub fn give(&mut self, result: &ReloadResult) {
        for waiter in self.0.drain(..) {
            // It may have gone away.
            let _ = waiter.answer.send(result.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(error: Option<&str>) -> ReloadResult {
        ReloadResult {
            at: SystemTime::UNIX_EPOCH,
            cause: "SIGHUP",
            changed: Vec::new(),
            error: error.map(str::to_owned),
        }
    }

    #[tokio::test]
    async fn requests_share_a_reload_and_all_get_its_result() {
        let reloads = Arc::new(Reloads::default());
        assert_eq!(reloads.ask("SIGHUP").await, Err(NotReloaded::Unsupported));
        reloads.support();
        let ask = |cause| {
            let reloads = reloads.clone();
            tokio::spawn(async move { reloads.ask(cause).await })
        };
        let both = [ask("SIGHUP"), ask("POST /-/reload")];
        let mut answers = Answers::default();
        while answers.0.len() < 2 {
            reloads.asked().await;
            answers.0.extend(reloads.take().0);
            tokio::task::yield_now().await;
        }
        answers.give(&result(Some("no")));
        for one in both {
            assert_eq!(one.await.unwrap(), Ok(result(Some("no"))));
        }
        let left = ask("SIGHUP");
        reloads.asked().await;
        drop(reloads.take());
        assert_eq!(left.await.unwrap(), Err(NotReloaded::Stopping));
    }

    #[test]
    fn the_history_is_bounded_and_begins_with_the_newest() {
        let reloads = Reloads::default();
        for _ in 0..30 {
            reloads.note(result(None));
        }
        reloads.note(result(Some("newest")));
        let past = reloads.past();
        assert_eq!(past.len(), LISTED);
        assert_eq!(past[0].error.as_deref(), Some("newest"));
    }
}
