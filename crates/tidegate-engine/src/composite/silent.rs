// SPDX-License-Identifier: Apache-2.0

//! The sources that a group expects and that do not report, for explanations.

use std::collections::{HashMap, HashSet};

use super::Composite;
use super::source::Liveness;
use crate::chunks::lock;
use crate::{Attributes, UnixNanos};

/// The reason why a source does not report, in the order of an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SilenceReason {
    /// Its last scrape failed.
    Down,
    /// Its lease is overdue.
    Overdue,
    /// It is alive, but its series of the group are not.
    WithoutSeries,
}

impl SilenceReason {
    /// The name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Overdue => "overdue",
            Self::WithoutSeries => "without series",
        }
    }
}

/// A source that a group expects and that does not report.
#[derive(Clone, Debug, PartialEq)]
pub struct SilentSource {
    /// The attributes of the source; empty if they are not known.
    pub attributes: Attributes,
    /// The reason.
    pub reason: SilenceReason,
    /// The time of its last report; of a target that is down, that of its first failed scrape. 0: never.
    pub since: UnixNanos,
}

/// The sources that a group expects and that do not report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SilentSources {
    /// The first ones, by reason and then by time.
    pub sources: Vec<SilentSource>,
    /// The number of all of them.
    pub total: usize,
}

impl Composite {
    /// The sources that the group of these attributes expects and that do not report, `most` at most. Those of an
    /// expression are the same for all its groups. A composite of published answers has none.
    pub fn silent_sources(&self, attributes: &Attributes, now: UnixNanos, most: usize) -> SilentSources {
        if self.published.get().is_some() {
            return SilentSources::default();
        }
        let group = if self.declaration.expression.is_some() {
            self.groups().first().cloned()
        } else {
            self.known_group(attributes)
        };
        let Some(group) = group else {
            return SilentSources::default();
        };
        let mut silent = lock(&group).silent(now);
        silent.sort_by_cached_key(|(reason, liveness)| (*reason, liveness.silent_since()));
        let total = silent.len();
        silent.truncate(most);
        let of_events = self.names_of_events(&silent);
        let sources = silent.iter().map(|(reason, liveness)| SilentSource {
            attributes: match liveness {
                Liveness::Points(source) => source.attributes().cloned().unwrap_or_default(),
                Liveness::Events(_) | Liveness::Feed(_) => {
                    of_events.get(&liveness.address()).cloned().unwrap_or_default()
                }
            },
            reason: *reason,
            since: liveness.silent_since(),
        });
        SilentSources {
            sources: sources.collect(),
            total,
        }
    }

    /// The attributes of those that are sources of events, by the address of their liveness.
    fn names_of_events(&self, silent: &[(SilenceReason, Liveness)]) -> HashMap<usize, Attributes> {
        let of_events = silent
            .iter()
            .filter(|(_, liveness)| matches!(liveness, Liveness::Events(_)));
        let wanted: HashSet<usize> = of_events.map(|(_, liveness)| liveness.address()).collect();
        if wanted.is_empty() {
            return HashMap::new();
        }
        let known = lock(&self.inputs.sources);
        let found = known.values().filter(|kinds| wanted.contains(&kinds.address()));
        found.map(|kinds| (kinds.address(), kinds.attributes())).collect()
    }
}
