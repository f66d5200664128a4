// SPDX-License-Identifier: Apache-2.0

//! A reload by difference: from a running graph to the graph of another plan.
//!
//! Members whose options and place are equal run on. The steps, each of which leaves all as it was if it fails:
//!
//! 1. Build the new members, around those that are kept, and check their files.
//! 2. Start those that may run beside the old ones. New receivers start with closed downstreams.
//! 3. Hold pushes for a moment; stop the members that must end before new ones begin (a queue on disk, a listener, a receiver
//!    whose port goes to an exporter), and before them all old members that push into them; start the new ones.
//! 4. Lead all downstreams to the new graph at one moment, and show the tables and composites of the new members, under the
//!    names of the new pages. Until then, those of stopped members stay visible, and new pages make their readers wait.
//!    Composites that both graphs have stay on the list, with their watches.
//! 5. Stop the receivers that are replaced or removed, and start their successors. Sources that these do not take over end
//!    when all have started.
//! 6. When the last push into the old graph has ended, stop its members. They hand on what they hold.
//!
//! `change` sorts the members by these steps. `fixed` refuses what can't change.
//!
//! A failure from step 3 on is followed by the same steps back to the old plan: stopped members are built again. Members
//! that have not stopped yet run on, or stop before step 2 if their successors can't start beside them. A member that can't
//! start then does not keep the others from it. If it is an exporter that sends, its pipelines refuse data, so that senders
//! retry. The gateway is not ready while a member of the old plan does not run.

mod change;
mod edges;
mod fixed;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use change::Changes;
use change::{Change, has};
use edges::PathEdges;
pub use fixed::parts_that_need_a_restart;

use super::graph::{BuildError, Graph, GraphMember};
use super::member::{Instance, PlannedMember};
use super::plan::Plan;
use super::running::{Running, start_within, stop_all, stop_within};
use crate::component::graph_metrics::GraphMetrics;
use crate::component::{ComponentError, Consumer, DownstreamState, Shared, TableHandle, Wiring};
use crate::config::Class;
use crate::watch::Watched;

/// The longest wait for pushes under way, before members stop that pushes must not meet.
const PUSHES_END: Duration = Duration::from_secs(5);

/// The time for a member that must end before its successor begins. Pushes wait meanwhile.
const HANDOVER: Duration = Duration::from_secs(1);

/// The name under which the health shows a failed reload.
const SERVICE: &str = "service";

/// What is missing if all members of the old plan run, but lead to those of another one.
const OLD_PIPELINES: &str = "the old pipelines";

/// The longest start of a member beside the old ones.
const START: Duration = Duration::from_secs(30);

/// The longest start of a member while pushes are held.
const START_IN_PAUSE: Duration = Duration::from_secs(10);

/// The longest start of a member that opens a log on disk. It reads the whole log, and the old instance would take as long to
/// open it again.
const OPEN_LOG: Duration = Duration::from_mins(5);

/// The time after the deadline in which a member may close its files: its successor needs them.
const CLOSE: Duration = Duration::from_secs(10);

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

/// Which plan the steps lead to.
#[derive(Clone, Copy)]
enum Direction {
    /// The new one.
    Forward,
    /// The old one, after a failure.
    Back,
}

/// A step that failed, and whether members have stopped before.
struct Failed {
    error: ReloadError,
    has_stopped: bool,
    /// The receivers that have stopped. Those of the old plan take what is left.
    receivers: Vec<GraphMember>,
}

impl Failed {
    fn early(error: ReloadError) -> Self {
        Self {
            error,
            has_stopped: false,
            receivers: Vec::new(),
        }
    }

    fn late(error: ComponentError) -> Self {
        Self {
            error: error.into(),
            has_stopped: true,
            receivers: Vec::new(),
        }
    }
}

