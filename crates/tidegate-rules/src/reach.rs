// SPDX-License-Identifier: Apache-2.0

//! How far into the past a query reads.

use std::cell::RefCell;

use tidegate_promql::{Millis, Options, Query, QueryError, QuerySeries, Samples, Selection};

/// A time that all usual steps of subqueries divide: 2,520 hours, 2,000 times.
const ALIGNED: Millis = 2_520 * 3_600_000 * 2_000;

/// Distances of the times of the trial from [`ALIGNED`]. A subquery aligns its steps, so its reach depends on the time:
/// one millisecond before a step it is the longest.
const DISTANCES: [Millis; 6] = [-1, 0, 1, 499, 29_999, -7_919];

/// The reason why a reach is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReachError {
    /// The query reads at a fixed time, by `@`.
    #[error("`@` with a time reads samples of any age: use `offset`")]
    FixedTime,
}

/// The longest time in milliseconds between an evaluation and the oldest sample that it reads: range, offset, look-back
/// and subqueries together. `look_back` is that of an instant, in milliseconds.
///
/// # Errors
/// `FixedTime`: the query has `@` with a time.
pub fn reach(query: &Query, look_back: Millis) -> Result<Millis, ReachError> {
    let mut longest = 0;
    for distance in DISTANCES {
        let reaches = trial(query, ALIGNED + distance, look_back);
        if reaches != trial(query, 2 * ALIGNED + distance, look_back) {
            return Err(ReachError::FixedTime);
        }
        longest = reaches.into_iter().fold(longest, Millis::max);
    }
    Ok(longest)
}

/// The reach of each selector at a time. The query finds no sample, so it costs little.
fn trial(query: &Query, at: Millis, look_back: Millis) -> Vec<Millis> {
    let recorder = Recorder {
        at,
        reaches: RefCell::default(),
    };
    let options = Options {
        look_back,
        max_samples: 10_000,
        ..Options::default()
    };
    // Only the selections count. The value and its errors show at the evaluation.
    drop(query.instant_with(&recorder, at, &options));
    recorder.reaches.into_inner()
}

/// Notes the times of selections, and has no samples.
struct Recorder {
    at: Millis,
    reaches: RefCell<Vec<Millis>>,
}

impl Samples for Recorder {
    fn select(&self, selection: &Selection) -> Result<Vec<QuerySeries>, QueryError> {
        let reach = self.at.saturating_sub(selection.from);
        self.reaches.borrow_mut().push(reach);
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Result<Millis, ReachError> {
        reach(&Query::parse(text).unwrap(), 300_000)
    }

    #[test]
    fn a_reach_is_range_offset_and_look_back_together() {
        let table = [
            ("1 + time()", 0),
            ("up", 300_000),
            ("up offset 1h", 3_900_000),
            ("rate(hits_total[5m])", 300_000),
            ("rate(hits_total[5m] offset 1d)", 86_700_000),
            ("up or rate(hits_total[1h])", 3_600_000),
        ];
        for (text, expected) in table {
            assert_eq!(found(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn the_range_of_a_subquery_adds_to_that_inside() {
        let found = found("max_over_time(rate(hits_total[5m])[1h:1m])").unwrap();
        assert!((3_899_000..=3_900_000).contains(&found), "{found}");
    }

    #[test]
    fn a_fixed_time_is_refused() {
        assert_eq!(found("up @ 1000"), Err(ReachError::FixedTime));
        assert_eq!(found("up @ end()"), Ok(300_000));
    }
}
