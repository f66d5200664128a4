// SPDX-License-Identifier: Apache-2.0

//! The clock of the store, as its messages show it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use tidegate_cluster::StoredMessage;

/// A lower bound of the time of the store: the time of a message, plus what has passed here since it came. The message
/// that arrived quickest counts. So a lease is never found to be over too early.
#[derive(Debug)]
pub(crate) struct StoreClock {
    start: Instant,
    /// The time of the store at `start`, at least.
    at_start: AtomicU64,
}

impl StoreClock {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            at_start: AtomicU64::new(0),
        }
    }

    pub(crate) fn note(&self, stored: &StoredMessage) {
        let at_start = stored.time.saturating_sub(self.elapsed());
        self.at_start.fetch_max(at_start, Relaxed);
    }

    pub(crate) fn now(&self) -> u64 {
        self.at_start.load(Relaxed).saturating_add(self.elapsed())
    }

    /// Forgets all: a new connection may lead to a server with another clock.
    pub(crate) fn reset(&self) {
        self.at_start.store(0, Relaxed);
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidegate_cluster::StoreMessage;

    use super::*;

    fn message(time: u64) -> StoredMessage {
        StoredMessage {
            message: StoreMessage {
                subject: String::new(),
                headers: Vec::new(),
                body: Bytes::new(),
            },
            sequence: 1,
            time,
        }
    }

    #[test]
    fn the_clock_goes_on_from_the_newest_message_and_not_back() {
        const HOUR: u64 = 3_600_000_000_000;
        let clock = StoreClock::new();
        clock.note(&message(2 * HOUR));
        clock.note(&message(HOUR));
        let first = clock.now();
        assert!((2 * HOUR..3 * HOUR).contains(&first));
        assert!(clock.now() >= first);
        clock.reset();
        assert!(clock.now() < HOUR);
    }
}
