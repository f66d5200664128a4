// SPDX-License-Identifier: Apache-2.0

//! The state of the rules that run, as the extension that evaluates them shows it to the one that serves the API.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_promql::Millis;
use tidegate_rules::{ActiveAlert, RuleGroup, RuleHealth};

use crate::component::Shared;

/// The state of a rule.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleState {
    pub(super) health: RuleHealth,
    /// The time that its last query took.
    pub(super) took: Duration,
    /// Its pending and firing alerts.
    pub(super) alerts: Vec<ActiveAlert>,
}

/// The state of a group after an evaluation.
#[derive(Clone, Debug)]
pub(super) struct GroupReport {
    pub(super) group: Arc<RuleGroup>,
    pub(super) interval: Duration,
    /// The time of its last evaluation.
    pub(super) evaluated: Option<Millis>,
    /// The time that the last evaluation took.
    pub(super) took: Duration,
    /// One for each rule, in their order. Empty before the first evaluation, unless the group takes over a state.
    pub(super) rules: Vec<RuleState>,
}

/// What evaluates rules.
pub(super) trait ReportsRules: Send + Sync {
    /// The groups, by file and order.
    fn groups(&self) -> Vec<Arc<GroupReport>>;

    /// The URLs that alerts are posted to.
    fn alertmanagers(&self) -> Vec<String>;
}

/// All extensions of a gateway that evaluate rules.
#[derive(Default)]
pub(super) struct RuleReporters(Mutex<Vec<Arc<dyn ReportsRules>>>);

impl RuleReporters {
    /// Those of this gateway.
    pub(super) fn of(shared: &Shared) -> Arc<Self> {
        shared.parts.get(Self::default)
    }

    pub(super) fn add(&self, reporter: Arc<dyn ReportsRules>) {
        self.0.lock().push(reporter);
    }

    pub(super) fn remove(&self, reporter: &Arc<dyn ReportsRules>) {
        self.0.lock().retain(|other| !Arc::ptr_eq(other, reporter));
    }

    /// The groups of all.
    pub(super) fn groups(&self) -> Vec<Arc<GroupReport>> {
        let all = self.0.lock().clone();
        all.iter().flat_map(|reporter| reporter.groups()).collect()
    }

    /// The URLs of all Alertmanagers.
    pub(super) fn alertmanagers(&self) -> Vec<String> {
        let all = self.0.lock().clone();
        all.iter().flat_map(|reporter| reporter.alertmanagers()).collect()
    }
}
