// SPDX-License-Identifier: Apache-2.0

//! The difference between a running graph and the next one: which members start and stop, and in which step.

use std::sync::Arc;

use super::edges::PathEdges;
use crate::component::ComponentError;
use crate::config::Class;
use crate::service::graph::{BuildError, Graph, GraphMember};

/// The difference that a reload has made.
#[derive(Debug, Default)]
pub struct Changes {
    /// The paths of members that were added.
    pub added: Vec<Arc<str>>,
    /// The paths of members that were built again.
    pub rebuilt: Vec<Arc<str>>,
    /// The paths of members that were removed.
    pub removed: Vec<Arc<str>>,
    /// Warnings about components that could be built.
    pub warnings: Vec<BuildError>,
}

impl Changes {
    /// The difference between the running members and a graph.
    pub(super) fn between(old: &[&GraphMember], graph: &Graph) -> Self {
        let mut changes = Self::default();
        let is_new = |member: &&GraphMember| old.iter().all(|other| !other.is(member));
        for member in graph.members.iter().filter(is_new) {
            let was = old.iter().any(|other| other.path == member.path);
            let list = if was {
                &mut changes.rebuilt
            } else {
                &mut changes.added
            };
            list.push(member.path.clone());
        }
        let is_gone = |member: &&GraphMember| graph.members.iter().all(|other| other.path != member.path);
        let old = old.iter().copied();
        changes.removed = old.filter(is_gone).map(|member| member.path.clone()).collect();
        changes
    }
}

/// The members of a change, in starting order.
pub(super) struct Change {
    pub(super) graph: Graph,
    /// New members that start beside the old ones.
    pub(super) early: Vec<GraphMember>,
    /// New members other than receivers that start after their predecessors have stopped.
    pub(super) late: Vec<GraphMember>,
    /// The same, receivers.
    pub(super) late_receivers: Vec<GraphMember>,
    /// Old members that stop in the pause, also receivers. All old members that push into one of them belong to them.
    pub(super) first: Vec<GraphMember>,
    /// Other old receivers.
    pub(super) receivers: Vec<GraphMember>,
    /// All other old members.
    pub(super) rest: Vec<GraphMember>,
    /// Members of an earlier graph that still run, and are part of this one again.
    pub(super) revived: Vec<GraphMember>,
    /// Members of an earlier graph that still run, and have to stop before their successors start.
    pub(super) ending: Vec<GraphMember>,
    /// New members other than receivers that could not start, on the return to the old plan.
    pub(super) lost: Vec<GraphMember>,
    /// The error of the first of them.
    pub(super) error: Option<ComponentError>,
}

impl Change {
    /// Sorts the members of `graph` by the step in which they start, and the others by that in which they stop. `edges`:
    /// those of the running graph. `clashes`: the paths of members of both graphs that can't listen at the same time.
    pub(super) fn of(
        graph: Graph,
        (running, edges): (&[GraphMember], &PathEdges),
        leaving: &[GraphMember],
        clashes: &[[String; 2]],
    ) -> Self {
        let members = graph.members.iter().filter(|member| !has(running, member));
        let (revived, fresh): (Vec<_>, Vec<_>) = members.cloned().partition(|member| has(leaving, member));
        let gone = leaving.iter().filter(|member| !has(&revived, member));
        let (ending, _) = split(gone, edges, |member| {
            fresh.iter().any(|new| replaces_alone(new, member))
        });
        // Members that are kept push into the new graph.
        let old = running.iter().filter(|member| !has(&graph.members, member));
        let (first, others) = split(old, edges, |member| {
            fresh.iter().any(|new| stops_first(new, member, clashes))
        });
        let (receivers, rest): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|member| member.class == Class::Receiver);
        let mut change = Self {
            graph,
            early: Vec::new(),
            late: Vec::new(),
            late_receivers: Vec::new(),
            first,
            receivers,
            rest,
            revived,
            ending,
            lost: Vec::new(),
            error: None,
        };
        for member in fresh {
            let mut old = change.first.iter().chain(&change.receivers);
            let waits = old.any(|old| follows(&member, old) || clash(&member, old, clashes));
            let list = match (waits, member.class) {
                (false, _) => &mut change.early,
                (true, Class::Receiver) => &mut change.late_receivers,
                (true, _) => &mut change.late,
            };
            list.push(member);
        }
        change
    }

    /// Lets all new receivers start last: then one that can't start does not keep the others from it.
    pub(super) fn delay_receivers(&mut self) {
        let early = std::mem::take(&mut self.early).into_iter();
        let (receivers, early): (Vec<_>, Vec<_>) = early.partition(|member| member.class == Class::Receiver);
        self.early = early;
        self.late_receivers.extend(receivers);
    }

    /// Takes a new member that could not start out of the change.
    pub(super) fn lose(&mut self, member: &GraphMember, error: ComponentError) {
        for list in [&mut self.early, &mut self.late, &mut self.graph.members] {
            list.retain(|other| !other.is(member));
        }
        self.lost.push(member.clone());
        self.error.get_or_insert(error);
    }

    /// Checks the files of all new members, while the old ones run.
    pub(super) fn check_files(&self) -> Result<(), ComponentError> {
        let early = self.early.iter().chain(&self.late);
        let mut new = early.chain(&self.late_receivers);
        new.try_for_each(|member| member.lifecycle().check_files())
    }
}

