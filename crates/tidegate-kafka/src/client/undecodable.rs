// SPDX-License-Identifier: Apache-2.0

//! Batches of records that can't be decoded: where they are, and where they end.

use std::time::Duration;

use krafka::KrafkaError;
use krafka::consumer::Consumer;

/// How long a probe waits for a record.
const PROBE_WAIT: Duration = Duration::from_millis(500);

/// The offset behind records that can't be decoded. The library does not say where their batch ends, and a batch may have
/// millions of offsets: steps double until a record is decodable, and then halve. Of two such batches that are close to each
/// other, the search may find the end of the second one.
///
/// `probe` reads this partition only, and nobody else uses it.
pub(crate) async fn next_decodable(
    probe: &Consumer,
    topic: &str,
    partition: i32,
    first: i64,
) -> Result<i64, KrafkaError> {
    let (_, end) = probe.fetch_watermarks(topic, partition).await?;
    let mut search = DecodableSearch::new(first, end);
    while let Some(offset) = search.probe() {
        search.note(offset, is_decodable(probe, topic, partition, offset).await?);
    }
    Ok(search.next)
}

/// Whether the record at an offset can be decoded. Without an answer in time it counts as decodable: a poll that finds that it
/// is not begins again.
async fn is_decodable(
    probe: &Consumer,
    topic: &str,
    partition: i32,
    offset: i64,
) -> Result<bool, KrafkaError> {
    probe.seek(topic, partition, offset).await?;
    match probe.poll(PROBE_WAIT).await {
        Ok(_) => Ok(true),
        Err(error) if undecodable(&error, topic).is_some() => Ok(false),
        Err(error) => Err(error),
    }
}

/// The search for the first record behind those that can't be decoded.
struct DecodableSearch {
    /// This record can't be decoded.
    last: i64,
    /// This one can, or it is the end of the log.
    next: i64,
    step: i64,
}

impl DecodableSearch {
    fn new(first: i64, end: i64) -> Self {
        Self {
            last: first,
            next: end.max(first.saturating_add(1)),
            step: 1,
        }
    }

    /// The offset to try; `None`: `next` is found.
    fn probe(&self) -> Option<i64> {
        let gap = self.next.saturating_sub(self.last);
        (gap > 1).then(|| self.last + self.step.min(gap / 2))
    }

    fn note(&mut self, offset: i64, is_decodable: bool) {
        if is_decodable {
            self.next = offset;
        } else {
            self.last = offset;
            self.step = self.step.saturating_mul(2);
        }
    }
}

/// The partition and the offset of a batch that can't be decoded. The library has no kind of its own for this error.
pub(crate) fn undecodable(error: &KrafkaError, topic: &str) -> Option<(i32, i64)> {
    let KrafkaError::Protocol { message, .. } = error else {
        return None;
    };
    let place = message.strip_prefix("undecodable record batch at ")?;
    let (partition, rest) = place
        .strip_prefix(topic)?
        .strip_prefix('-')?
        .split_once(" offset ")?;
    let offset = rest.split([' ', ';']).next()?;
    Some((partition.parse().ok()?, offset.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use krafka::error::ProtocolErrorKind;

    use super::*;

    #[test]
    fn a_search_finds_the_end_of_a_batch_in_few_steps() {
        for (first, behind, end) in [
            (0, 1, 1),
            (5, 6, 9),
            (5, 8, 8),
            (7, 600_007, 9_000_000),
            (3, 4, i64::MAX),
        ] {
            let mut search = DecodableSearch::new(first, end);
            let mut steps = 0;
            while let Some(offset) = search.probe() {
                assert!(first < offset && offset < end);
                search.note(offset, offset >= behind);
                steps += 1;
            }
            assert_eq!(search.next, behind);
            assert!(steps <= 45, "{steps} steps");
        }
        // An end that is too low, as a broker may say, does not move a reader back.
        assert_eq!(DecodableSearch::new(5, -1).probe(), None);
        assert_eq!(DecodableSearch::new(5, -1).next, 6);
    }

    #[test]
    fn an_error_names_the_place_of_a_batch() {
        let error = |message: &str| KrafkaError::protocol_kind(ProtocolErrorKind::Malformed, message);
        let text = "undecodable record batch at t-1-3 offset 7; the partition cannot advance";
        assert_eq!(undecodable(&error(text), "t-1"), Some((3, 7)));
        let text = "undecodable record batch at t-3 offset 7 (2 partitions affected in this poll); the rest";
        assert_eq!(undecodable(&error(text), "t"), Some((3, 7)));
        for text in [
            "undecodable record batch at other-3 offset 7; x",
            "unexpected end",
        ] {
            assert_eq!(undecodable(&error(text), "t"), None);
        }
    }
}
