// SPDX-License-Identifier: Apache-2.0

//! `validate --env`: what this machine lacks for a configuration. It starts no component and leaves nothing behind.

mod certificates;
mod directories;
mod limits;
mod listeners;
mod names;
mod port_holders;
mod report;
mod roles;
mod sites;
mod validity;

use std::fmt;

use serde_json::{Value, json};

pub(in crate::commands) use self::listeners::Listening;
use self::report::Report;
use crate::commands::Failure;
use crate::config::{Document, Problems};
use crate::service::Plan;

/// The number of checks, and their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CheckCounts {
    checks: usize,
    errors: usize,
    warnings: usize,
}

impl CheckCounts {
    /// The object for programs.
    pub(super) fn json(self) -> Value {
        json!({"checks": self.checks, "errors": self.errors, "warnings": self.warnings})
    }
}

impl fmt::Display for CheckCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let Self {
            checks,
            errors,
            warnings,
        } = *self;
        write!(
            f,
            "{checks} check{}, {errors} error{}, {warnings} warning{}",
            plural(checks),
            plural(errors),
            plural(warnings)
        )
    }
}

/// What the components that run and the gateway's own metrics listen on. It looks up no host names.
pub(in crate::commands) fn listening(document: &Document, plan: &Plan) -> Listening {
    let sites = sites::used(document, plan);
    Listening::of(listeners::all(&sites, document, plan, listeners::addresses))
}

/// Checks that no two listeners want the same address or socket, without a look at the machine.
pub(super) fn check_clashes(document: &Document, plan: &Plan, problems: &mut Problems) {
    let sites = sites::used(document, plan);
    let listeners = listeners::all(&sites, document, plan, listeners::written_address);
    listeners::check_clashes(&listeners, &mut Report::new(problems));
}

/// Checks that this machine can give all addresses and sockets to listen on. It looks the addresses of host names up.
pub(in crate::commands) fn check_listeners(document: &Document, plan: &Plan, problems: &mut Problems) {
    let sites = sites::used(document, plan);
    let listeners = listeners::all(&sites, document, plan, listeners::addresses);
    listeners::check(&listeners, &mut Report::new(problems));
}

/// Checks the addresses and sockets of a configuration that shall run instead of `running`: no two listeners want the same one,
/// and this machine can give those that `running` does not hold. It looks the addresses of host names up.
pub(super) fn check_new_listeners(
    document: &Document,
    plan: &Plan,
    running: &Listening,
    is_whole: bool,
    problems: &mut Problems,
) {
    let mut report = Report::new(problems);
    let new = listening(document, plan);
    new.check_clashes(running, &mut report);
    // Otherwise the gateway may hold addresses that `running` does not list.
    if is_whole {
        new.check_beside(running, &mut report);
    }
}

/// Checks the machine for all components that run. With `connects`, it also opens connections to peers.
///
/// # Errors
/// The runtime that resolves names can't start.
pub(super) fn check(
    document: &Document,
    plan: &Plan,
    connects: bool,
    problems: &mut Problems,
) -> Result<CheckCounts, Failure> {
    let sites = sites::used(document, plan);
    let mut report = Report::new(problems);
    let listeners = listeners::all(&sites, document, plan, listeners::addresses);
    listeners::check(&listeners, &mut report);
    directories::check(&sites, &mut report);
    certificates::check(&sites, &mut report);
    limits::check(&sites, &mut report);
    names::check(&sites, connects, &mut report)?;
    Ok(report.counts())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_checks_errors_and_warnings() {
        let counts = CheckCounts {
            checks: 14,
            errors: 1,
            warnings: 2,
        };
        assert_eq!(counts.to_string(), "14 checks, 1 error, 2 warnings");
        assert_eq!(counts.json()["checks"], 14);
        assert_eq!(
            CheckCounts::default().to_string(),
            "0 checks, 0 errors, 0 warnings"
        );
    }
}
