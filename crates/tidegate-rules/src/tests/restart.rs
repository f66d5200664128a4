// SPDX-License-Identifier: Apache-2.0

//! Alerts as bytes, and back.

use proptest::prelude::*;

use super::*;

/// The bytes of a group after evaluations at these times.
fn saved(rules: &str, evaluations: &[Millis]) -> Vec<u8> {
    let mut rules = Evaluator::new(rules);
    for at in evaluations {
        rules.evaluate(*at, &[("host=a", 7.0), ("host=b", 8.0)]);
    }
    save([&rules.group], evaluations.last().copied().unwrap_or(0))
}

/// A group that starts from bytes at a time.
fn restored(bytes: &[u8], at: Millis) -> Evaluator {
    let mut rules = Evaluator::new(ALERT);
    let mut alerts = SavedAlerts::decode(bytes).unwrap();
    assert_eq!(alerts.restore(&mut rules.group, at), 2);
    assert!(alerts.is_empty());
    rules
}

#[test]
fn a_pending_alert_goes_on_after_a_restart() {
    let mut rules = restored(&saved(ALERT, &[0, MINUTE]), 10 * MINUTE);
    rules.evaluate(10 * MINUTE, SERIES);
    // A minute of two has passed before the restart.
    assert_eq!(rules.states(), [AlertState::Pending]);
    rules.evaluate(11 * MINUTE, SERIES);
    assert_eq!(rules.states(), [AlertState::Firing]);
}

#[test]
fn a_firing_alert_fires_at_once_after_a_restart() {
    let mut rules = restored(&saved(ALERT, &[0, 2 * MINUTE]), 3 * MINUTE);
    rules.evaluate(3 * MINUTE, &[]);
    assert_eq!(rules.states().len(), 0);
    rules.evaluate(4 * MINUTE, SERIES);
    assert_eq!(rules.states(), [AlertState::Firing]);
    let alert = rules.alert();
    assert_eq!((alert.active_at, alert.fired_at), (0, Some(2 * MINUTE)));
}

#[test]
fn an_alert_that_waits_for_its_series_outlasts_a_second_restart() {
    let mut rules = restored(&saved(ALERT, &[0, MINUTE]), 10 * MINUTE);
    rules.evaluate(10 * MINUTE, &[]);
    assert_eq!((rules.states().len(), rules.group.waiting()), (0, 2));
    let bytes = save([&rules.group], 11 * MINUTE);
    let mut rules = restored(&bytes, 20 * MINUTE);
    rules.evaluate(20 * MINUTE, SERIES);
    assert_eq!(rules.states(), [AlertState::Pending]);
    assert_eq!(rules.alert().active_at, 19 * MINUTE, "a minute of two has passed");
    rules.evaluate(21 * MINUTE, SERIES);
    assert_eq!(rules.states(), [AlertState::Firing]);
    rules.evaluate(31 * MINUTE, SERIES);
    assert_eq!(
        rules.group.waiting(),
        0,
        "the other one is forgotten after ten minutes"
    );
}

#[test]
fn an_alert_whose_series_does_not_come_back_is_forgotten() {
    let mut rules = restored(&saved(ALERT, &[0, 2 * MINUTE]), 3 * MINUTE);
    rules.evaluate(20 * MINUTE, SERIES);
    assert_eq!(rules.states(), [AlertState::Pending]);
}

#[test]
fn alerts_of_other_rules_stay() {
    let bytes = saved("  - alert: B\n    expr: m\n", &[0]);
    let mut rules = Evaluator::new(ALERT);
    let mut alerts = SavedAlerts::decode(&bytes).unwrap();
    assert_eq!(alerts.len(), 2);
    assert_eq!(alerts.restore(&mut rules.group, 0), 0);
}

#[test]
fn bytes_of_another_version_or_kind_are_errors() {
    let mut bytes = saved(ALERT, &[0]);
    assert_eq!(SavedAlerts::decode(b"nothing"), Err(StateError::Foreign));
    assert_eq!(SavedAlerts::decode(b"TGAL"), Err(StateError::Damaged));
    bytes[4] = 9;
    assert_eq!(SavedAlerts::decode(&bytes), Err(StateError::Version(9)));
}

proptest! {
    #[test]
    fn changed_bytes_are_an_error(at in 0_usize..1000, change in 1_u8..=255) {
        let mut bytes = saved(ALERT, &[0]);
        let at = at % bytes.len();
        bytes[at] ^= change;
        prop_assert!(SavedAlerts::decode(&bytes).is_err());
        bytes.truncate(at);
        prop_assert!(SavedAlerts::decode(&bytes).is_err());
    }

    #[test]
    fn content_with_a_right_sum_never_panics(content in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = b"TGAL\x01".to_vec();
        bytes.extend(content);
        let sum = crc32fast::hash(&bytes);
        bytes.extend(sum.to_le_bytes());
        drop(SavedAlerts::decode(&bytes));
    }
}
