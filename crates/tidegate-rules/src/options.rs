// SPDX-License-Identifier: Apache-2.0

//! Options of the evaluation of groups.

use tidegate_promql::{Labels, Millis};

/// What an alert does if all sources that it reads are silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StaleInputs {
    /// It resolves, as in Prometheus.
    #[default]
    Resolve,
    /// It keeps its state, and an alert with the label `state="unknown"` says so.
    Unknown,
}

/// Options of the evaluation of groups.
#[derive(Clone, Debug)]
pub struct RuleOptions {
    /// Labels that templates see as `$externalLabels`.
    pub external_labels: Labels,
    /// The address that templates see as `$externalURL`.
    pub external_url: String,
    /// What an alert does if its sources are silent.
    pub stale: StaleInputs,
    /// The most alerts or series of a rule. A rule with more has an error, and keeps its state. As many resolved alerts are
    /// kept, the newest ones.
    pub max_alerts: usize,
    /// The query offset of a group that has none, in milliseconds.
    pub default_query_offset: Millis,
}

impl Default for RuleOptions {
    fn default() -> Self {
        Self {
            external_labels: Labels::default(),
            external_url: String::new(),
            stale: StaleInputs::Resolve,
            max_alerts: 10_000,
            default_query_offset: 0,
        }
    }
}
