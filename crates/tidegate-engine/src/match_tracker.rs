// SPDX-License-Identifier: Apache-2.0

//! The match tracker of a rule or composite: a name that matches nothing is usually a mistake.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::chunks::lock;
use crate::grouping::has_label;
use crate::{Attributes, Grouping, Resource};

/// The names of a declaration that have matched a series since the start.
#[derive(Debug)]
pub struct MatchTracker {
    /// Whether any series matched.
    any: AtomicBool,
    /// The option that names the attributes.
    option: &'static str,
    /// The attributes that it names, and whether a matching series had each.
    names: Box<[(Arc<str>, AtomicBool)]>,
    /// The name of an arrived metric that was probably meant.
    near: Mutex<Option<Arc<str>>>,
}

impl MatchTracker {
    /// A tracker of the attributes that this grouping names.
    pub(crate) fn new(grouping: &Grouping) -> Self {
        let (option, names) = match grouping {
            Grouping::Keep => ("", &[][..]),
            Grouping::By(names) => ("by", &**names),
            Grouping::Without(names) => ("without", &**names),
        };
        let names = names.iter().map(|name| (name.clone(), AtomicBool::new(false)));
        Self {
            any: AtomicBool::new(false),
            option,
            names: names.collect(),
            near: Mutex::default(),
        }
    }

    /// Notes a series that matched.
    pub(crate) fn note_match(&self, resource: &Resource, attributes: &[&Attributes]) {
        self.any.store(true, Relaxed);
        for (name, is_matched) in self
            .names
            .iter()
            .filter(|(_, is_matched)| !is_matched.load(Relaxed))
        {
            let mut sets = attributes.iter().copied().chain([&resource.attributes]);
            if sets.any(|set| has_label(name, set)) {
                is_matched.store(true, Relaxed);
            }
        }
    }

    /// Whether a series has matched.
    pub fn has_matched(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Keeps the name of an arrived metric that was probably meant; `None`: no name is near.
    pub fn suggest(&self, near: Option<&str>) {
        *lock(&self.near) = near.map(Arc::from);
    }

    /// The reason why nothing has matched; `None`: a series has. `metric` is the name of the declaration's metrics.
    pub fn reason(&self, metric: &str) -> Option<String> {
        if self.has_matched() {
            return None;
        }
        let mut text = format!("no metric `{metric}` with the selected attributes arrived");
        if let Some(near) = lock(&self.near).as_deref() {
            let _ = write!(text, "; did you mean `{near}`?");
        }
        Some(text)
    }

    /// A warning for each name that has matched nothing. `who` is the declaration, `metric` the name of its
    /// metrics.
    pub fn warnings(&self, who: &str, metric: &str) -> Vec<String> {
        if let Some(reason) = self.reason(metric) {
            return vec![format!("{who} has matched nothing since the start: {reason}")];
        }
        let unmatched = self
            .names
            .iter()
            .filter(|(_, is_matched)| !is_matched.load(Relaxed));
        let option = self.option;
        unmatched
            .map(|(name, _)| format!("{who}: no series has the attribute `{name}` of `{option}`"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_has_is_named() {
        let tracker = MatchTracker::new(&Grouping::by(["pod", "job", "zoen"]));
        let warnings = tracker.warnings("rule 1", "queue");
        assert!(
            warnings.len() == 1 && warnings[0].contains("matched nothing"),
            "{warnings:?}"
        );
        tracker.suggest(Some("queue_depth"));
        let reason = tracker.reason("queue").unwrap();
        assert!(
            reason.ends_with("arrived; did you mean `queue_depth`?"),
            "{reason}"
        );
        let resource = Resource {
            attributes: [("service.name", "s")].into_iter().collect(),
            schema_url: "".into(),
        };
        let point: Attributes = [("pod", "p")].into_iter().collect();
        tracker.note_match(&resource, &[&point]);
        assert_eq!(tracker.reason("queue"), None);
        let warnings = tracker.warnings("rule 1", "queue");
        assert_eq!(warnings, ["rule 1: no series has the attribute `zoen` of `by`"]);
        let tracker = MatchTracker::new(&Grouping::without(["instance"]));
        tracker.note_match(&resource, &[]);
        assert_eq!(tracker.warnings("x", "y").len(), 1);
    }
}