impl Running {
    /// Runs the plan `to` instead of `from`. `clashes` has the paths of a component of each that can't listen at the same
    /// time. Call [`Self::finish`] after it, in any case.
    ///
    /// # Errors
    /// The new plan can't run. The old one runs on; a component that could not be started again is named in the health, and
    /// the gateway is not ready until a reload or a restart runs it.
    pub async fn reload(
        &mut self,
        from: &Plan,
        to: &Plan,
        clashes: &[[String; 2]],
    ) -> Result<Changes, ReloadError> {
        fixed::check(from, to)?;
        let _guard = self.shared.reloads.begin();
        let planned = self.planned();
        let services = self.shared.services.all();
        let nodes = self.metrics.nodes.iter();
        let peers: Vec<_> = nodes
            .map(|node| (node.ledger.clone(), node.ledger.peer()))
            .collect();
        let edges = PathEdges::of(&[from]);
        let failed = match self.change(to, &edges, clashes, Direction::Forward).await {
            Ok(changes) => {
                self.note_whole();
                return Ok(changes);
            }
            Err(failed) => failed,
        };
        self.shared.services.set_all(services);
        peers
            .into_iter()
            .for_each(|(ledger, labels)| ledger.goes_to(labels));
        let again = if failed.has_stopped {
            // Members of both plans may run.
            let edges = PathEdges::of(&[from, to]);
            let again = self.change_back(from, &edges, clashes).await;
            let is_busy = |failed: &Failed| matches!(failed.error, ReloadError::Busy);
            if again.as_ref().is_some_and(is_busy) {
                self.change_back(from, &edges, clashes).await
            } else {
                again
            }
        } else {
            None
        };
        drop(failed.receivers);
        // A failed handover holds pushes until the old graph is whole again.
        self.shared.wiring.resume();
        match again {
            Some(again) => self.note_missing(planned, &again.error),
            None if failed.has_stopped => self.note_whole(),
            // What was missing before is missing still.
            None => {}
        }
        Err(failed.error)
    }

    /// Returns to the old plan.
    async fn change_back(
        &mut self,
        from: &Plan,
        edges: &PathEdges,
        clashes: &[[String; 2]],
    ) -> Option<Failed> {
        // A push of the first graph must not meet the third one.
        for generation in &self.past {
            Wiring::ended(generation, Instant::now() + PUSHES_END).await;
        }
        self.change(from, edges, clashes, Direction::Back).await.err()
    }

    /// The members of the plan that runs, also those that do not run since a failed reload.
    fn planned(&self) -> Vec<PlannedMember> {
        if self.planned.is_empty() {
            self.members.iter().map(GraphMember::planned).collect()
        } else {
            self.planned.clone()
        }
    }

    /// All members of the plan run.
    fn note_whole(&mut self) {
        self.planned.clear();
        self.shared.health.trouble(SERVICE, None);
        self.shared.health.lack(None);
    }

    /// The plan of the `planned` members does not run as a whole, because it could not be restored.
    fn note_missing(&mut self, planned: Vec<PlannedMember>, error: &ReloadError) {
        let is_missing = |one: &&PlannedMember| !self.members.iter().any(|member| one.is_like(member));
        let paths: Vec<_> = planned.iter().filter(is_missing).map(|one| &*one.path).collect();
        let components = if paths.is_empty() {
            OLD_PIPELINES.to_owned()
        } else {
            paths.join(", ")
        };
        self.planned = planned;
        tracing::error!(
            %error,
            components,
            "these components do not run, because the old configuration could not be restored. Pipelines into exporters \
             among them refuse data. Correct the configuration and reload it, or restart the gateway"
        );
        let trouble = format!(
            "a reload failed, and the old configuration could not be restored: {error}. Pipelines into exporters that do \
             not run refuse data. Correct the configuration and reload it, or restart the gateway"
        );
        self.shared.health.trouble(SERVICE, Some(trouble));
        self.shared.health.lack(Some(components));
    }

    /// The counters of all components.
    pub fn metrics(&self) -> &GraphMetrics {
        &self.metrics
    }

