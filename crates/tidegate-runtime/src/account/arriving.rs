// SPDX-License-Identifier: Apache-2.0

//! Bodies and messages that are being received. A slow one loses its room to others while memory is short.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{Account, Ceiling};

/// A body or message that is being received, until this is dropped.
pub struct Arriving {
    account: Arc<Account>,
    ceiling: Ceiling,
}

/// The reason why the gateway no longer waits for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// It paused for too long.
    TimedOut,
    /// It paused for too long for times when memory is short.
    WhileShort,
}

/// The longest pauses that a peer may make.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// While there is enough memory.
    pub usual: Duration,
    /// While memory is short; it applies only if it is the shorter one.
    pub while_short: Duration,
}

impl Arriving {
    /// Counts one more body on this account, for data under `ceiling`.
    pub fn on(account: Arc<Account>, ceiling: Ceiling) -> Self {
        account.arriving.fetch_add(1, Relaxed);
        Self { account, ceiling }
    }

    /// Waits for the next piece. The pause counts from `since`; memory may become short and sufficient again during the
    /// wait. A piece that has arrived is taken, even if it is late.
    ///
    /// # Errors
    /// The piece does not arrive in time.
    pub async fn wait_for<T>(
        &self,
        next: impl Future<Output = T>,
        since: Instant,
        pauses: Pauses,
    ) -> Result<T, Late> {
        tokio::pin!(next);
        loop {
            let is_short = self.account.is_short(self.ceiling);
            let left = if is_short {
                pauses.usual.min(pauses.while_short)
            } else {
                pauses.usual
            };
            tokio::select! {
                biased;
                piece = &mut next => return Ok(piece),
                () = self.account.shortage(self.ceiling), if !is_short => {}
                () = sleep_until(since + left) => {
                    if since.elapsed() >= pauses.usual {
                        return Err(Late::TimedOut);
                    }
                    if self.account.is_short(self.ceiling) {
                        return Err(Late::WhileShort);
                    }
                }
            }
        }
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.account.arriving.fetch_sub(1, Relaxed);
    }
}
