// SPDX-License-Identifier: Apache-2.0

//! The requests of a connection, and its idle time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use http::{Request, Response, Version};
use hyper::body::Body;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{CROWDED_GRACE, EXPENDABLE_AFTER, HttpConfig, IDLE_GRACE, sleep};
use crate::net::refused::{ServedBy, Why};

/// Whether a connection has requests, and its idle time. Requests pay two atomic operations for it. Waiters check
/// when the limit may be reached.
pub(super) struct Activity {
    pub(super) served_by: Arc<ServedBy>,
    /// The start of the connection.
    began: Instant,
    requests: AtomicUsize,
    /// Requests that wait for their bodies. They are not in `requests`.
    waiting: AtomicUsize,
    /// All requests so far.
    begun: AtomicUsize,
    /// The end of the last request, in milliseconds after the start.
    last_ms: AtomicU64,
    /// Whether the peer may still be sending when the connection ends.
    pub(super) may_send: AtomicBool,
}

/// One request of a connection, until its answer is sent.
pub(super) struct Busy(Arc<Activity>);

/// Marks a reader's request whose body is incomplete, in its extensions.
#[derive(Clone)]
pub struct Unfinished(pub(super) Arc<Activity>);

/// While it exists the connection counts as idle, because the peer must act.
pub struct Waiting(Arc<Activity>);

impl Unfinished {
    /// Counts a request as waiting until the guard drops.
    pub fn wait(&self) -> Waiting {
        self.0.waiting.fetch_add(1, SeqCst);
        self.0.end_one();
        Waiting(self.0.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.requests.fetch_add(1, SeqCst);
        self.0.waiting.fetch_sub(1, SeqCst);
    }
}

impl Activity {
    pub(super) fn new(served_by: Arc<ServedBy>) -> Self {
        Self {
            served_by,
            began: Instant::now(),
            requests: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            last_ms: AtomicU64::new(0),
            may_send: AtomicBool::new(false),
        }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(SeqCst) > 0
    }

    pub(super) fn begin<B: Body>(self: &Arc<Self>, request: &Request<B>) -> Busy {
        self.requests.fetch_add(1, SeqCst);
        self.begun.fetch_add(1, SeqCst);
        if request.version() <= Version::HTTP_11 && !request.body().is_end_stream() {
            self.may_send.store(true, SeqCst);
        }
        Busy(self.clone())
    }

    fn end_one(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(now, SeqCst);
        self.requests.fetch_sub(1, SeqCst);
    }

    /// Records that the peer is asked to close. A peer without a request has sent all of its last one.
    pub(super) fn ask_to_go(&self) {
        if !self.is_busy() {
            self.may_send.store(false, SeqCst);
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.requests.load(SeqCst) > 0
    }

    /// Whether no request is running or arriving, and no rest of a refused request is arriving.
    fn is_unused(&self) -> bool {
        let may_come = !self.has_begun() || self.may_send.load(SeqCst);
        !self.is_busy() && (!may_come || self.idle_for() >= EXPENDABLE_AFTER)
    }

    /// Requests without a sent answer.
    pub(super) fn unanswered(&self) -> usize {
        self.requests.load(SeqCst) + self.waiting.load(SeqCst)
    }

    /// The time without a request.
    fn idle_for(&self) -> Duration {
        match self.requests.load(SeqCst) {
            0 => (self.began + Duration::from_millis(self.last_ms.load(SeqCst))).elapsed(),
            _ => Duration::ZERO,
        }
    }

    fn expendable_after(&self, config: &HttpConfig) -> Duration {
        match self.begun.load(SeqCst) {
            0 | 1 => config.unused_after,
            _ => EXPENDABLE_AFTER,
        }
    }

    /// Waits until the connection is idle for too long, and returns the time for the peer to close. While memory
    /// is over its limit, an unused connection is idle at once.
    pub(super) async fn idle(&self, config: &HttpConfig, crowd: &Notify, over_memory: &Notify) -> Duration {
        // The wait while requests run. It doubles, because a stream may last for days.
        let mut busy_wait = Duration::ZERO;
        loop {
            let expendable_after = self.expendable_after(config);
            let limit = if self.has_begun() {
                config.max_idle
            } else {
                Some(config.header_timeout)
            };
            let idle = self.idle_for();
            if limit.is_some_and(|limit| idle >= limit) {
                return IDLE_GRACE;
            }
            let is_expendable = idle >= expendable_after;
            let left = limit.map(|limit| limit.saturating_sub(idle));
            let wait = if self.is_busy() {
                busy_wait = (busy_wait * 2).min(EXPENDABLE_AFTER).max(expendable_after);
                busy_wait
            } else {
                busy_wait = Duration::ZERO;
                expendable_after.saturating_sub(idle)
            };
            let again = if is_expendable {
                left
            } else {
                Some(left.map_or(wait, |left| left.min(wait)))
            };
            tokio::select! {
                () = sleep(again) => {}
                () = crowd.notified(), if is_expendable => {
                    if self.idle_for() >= self.expendable_after(config) {
                        return CROWDED_GRACE;
                    }
                    // This connection has work again, so another one must close.
                    crowd.notify_one();
                }
                () = over_memory.notified() => if self.is_unused() { return IDLE_GRACE },
            }
        }
    }
}

impl Busy {
    /// Counts a refused request, if its answer has the reason.
    pub(super) fn note<B>(&self, answer: &Response<B>) {
        if let Some(why) = Why::of(answer) {
            self.0.served_by.count(why);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.end_one();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use bytes::Bytes;
    use http_body_util::Empty;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_wakes_its_connection_rarely() {
        const MINUTE: Duration = Duration::from_mins(1);
        let activity = Arc::new(Activity::new(Arc::default()));
        let (config, crowd, over_memory) = (HttpConfig::pages(), Notify::new(), Notify::new());
        let stream = activity.begin(&Request::new(Empty::<Bytes>::new()));
        let mut idle = pin!(activity.idle(&config, &crowd, &over_memory));
        let mut polls = 0;
        let counted = poll_fn(|cx| {
            polls += 1;
            idle.as_mut().poll(cx)
        });
        assert!(timeout(MINUTE, counted).await.is_err());
        assert!(polls < 60, "{polls}");
        // After its end, the connection makes room for others.
        drop(stream);
        crowd.notify_one();
        let grace = timeout(2 * EXPENDABLE_AFTER, idle).await;
        assert_eq!(grace, Ok(CROWDED_GRACE));
    }
}
