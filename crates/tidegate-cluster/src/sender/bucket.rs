// SPDX-License-Identifier: Apache-2.0

//! A token bucket: how many bytes a sender may send.

use tidegate_engine::UnixNanos;

/// Nanoseconds of a second.
const SECOND: u128 = 1_000_000_000;

/// Holds the tokens of at most one second. A page may take more than there are: the next page then waits longer.
#[derive(Debug)]
pub(super) struct TokenBucket {
    per_second: u64,
    tokens: i64,
    filled: UnixNanos,
}

impl TokenBucket {
    /// A full bucket.
    pub(super) fn new(per_second: u64) -> Self {
        Self {
            per_second,
            tokens: i64::try_from(per_second).unwrap_or(i64::MAX),
            filled: 0,
        }
    }

    /// Whether a page may go now.
    pub(super) fn is_open(&mut self, now: UnixNanos) -> bool {
        let elapsed = now.saturating_sub(self.filled);
        let more = u128::from(self.per_second) * u128::from(elapsed) / SECOND;
        // Without a whole token the time counts later.
        if more > 0 {
            let most = i64::try_from(self.per_second).unwrap_or(i64::MAX);
            let more = i64::try_from(more).unwrap_or(i64::MAX);
            self.tokens = self.tokens.saturating_add(more).min(most);
            self.filled = now;
        }
        self.tokens > 0
    }

    /// Takes the tokens of a message.
    pub(super) fn take(&mut self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.tokens = self.tokens.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_tokens_delay_the_next_page() {
        let mut bucket = TokenBucket::new(100);
        assert!(bucket.is_open(5_000_000_000));
        bucket.take(250);
        assert!(!bucket.is_open(6_000_000_000));
        assert!(!bucket.is_open(6_500_000_000));
        assert!(bucket.is_open(6_600_000_000));
    }

    #[test]
    fn a_bucket_holds_one_second() {
        let mut bucket = TokenBucket::new(100);
        assert!(bucket.is_open(50_000_000_000));
        bucket.take(101);
        assert!(!bucket.is_open(50_000_000_001));
    }
}
