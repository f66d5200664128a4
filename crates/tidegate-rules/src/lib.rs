// SPDX-License-Identifier: Apache-2.0

//! Prometheus's rules: rule files, the states of alerts, templates, and unit tests of rules.
//!
//! [`parse_rules`] reads a file. A [`GroupState`] evaluates a group at a time that the caller passes in. A caller answers
//! the queries and takes the samples ([`RuleBackend`]). [`unit_test`] runs the unit tests of `promtool`.
//!
//! It does no I/O, has no clock and no async code.

#![forbid(unsafe_code)]

mod alert;
mod alerting;
mod backend;
mod file;
mod group;
mod options;
mod reach;
mod recording;
mod saved;
pub mod template;
#[cfg(test)]
mod tests;
pub mod unit_test;

pub use alert::{ActiveAlert, AlertState, RESOLVED_RETENTION};
pub use backend::{QueryAnswer, RuleBackend, RuleSample};
pub use file::{AlertTerms, MIN_INTERVAL, RuleDefinition, RuleFile, RuleGroup, RuleKind, parse_rules};
pub use group::{GroupState, GroupSummary, RuleHealth};
pub use options::{RuleOptions, StaleInputs};
pub use reach::{ReachError, reach};
pub use saved::{MAX_STATE_BYTES, SavedAlerts, StateError, save};
