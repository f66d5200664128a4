//! Work that all callers at the same time share: one piece at a time, and nobody gets one that was begun
//! before he asked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::component::worker::in_background;

/// Pieces of work, one after the other.
pub(super) struct Rounds<T> {
    make: Box<dyn Fn() -> T + Send + Sync>,
    state: Mutex<State<T>>,
}

struct State<T> {
    runs: bool,
    /// Those who wait for the piece that has not begun yet.
    next: Option<watch::Sender<Option<Arc<T>>>>,
}

impl<T: Send + Sync + 'static> Rounds<T> {
    /// `make` may take long; it runs where it disturbs nobody.
    pub(super) fn new(make: impl Fn() -> T + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            make: Box::new(make),
            state: Mutex::new(State {
                runs: false,
                next: None,
            }),
        })
    }

    /// A piece that was begun after this call. `None`: making it failed.
    pub(super) async fn next(self: &Arc<Self>) -> Option<Arc<T>> {
        let mut seat = self.take_seat();
        let made = seat.wait_for(Option::is_some).await.ok()?;
        made.clone()
    }

    fn take_seat(self: &Arc<Self>) -> watch::Receiver<Option<Arc<T>>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let seat = state
            .next
            .get_or_insert_with(|| watch::Sender::new(None))
            .subscribe();
        if !std::mem::replace(&mut state.runs, true) {
            let rounds = self.clone();
            // Nobody waits for the task itself: who asked may have gone.
            in_background(move || rounds.work());
        }
        seat
    }

    fn work(&self) {
        while let Some(seats) = self.begin() {
            // A panic is told by the seats that go unserved; it must not be the end of all work.
            if let Ok(made) = catch_unwind(AssertUnwindSafe(&self.make)) {
                seats.send_replace(Some(Arc::new(made)));
            }
        }
    }

    /// Those who get the next piece; `None`: nobody wants one, and nobody is at work any more.
    fn begin(&self) -> Option<watch::Sender<Option<Arc<T>>>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let seats = state.next.take();
        state.runs = seats.is_some();
        seats
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn who_comes_while_one_is_made_shares_the_next() {
        let (begun, begins) = mpsc::channel();
        let (finish, finishes) = mpsc::channel::<()>();
        let finishes = Mutex::new(finishes);
        let made = Arc::new(AtomicUsize::new(0));
        let count = made.clone();
        let rounds = Rounds::new(move || {
            let number = count.fetch_add(1, SeqCst);
            begun.send(()).unwrap();
            finishes.lock().unwrap().recv().unwrap();
            number
        });
        let ask = || {
            let rounds = rounds.clone();
            tokio::spawn(async move { rounds.next().await.map(|number| *number) })
        };
        let first = ask();
        let begins = tokio::task::spawn_blocking(move || {
            begins.recv_timeout(Duration::from_secs(10)).unwrap();
            begins
        });
        let begins = begins.await.unwrap();
        let later: Vec<_> = (0..5).map(|_| ask()).collect();
        let waiting = || {
            rounds
                .state
                .lock()
                .unwrap()
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
            rounds.next().await.as_deref(),
            Some(&2),
            "nothing old is handed out"
        );
        assert_eq!(made.load(SeqCst), 3);
        drop(begins);
    }

    #[tokio::test]
    async fn a_panic_is_told_and_the_next_one_works() {
        let calls = AtomicUsize::new(0);
        let rounds = Rounds::new(move || match calls.fetch_add(1, SeqCst) {
            0 => panic!("the first one fails"),
            number => number,
        });
        assert_eq!(rounds.next().await, None);
        assert_eq!(rounds.next().await.as_deref(), Some(&1));
    }
}
