// SPDX-License-Identifier: Apache-2.0

//! Entries made of one counter: a snapshot of two moments is inconsistent.

use std::time::Duration;

use tidegate_page::{Entry, Snapshot, State};

/// The text of one identity.
pub(crate) const NAME: &str = "xfer_time_avg";
pub(crate) const LABELS: &str = r#"agent_name="rank_0""#;

pub(crate) fn quantiles(n: u64) -> [(f64, f64); 2] {
    [(0.5, n as f64), (0.99, n as f64 + 2.0)]
}

/// Everything in it follows from `n`, also which numbers there are.
pub(crate) fn entry(n: u64, quantiles: &[(f64, f64)]) -> Entry<'_> {
    let x = n as f64;
    Entry {
        name: NAME,
        labels: LABELS,
        state: State::ALL[(n % 5) as usize],
        value: Some(x),
        min: (!n.is_multiple_of(3)).then_some(x - 1.0),
        avg: Some(x + 0.5),
        max: Some(x + 1.0),
        sum: Some(2.0 * x),
        count: Some(x),
        last: (!n.is_multiple_of(7)).then_some(x),
        quantiles: &quantiles[..(n % 3) as usize],
        window: Duration::from_nanos(n + 3),
        as_of_ns: n + 5,
        newest_ns: (!n.is_multiple_of(11)).then_some(n + 7),
        sources_expected: n as u32,
        sources_reporting: (n as u32).wrapping_add(1),
        seq: n,
    }
}

/// Whether the snapshot is all of the moment that its counter says.
pub(crate) fn consistent(read: &Snapshot) -> bool {
    let n = read.seq;
    let pairs = quantiles(n);
    let given = entry(n, &pairs);
    let numbers = [
        read.value, read.min, read.avg, read.max, read.sum, read.count, read.last,
    ];
    numbers
        == [
            given.value,
            given.min,
            given.avg,
            given.max,
            given.sum,
            given.count,
            given.last,
        ]
        && read.quantiles() == given.quantiles
        && read.state == given.state
        && (read.window, read.as_of_ns, read.newest_ns) == (given.window, given.as_of_ns, given.newest_ns)
        && (read.sources_expected, read.sources_reporting)
            == (given.sources_expected, given.sources_reporting)
}
