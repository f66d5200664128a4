// SPDX-License-Identifier: Apache-2.0

//! The sources of the series that an expression selects, including missing ones.
//!
//! The tables know a source only by its series. So selected sources are remembered: a source is still expected if
//! its series ended with a failed scrape, or vanished because it was silent.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_engine::{DataQuality, Freshness, Key, UnixNanos};

use crate::component::Evaluation;

/// A source that is silent for this long is forgotten, unless its lease is longer. In nanoseconds.
const MEMORY_NS: u64 = 600_000_000_000;

/// The longest distance between a target's markers and its `up`, which may come in two requests. In nanoseconds.
const APART_NS: u64 = 10_000_000_000;

/// The sources of the selected series.
#[derive(Debug, Default)]
pub(super) struct ExpectedSources(HashMap<Key, KnownSource>);

#[derive(Debug)]
struct KnownSource {
    heard: UnixNanos,
    health: SourceHealth,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceHealth {
    Alive,
    Overdue,
    /// The last scrape failed.
    Failed,
    /// The series have ended, perhaps after a failed scrape.
    Ended(UnixNanos),
}

impl ExpectedSources {
    /// The quality of the sources after an evaluation; `None` without sources. It is stale if only sources that are forgotten
    /// make the value. `lease` is the configured limit of silence for each source.
    pub(super) fn update(
        &mut self,
        evaluation: &Evaluation,
        lease: Option<Duration>,
        now: UnixNanos,
    ) -> Option<DataQuality> {
        let fixed = lease.map(|lease| u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX));
        for known in self.0.values_mut() {
            if known.health == SourceHealth::Alive {
                known.health = SourceHealth::Ended(now);
            }
        }
        for source in &evaluation.sources {
            let is_due = now.saturating_sub(source.seen) <= fixed.unwrap_or(source.lease);
            let health = if is_due && !source.is_dead {
                SourceHealth::Alive
            } else {
                SourceHealth::Overdue
            };
            let heard = source.seen;
            self.0.insert(source.key, KnownSource { heard, health });
        }
        self.0.retain(|key, known| {
            if evaluation.failed.contains(key) {
                (known.health, known.heard) = (SourceHealth::Failed, now);
                return true;
            }
            match known.health {
                SourceHealth::Failed => false,
                SourceHealth::Ended(at) => now.saturating_sub(at) <= APART_NS,
                SourceHealth::Alive => true,
                SourceHealth::Overdue => now.saturating_sub(known.heard) <= MEMORY_NS,
            }
        });
        // Where nobody is expected, the dead make the value.
        let of_dead = DataQuality {
            state: Freshness::Stale,
            expected: evaluation.sources.len(),
            reporting: 0,
        };
        self.quality()
            .or_else(|| (of_dead.expected > 0).then_some(of_dead))
    }