    /// Runs `plan`. `edges`: those of the members that run.
    async fn change(
        &mut self,
        plan: &Plan,
        edges: &PathEdges,
        clashes: &[[String; 2]],
        direction: Direction,
    ) -> Result<Changes, Failed> {
        let running: Vec<_> = self.members.iter().chain(&self.leaving).collect();
        let graph = Graph::rebuild(plan, &self.shared, &running, &self.stopped, &self.metrics);
        let mut graph = graph.map_err(|errors| Failed::early(ReloadError::Build(errors)))?;
        let warnings = std::mem::take(&mut graph.warnings);
        let changes = Changes {
            warnings,
            ..Changes::between(&running, &graph)
        };
        let mut change = Change::of(graph, (&self.members, edges), &self.leaving, clashes);
        match direction {
            Direction::Forward => {
                let checked = change.check_files();
                checked.map_err(|error| Failed::early(error.into()))?;
            }
            Direction::Back => change.delay_receivers(),
        }
        self.end_leaving(&change).await;
        self.start_early(&mut change, direction).await?;
        self.hand_over(&mut change, direction).await?;
        self.commit(&change);
        let lost = change.error.take();
        let started = self.change_receivers(change, direction).await;
        match lost {
            Some(error) => Err(Failed::late(error)),
            None => started.map(|()| changes),
        }
    }

    /// Stops members that the failed plan has removed or replaced, and that the old one builds again, where both can't run
    /// at the same time.
    async fn end_leaving(&mut self, change: &Change) {
        let ending = &change.ending;
        ending
            .iter()
            .for_each(|member| member.set_downstreams(DownstreamState::Leaving));
        self.name_heirs(ending, &change.graph.members);
        stop_in_pause(ending).await;
        self.note_stopped(ending);
    }

    /// Step 2.
    async fn start_early(&self, change: &mut Change, direction: Direction) -> Result<(), Failed> {
        let early = change.early.clone();
        for (at, member) in early.iter().enumerate() {
            // Nothing may reach the new graph before it is whole.
            member.set_downstreams(DownstreamState::Closed);
            if let Err(error) = self.start_new(member, START).await {
                match direction {
                    Direction::Forward => {
                        stop_in_pause(&early[..=at]).await;
                        return Err(Failed::early(error.into()));
                    }
                    Direction::Back => self.lose(change, member, error).await,
                }
            }
        }
        Ok(())
    }

    /// Goes on without a member of the old plan that can't start again. It stays in its pipelines: an exporter that sends
    /// refuses what they push, also what goes to others beside it. So senders learn of it, and retry.
    async fn lose(&self, change: &mut Change, member: &GraphMember, error: ComponentError) {
        let lost = std::slice::from_ref(member);
        stop_in_pause(lost).await;
        self.succeed(lost);
        change.lose(member, error);
    }

    /// Starts a new member within `limit`. One that opens a log has longer, until the gateway stops.
    async fn start_new(&self, member: &GraphMember, limit: Duration) -> Result<(), ComponentError> {
        if !member.lifecycle().opens_log() {
            return start_within(member, limit).await;
        }
        let stopping = async {
            self.shared.reloads.closed().await;
            tokio::time::sleep(limit).await;
        };
        tokio::select! {
            started = start_within(member, OPEN_LOG) => started,
            () = stopping => Err(ComponentError {
                component: member.path.to_string(),
                message: "did not start before the stop of the gateway".to_owned(),
            }),
        }
    }

