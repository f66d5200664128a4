// SPDX-License-Identifier: Apache-2.0

//! The findings about a machine, as problems of the configuration, and their number.

use super::CheckCounts;
use crate::config::{Problems, Span};

/// The option that a finding is about.
#[derive(Clone, Debug)]
pub(super) struct Position {
    pub(super) span: Option<Span>,
    pub(super) path: String,
}

/// Where findings go.
pub(super) struct Report<'a> {
    problems: &'a mut Problems,
    counts: CheckCounts,
}

impl<'a> Report<'a> {
    pub(super) fn new(problems: &'a mut Problems) -> Self {
        Self {
            problems,
            counts: CheckCounts::default(),
        }
    }

    /// CheckCounts a check. It may have no finding, or several.
    pub(super) fn begin_check(&mut self) {
        self.counts.checks += 1;
    }

    /// The gateway can't start or work like this.
    pub(super) fn error(&mut self, at: &Position, message: impl Into<String>, help: impl Into<String>) {
        self.counts.errors += 1;
        let at = self.problems.at_span(at.span, at.path.clone());
        at.help(help).error(message);
    }

    /// The gateway starts, but probably does not work as meant.
    pub(super) fn warning(&mut self, at: &Position, message: impl Into<String>, help: impl Into<String>) {
        self.counts.warnings += 1;
        let at = self.problems.at_span(at.span, at.path.clone());
        at.help(help).warning(message);
    }

    pub(super) fn counts(&self) -> CheckCounts {
        self.counts
    }
}
