// SPDX-License-Identifier: Apache-2.0

//! The clock of the store, as far as messages show it.

use tidegate_engine::UnixNanos;

/// The estimate looks back one to two of these, in nanoseconds (1 min).
const GENERATION: u64 = 60_000_000_000;

/// How far the clock of the store is ahead of ours. Messages take time to arrive, so the quickest of the last minutes
/// counts. Without messages, both clocks count as equal.
#[derive(Debug, Default)]
pub(super) struct BrokerClock {
    current: Option<i64>,
    previous: Option<i64>,
    since: UnixNanos,
}

impl BrokerClock {
    /// Notes a message that the store took at `time` and that arrives now.
    pub(super) fn note(&mut self, time: UnixNanos, now: UnixNanos) {
        if now.saturating_sub(self.since) > GENERATION {
            self.previous = self.current.take();
            self.since = now;
        }
        let ahead = time.wrapping_sub(now).cast_signed();
        self.current = Some(self.current.map_or(ahead, |known| known.max(ahead)));
    }

    fn ahead(&self) -> i64 {
        self.current.max(self.previous).unwrap_or(0)
    }

    /// The time of the store's clock.
    pub(super) fn store_time(&self, now: UnixNanos) -> UnixNanos {
        now.saturating_add_signed(self.ahead())
    }

    /// The time of our clock at a time of the store.
    pub(super) fn own_time(&self, time: UnixNanos) -> UnixNanos {
        time.saturating_add_signed(self.ahead().saturating_neg())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quickest_message_of_the_last_minutes_counts() {
        let mut clock = BrokerClock::default();
        assert_eq!(clock.store_time(1_000), 1_000);
        clock.note(1_500, 1_020);
        clock.note(1_500, 1_100);
        assert_eq!((clock.store_time(2_000), clock.own_time(2_480)), (2_480, 2_000));
        // The clock of the store is set back.
        for generation in 1..=2 {
            let now = generation * 2 * GENERATION;
            clock.note(now - 100, now);
        }
        assert_eq!(clock.store_time(2_000), 1_900);
    }
}
