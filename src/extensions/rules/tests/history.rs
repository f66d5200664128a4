// SPDX-License-Identifier: Apache-2.0

//! The history that rules need.

use super::*;
use crate::component::Limit;
use crate::prom::catalog::{KeptPast, View};

const MINUTE_MS: Millis = 60_000;
const HOUR_MS: Millis = 60 * MINUTE_MS;

impl Rig {
    /// A gateway that keeps a history of ten minutes, or as long as rules need it.
    fn with_history(follows_needs: bool, max_bytes: Option<usize>) -> Self {
        let rig = Self::new();
        let past = KeptPast {
            interval_ms: 1000,
            span_ms: 10 * MINUTE_MS,
            follows_needs,
            max_bytes,
            rules: Vec::new(),
        };
        assert!(View::of(&rig.base.shared).keep_past(past));
        rig
    }

    /// Writes a rule that reads as far back as this range.
    fn write_range(&self, range: &str) {
        self.write(&format!(
            "groups: [{{name: a, rules: [{{record: far, expr: \"rate(hits_total[{range}])\"}}]}}]"
        ));
    }

    /// The time that the history reaches back, in milliseconds.
    fn span_ms(&self) -> Millis {
        let limits = View::of(&self.base.shared).past_limits();
        limits.unwrap().span_ms
    }
}

#[test]
fn rules_without_their_history_do_not_replace_those_that_run() {
    let rig = Rig::new();
    rig.write_range("1h");
    let rules = rig.extension().unwrap();
    let error = rules.check_needs().unwrap_err().to_string();
    assert!(error.contains("rule `far` of group `a`"), "{error}");
}

#[test]
fn the_history_reaches_as_far_as_the_rules_that_are_built() {
    let rig = Rig::with_history(true, None);
    rig.write_range("5m");
    let near = rig.extension().unwrap();
    assert_eq!(rig.span_ms(), 10 * MINUTE_MS);
    rig.write_range("1h");
    let far = rig.extension_with("query_offset: 1m").unwrap();
    assert_eq!(rig.span_ms(), HOUR_MS + MINUTE_MS);
    for rules in [&near, &far] {
        rules.check_needs().unwrap();
    }
    drop(near);
    assert_eq!(rig.span_ms(), HOUR_MS + MINUTE_MS);
    drop(far);
    assert_eq!(rig.span_ms(), 10 * MINUTE_MS);
}

#[test]
fn a_configured_history_stays_and_refuses_rules_that_reach_further() {
    let rig = Rig::with_history(false, None);
    rig.write_range("1h");
    let rules = rig.extension().unwrap();
    assert_eq!(rig.span_ms(), 10 * MINUTE_MS);
    let error = rules.check_needs().unwrap_err().to_string();
    for part in ["rule `far` of group `a`", "10m", "`history::retention`", "1h"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test]
async fn rules_for_which_the_history_has_no_room_are_refused_by_name() {
    let rig = Rig::with_history(true, Some(1 << 20));
    rig.write_range("30m");
    rig.extension().unwrap().check_needs().unwrap();
    rig.write_range("1h");
    let rules = rig.extension().unwrap();
    for refused in [rules.check_needs(), rules.start().await] {
        let error = refused.unwrap_err().to_string();
        for part in ["rule `far` of group `a`", "`history::max_bytes`", "1MiB", "2MiB"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    // A history without a limit of its own has an eighth of the memory limit.
    let rig = Rig::with_history(true, None);
    rig.write_range("1h");
    let rules = rig.extension().unwrap();
    rules.check_needs().unwrap();
    rig.base.shared.memory.add_limit(Limit::of(8 << 20));
    let error = rules.check_needs().unwrap_err().to_string();
    assert!(error.contains("`history::max_bytes`"), "{error}");
}
