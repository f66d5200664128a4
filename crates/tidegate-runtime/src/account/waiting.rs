// SPDX-License-Identifier: Apache-2.0

//! Requests that wait for room.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::{Account, NoRoom};

/// A request waits at most this long for room before it is refused. Slow senders lose their reservations meanwhile.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Waiting requests may want this part of the limit together. Their data is in the receive windows of their
/// connections, which no account counts.
const WAITING_SHARE: usize = 16;

/// The least that a waiting request counts with, in bytes: even a small request fills the window of a stream.
pub(super) const WAITING_BYTES: usize = 128 << 10;

impl Account {
    /// Waits up to [`LONGEST_WAIT`] until `attempt` succeeds, while `is_worth_it`.
    ///
    /// The waiters try freed room one after the other, in order of arrival. Each passes the wake-up on, until it
    /// reaches one that has tried already. So a large request keeps no room from small ones.
    pub(super) async fn in_time(
        &self,
        bytes: usize,
        mut attempt: impl FnMut() -> bool,
        is_worth_it: impl Fn() -> bool,
    ) -> Result<(), NoRoom> {
        let _waiting = Waiting::of(self, bytes).ok_or(NoRoom)?;
        let deadline = Instant::now() + LONGEST_WAIT;
        let mut tried = None;
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            let frees = Some(self.frees.load(SeqCst));
            if tried != frees {
                tried = frees;
                let is_done = attempt();
                self.freed.notify_one();
                if is_done {
                    return Ok(());
                }
                if !is_worth_it() {
                    return Err(NoRoom);
                }
            }
            if timeout_at(deadline, freed).await.is_err() {
                return attempt().then_some(()).ok_or(NoRoom);
            }
        }
    }
}

/// A request that waits for room, until this is dropped.
struct Waiting<'a> {
    account: &'a Account,
    bytes: usize,
}

impl<'a> Waiting<'a> {
    /// `None`: too many wait already.
    fn of(account: &'a Account, bytes: usize) -> Option<Self> {
        let bytes = bytes.max(WAITING_BYTES);
        let most = account.limit() / WAITING_SHARE;
        let wanted = |wanted: usize| {
            let sum = wanted.saturating_add(bytes);
            (wanted == 0 || sum <= most).then_some(sum)
        };
        account.wanted.fetch_update(Relaxed, Relaxed, wanted).ok()?;
        account.counters.wait();
        Some(Self { account, bytes })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.account.counters.go_on();
        self.account.wanted.fetch_sub(self.bytes, Relaxed);
    }
}
