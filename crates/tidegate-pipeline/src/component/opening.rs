// SPDX-License-Identifier: Apache-2.0

//! The opening of a log on disk, which only one instance of a component may have open.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, ready};

use parking_lot::Mutex;
use tidegate_wal::Recovered;
use tokio::task::{JoinError, JoinHandle};

use super::{ComponentError, Context};

/// The result of an opening.
type Opened = Result<Recovered, ComponentError>;

/// The opening of a log, on a thread that may block. It goes on when the start that waits for it is dropped. The stop then
/// waits for its end, and closes the log.
#[derive(Default)]
pub struct Opening(Mutex<Option<JoinHandle<Opened>>>);

impl Opening {
    /// Opens by `open`, which keeps the log where the stop finds it.
    ///
    /// # Errors
    /// Those of `open`; also when it panics.
    pub async fn run(
        &self,
        context: &Context,
        open: impl FnOnce() -> Opened + Send + 'static,
    ) -> Result<Recovered, ComponentError> {
        *self.0.lock() = Some(tokio::task::spawn_blocking(open));
        match self.join().await {
            Some(Ok(opened)) => opened,
            Some(Err(error)) => Err(context.error(error.to_string())),
            None => Err(context.error("the stop came before the log was open")),
        }
    }

    /// Waits for the end of an opening that no start waits for any more.
    pub async fn ended(&self) {
        // Nobody is left to be told of an error.
        let _ = self.join().await;
    }

    /// Waits for the end of the opening, if one runs.
    async fn join(&self) -> Option<Result<Opened, JoinError>> {
        poll_fn(|cx| {
            let mut running = self.0.lock();
            let Some(task) = &mut *running else {
                return Poll::Ready(None);
            };
            let opened = ready!(Pin::new(task).poll(cx));
            *running = None;
            Poll::Ready(Some(opened))
        })
        .await
    }
}
