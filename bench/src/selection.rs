// SPDX-License-Identifier: Apache-2.0

//! The selected parts of the groups. It is set once, before the first runs.

use std::sync::OnceLock;
use std::time::Duration;

use crate::otlp::request::PointKind;

/// Parts of groups, and how long their windows are.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    /// `GROUP` or `GROUP/JOB`; empty: all groups.
    pub(crate) groups: Vec<String>,
    /// Names of subjects; empty: all.
    pub(crate) subjects: Vec<String>,
    pub(crate) window: Option<Duration>,
    /// How often subjects of OTLP take turns at full load.
    pub(crate) rounds: Option<usize>,
    /// The kind of points, for jobs that do not fix it.
    pub(crate) kind: Option<PointKind>,
    /// Whether the figures are written into the documentation.
    pub(crate) publish: bool,
    /// The command as typed.
    pub(crate) command: String,
}

static ASKED: OnceLock<Selection> = OnceLock::new();

/// The selection; everything, unless the command restricts it.
pub(crate) fn get() -> &'static Selection {
    ASKED.get_or_init(Selection::default)
}

/// Only the first call counts.
pub(crate) fn set(selection: Selection) -> &'static Selection {
    ASKED.get_or_init(|| selection)
}

impl Selection {
    pub(crate) fn has_group(&self, group: &str) -> bool {
        let mut groups = self.groups.iter();
        self.groups.is_empty() || groups.any(|asked| group_of(asked) == group)
    }

    /// Whether this job is to be done, where its group runs.
    pub(crate) fn has_job(&self, group: &str, job: &str) -> bool {
        let mut of_group = self
            .groups
            .iter()
            .filter(|asked| group_of(asked) == group)
            .peekable();
        of_group.peek().is_none()
            || of_group.any(|asked| asked == group || asked.strip_prefix(group) == Some(&format!("/{job}")))
    }

    /// The jobs of a group that are named.
    pub(crate) fn jobs(&self, group: &str) -> impl Iterator<Item = &str> {
        let named = self.groups.iter().filter_map(|asked| asked.split_once('/'));
        named.filter_map(move |(of, job)| (of == group).then_some(job))
    }

    pub(crate) fn has_subject(&self, subject: &str) -> bool {
        self.subjects.is_empty() || self.subjects.iter().any(|asked| asked == subject)
    }
}

/// The group of `GROUP` or `GROUP/JOB`.
pub(crate) fn group_of(asked: &str) -> &str {
    asked.split_once('/').map_or(asked, |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_done_when_it_or_its_group_or_nothing_is_named() {
        let asked = |groups: &[&str]| Selection {
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..Selection::default()
        };
        assert!(asked(&[]).has_job("otlp", "grpc-10"));
        assert!(asked(&["otlp"]).has_job("otlp", "grpc-10"));
        assert!(asked(&["otlp/grpc-10", "age"]).has_job("otlp", "grpc-10"));
        assert!(!asked(&["otlp/grpc-10"]).has_job("otlp", "grpc-100"));
        assert!(asked(&["otlp/grpc-10"]).has_group("otlp"));
        assert!(!asked(&["otlp/grpc-10"]).has_group("age"));
        let named = asked(&["age/one", "otlp/grpc-10", "otlp", "otlp/grpc-1"]);
        assert!(named.jobs("otlp").eq(["grpc-10", "grpc-1"]));
    }
}
