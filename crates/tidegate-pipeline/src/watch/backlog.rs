// SPDX-License-Identifier: Apache-2.0

//! The backlog of a watcher: a few pending messages, with a memory reservation. A reader that does not take them
//! loses its stream after a while, or earlier if memory is short.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;

use crate::component::shared::Health;
use crate::component::{Account, Held, ReadToken, Shared};

/// The most pending messages of a reader. Further changes are merged.
const MESSAGES: usize = 16;

/// The most bytes of the pending messages. A larger message waits until nothing else is pending.
const BYTES: u32 = 256 << 10;

/// A reader that takes nothing for this long while messages are pending loses its stream.
const PATIENCE: Duration = Duration::from_secs(30);

/// The same while memory is short.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);

/// The most pending bytes of all watchers of a gateway. A memory limit below 1 GiB lowers it.
const MOST: usize = 64 << 20;

/// The divisor of the memory limit that gives the lower value.
const SHARE: usize = 16;

/// Short messages need no reservation, so they are always sent. In bytes.
const SHORT: usize = 64 << 10;

/// The reason why a stream ends before its reader closes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// The reader has closed the stream.
    #[error("the reader closed the connection")]
    Gone,
    /// The gateway stops.
    #[error("the gateway is stopping")]
    Stopping,
    /// A reload has replaced or removed what is watched.
    #[error("a reload has replaced or removed the composite: watch again")]
    Replaced,
    /// A component was not ready after the begin of the stream.
    #[error("the gateway was not ready, so its values may be old: watch again")]
    Unready,
    /// The reader takes no messages.
    #[error("the reader has read nothing for too long: watch again")]
    Slow,
    /// Memory for the pending messages is short.
    #[error("not enough memory for the unread answers: watch again later")]
    Memory,
}

impl Ended {
    fn reason(self) -> Option<&'static str> {
        match self {
            Self::Gone | Self::Stopping | Self::Replaced | Self::Unready => None,
            Self::Slow => Some("slow"),
            Self::Memory => Some("memory"),
        }
    }

    /// Whether the reader still gets the pending messages.
    fn keeps_pending(self) -> bool {
        matches!(self, Self::Stopping | Self::Replaced)
    }
}

/// The pending bytes of all watchers of a gateway.
#[derive(Default)]
struct Watchers {
    held: AtomicUsize,
    /// Wakes slow readers when another watcher waits for memory.
    shortage: Notify,
}

impl Watchers {
    fn most(account: &Account) -> usize {
        MOST.min(account.limit() / SHARE)
    }
}

/// The sending side. Clones send to the same reader.
pub struct Backlog<T>(Arc<BacklogState<T>>);

impl<T> Clone for Backlog<T> {
    fn clone(&self) -> Self {
        self.0.lock().tellers += 1;
        Self(self.0.clone())
    }
}

impl<T> Drop for Backlog<T> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.tellers -= 1;
        if queue.tellers == 0 {
            queue.wake();
        }
    }
}

struct BacklogState<T> {
    account: Arc<Account>,
    watchers: Arc<Watchers>,
    messages: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    queue: Mutex<Queue<T>>,
    ended: CancellationToken,
    /// Set when the reader has taken all messages of a stream that has ended, or is gone.
    taken: CancellationToken,
    say: fn(Ended) -> Option<T>,
}

struct Queue<T> {
    waiting: VecDeque<(T, Weight)>,
    /// The last message to the reader, if any.
    last_word: Option<T>,
    why: Option<Ended>,
    tellers: usize,
    waker: Option<Waker>,
    /// Messages that are pending or being written.
    unread: usize,
    /// The start of the time in which the reader has taken none of them.
    since: Instant,
}

impl<T> Queue<T> {
    fn wake(&mut self) {
        self.waker.take().into_iter().for_each(Waker::wake);
    }
}

impl<T> BacklogState<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock()
    }
}

/// The reservation of a message, released after the write.
struct Weight {
    held: Held,
    watchers: Arc<Watchers>,
    bytes: usize,
    _of_stream: [OwnedSemaphorePermit; 2],
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.watchers.held.fetch_sub(self.bytes, Relaxed);
    }
}

/// A reservation for a message to create.
pub struct MessagePermit(Weight);

/// The reading side: the messages in order.
pub struct Unread<T> {
    state: Arc<BacklogState<T>>,
    /// The reservation of the last message taken. The next request for a message means that it is written.
    writing: Option<Weight>,
}