/// Splits members in starting order: those that have to stop, with all that push into them, and the others.
fn split<'a>(
    members: impl Iterator<Item = &'a GraphMember>,
    edges: &PathEdges,
    has_to: impl Fn(&GraphMember) -> bool,
) -> (Vec<GraphMember>, Vec<GraphMember>) {
    let (mut stopping, mut others) = (Vec::new(), Vec::new());
    // A member starts after those that it pushes into.
    for member in members {
        if has_to(member) || stopping.iter().any(|next| edges.lead(member, next)) {
            stopping.push(member.clone());
        } else {
            others.push(member.clone());
        }
    }
    (stopping, others)
}

/// Whether `old` has to stop before pushes go on, for `new` to start.
fn stops_first(new: &GraphMember, old: &GraphMember, clashes: &[[String; 2]]) -> bool {
    if old.class == Class::Receiver {
        // Receivers stop last, unless something other than a receiver waits for the address.
        return new.class != Class::Receiver && clash(new, old, clashes);
    }
    let takes_over = new.path == old.path && new.takes_over();
    takes_over || !old.may_overlap() && follows(new, old) || clash(new, old, clashes)
}

/// Whether `new` has the name of `old`, and can't start beside it.
fn replaces_alone(new: &GraphMember, old: &GraphMember) -> bool {
    new.path == old.path && (new.takes_over() || !old.may_overlap())
}

/// Whether both can't listen at the same time.
fn clash(new: &GraphMember, old: &GraphMember, clashes: &[[String; 2]]) -> bool {
    let (new, old) = (&*new.path, &*old.path);
    clashes
        .iter()
        .any(|[one, other]| (one == new && other == old) || (one == old && other == new))
}

/// Whether `new` may want what `old` has: the name, or as another one of its kind a file.
fn follows(new: &GraphMember, old: &GraphMember) -> bool {
    new.path == old.path || new.class == old.class && new.parts.kind == old.parts.kind
}

pub(super) fn has(members: &[GraphMember], one: &GraphMember) -> bool {
    members.iter().any(|member| member.is(one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::Shared;
    use crate::component::graph_metrics::GraphMetrics;
    use crate::service::plan::Plan;
    use crate::service::testing::{self, graph};

    /// A pipeline that ends in an aggregate with its state on disk.
    fn plan(port: u16, processors: &str, interval: &str) -> Plan {
        let yaml = format!(
            "extensions: {{file_storage: {{directory: state}}}}
receivers:
  nop: {{}}
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\"}}}}}}
processors:
  resource: {{attributes: [{{key: a, value: b, action: insert}}]}}
  aggregate/first: {{rules: [{{match: {{name: a}}, instrument: counter}}]}}
  aggregate: {{storage: file_storage, interval: {interval}, rules: [{{match: {{name: b}}, instrument: counter}}]}}
exporters: {{nop: {{}}}}
service:
  extensions: [file_storage]
  pipelines:
    metrics: {{receivers: [otlp, nop], processors: [{processors}], exporters: [nop]}}
    logs: {{receivers: [nop], processors: [resource], exporters: [nop]}}"
        );
        testing::plan(&yaml)
    }

    fn change(from: &Plan, to: &Plan) -> Change {
        let shared = Arc::new(Shared::default());
        let old = graph(from, &shared);
        let running: Vec<_> = old.members.iter().collect();
        let new = Graph::rebuild(to, &shared, &running, &[], &GraphMetrics::default());
        let new = new.unwrap_or_else(|errors| panic!("should be built: {errors:?}"));
        Change::of(new, (&old.members, &PathEdges::of(&[from])), &[], &[])
    }

    fn paths(members: &[GraphMember]) -> Vec<&str> {
        members.iter().map(|member| &*member.path).collect()
    }

    #[test]
    fn old_members_stop_with_what_they_push_into() {
        let from = plan(4318, "aggregate/first, aggregate", "1s");
        let change = change(&from, &plan(4319, "aggregate", "2s"));
        let expected = [
            "processors::aggregate@metrics",
            "processors::aggregate/first@metrics",
            "receivers::otlp",
        ];
        assert_eq!(paths(&change.first), expected);
        assert!(change.receivers.is_empty() && change.rest.is_empty());
        assert_eq!(paths(&change.late), ["processors::aggregate@metrics"]);
        assert_eq!(paths(&change.late_receivers), ["receivers::otlp"]);
    }

    #[test]
    fn kept_members_part_old_ones_from_what_stops_first() {
        // `aggregate/first` stays: it leads what the old receiver pushes to the new graph.
        let from = plan(4318, "aggregate/first, aggregate", "1s");
        let change = change(&from, &plan(4319, "aggregate/first, aggregate", "2s"));
        assert_eq!(paths(&change.first), ["processors::aggregate@metrics"]);
        assert_eq!(paths(&change.receivers), ["receivers::otlp"]);
    }
}