    fn quality(&self) -> Option<DataQuality> {
        let of = |is: fn(SourceHealth) -> bool| self.0.values().filter(|known| is(known.health)).count();
        let reporting = of(|health| health == SourceHealth::Alive);
        let missing = of(|health| matches!(health, SourceHealth::Overdue | SourceHealth::Failed));
        let state = match (reporting, missing) {
            (0, 0) => return None,
            (_, 0) => Freshness::Fresh,
            (0, _) => Freshness::Stale,
            _ => Freshness::Partial,
        };
        Some(DataQuality {
            state,
            expected: reporting + missing,
            reporting,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::SelectedSource;

    const SECOND: u64 = 1_000_000_000;
    const START: u64 = 1_700_000_000 * SECOND;

    /// Sources that are selected, by number and with the age of their last word in seconds; and those that failed.
    fn evaluation(now: u64, selected: &[(u8, u64)], failed: &[u8]) -> Evaluation {
        let source = |(number, age): &(u8, u64)| SelectedSource {
            key: Key::of_value(number),
            seen: now - age * SECOND,
            lease: 25 * SECOND,
            is_dead: false,
        };
        Evaluation {
            sources: selected.iter().map(source).collect(),
            failed: failed.iter().map(Key::of_value).collect(),
            ..Evaluation::default()
        }
    }

    struct Scene(ExpectedSources);

    impl Scene {
        fn update(
            &mut self,
            second: u64,
            selected: &[(u8, u64)],
            failed: &[u8],
        ) -> Option<(Freshness, usize, usize)> {
            let now = START + second * SECOND;
            let quality = self.0.update(&evaluation(now, selected, failed), None, now);
            quality.map(|quality| (quality.state, quality.reporting, quality.expected))
        }
    }

    #[test]
    fn the_state_is_that_of_the_worst_source() {
        let mut scene = Scene(ExpectedSources::default());
        assert_eq!(scene.update(0, &[], &[]), None, "nothing is selected");
        assert_eq!(
            scene.update(1, &[(1, 0), (2, 5)], &[]),
            Some((Freshness::Fresh, 2, 2))
        );
        assert_eq!(
            scene.update(22, &[(1, 0), (2, 26)], &[]),
            Some((Freshness::Partial, 1, 2))
        );
        assert_eq!(
            scene.update(60, &[(1, 38), (2, 64)], &[]),
            Some((Freshness::Stale, 0, 2))
        );
        // Its series have gone from the table: it is expected until it is forgotten.
        assert_eq!(
            scene.update(300, &[(1, 0)], &[]),
            Some((Freshness::Partial, 1, 2))
        );
        assert_eq!(scene.update(597, &[(1, 0)], &[]), Some((Freshness::Fresh, 1, 1)));
    }

    #[test]
    fn a_source_departs_by_leaving_discovery_not_by_a_failed_scrape() {
        let mut scene = Scene(ExpectedSources::default());
        assert_eq!(
            scene.update(0, &[(1, 0), (2, 0)], &[]),
            Some((Freshness::Fresh, 2, 2))
        );
        // The markers come first, `up` a little later.
        assert_eq!(scene.update(1, &[(2, 0)], &[]), Some((Freshness::Fresh, 1, 1)));
        assert_eq!(scene.update(2, &[(2, 0)], &[1]), Some((Freshness::Partial, 1, 2)));
        assert_eq!(
            scene.update(3, &[], &[1, 2, 9]),
            Some((Freshness::Stale, 0, 2)),
            "9 is not a source of it"
        );
        assert_eq!(scene.update(2000, &[], &[1, 2]), Some((Freshness::Stale, 0, 2)));
        assert_eq!(
            scene.update(2001, &[(2, 0)], &[1]),
            Some((Freshness::Partial, 1, 2))
        );
        // `up` has ended.
        assert_eq!(scene.update(2002, &[(2, 0)], &[]), Some((Freshness::Fresh, 1, 1)));
        assert_eq!(scene.update(2003, &[], &[]), None);
    }

    #[test]
    fn a_source_that_its_receiver_saw_die_is_stale_whatever_it_repeats() {
        let mut sources = ExpectedSources::default();
        let mut evaluation = evaluation(START, &[(1, 0)], &[]);
        evaluation.sources[0].is_dead = true;
        for lease in [None, Some(Duration::from_secs(90))] {
            let quality = sources.update(&evaluation, lease, START).unwrap();
            assert_eq!((quality.state, quality.reporting), (Freshness::Stale, 0));
        }
        // Its series stay. It is expected for 10 minutes, and then as long as no other source has a value.
        let mut counts = |evaluation: &Evaluation, after: u64| {
            let quality = sources.update(evaluation, None, START + after * SECOND);
            quality.map(|quality| (quality.state, quality.reporting, quality.expected))
        };
        let alive = |after: u64| SelectedSource {
            key: Key::of_value(&2),
            seen: START + after * SECOND,
            is_dead: false,
            ..evaluation.sources[0]
        };
        for after in [600, 601, 3600] {
            assert_eq!(counts(&evaluation, after), Some((Freshness::Stale, 0, 1)));
        }
        let both = Evaluation {
            sources: vec![evaluation.sources[0], alive(3601)],
            ..Evaluation::default()
        };
        assert_eq!(counts(&both, 3601), Some((Freshness::Fresh, 1, 1)));
        assert_eq!(counts(&Evaluation::default(), 3700), None);
    }

    #[test]
    fn a_configured_lease_counts_instead() {
        let mut sources = ExpectedSources::default();
        let mut state = |age: u64, lease: u64| {
            let quality = sources.update(
                &evaluation(START, &[(1, age)], &[]),
                Some(Duration::from_secs(lease)),
                START,
            );
            quality.map(|quality| quality.state)
        };
        assert_eq!(state(60, 90), Some(Freshness::Fresh));
        assert_eq!(state(3, 2), Some(Freshness::Stale));
        // It may be longer than silent sources are remembered.
        assert_eq!(state(1200, 1800), Some(Freshness::Fresh));
        assert_eq!(state(1801, 1800), Some(Freshness::Stale));
    }
}
