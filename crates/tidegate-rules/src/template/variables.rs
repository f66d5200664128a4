// SPDX-License-Identifier: Apache-2.0

//! The variables that exist at a point of a template.

use std::collections::BTreeSet;

/// The variables that every template of a rule has. Prometheus declares them before its text, so defined templates do not
/// have them.
const PREDECLARED: [&str; 4] = ["labels", "externalLabels", "externalURL", "value"];

/// Names without their `$`. `$` itself is the empty name.
#[derive(Debug)]
pub(super) struct VariableScope {
    names: Vec<String>,
    is_defined_template: bool,
}

impl VariableScope {
    /// The variables at the beginning of a template.
    pub(super) fn new() -> Self {
        let mut scope = Self {
            names: vec![String::new()],
            is_defined_template: false,
        };
        scope.declare(&PREDECLARED.map(str::to_owned));
        scope
    }

    /// The variables at the beginning of a defined template.
    pub(super) fn of_defined_template() -> Self {
        Self {
            names: vec![String::new()],
            is_defined_template: true,
        }
    }

    pub(super) fn declare(&mut self, names: &[String]) {
        self.names.extend_from_slice(names);
    }

    /// The number of variables, for [`VariableScope::close_block`].
    pub(super) fn open_block(&self) -> usize {
        self.names.len()
    }

    /// Forgets the variables that were declared since the beginning of the block.
    pub(super) fn close_block(&mut self, opened: usize) {
        self.names.truncate(opened);
    }

    /// Refuses a variable that does not exist here.
    pub(super) fn check(&self, name: &str) -> Result<(), String> {
        if self.names.iter().any(|known| known == name) {
            return Ok(());
        }
        let known: BTreeSet<String> = self.names.iter().map(|known| format!("${known}")).collect();
        let hint = if self.is_defined_template {
            "; a defined template has only `$` and `.` from its caller: write `{{ template \"name\" . }}`, and `.Value` for `$value`"
        } else {
            ""
        };
        let known = Vec::from_iter(known).join(", ");
        Err(format!(
            "undefined variable \"${name}\" (known here: {known}){hint}"
        ))
    }
}
