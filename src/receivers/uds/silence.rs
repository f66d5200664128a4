// SPDX-License-Identifier: Apache-2.0

//! The limits on the silence of a stream connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::net::server::Ended;

/// The time for a connection to declare a kind.
pub(super) const UNDECLARED: Duration = Duration::from_secs(60);

/// The silence after which an undeclared connection may be closed for others, if all slots are in use...
pub(super) const CROWDED: Duration = Duration::from_secs(2);

/// ...and the same for a connection with declared kinds. While slots are free it stays: processes that rarely
/// record live long.
pub(super) const CROWDED_DECLARED: Duration = Duration::from_secs(60);

/// The silence of a connection, and its limits.
pub(super) struct Silence {
    /// Wakes one connection when others wait for its place.
    crowd: Arc<Notify>,
    /// The connection's beginning.
    began: Instant,
    /// Whether it has declared kinds: without them it has no events.
    pub(super) has_declared: bool,
}

impl Silence {
    /// The state of a new connection.
    pub(super) fn new(crowd: Arc<Notify>) -> Self {
        Self {
            crowd,
            began: Instant::now(),
            has_declared: false,
        }
    }

    /// Excludes the time in which the connection was not read.
    pub(super) fn pardon(&mut self, waited: Duration) {
        self.began += waited;
    }

    /// Returns when the connection, silent since then, is to end, and why.
    pub(super) async fn too_long(&self, since: Instant) -> Ended {
        let expendable_after = if self.has_declared {
            CROWDED_DECLARED
        } else {
            CROWDED
        };
        let crowded = async {
            sleep_until(since + expendable_after).await;
            self.crowd.notified().await;
        };
        let undeclared = async {
            if self.has_declared {
                std::future::pending::<()>().await;
            } else {
                sleep_until(self.began + UNDECLARED).await;
            }
        };
        tokio::select! {
            () = undeclared => Ended::Undeclared,
            () = crowded => Ended::Crowded,
        }
    }
}
