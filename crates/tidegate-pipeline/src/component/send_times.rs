// SPDX-License-Identifier: Apache-2.0

//! The durations of recent attempts to send, for pages about the gateway itself.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The length of a window. Quantiles are of the present window and the one before.
const WINDOW: Duration = Duration::from_secs(30);

/// Buckets of each power of two. A quantile is at most a fifth too large.
const PER_POWER: f64 = 4.0;

/// Buckets from 1 µs to 19 hours.
const BUCKETS: usize = 144;

/// The durations of attempts within the last 30 to 60 s. It takes a kilobyte, once there is an attempt.
#[derive(Debug, Default)]
pub struct SendTimes(Mutex<SendWindows>);

#[derive(Debug, Default)]
struct SendWindows {
    /// The begin of the present window.
    began: Option<Instant>,
    /// Attempts in each bucket. Empty without attempts.
    present: Vec<u32>,
    earlier: Vec<u32>,
}

impl SendTimes {
    /// Counts an attempt that ends at `now`.
    pub fn record(&self, took: Duration, now: Instant) {
        let mut windows = self.0.lock();
        windows.advance(now);
        windows.present.resize(BUCKETS, 0);
        if let Some(count) = windows.present.get_mut(bucket(took)) {
            *count = count.saturating_add(1);
        }
    }

    /// The median and the 99th percentile of all attempts, as the upper bounds of their buckets; `None` without attempts.
    pub fn quantiles<'a>(all: impl Iterator<Item = &'a Self>, now: Instant) -> Option<[Duration; 2]> {
        let mut counts = [0_u64; BUCKETS];
        for one in all {
            let mut windows = one.0.lock();
            windows.advance(now);
            for window in [&windows.present, &windows.earlier] {
                for (sum, count) in counts.iter_mut().zip(window) {
                    *sum += u64::from(*count);
                }
            }
        }
        let total: u64 = counts.iter().sum();
        (total > 0).then(|| [0.5, 0.99].map(|share| upper_bound(&counts, share * total as f64)))
    }
}

impl SendWindows {
    /// Begins a new window if it is time.
    fn advance(&mut self, now: Instant) {
        let Some(began) = self.began else {
            self.began = Some(now);
            return;
        };
        let age = now.saturating_duration_since(began);
        if age < WINDOW {
            return;
        }
        self.earlier = std::mem::take(&mut self.present);
        if age >= WINDOW * 2 {
            self.earlier.clear();
        }
        self.began = Some(now);
    }
}

fn bucket(took: Duration) -> usize {
    let micros = (took.as_secs_f64() * 1e6).max(1.0);
    ((micros.log2() * PER_POWER) as usize).min(BUCKETS - 1)
}

/// The upper bound of the bucket with the attempt of this rank.
fn upper_bound(counts: &[u64], rank: f64) -> Duration {
    let mut sum: u64 = 0;
    let found = counts.iter().position(|count| {
        sum += count;
        sum as f64 >= rank
    });
    let bound = (found.unwrap_or(BUCKETS - 1) + 1) as f64 / PER_POWER;
    Duration::from_secs_f64(bound.exp2() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_recent_attempts_and_a_fifth_too_large_at_most() {
        let (times, others, start) = (SendTimes::default(), SendTimes::default(), Instant::now());
        let read = |now| SendTimes::quantiles([&times, &others].into_iter(), now);
        assert_eq!(read(start), None);
        for _ in 0..90 {
            times.record(Duration::from_millis(10), start);
        }
        for _ in 0..10 {
            others.record(Duration::from_millis(800), start);
        }
        let soon = start + WINDOW;
        let [median, last] = read(soon).unwrap();
        for (quantile, exact) in [(median, 0.010), (last, 0.800)] {
            let ratio = quantile.as_secs_f64() / exact;
            assert!((1.0..1.2).contains(&ratio), "{quantile:?}");
        }
        assert_eq!(read(soon + WINDOW), None);
    }

    #[test]
    fn any_duration_has_a_bucket() {
        for took in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            assert!(bucket(took) < BUCKETS, "{took:?}");
        }
    }
}
