// SPDX-License-Identifier: Apache-2.0

//! A connection task that yields to other ready tasks before it runs.
//!
//! A task with an answer or a request wakes the task of its connection, and the scheduler runs a woken task next.
//! Without a yield, each answer costs one write and one wake-up of the peer. After a yield, the connection finds
//! the answers of all ready tasks and writes them at once.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A future that, when woken, yields once to all ready tasks before it polls the inner future.
#[derive(Debug)]
pub struct YieldFirst<F> {
    future: F,
    /// Whether the yield is done: the next poll polls the inner future.
    is_next: bool,
}

impl<F> YieldFirst<F> {
    /// Wraps a future.
    pub fn new(future: F) -> Self {
        Self {
            future,
            is_next: false,
        }
    }
}

impl<F: Future + Unpin> Future for YieldFirst<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if !std::mem::replace(&mut self.is_next, true) {
            // A task that wakes itself while it runs goes to the end of the run queue.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.is_next = false;
        Pin::new(&mut self.future).poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    use tokio::sync::mpsc;

    use super::*;

    const ANSWERS: usize = 10;
    const SOON: Duration = Duration::from_secs(30);

    /// The number of writes of a connection that gets answers from several ready tasks.
    fn writes(connection: impl FnOnce(Writer) -> Pin<Box<dyn Future<Output = ()> + Send>>) -> usize {
        // One thread of a multi-thread scheduler, as in gateways. The other scheduler has no slot for the next
        // task.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .unwrap();
        let (answers, given) = mpsc::channel(ANSWERS);
        let writes = Arc::new(AtomicUsize::new(0));
        let writer = Writer {
            given,
            left: ANSWERS,
            writes: writes.clone(),
        };
        let connection = connection(writer);
        let all = async move {
            let connection = tokio::spawn(connection);
            tokio::task::yield_now().await;
            for _ in 0..ANSWERS {
                let answers = answers.clone();
                tokio::spawn(async move { answers.send(()).await });
            }
            connection.await.unwrap();
        };
        let all = runtime.spawn(all);
        let ended = runtime.block_on(async { tokio::time::timeout(SOON, all).await });
        ended.expect("every answer is written").unwrap();
        writes.load(SeqCst)
    }

    /// Takes all available answers, and writes them at once.
    struct Writer {
        given: mpsc::Receiver<()>,
        left: usize,
        writes: Arc<AtomicUsize>,
    }

    impl Future for Writer {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            let before = self.left;
            while self.left > 0 && self.given.poll_recv(cx).is_ready() {
                self.left -= 1;
            }
            if self.left < before {
                self.writes.fetch_add(1, SeqCst);
            }
            match self.left {
                0 => Poll::Ready(()),
                _ => Poll::Pending,
            }
        }
    }

    #[test]
    fn answers_that_are_ready_are_written_at_one_go() {
        assert_eq!(writes(|writer| Box::pin(YieldFirst::new(writer))), 1);
        assert!(
            writes(|writer| Box::pin(writer)) > 1,
            "there is nothing to gather"
        );
    }
}