    /// Step 3. Pushes are held after it, until the commit.
    async fn hand_over(&mut self, change: &mut Change, direction: Direction) -> Result<(), Failed> {
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
            stop_in_pause(&change.early).await;
            return Err(Failed::early(ReloadError::Busy));
        }
        self.name_heirs(&change.first, &change.graph.members);
        self.stop_first(&change.first).await;
        self.note_stopped(&change.first);
        let late = change.late.clone();
        for member in &late {
            member.set_downstreams(DownstreamState::Closed);
            if let Err(error) = self.start_new(member, START_IN_PAUSE).await {
                if matches!(direction, Direction::Back) {
                    self.lose(change, member, error).await;
                    continue;
                }
                // All of them: one that has not started may have what its predecessor could not deliver.
                stop_in_pause(&change.late).await;
                stop_in_pause(&change.early).await;
                // Those that had started found what their predecessors held, and leave it to the old plan's members.
                self.succeed(&change.late);
                return Err(Failed::late(error));
            }
        }
        Ok(())
    }

    /// Notes members that have stopped before the commit.
    fn note_stopped(&mut self, stopped: &[GraphMember]) {
        for list in [&mut self.members, &mut self.leaving] {
            list.retain(|member| !has(stopped, member));
        }
        self.stopped.extend(stopped.iter().cloned());
        // Queues on disk: the successors find what their predecessors held.
        self.succeed(stopped);
    }

    /// Lets the ledgers of members that have stopped count only once what their successors find on disk.
    fn succeed(&self, stopped: &[GraphMember]) {
        let has_stopped = |path: &Arc<str>| stopped.iter().any(|member| member.path == *path);
        let nodes = self.metrics.nodes.iter().filter(|node| has_stopped(&node.path));
        nodes.for_each(|node| node.ledger.succeed());
    }

    /// Stops members in a pause, the last one first. Receivers have a time limit of their own: what they push must not take
    /// the time in which others hand on what they hold.
    async fn stop_first(&mut self, first: &[GraphMember]) {
        first
            .iter()
            .for_each(|member| member.set_downstreams(DownstreamState::Leaving));
        let (receivers, others): (Vec<_>, Vec<_>) = first
            .iter()
            .cloned()
            .partition(|member| member.class == Class::Receiver);
        if !receivers.is_empty() {
            stop_in_pause(&receivers).await;
            let pushed = self.shared.wiring.pause();
            if !Wiring::ended(&pushed, Instant::now() + HANDOVER).await {
                tracing::warn!("pushes of receivers that stop did not end in time");
                self.past.push(pushed);
            }
        }
        stop_in_pause(&others).await;
    }

    /// Step 4.
    fn commit(&mut self, change: &Change) {
        let shared = self.shared.clone();
        let old = change.rest.iter().chain(&change.receivers).chain(&self.stopped);
        let old: Vec<_> = old.collect();
        let started = change.early.iter().chain(&change.late).chain(&change.revived);
        // Receivers that start later and go on with a table that is shown.
        let late = change.late_receivers.iter();
        let heirs = late.filter(|new| old.iter().any(|member| new.shows_table_of(member)));
        let new: Vec<_> = started.chain(heirs).collect();
        show_instead(&shared, &old, &new, &change.graph);
        change.graph.connect(shared.wiring.next_number());
        self.past.push(shared.wiring.advance());
        shared.wiring.resume();
        // Pushes into a lost member must not wait for its start.
        for member in change.early.iter().chain(&change.late).chain(&change.lost) {
            member.set_downstreams(DownstreamState::Open);
        }
        self.leaving.retain(|member| !has(&change.revived, member));
        self.leaving.extend(change.rest.iter().cloned());
        let waits = |member: &&GraphMember| !has(&change.late_receivers, member);
        let runs = change.graph.members.iter().filter(waits).cloned();
        // Old receivers run until step 5.
        self.members = runs.chain(change.receivers.iter().cloned()).collect();
        self.metrics = change.graph.metrics.clone();
    }

    /// Step 5.
    async fn change_receivers(&mut self, change: Change, direction: Direction) -> Result<(), Failed> {
        stop_all(&change.receivers, &self.shared, Instant::now() + HANDOVER).await;
        self.members.retain(|member| !has(&change.receivers, member));
        let mut first_error = None;
        for member in change.late_receivers {
            if let Err(error) = start_within(&member, START).await {
                let failed = std::slice::from_ref(&member);
                stop_all(failed, &self.shared, Instant::now() + HANDOVER).await;
                first_error.get_or_insert(error);
                match direction {
                    Direction::Forward => break,
                    Direction::Back => continue,
                }
            }
            member.publish(&self.shared);
            self.members.push(member);
        }
        first_error.map_or(Ok(()), |error| {
            Err(Failed {
                receivers: change.receivers,
                ..Failed::late(error)
            })
        })
    }

    /// Step 6. `drain` limits it.
    pub async fn finish(&mut self, drain: Duration) {
        let deadline = Instant::now() + drain;
        let kept = composites_of(&self.members);
        let stopped = self.stopped.iter();
        let mut ended: Vec<_> = stopped.map(|member| member.path.clone()).collect();
        // After a failed return to the old plan, they are still visible.
        for member in self.stopped.drain(..) {
            member.withdraw(&self.shared, &kept);
            member.table.iter().for_each(TableHandle::close);
            member.set_exposed(false);
            end_watches(member.lifecycle().composites(), &kept);
        }
        // Those that an earlier call has waited for must not take the time of the others.
        for (generations, limit) in [
            (std::mem::take(&mut self.overdue), Instant::now()),
            (std::mem::take(&mut self.past), deadline),
        ] {
            for generation in generations {
                if !Wiring::ended(&generation, limit).await {
                    self.overdue.push(generation);
                }
            }
        }
        if self.overdue.is_empty() {
            let members = self.members.iter();
            let downstreams = members.flat_map(|member| member.downstreams.iter().flatten());
            for downstream in downstreams {
                downstream.forget_before();
            }
        } else {
            tracing::warn!("pushes into replaced components did not end in time");
        }
        let mut leaving = std::mem::take(&mut self.leaving);
        // A second change may have appended its exporters to the receivers of the first.
        leaving.sort_by_key(|member| rank(member.class));
        self.name_heirs(&leaving, &self.members);
        stop_all(&leaving, &self.shared, deadline).await;
        ended.extend(leaving.iter().map(|member| member.path.clone()));
        let is_gone = |path: &&Arc<str>| self.members.iter().all(|member| member.path != **path);
        for path in ended.iter().filter(is_gone) {
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

/// Stops members, the last one first. Their downstreams and what the service lists of them stay as they are.
async fn stop_in_pause(members: &[GraphMember]) {
    let deadline = Instant::now() + HANDOVER;
    for member in members.iter().rev() {
        stop_within(member, deadline, CLOSE).await;
    }
}

/// Shows the tables and the composites of new members instead of those of old ones, under the names of new exporters, at one
/// moment: a query sees the old ones or the new ones.
fn show_instead(shared: &Shared, old: &[&GraphMember], new: &[&GraphMember], graph: &Graph) {
    let tables = |members: &[&GraphMember]| -> Vec<_> {
        let listed = members.iter().filter_map(|member| member.listed_table());
        listed.collect()
    };
    let ending = composites_of(old.iter().copied());
    let beginning = composites_of(new.iter().copied());
    shared.tables.replace(&tables(old), || {
        let opening = new.iter().filter_map(|member| member.table.as_ref());
        opening.for_each(TableHandle::open);
        graph.show_tables();
        // A new instance may have the table of the old one, whose stop must not withdraw it.
        let closing = old.iter().filter_map(|member| member.table.as_ref());
        closing.for_each(TableHandle::close);
        shared.composites.replace(&ending, || beginning.clone());
        // An old exporter exists until the last push into it has ended.
        old.iter().for_each(|member| member.set_exposed(false));
        // A return to the old plan goes on with exporters that were replaced and still run.
        new.iter().for_each(|member| member.set_exposed(true));
        tables(new)
    });
    end_watches(&ending, &beginning);
    beginning.iter().for_each(|composite| composite.set_listed(true));
}

/// The composites of members.
fn composites_of<'a>(members: impl IntoIterator<Item = &'a GraphMember>) -> Vec<Arc<Watched>> {
    let all = members.into_iter();
    all.flat_map(|member| member.lifecycle().composites().to_vec())
        .collect()
}

/// Ends the watches of composites that a reload has replaced or removed. Those in `kept` go on.
fn end_watches(composites: &[Arc<Watched>], kept: &[Arc<Watched>]) {
    let ends = |one: &&Arc<Watched>| kept.iter().all(|other| !Arc::ptr_eq(other, one));
    let ending = composites.iter().filter(ends);
    ending.for_each(|composite| composite.set_listed(false));
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

#[cfg(test)]
mod tests;
