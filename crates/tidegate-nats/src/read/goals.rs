// SPDX-License-Identifier: Apache-2.0

//! When a read is current: it has given what was pending at two moments in a row.
//!
//! The stream keeps the last message of each subject. A read that lags never gives a message that is replaced before the read
//! reaches it: the newer one lies behind what was pending. So one goal does not show that the read has the newest values.
//! If the read reaches two goals one after the other within the interval of the producers, it does: a message that was
//! replaced on the way to the first goal has a successor before the second one, and nobody replaces the successor so soon.
//! The reader knows the intervals, so it gets the time that both goals took.

use std::time::Duration;

use tokio::time::Instant;

/// The time from one pair of goals to the next.
const PAIR_INTERVAL: Duration = Duration::from_millis(900);

/// A read that takes longer for two goals may have missed values: it is the default interval of producers.
const MAX_PAIR_TIME: Duration = Duration::from_secs(1);

/// An answer that was asked for longer ago says nothing of what is pending now. The process was suspended, or the network
/// is slow.
pub(super) const MAX_ANSWER_AGE: Duration = Duration::from_millis(1500);

/// What was pending at one moment. What is pending now need not be zero at any time where many write.
struct ReadGoal {
    /// The last of the messages that the consumer has to give.
    last: u64,
    /// When the answer with this number was asked for.
    asked: Instant,
    is_reached: bool,
}

/// What the messages that were given say of the read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GoalProgress {
    /// There is nothing new.
    Waiting,
    /// A goal is reached.
    Reached,
    /// A second goal is reached after this time: the read is current as of the first one.
    Current(Duration),
}

/// The goals of a read.
pub(super) struct ReadGoals {
    goal: ReadGoal,
    /// When the first goal of a pair was asked for. The second one follows at once.
    first: Option<Instant>,
}

impl ReadGoals {
    pub(super) fn new(last: u64, asked: Instant) -> Self {
        Self {
            goal: ReadGoal {
                last,
                asked,
                is_reached: false,
            },
            first: None,
        }
    }

    /// Begins another goal.
    pub(super) fn set(&mut self, last: u64, asked: Instant) {
        self.goal = ReadGoal {
            last,
            asked,
            is_reached: false,
        };
    }

    /// Notes what is pending at a message, which may be the next goal.
    pub(super) fn offer(&mut self, last: u64, asked: Instant) {
        let age = asked.saturating_duration_since(self.goal.asked);
        let is_due = self.first.is_some() || age >= PAIR_INTERVAL;
        if age > MAX_ANSWER_AGE || (self.goal.is_reached && is_due) {
            self.set(last, asked);
        }
        // The stream has removed some that were pending: there are newer ones of their subjects.
        self.goal.last = self.goal.last.min(last);
    }

    /// Whether the present goal is reached.
    pub(super) fn is_reached(&self) -> bool {
        self.goal.is_reached
    }

    /// Notes the number of messages that were given.
    pub(super) fn reach(&mut self, given: u64, now: Instant) -> GoalProgress {
        if self.goal.is_reached || given < self.goal.last {
            return GoalProgress::Waiting;
        }
        self.goal.is_reached = true;
        let age = now.saturating_duration_since(self.goal.asked);
        if age > MAX_ANSWER_AGE {
            return GoalProgress::Waiting;
        }
        let first = self.first.take();
        let time = first.map(|first| now.saturating_duration_since(first));
        if let Some(time) = time.filter(|time| *time <= MAX_PAIR_TIME) {
            return GoalProgress::Current(time);
        }
        self.first = Some(self.goal.asked);
        GoalProgress::Reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_current_when_it_has_reached_two_goals_in_time() {
        let asked = Instant::now();
        let after = |millis| asked + Duration::from_millis(millis);
        let mut goals = ReadGoals::new(3, asked);
        assert_eq!(goals.reach(2, after(100)), GoalProgress::Waiting);
        assert_eq!(goals.reach(3, after(200)), GoalProgress::Reached);
        assert_eq!(
            goals.reach(4, after(300)),
            GoalProgress::Waiting,
            "it is said once"
        );
        goals.offer(6, after(300));
        assert_eq!(goals.reach(5, after(400)), GoalProgress::Waiting);
        let time = Duration::from_millis(500);
        assert_eq!(goals.reach(6, after(500)), GoalProgress::Current(time));
        // The next pair begins later.
        goals.offer(7, after(600));
        assert_eq!(goals.reach(7, after(600)), GoalProgress::Waiting);
        goals.offer(8, after(1_200));
        assert_eq!(goals.reach(8, after(1_200)), GoalProgress::Reached);
    }

    #[test]
    fn a_goal_that_was_asked_for_long_ago_says_nothing() {
        let asked = Instant::now();
        let late = asked + Duration::from_secs(4);
        // The process was suspended: the answer waited in a buffer.
        let mut goals = ReadGoals::new(3, asked);
        assert_eq!(goals.reach(3, late), GoalProgress::Waiting);
        goals.offer(4, late);
        assert_eq!(goals.reach(4, late), GoalProgress::Reached);
    }

    #[test]
    fn messages_that_are_removed_are_not_waited_for() {
        let asked = Instant::now();
        let mut goals = ReadGoals::new(9, asked);
        goals.offer(4, asked);
        assert_eq!(goals.reach(4, asked), GoalProgress::Reached);
    }

    /// Reads with a constant lag, in milliseconds. A message of a subject of its own is stored in each, and one of a producer
    /// in each `interval`. Gives how often the reader takes the read as current, and the age of the newest value of the
    /// producer then, at most.
    fn read_with_lag(lag: u64, interval: u64) -> (usize, u64) {
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        let mut goals = ReadGoals::new(u64::MAX, begun);
        let (mut given, mut newest, mut times, mut oldest) = (0, lag, 0, 0);
        for now in 10_000..30_000 {
            // The consumer gives what was stored before the lag. The producer has replaced what is older than its interval.
            let stored = now - lag;
            if stored.is_multiple_of(interval) {
                if lag >= interval {
                    continue;
                }
                newest = stored;
            }
            given += 1;
            // All that was stored since, of which the producer has one at most.
            let of_producer = (stored + 1..=now)
                .filter(|time| time.is_multiple_of(interval))
                .count() as u64;
            let pending = lag - of_producer.saturating_sub(1);
            goals.offer(given + pending, at(now));
            let GoalProgress::Current(time) = goals.reach(given, at(now)) else {
                continue;
            };
            if time <= Duration::from_millis(interval) {
                times += 1;
                oldest = oldest.max(now - newest);
            }
        }
        (times, oldest)
    }

    #[test]
    fn a_read_that_misses_values_of_a_producer_is_never_current() {
        let quick_enough: [(u64, &[u64]); 2] = [(1_000, &[0, 10, 100, 300, 450]), (200, &[0, 10, 50, 90])];
        for (interval, lags) in quick_enough {
            for lag in lags {
                let (times, oldest) = read_with_lag(*lag, interval);
                assert!(times > 5, "{lag} of {interval} ms: {times} times");
                assert!(
                    oldest <= 2 * interval,
                    "{lag} of {interval} ms: a value is {oldest} ms old"
                );
            }
        }
        // One goal takes less than 1.5 s, and the values of the producer are never read.
        let too_slow: [(u64, &[u64]); 2] = [(1_000, &[1_001, 1_200, 1_400, 3_000]), (200, &[201, 300, 450])];
        for (interval, lags) in too_slow {
            for lag in lags {
                assert_eq!(read_with_lag(*lag, interval).0, 0, "{lag} of {interval} ms");
            }
        }
    }
}
