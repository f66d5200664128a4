// SPDX-License-Identifier: Apache-2.0

//! Singleflight: concurrent callers share one run of an expensive function.
//!
//! At most one run is in progress. A caller never gets the result of a run that began before its call.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::component::worker::in_background;

/// Runs a function for all its concurrent callers, one run after the other.
pub(super) struct Singleflight<T> {
    make: Box<dyn Fn() -> T + Send + Sync>,
    state: Mutex<FlightState<T>>,
}

struct FlightState<T> {
    /// Whether a task executes runs. Only that task resets it, under the lock, when `next` is empty.
    runs: bool,
    /// The callers that wait for the run that has not begun yet.
    next: Option<watch::Sender<Option<Arc<T>>>>,
}

impl<T: Send + Sync + 'static> Singleflight<T> {
    /// Creates it for `make`, which may block: it runs on a background thread.
    pub(super) fn new(make: impl Fn() -> T + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            make: Box::new(make),
            state: Mutex::new(FlightState {
                runs: false,
                next: None,
            }),
        })
    }

    /// Returns the result of a run that begins after this call. `None`: the run panicked.
    pub(super) async fn next(self: &Arc<Self>) -> Option<Arc<T>> {
        let mut waiter = self.wait_for_next();
        let made = waiter.wait_for(Option::is_some).await.ok()?;
        made.clone()
    }

    fn wait_for_next(self: &Arc<Self>) -> watch::Receiver<Option<Arc<T>>> {
        let mut state = self.state.lock();
        let waiter = state
            .next
            .get_or_insert_with(|| watch::Sender::new(None))
            .subscribe();
        if !std::mem::replace(&mut state.runs, true) {
            let singleflight = self.clone();
            // Nothing awaits the task, because its caller may be cancelled while others still need the result.
            in_background(move || singleflight.work());
        }
        waiter
    }

    fn work(&self) {
        while let Some(waiters) = self.begin() {
            // After a panic, the dropped sender notifies the waiters of this run. Later runs still take place.
            if let Ok(made) = catch_unwind(AssertUnwindSafe(&self.make)) {
                waiters.send_replace(Some(Arc::new(made)));
            }
        }
    }

    /// Takes the waiters of the next run. `None`: there are none, and the task ends.
    fn begin(&self) -> Option<watch::Sender<Option<Arc<T>>>> {
        let mut state = self.state.lock();
        let waiters = state.next.take();
        state.runs = waiters.is_some();
        waiters
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn requests_during_a_run_share_the_next_run() {
        let (begun, begins) = mpsc::sync_channel(16);
        let (finish, finishes) = mpsc::sync_channel::<()>(16);
        let finishes = Mutex::new(finishes);
        let made = Arc::new(AtomicUsize::new(0));
        let count = made.clone();
        let singleflight = Singleflight::new(move || {
            let number = count.fetch_add(1, SeqCst);
            begun.send(()).unwrap();
            finishes.lock().recv().unwrap();
            number
        });
        let ask = || {
            let singleflight = singleflight.clone();
            tokio::spawn(async move { singleflight.next().await.map(|number| *number) })
        };
        let first = ask();
        let begins = tokio::task::spawn_blocking(move || {
            begins.recv_timeout(Duration::from_secs(60)).unwrap();
            begins
        });
        let begins = begins.await.unwrap();
        let later: Vec<_> = (0..5).map(|_| ask()).collect();
        let waiting = || {
            singleflight
                .state
                .lock()
                .next
                .as_ref()
                .map_or(0, watch::Sender::receiver_count)
        };
        while waiting() < 5 {
            tokio::task::yield_now().await;
        }
        finish.send(()).unwrap();
        finish.send(()).unwrap();
        assert_eq!(first.await.unwrap(), Some(0));
        for later in later {
            assert_eq!(later.await.unwrap(), Some(1));
        }
        finish.send(()).unwrap();
        assert_eq!(
            singleflight.next().await.as_deref(),
            Some(&2),
            "nothing old is handed out"
        );
        assert_eq!(made.load(SeqCst), 3);
        drop(begins);
    }

    #[tokio::test]
    async fn a_panic_gives_no_result_and_the_next_run_works() {
        let calls = AtomicUsize::new(0);
        let singleflight = Singleflight::new(move || match calls.fetch_add(1, SeqCst) {
            0 => panic!("the first one fails"),
            number => number,
        });
        assert_eq!(singleflight.next().await, None);
        assert_eq!(singleflight.next().await.as_deref(), Some(&1));
    }
}
