// SPDX-License-Identifier: Apache-2.0

//! Requests for a reload of the configuration, and the results of past reloads.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

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
    /// The components that were built again, added or removed, and the other options that changed.
    pub changed: Vec<String>,
    /// Whether the configuration is the one that ran before.
    pub is_same: bool,
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

/// The requests that no reload has taken.
struct Requests {
    waiting: Vec<Waiter>,
    /// Why no request is accepted; `None`: they are.
    refused: Option<NotReloaded>,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            refused: Some(NotReloaded::Unsupported),
        }
    }
}

/// A reload that is under way. It is over when nobody holds it.
#[derive(Debug)]
pub struct ReloadGuard(());

/// Requests and results of reloads.
#[derive(Default)]
pub struct Reloads {
    requests: Mutex<Requests>,
    newest: Mutex<Weak<ReloadGuard>>,
    wake: Notify,
    closed: CancellationToken,
    past: Mutex<VecDeque<Arc<ReloadResult>>>,
    /// Outlasts the results in `past`.
    applied_at: Mutex<Option<SystemTime>>,
}

impl Reloads {
    /// Accepts requests from now on. Those that come during the start wait for its end.
    pub fn support(&self) {
        self.requests.lock().refused = None;
    }

    /// Asks for a reload, and waits for its result. Requests that come during a reload share the next one.
    ///
    /// # Errors
    /// The gateway can't reload, too many requests wait, or it stops first.
    pub async fn ask(&self, cause: &'static str) -> Result<ReloadResult, NotReloaded> {
        let (answer, result) = oneshot::channel();
        {
            let mut requests = self.requests.lock();
            if let Some(why) = requests.refused {
                return Err(why);
            }
            if requests.waiting.len() >= WAITING {
                return Err(NotReloaded::Busy);
            }
            requests.waiting.push(Waiter { cause, answer });
        }
        self.wake.notify_one();
        result.await.map_err(|_| NotReloaded::Stopping)
    }

    /// Accepts no more requests, and answers those that wait that the gateway stops.
    pub fn close(&self) {
        *self.requests.lock() = Requests {
            waiting: Vec::new(),
            refused: Some(NotReloaded::Stopping),
        };
        self.closed.cancel();
    }

    /// Returns when the gateway stops.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Waits for requests. Returns the cause of the first one.
    pub async fn asked(&self) -> &'static str {
        loop {
            if let Some(first) = self.requests.lock().waiting.first() {
                return first.cause;
            }
            self.wake.notified().await;
        }
    }

    /// Takes the requests that wait now; [`Answers::give`] answers them.
    pub fn take(&self) -> Answers {
        Answers(std::mem::take(&mut self.requests.lock().waiting))
    }

    /// Begins a reload. It may return to the old plan until the value is dropped.
    pub fn begin(&self) -> Arc<ReloadGuard> {
        let reload = Arc::new(ReloadGuard(()));
        *self.newest.lock() = Arc::downgrade(&reload);
        reload
    }

    /// The newest reload, which may be over.
    pub fn newest(&self) -> Weak<ReloadGuard> {
        self.newest.lock().clone()
    }

    /// Adds a result to the history.
    pub fn note(&self, result: ReloadResult) {
        if result.error.is_none() {
            *self.applied_at.lock() = Some(result.at);
        }
        let mut past = self.past.lock();
        past.truncate(LISTED - 1);
        past.push_front(Arc::new(result));
    }

    /// The results, newest first.
    pub fn past(&self) -> Vec<Arc<ReloadResult>> {
        self.past.lock().iter().cloned().collect()
    }

    /// When the last reload that succeeded ended. `None`: the configuration of the start runs.
    pub fn applied_at(&self) -> Option<SystemTime> {
        *self.applied_at.lock()
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
    use std::time::Duration;

    use super::*;

    fn result(error: Option<&str>) -> ReloadResult {
        ReloadResult {
            at: SystemTime::UNIX_EPOCH,
            cause: "SIGHUP",
            changed: Vec::new(),
            is_same: false,
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

    #[tokio::test]
    async fn requests_during_the_start_wait_and_those_at_the_stop_are_told() {
        let reloads = Arc::new(Reloads::default());
        reloads.support();
        let ask = || {
            let reloads = reloads.clone();
            tokio::spawn(async move { reloads.ask("POST /-/reload").await })
        };
        let [first, second] = [ask(), ask()];
        // Nothing takes requests before the start has ended.
        while reloads.requests.lock().waiting.len() < 2 {
            tokio::task::yield_now().await;
        }
        assert!(!first.is_finished() && !second.is_finished());
        assert_eq!(reloads.asked().await, "POST /-/reload");
        reloads.take().give(&result(None));
        assert_eq!(first.await.unwrap(), Ok(result(None)));
        assert_eq!(second.await.unwrap(), Ok(result(None)));
        let late = ask();
        reloads.asked().await;
        reloads.close();
        assert_eq!(late.await.unwrap(), Err(NotReloaded::Stopping));
        assert_eq!(reloads.ask("SIGHUP").await, Err(NotReloaded::Stopping));
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

    #[test]
    fn refused_reloads_do_not_hide_when_the_last_one_succeeded() {
        let reloads = Reloads::default();
        assert_eq!(reloads.applied_at(), None);
        let applied = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
        reloads.note(ReloadResult {
            at: applied,
            ..result(None)
        });
        for _ in 0..=LISTED {
            reloads.note(result(Some("refused")));
        }
        assert!(reloads.past().iter().all(|result| result.error.is_some()));
        assert_eq!(reloads.applied_at(), Some(applied));
    }
}
