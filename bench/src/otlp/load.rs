// SPDX-License-Identifier: Apache-2.0

//! Load that goes on beside whatever else a group does: as fast as it is taken, or at a pace.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinSet;

use super::drive::{Driver, Plan};
use crate::BenchError;

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Longer than any group.
const ALWAYS: Duration = Duration::from_secs(24 * 3600);

/// Senders on the runtime that they were started on; they end when this is dropped.
pub(crate) struct Load {
    driver: Driver,
    _sender: JoinSet<()>,
}

impl Load {
    /// Sends requests of `points` points as fast as they are taken, `in_flight` at a time.
    pub(crate) async fn full(port: u16, points: usize, in_flight: usize) -> Result<Self, BenchError> {
        let driver = Self::connect(port, points, in_flight).await?;
        let sending = driver.clone();
        Ok(Self::of(driver, async move { sending.saturate(ALWAYS).await }))
    }

    /// Sends `a_second` requests a second, stamped with the time when each was due.
    pub(crate) async fn at_rate(port: u16, points: usize, a_second: u32) -> Result<Self, BenchError> {
        let driver = Self::connect(port, points, 1).await?;
        let sending = driver.clone();
        Ok(Self::of(driver, async move {
            if let Err(error) = sending.send_at_rate(f64::from(a_second), ALWAYS).await {
                eprintln!("the load ended: {error}");
            }
        }))
    }

    async fn connect(port: u16, points: usize, in_flight: usize) -> Result<Driver, BenchError> {
        let plan = Plan {
            points,
            connections: 1,
            in_flight,
            ..Plan::default()
        };
        Driver::connect(port, plan).await
    }

    fn of(driver: Driver, sending: impl Future<Output = ()> + Send + 'static) -> Self {
        let mut sender = JoinSet::new();
        sender.spawn(sending);
        Self {
            driver,
            _sender: sender,
        }
    }

    /// Requests that were refused; each was sent again.
    pub(crate) fn refused(&self) -> u64 {
        self.driver.totals().refused
    }

    /// The last error of a request that could not be sent again.
    pub(crate) fn failure(&self) -> Option<String> {
        self.driver.failure()
    }
}
