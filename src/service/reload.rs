// SPDX-License-Identifier: Apache-2.0

//! A reload by difference: from a running graph to the graph of another plan.
//!
//! Members whose options and place are equal run on. The steps, each of which leaves all as it was if it fails:
//!
//! 1. Build the new members, around those that are kept.
//! 2. Start those that may run beside the old ones. New receivers start with closed downstreams.
//! 3. Hold pushes for a moment; stop the members that must end before their successors begin (a queue on disk, a listener);
//!    start the successors.
//! 4. Lead all downstreams to the new graph at one moment, and show the tables of the new members.
//! 5. Stop the receivers that are replaced or removed, and start their successors.
//! 6. When the last push into the old graph has ended, stop its members. They hand on what they hold.
//!
//! A failure from step 3 on is followed by the same steps back to the old plan: stopped members are built again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::graph::{BuildError, Graph, GraphMember};
use super::member::{Instance, names_any};
use super::plan::Plan;
use super::running::{Running, start_within, stop_all, stop_each};
use crate::component::graph_metrics::GraphMetrics;
use crate::component::{ComponentError, Consumer, DownstreamState, TableHandle, Wiring};
use crate::config::{Class, ComponentId, Node, differences};
use crate::extensions;

/// The longest wait for pushes under way, before members stop that pushes must not meet.
const PUSHES_END: Duration = Duration::from_secs(5);

/// The time for a member that must end before its successor begins. Pushes wait meanwhile.
const HANDOVER: Duration = Duration::from_secs(1);

/// The name under which the health shows a failed reload.
const SERVICE: &str = "service";

/// The longest start of a member beside the old ones.
const START: Duration = Duration::from_secs(30);

/// The longest start of a member while pushes are held.
const START_IN_PAUSE: Duration = Duration::from_secs(10);

/// The time after the deadline in which a member may close its files: its successor needs them.
const CLOSE: Duration = Duration::from_secs(10);

/// Extensions that can't change while components use them.
const NEED_RESTART: [&str; 3] = [
    extensions::admin::FACTORY.kind,
    extensions::cluster::FACTORY.kind,
    extensions::file_storage::FACTORY.kind,
];

/// The parts of a plan that a reload can't change.
pub fn parts_that_need_a_restart(plan: &Plan) -> Vec<String> {
    let needs = |id: &&ComponentId| {
        let planned = plan.extensions.get(id);
        planned.is_some_and(|planned| NEED_RESTART.contains(&planned.factory.kind))
    };
    let extensions = plan.extension_order.iter().filter(needs);
    let extensions = extensions.map(|id| format!("extensions::{id}"));
    let telemetry = plan
        .telemetry_options
        .as_ref()
        .map(|_| "service::telemetry".to_owned());
    extensions.chain(telemetry).collect()
}

/// A configuration that does not run.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// A part of it can't change while the gateway runs.
    #[error("{0} can't change while the gateway runs: restart it to apply this configuration")]
    NeedsRestart(String),
    /// Components can't be built.
    #[error("components can't be built")]
    Build(Vec<BuildError>),
    /// A component can't be started.
    #[error(transparent)]
    Start(#[from] ComponentError),
    /// Pushes did not end in time.
    #[error("pushes under way did not end within 5 s: try again")]
    Busy,
}

/// The difference that a reload has made.
#[derive(Debug, Default)]
pub struct Changes {
    /// The paths of members that were added.
    pub added: Vec<Arc<str>>,
    /// The paths of members that were built anew.
    pub rebuilt: Vec<Arc<str>>,
    /// The paths of members that were removed.
    pub removed: Vec<Arc<str>>,
    /// Warnings about components that could be built.
    pub warnings: Vec<BuildError>,
}

