// SPDX-License-Identifier: Apache-2.0

//! The states of an alert against a plain model that remembers every evaluation.

use proptest::prelude::*;

use super::*;

/// The state after a history of evaluations, a minute apart: whether the series was there.
fn expected(history: &[bool], hold: Millis, keep: Millis) -> Option<AlertState> {
    // Each run of minutes with the series begins an alert. It ends when the series is gone for `keep`.
    let (mut since, mut is_firing) = (None, false);
    let (mut gone_since, mut resolved_at) = (None, None);
    for (minute, is_there) in history.iter().enumerate() {
        let at = minute as Millis;
        if *is_there {
            gone_since = None;
            resolved_at = None;
            let start = *since.get_or_insert(at);
            is_firing |= at - start >= hold;
            continue;
        }
        let gone = at - *gone_since.get_or_insert(at);
        if since.is_some() && is_firing && gone < keep {
            continue;
        }
        if since.take().is_some() && is_firing {
            resolved_at = Some(at);
        }
        is_firing = false;
    }
    let last = history.len() as Millis - 1;
    match (since, resolved_at) {
        (Some(_), _) if is_firing => Some(AlertState::Firing),
        (Some(_), _) => Some(AlertState::Pending),
        (None, Some(resolved)) if last - resolved <= 15 => Some(AlertState::Inactive),
        (None, _) => None,
    }
}

proptest! {
    #[test]
    fn states_are_those_of_the_model(
        history in proptest::collection::vec(prop::bool::weighted(0.6), 1..60),
        hold in 0_i64..6,
        keep in 0_i64..6,
    ) {
        let rules = format!("  - alert: A\n    expr: m\n    for: {hold}m\n    keep_firing_for: {keep}m\n");
        let mut rules = Evaluator::new(&rules);
        for (minute, is_there) in history.iter().enumerate() {
            rules.evaluate(minute as Millis * MINUTE, if *is_there { SERIES } else { &[] });
            let found = rules.states();
            let expected: Vec<_> = expected(&history[..=minute], hold, keep).into_iter().collect();
            prop_assert_eq!(found, expected, "at minute {}", minute);
        }
    }

    #[test]
    fn each_series_of_a_rule_ends_once(history in proptest::collection::vec(0_u8..8, 1..40)) {
        let mut rules = Evaluator::new("  - record: r\n    expr: m\n");
        let mut open = std::collections::BTreeSet::new();
        for (minute, bits) in history.iter().copied().enumerate() {
            let hosts = [("host=a", 1_u8), ("host=b", 2), ("host=c", 4)];
            let there = hosts.into_iter().filter(|(_, bit)| bits & *bit != 0);
            let vector: Vec<(&str, f64)> = there.map(|(host, _)| (host, 1.0)).collect();
            rules.evaluate(minute as Millis * MINUTE, &vector);
            for sample in std::mem::take(&mut rules.answers.appended) {
                if sample.is_marker() {
                    prop_assert!(open.remove(&sample.labels));
                } else {
                    open.insert(sample.labels);
                }
            }
            prop_assert_eq!(open.len(), bits.count_ones() as usize);
        }
    }
}
