// SPDX-License-Identifier: Apache-2.0

//! Which components of a plan push into which others.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::{Class, ComponentId};
use crate::service::builder::Position;
use crate::service::graph::GraphMember;
use crate::service::plan::Plan;

/// The edges of plans: the path of a component, and those of the ones that it pushes into.
pub(super) struct PathEdges(BTreeMap<String, BTreeSet<String>>);

impl PathEdges {
    /// The edges of all these plans.
    pub(super) fn of(plans: &[&Plan]) -> Self {
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for plan in plans {
            for pipeline in &plan.pipelines {
                let processor = |id| Position {
                    class: Class::Processor,
                    id,
                    pipeline: Some(&pipeline.id),
                };
                let processors = pipeline.processors.iter().map(|id| vec![processor(id).path()]);
                let exporters = ends(plan, &pipeline.exporters, Class::Exporter);
                let mut from = ends(plan, &pipeline.receivers, Class::Receiver);
                for to in processors.chain([exporters]) {
                    for one in from {
                        edges.entry(one).or_default().extend(to.iter().cloned());
                    }
                    from = to;
                }
            }
        }
        Self(edges)
    }

    /// Whether one member pushes into another.
    pub(super) fn lead(&self, from: &GraphMember, to: &GraphMember) -> bool {
        let next = self.0.get(&*from.path);
        next.is_some_and(|next| next.contains(&*to.path))
    }
}

/// The paths of components at an end of a pipeline: connectors, or others of this class.
fn ends(plan: &Plan, ids: &[ComponentId], class: Class) -> Vec<String> {
    let class_of = |id: &ComponentId| {
        if plan.connectors.contains_key(id) {
            Class::Connector
        } else {
            class
        }
    };
    let positions = ids.iter().map(|id| Position::of(class_of(id), id));
    positions.map(|position| position.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::testing::plan;

    #[test]
    fn edges_lead_through_processors_and_connectors() {
        let yaml = "receivers: {nop: {}}
processors: {resource: {attributes: [{key: a, value: b, action: insert}]}, batch: {}}
exporters: {nop: {}}
connectors: {forward: {}}
service:
  pipelines:
    logs/a: {receivers: [nop], processors: [resource, batch], exporters: [forward, nop]}
    logs/b: {receivers: [forward], exporters: [nop]}";
        let edges = PathEdges::of(&[&plan(yaml)]).0;
        let pairs = edges
            .iter()
            .flat_map(|(one, next)| next.iter().map(move |other| [&**one, &**other]));
        let found: Vec<_> = pairs.collect();
        assert_eq!(
            found,
            [
                ["connectors::forward", "exporters::nop"],
                ["processors::batch@logs/a", "connectors::forward"],
                ["processors::batch@logs/a", "exporters::nop"],
                ["processors::resource@logs/a", "processors::batch@logs/a"],
                ["receivers::nop", "processors::resource@logs/a"],
            ]
        );
    }
}