impl Changes {
    fn between(old: &[&GraphMember], graph: &Graph) -> Self {
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

/// A step that failed, and whether members have stopped before.
struct Failed {
    error: ReloadError,
    has_stopped: bool,
}

impl Failed {
    fn early(error: ReloadError) -> Self {
        Self {
            error,
            has_stopped: false,
        }
    }

    fn late(error: ComponentError) -> Self {
        Self {
            error: error.into(),
            has_stopped: true,
        }
    }
}

/// The members of a change, in starting order.
struct Change {
    graph: Graph,
    /// New members that start beside the old ones.
    early: Vec<GraphMember>,
    /// New members other than receivers that start after their predecessors have stopped.
    late: Vec<GraphMember>,
    /// The same, receivers.
    late_receivers: Vec<GraphMember>,
    /// Old members that stop in the pause.
    first: Vec<GraphMember>,
    /// Old receivers.
    receivers: Vec<GraphMember>,
    /// All other old members.
    rest: Vec<GraphMember>,
    /// Members of an earlier graph that still run, and are part of this one again.
    revived: Vec<GraphMember>,
}

impl Change {
    fn of(graph: Graph, running: &[GraphMember], leaving: &[GraphMember]) -> Self {
        let members = graph.members.iter().filter(|member| !has(running, member));
        let (revived, fresh): (Vec<_>, Vec<_>) = members.cloned().partition(|member| has(leaving, member));
        let old = running.iter().filter(|member| !has(&graph.members, member));
        let (receivers, old): (Vec<_>, Vec<_>) =
            old.cloned().partition(|member| member.class == Class::Receiver);
        let (first, rest): (Vec<_>, Vec<_>) = old
            .into_iter()
            .partition(|member| !member.may_overlap() && fresh.iter().any(|new| follows(new, member)));
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
            let list = if member.class == Class::Receiver {
                let waits = change.receivers.iter().any(|old| follows(&member, old));
                if waits {
                    &mut change.late_receivers
                } else {
                    &mut change.early
                }
            } else {
                let waits = change.first.iter().any(|old| follows(&member, old));
                if waits {
                    &mut change.late
                } else {
                    &mut change.early
                }
            };
            list.push(member);
        }
        change
    }
}

/// Whether `new` may want what `old` has: the name, or as another one of its kind an address or a file.
fn follows(new: &GraphMember, old: &GraphMember) -> bool {
    new.path == old.path || new.class == old.class && new.parts.kind == old.parts.kind
}

fn has(members: &[GraphMember], one: &GraphMember) -> bool {
    members.iter().any(|member| member.is(one))
}

/// A component of a cluster in this section whose options change: other replicas know it as it is.
fn changed_partials<'a>(from: &'a Plan, to: &Plan, section: Class) -> Option<&'a ComponentId> {
    const KIND: &str = crate::exporters::partials::FACTORY.kind;
    let options = |plan: &'a Plan| -> Vec<(&'a ComponentId, &'a Node)> {
        match section {
            Class::Receiver => plan
                .receivers
                .iter()
                .map(|(id, one)| (id, &one.options))
                .collect(),
            _ => plan
                .exporters
                .iter()
                .map(|(id, one)| (id, &one.options))
                .collect(),
        }
    };
    let new = |id: &ComponentId| match section {
        Class::Receiver => to.receivers.get(id).map(|one| &one.options),
        _ => to.exporters.get(id).map(|one| &one.options),
    };
    let mut old = options(from).into_iter().filter(|(id, _)| id.kind == KIND);
    let changed = old.find(|(id, old)| new(id).is_some_and(|new| new != *old));
    changed.map(|(id, _)| id)
}

/// An extension that can't change and names the extension `id`.
fn fixed_user<'a>(from: &'a Plan, id: &ComponentId) -> Option<&'a ComponentId> {
    let named = BTreeSet::from([id.to_string()]);
    let mut users = from.extension_order.iter().filter(|user| *user != id);
    users.find(|user| {
        let planned = from.extensions.get(user);
        planned.is_some_and(|planned| {
            NEED_RESTART.contains(&planned.factory.kind) && names_any(&planned.options, &named)
        })
    })
}

/// Looks for changes that components can't follow while they run.
///
/// # Errors
/// The name of the first such part.
fn check(from: &Plan, to: &Plan) -> Result<(), ReloadError> {
    if from.telemetry_options != to.telemetry_options {
        let (old, new) = (from.telemetry_options.as_ref(), to.telemetry_options.as_ref());
        let changed = differences("service::telemetry", old, new);
        // Keys in another order are a change too.
        let changed = match changed.as_slice() {
            [] => "service::telemetry".to_owned(),
            keys => keys.join(", "),
        };
        return Err(ReloadError::NeedsRestart(changed));
    }
    for section in [Class::Receiver, Class::Exporter] {
        if let Some(id) = changed_partials(from, to, section) {
            return Err(ReloadError::NeedsRestart(format!("{}::{id}", section.section())));
        }
    }
    for id in &from.extension_order {
        let Some(old) = from.extensions.get(id) else {
            continue;
        };
        let runs = to.extension_order.contains(id);
        let is_same = runs
            && to
                .extensions
                .get(id)
                .is_some_and(|new| new.options == old.options);
        if !is_same && NEED_RESTART.contains(&old.factory.kind) {
            return Err(ReloadError::NeedsRestart(format!("extensions::{id}")));
        }
        if !is_same && let Some(fixed) = fixed_user(from, id) {
            return Err(ReloadError::NeedsRestart(format!(
                "extensions::{id}, which extensions::{fixed} uses,"
            )));
        }
    }
    Ok(())
}

