// SPDX-License-Identifier: Apache-2.0

//! The difference between a running graph and the next one: which members start and stop, and in which step.

use std::sync::Arc;

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
    /// Old members that stop in the pause, also receivers.
    pub(super) first: Vec<GraphMember>,
    /// Other old receivers.
    pub(super) receivers: Vec<GraphMember>,
    /// All other old members.
    pub(super) rest: Vec<GraphMember>,
    /// Members of an earlier graph that still run, and are part of this one again.
    pub(super) revived: Vec<GraphMember>,
}

impl Change {
    /// Sorts the members of `graph` by the step in which they start, and the others by that in which they stop. `clashes`:
    /// the paths of members of both graphs that can't listen at the same time.
    pub(super) fn of(
        graph: Graph,
        running: &[GraphMember],
        leaving: &[GraphMember],
        clashes: &[[String; 2]],
    ) -> Self {
        let members = graph.members.iter().filter(|member| !has(running, member));
        let (revived, fresh): (Vec<_>, Vec<_>) = members.cloned().partition(|member| has(leaving, member));
        let old = running.iter().filter(|member| !has(&graph.members, member));
        let (first, old): (Vec<_>, Vec<_>) = old
            .cloned()
            .partition(|member| fresh.iter().any(|new| stops_first(new, member, clashes)));
        let (receivers, rest): (Vec<_>, Vec<_>) = old
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
