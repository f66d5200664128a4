//! How long a connection of the stream socket may be silent.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::net::server::Ended;

/// A connection has so long to declare a kind.
pub(super) const UNDECLARED: Duration = Duration::from_secs(60);

/// Where all connections are taken, one that has declared no kind makes room for another after so long without a byte...
pub(super) const CROWDED: Duration = Duration::from_secs(2);

/// ...and one that has declared kinds after so long. Where there are enough connections it stays: processes that record
/// seldom live long.
pub(super) const CROWDED_DECLARED: Duration = Duration::from_secs(60);

/// What decides how long a connection may be silent.
pub(super) struct Silence {
    /// Wakes one connection when others wait for its place.
    crowd: Arc<Notify>,
    /// The connection's beginning.
    began: Instant,
    /// Whether it has declared kinds: without them it has no events.
    pub(super) has_declared: bool,
}

impl Silence {
    /// Of a connection that begins.
    pub(super) fn new(crowd: Arc<Notify>) -> Self {
        Self {
            crowd,
            began: Instant::now(),
            has_declared: false,
        }
    }

    /// For so long the connection was not read.
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
                std::future::pending().await
            } else {
                sleep_until(self.began + UNDECLARED).await
            }
        };
        tokio::select! {
            () = undeclared => Ended::Undeclared,
            () = crowded => Ended::Crowded,
        }
    }
}