impl Running {
    /// Runs the plan `to` instead of `from`. Call [`Self::finish`] after it, in any case.
    ///
    /// # Errors
    /// The new plan can't run. The old one runs on; a component that could not be started again is named in the health.
    pub async fn reload(&mut self, from: &Plan, to: &Plan) -> Result<Changes, ReloadError> {
        check(from, to)?;
        let services = self.shared.services.all();
        let nodes = self.metrics.nodes.iter();
        let peers: Vec<_> = nodes
            .map(|node| (node.ledger.clone(), node.ledger.peer()))
            .collect();
        let failed = match self.change(to).await {
            Ok(changes) => {
                self.shared.health.trouble(SERVICE, None);
                return Ok(changes);
            }
            Err(failed) => failed,
        };
        self.shared.services.set_all(services);
        peers
            .into_iter()
            .for_each(|(ledger, labels)| ledger.goes_to(labels));
        if failed.has_stopped {
            // A push of the first graph must not meet the third one.
            for generation in &self.past {
                Wiring::ended(generation, Instant::now() + PUSHES_END).await;
            }
        }
        let again = if failed.has_stopped {
            self.change(from).await.err()
        } else {
            None
        };
        // A failed handover holds pushes until the old graph is whole again.
        self.shared.wiring.resume();
        if let Some(again) = again {
            let error = &again.error;
            tracing::error!(%error, "the old configuration could not be restored: restart the gateway");
            let trouble =
                format!("a reload failed, and the old configuration could not be restored: {error}");
            self.shared.health.trouble(SERVICE, Some(trouble));
        }
        Err(failed.error)
    }

    /// The counters of all components.
    pub fn metrics(&self) -> &GraphMetrics {
        &self.metrics
    }

    async fn change(&mut self, plan: &Plan) -> Result<Changes, Failed> {
        let running: Vec<_> = self.members.iter().chain(&self.leaving).collect();
        let graph = Graph::rebuild(plan, &self.shared, &running, &self.stopped, &self.metrics);
        let mut graph = graph.map_err(|errors| Failed::early(ReloadError::Build(errors)))?;
        let warnings = std::mem::take(&mut graph.warnings);
        let changes = Changes {
            warnings,
            ..Changes::between(&running, &graph)
        };
        let change = Change::of(graph, &self.members, &self.leaving);
        change
            .graph
            .show_tables(|member| running.iter().all(|other| !other.is(member)));
        self.start_early(&change).await?;
        self.hand_over(&change).await?;
        self.commit(&change);
        self.change_receivers(change).await?;
        Ok(changes)
    }

    /// Step 2.
    async fn start_early(&self, change: &Change) -> Result<(), Failed> {
        for (at, member) in change.early.iter().enumerate() {
            // Nothing may reach the new graph before it is whole.
            member.set_downstreams(DownstreamState::Closed);
            if let Err(error) = start_within(member, START).await {
                self.stop_new(&change.early[..=at]).await;
                return Err(Failed::early(error.into()));
            }
        }
        Ok(())
    }

    /// Stops new members that no push has reached. Their downstreams stay closed.
    async fn stop_new(&self, members: &[GraphMember]) {
        stop_each(members, &self.shared, Instant::now() + HANDOVER, CLOSE).await;
    }

    /// Step 3. Pushes are held after it, until the commit.
    async fn hand_over(&mut self, change: &Change) -> Result<(), Failed> {
        if change.first.is_empty() && change.late.is_empty() {
            return Ok(());
        }
        // No push meets an extension.
        let meets_pushes = |member: &GraphMember| member.class != Class::Extension;
        let mut pausing = change.first.iter().chain(&change.late);
        let begun = pausing.any(meets_pushes).then(|| self.shared.wiring.pause());
        if let Some(begun) = begun
            && !Wiring::ended(&begun, Instant::now() + PUSHES_END).await
        {
            self.past.push(begun);
            self.shared.wiring.resume();
            self.stop_new(&change.early).await;
            return Err(Failed::early(ReloadError::Busy));
        }
        self.name_heirs(&change.first, &change.graph.members);
        let first = change.first.iter();
        first.for_each(|member| member.set_downstreams(DownstreamState::Leaving));
        stop_each(&change.first, &self.shared, Instant::now() + HANDOVER, CLOSE).await;
        self.members.retain(|member| !has(&change.first, member));
        self.stopped.extend(change.first.iter().cloned());
        // Queues on disk: the successors find what their predecessors held.
        let ended = |path: &Arc<str>| change.first.iter().any(|member| member.path == *path);
        let nodes = self.metrics.nodes.iter().filter(|node| ended(&node.path));
        nodes.for_each(|node| node.ledger.succeed());
        for member in &change.late {
            member.set_downstreams(DownstreamState::Closed);
            if let Err(error) = start_within(member, START_IN_PAUSE).await {
                // All of them: one that has not started may have what its predecessor could not deliver.
                self.stop_new(&change.late).await;
                self.stop_new(&change.early).await;
                return Err(Failed::late(error));
            }
        }
        Ok(())
    }