/// Creates a stream for one reader. `say` creates the last message from the reason of the end.
pub fn backlog<T>(shared: &Shared, say: fn(Ended) -> Option<T>) -> (Backlog<T>, Unread<T>) {
    let state = Arc::new(BacklogState {
        account: shared.memory.clone(),
        watchers: shared.parts.get(Watchers::default),
        messages: Arc::new(Semaphore::new(MESSAGES)),
        bytes: Arc::new(Semaphore::new(BYTES as usize)),
        queue: Mutex::new(Queue {
            waiting: VecDeque::new(),
            last_word: None,
            why: None,
            tellers: 1,
            waker: None,
            unread: 0,
            since: Instant::now(),
        }),
        ended: CancellationToken::new(),
        taken: CancellationToken::new(),
        say,
    });
    let unread = Unread {
        state: state.clone(),
        writing: None,
    };
    (Backlog(state), unread)
}

impl<T> Backlog<T> {
    /// Waits until the reader can take more. Only then is it useful to look for changes.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn ready(&self) -> Result<(), Ended> {
        let BacklogState {
            messages,
            bytes,
            ended,
            ..
        } = &*self.0;
        // Most readers keep up. They need no timer.
        if !ended.is_cancelled() && messages.available_permits() > 0 && bytes.available_permits() > 0 {
            return Ok(());
        }
        let ready = async {
            // The semaphore is never closed.
            let _ = messages.acquire().await;
            let _ = bytes.acquire().await;
        };
        tokio::select! {
            biased;
            ended = self.ended() => Err(ended),
            () = ready => Ok(()),
        }
    }

    /// Reserves memory for a message of at most `bytes`. Waits until the reader has taken the earlier messages,
    /// and briefly for memory.
    ///
    /// # Errors
    /// The stream has ended, or ends now because memory is short.
    pub async fn reserve(&self, bytes: usize) -> Result<MessagePermit, Ended> {
        let BacklogState {
            messages,
            bytes: of_stream,
            ..
        } = &*self.0;
        let permits = u32::try_from(bytes).unwrap_or(BYTES).clamp(1, BYTES);
        // As in `ready`.
        if let Some(permit) = self.reserve_now(bytes, permits) {
            return Ok(permit);
        }
        let place = async {
            // The semaphore is never closed.
            let message = messages.clone().acquire_owned().await.map_err(|_| Ended::Gone)?;
            let share = of_stream.clone().acquire_many_owned(permits).await;
            let share = share.map_err(|_| Ended::Gone)?;
            self.reserve_memory(bytes, [message, share]).await
        };
        let placed = tokio::select! {
            biased;
            ended = self.ended() => Err(ended),
            placed = place => placed,
        };
        placed.inspect_err(|why| self.end(*why))
    }

    /// Reserves memory for a message without waiting; `None`: the reader is behind, memory is short, or the stream has ended.
    fn reserve_now(&self, bytes: usize, permits: u32) -> Option<MessagePermit> {
        let BacklogState {
            messages,
            bytes: of_stream,
            ended,
            ..
        } = &*self.0;
        if ended.is_cancelled() {
            return None;
        }
        let message = messages.clone().try_acquire_owned().ok()?;
        let share = of_stream.clone().try_acquire_many_owned(permits).ok()?;
        self.takes_memory(bytes)
            .then(|| self.permit(bytes, [message, share]))
    }

    /// Reserves memory. It waits as long as a slow reader may take, because slow readers lose their messages then.
    async fn reserve_memory(
        &self,
        bytes: usize,
        of_stream: [OwnedSemaphorePermit; 2],
    ) -> Result<MessagePermit, Ended> {
        let deadline = Instant::now() + 2 * SHORT_PATIENCE;
        while !self.takes_memory(bytes) {
            self.0.watchers.shortage.notify_waiters();
            if Instant::now() >= deadline {
                return Err(Ended::Memory);
            }
            tokio::time::sleep(SHORT_PATIENCE / 10).await;
        }
        Ok(self.permit(bytes, of_stream))
    }

    /// Counts bytes of a message, if there is memory for them.
    fn takes_memory(&self, bytes: usize) -> bool {
        let BacklogState {
            account, watchers, ..
        } = &*self.0;
        let added = |held: usize| {
            let more = held.checked_add(bytes)?;
            (held == 0 || more <= Watchers::most(account)).then_some(more)
        };
        let has_room = bytes <= SHORT || account.has_room(bytes);
        has_room && watchers.held.fetch_update(Relaxed, Relaxed, added).is_ok()
    }

    /// The permit for a message whose bytes are counted.
    fn permit(&self, bytes: usize, of_stream: [OwnedSemaphorePermit; 2]) -> MessagePermit {
        let BacklogState {
            account, watchers, ..
        } = &*self.0;
        let mut place = MessagePermit(Weight {
            held: Held::new(account.clone()),
            watchers: watchers.clone(),
            bytes,
            _of_stream: of_stream,
        });
        // A watcher must not take memory from an arriving body.
        place.0.held.promise(bytes);
        place
    }

    /// Sends a message of `bytes` bytes to the reader.
    pub fn send(&self, place: MessagePermit, message: T, bytes: usize) {
        let MessagePermit(mut weight) = place;
        weight.held.keep(bytes);
        let before = std::mem::replace(&mut weight.bytes, bytes);
        weight.watchers.held.fetch_add(bytes, Relaxed);
        weight.watchers.held.fetch_sub(before, Relaxed);
        let mut queue = self.0.lock();
        if queue.why.is_some() {
            return;
        }
        if queue.unread == 0 {
            queue.since = Instant::now();
        }
        queue.unread += 1;
        queue.waiting.push_back((message, weight));
        queue.wake();
    }

    /// Returns when the stream has ended: the reader closed it or is too slow, or a publisher ended it.
    pub async fn ended(&self) -> Ended {
        tokio::select! {
            biased;
            () = self.0.ended.cancelled() => {}
            why = self.late() => self.end(why),
        }
        self.0.lock().why.unwrap_or(Ended::Gone)
    }

    /// Waits until the reader is too slow, and gives the reason to end its stream.
    async fn late(&self) -> Ended {
        loop {
            let (why, patience) = tokio::select! {
                biased;
                () = self.0.watchers.shortage.notified() => (Ended::Memory, SHORT_PATIENCE),
                () = sleep_until(self.late_at(PATIENCE)) => (Ended::Slow, PATIENCE),
            };
            if self.is_late(patience) {
                return why;
            }
        }
    }

    /// The time at which the reader will have taken nothing for `patience`.
    fn late_at(&self, patience: Duration) -> Instant {
        let queue = self.0.lock();
        match queue.unread {
            0 => Instant::now() + patience,
            _ => queue.since + patience,
        }
    }

    fn is_late(&self, patience: Duration) -> bool {
        let queue = self.0.lock();
        queue.unread > 0 && queue.since.elapsed() >= patience
    }

    /// Ends the stream for all publishers. Pending messages are dropped, unless the gateway stops or a reload has replaced or
    /// removed what is watched. A later end because of a slow reader or short memory drops them too.
    pub fn end(&self, why: Ended) {
        let mut queue = self.0.lock();
        let is_final = |before: Ended| !before.keeps_pending() || why.keeps_pending();
        if queue.why.is_some_and(is_final) {
            return;
        }
        (queue.why, queue.last_word) = (Some(why), (self.0.say)(why));
        let dropped = if why.keeps_pending() {
            VecDeque::new()
        } else {
            std::mem::take(&mut queue.waiting)
        };
        queue.wake();
        drop(queue);
        drop(dropped);
        self.0.ended.cancel();
        if let Some(reason) = why.reason() {
            metrics::counter!("tidegate_watch_ended_total", "reason" => reason).increment(1);
        }
    }

    /// Runs the task that sends the messages, and ends the stream with its reason. A stop ends it too, also while it waits for a
    /// slow reader. So does a component that was not ready since the begin of this read, also if nothing changes.
    pub async fn send_while_ready(
        &self,
        (health, read): (&Health, ReadToken),
        stopping: &CancellationToken,
        send: impl Future<Output = Result<(), Ended>>,
    ) {
        let sent = async {
            tokio::select! {
                () = health.until_lapse(read) => Err(Ended::Unready),
                sent = send => sent,
            }
        };
        let sent = stopping.run_until_cancelled(sent).await;
        if let Err(why) = sent.unwrap_or(Err(Ended::Stopping)) {
            self.finish(why).await;
        }
    }

    /// Ends the stream as [`Self::end`] does. After a reload, it waits until the reader has taken the pending messages, or has
    /// lost them because it is too slow. A stop waits for no reader.
    async fn finish(&self, why: Ended) {
        self.end(why);
        if why == Ended::Replaced {
            tokio::select! {
                biased;
                () = self.0.taken.cancelled() => {}
                why = self.late() => self.end(why),
            }
        }
    }
}

impl<T: Unpin> Stream for Unread<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let written = self.writing.take();
        let state = self.state.clone();
        let mut queue = state.lock();
        if written.is_some() {
            queue.unread = queue.unread.saturating_sub(1);
            queue.since = Instant::now();
        }
        if let Some((message, weight)) = queue.waiting.pop_front() {
            self.writing = Some(weight);
            return Poll::Ready(Some(message));
        }
        if queue.why.is_some() || queue.tellers == 0 {
            state.taken.cancel();
            return Poll::Ready(queue.last_word.take());
        }
        queue.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Unread<T> {
    fn drop(&mut self) {
        let mut queue = self.state.lock();
        queue.why.get_or_insert(Ended::Gone);
        let dropped = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(dropped);
        self.state.ended.cancel();
        self.state.taken.cancel();
    }
}

#[cfg(test)]
mod tests;
