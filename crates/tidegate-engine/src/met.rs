//! Whether what a declaration names has ever been seen: names that nothing has are mistakes more often than not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::grouping::has_label;
use crate::{Attributes, Grouping, Resource};

/// What of a declaration has been met.
#[derive(Debug)]
pub struct Met {
    /// A series.
    any: AtomicBool,
    /// The option that names attributes.
    option: &'static str,
    /// Which, and whether a series had them.
    names: Box<[(Arc<str>, AtomicBool)]>,
}

impl Met {
    /// Nothing yet of what this grouping names.
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
        }
    }

    /// A series was taken.
    pub(crate) fn see(&self, resource: &Resource, attributes: &[&Attributes]) {
        self.any.store(true, Relaxed);
        for (name, is_met) in self.names.iter().filter(|(_, is_met)| !is_met.load(Relaxed)) {
            let mut sets = attributes.iter().copied().chain([&resource.attributes]);
            if sets.any(|set| has_label(name, set)) {
                is_met.store(true, Relaxed);
            }
        }
    }

    /// What has not been met, for people; `who` declared it, and takes metrics of this name.
    pub fn complaints(&self, who: &str, metric: &str) -> Vec<String> {
        if !self.any.load(Relaxed) {
            return vec![format!(
                "{who} has matched nothing since the start: no metric `{metric}` with the wanted attributes came"
            )];
        }
        let unmet = self.names.iter().filter(|(_, is_met)| !is_met.load(Relaxed));
        let option = self.option;
        unmet
            .map(|(name, _)| format!("{who}: no series has the attribute `{name}` of `{option}`"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_has_is_named() {
        let met = Met::new(&Grouping::by(["pod", "job", "zoen"]));
        let complaints = met.complaints("rule 1", "queue");
        assert!(
            complaints.len() == 1 && complaints[0].contains("matched nothing"),
            "{complaints:?}"
        );
        let resource = Resource {
            attributes: [("service.name", "s")].into_iter().collect(),
            schema_url: "".into(),
        };
        let point: Attributes = [("pod", "p")].into_iter().collect();
        met.see(&resource, &[&point]);
        let complaints = met.complaints("rule 1", "queue");
        assert_eq!(complaints, ["rule 1: no series has the attribute `zoen` of `by`"]);
        let met = Met::new(&Grouping::without(["instance"]));
        met.see(&resource, &[]);
        assert_eq!(met.complaints("x", "y").len(), 1);
    }
}