    /// Step 4.
    fn commit(&mut self, change: &Change) {
        let shared = self.shared.clone();
        let old = change.rest.iter().chain(&change.receivers);
        let old: Vec<_> = old.filter_map(|member| member.table.clone()).collect();
        let new = [&change.early, &change.late, &change.revived]
            .into_iter()
            .flatten();
        let new: Vec<_> = new.filter_map(|member| member.table.clone()).collect();
        new.iter().for_each(TableHandle::open);
        change.graph.show_tables(|_| true);
        let tables =
            |handles: &[TableHandle]| -> Vec<_> { handles.iter().filter_map(TableHandle::table).collect() };
        shared.tables.replace(&tables(&old), &tables(&new));
        // A new instance may have the table of the old one, whose stop must not withdraw it.
        old.iter().for_each(TableHandle::close);
        change.graph.connect(shared.wiring.next_number());
        self.past.push(shared.wiring.advance());
        shared.wiring.resume();
        for member in change.early.iter().chain(&change.late) {
            member.set_downstreams(DownstreamState::Open);
        }
        self.leaving.retain(|member| !has(&change.revived, member));
        self.leaving.extend(change.rest.iter().cloned());
        let waits = |member: &&GraphMember| !has(&change.late_receivers, member);
        let runs = change.graph.members.iter().filter(waits).cloned();
        // Old receivers run until step 5.
        self.members = runs.chain(change.receivers.iter().cloned()).collect();
        self.metrics = change.graph.metrics.clone();
        let members = &self.members;
        let runs = |id: &str| {
            members
                .iter()
                .any(|member| *member.path == format!("extensions::{id}"))
        };
        shared.services.retain(runs);
    }

    /// Step 5.
    async fn change_receivers(&mut self, change: Change) -> Result<(), Failed> {
        stop_all(&change.receivers, &self.shared, Instant::now() + HANDOVER).await;
        self.members.retain(|member| !has(&change.receivers, member));
        for member in change.late_receivers {
            let started = start_within(&member, START).await;
            if let Err(error) = started {
                stop_all(
                    std::slice::from_ref(&member),
                    &self.shared,
                    Instant::now() + HANDOVER,
                )
                .await;
                return Err(Failed::late(error));
            }
            member.publish_table(&self.shared);
            self.members.push(member);
        }
        Ok(())
    }

    /// Step 6. `drain` limits it.
    pub async fn finish(&mut self, drain: Duration) {
        let deadline = Instant::now() + drain;
        self.stopped.clear();
        let mut have_ended = true;
        for generation in self.past.drain(..) {
            have_ended &= Wiring::ended(&generation, deadline).await;
        }
        if !have_ended {
            tracing::warn!("pushes into replaced components did not end in time");
        }
        for downstream in self
            .members
            .iter()
            .flat_map(|member| member.downstreams.iter().flatten())
        {
            if have_ended {
                downstream.forget_before();
            }
        }
        let mut leaving = std::mem::take(&mut self.leaving);
        // A second change may have appended its exporters to the receivers of the first.
        leaving.sort_by_key(|member| rank(member.class));
        self.name_heirs(&leaving, &self.members);
        stop_all(&leaving, &self.shared, deadline).await;
        let is_gone = |path: &str| self.members.iter().all(|member| *member.path != *path);
        for path in leaving
            .iter()
            .map(|member| &*member.path)
            .filter(|path| is_gone(path))
        {
            self.shared.notices.set(path, Vec::new());
            self.shared.health.trouble(path, None);
            self.shared.health.hold(path, None);
        }
    }

    /// Lets exporters that stop give their successors what they could not deliver.
    fn name_heirs(&self, old: &[GraphMember], new: &[GraphMember]) {
        for member in old {
            let mut successors = new.iter().filter(|other| other.path == member.path);
            if let (Instance::Exporter(exporter), Some(Instance::Exporter(heir))) =
                (&member.instance, successors.next().map(|other| &other.instance))
            {
                exporter.retire(heir.clone() as Arc<dyn Consumer>);
            }
        }
    }
}

/// The place of a class in the starting order.
fn rank(class: Class) -> u8 {
    match class {
        Class::Extension => 0,
        Class::Exporter => 1,
        Class::Connector | Class::Processor => 2,
        Class::Receiver => 3,
    }
}
