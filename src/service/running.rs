// SPDX-License-Identifier: Apache-2.0

//! A running graph: it starts from exporters to receivers, and stops in the opposite order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::graph::{Graph, GraphMember};
use super::member::PlannedMember;
use crate::component::account::default_limit;
use crate::component::graph_metrics::GraphMetrics;
use crate::component::shared::Phase;
use crate::component::{ComponentError, DownstreamState, Generation, Shared};

/// Running components.
pub struct Running {
    /// The members in starting order.
    pub(super) members: Vec<GraphMember>,
    /// The counters of these and of removed components.
    pub(super) metrics: GraphMetrics,
    pub(super) shared: Arc<Shared>,
    /// Members that a reload has replaced or removed, and that still hand on what they hold.
    pub(super) leaving: Vec<GraphMember>,
    /// Members that a reload has stopped. A return to the old plan takes their tables.
    pub(super) stopped: Vec<GraphMember>,
    /// The members of the plan, if a failed reload could not restore all of them. Otherwise empty.
    pub(super) planned: Vec<PlannedMember>,
    /// Generations whose pushes may still reach them.
    pub(super) past: Vec<Arc<Generation>>,
    /// Generations whose pushes did not end in time. Their consumers stay.
    pub(super) overdue: Vec<Arc<Generation>>,
    /// The task that measures memory.
    watching: JoinHandle<()>,
}

impl Running {
    /// Starts every member. If one fails, the started ones are stopped before the error returns.
    ///
    /// # Errors
    /// A component can't start. The error is that of the first one.
    pub async fn start(graph: Graph, shared: Arc<Shared>, drain: Duration) -> Result<Self, ComponentError> {
        shared.health.enter(Phase::Starting);
        if let Some(bytes) = default_limit() {
            shared.memory.set_default_limit(bytes);
        }
        graph.show_tables();
        let memory = shared.memory.clone();
        let mut running = Self {
            members: Vec::new(),
            metrics: graph.metrics,
            shared,
            leaving: Vec::new(),
            stopped: Vec::new(),
            planned: Vec::new(),
            past: Vec::new(),
            overdue: Vec::new(),
            watching: tokio::spawn(async move { memory.watch().await }),
        };
        for member in graph.members {
            let started = start(&member).await;
            if started.is_ok() {
                member.publish(&running.shared);
            }
            running.members.push(member);
            if let Err(error) = started {
                running.stop(drain).await;
                return Err(error);
            }
        }
        running.shared.health.enter(Phase::Ready);
        Ok(running)
    }

    /// The paths of the components.
    pub fn paths(&self) -> Vec<Arc<str>> {
        self.members.iter().map(|member| member.path.clone()).collect()
    }

    /// Stops receivers first and exporters last. Each hands on its held data; `drain` limits the whole stop.
    pub async fn stop(self, drain: Duration) {
        self.shared.health.enter(Phase::Stopping);
        // A listener that stops waits for its answers.
        self.shared.reloads.close();
        stop_all(&self.members, &self.shared, Instant::now() + drain).await;
        self.watching.abort();
    }
}

/// Starts a member of a running graph within a time limit.
///
/// # Errors
/// The component can't start, or not in time.
pub(super) async fn start_within(member: &GraphMember, limit: Duration) -> Result<(), ComponentError> {
    let started = tokio::time::timeout(limit, start(member)).await;
    started.unwrap_or_else(|_| {
        Err(ComponentError {
            component: member.path.to_string(),
            message: format!("did not start within {} s", limit.as_secs()),
        })
    })
}

/// Starts a member.
pub(super) async fn start(member: &GraphMember) -> Result<(), ComponentError> {
    tracing::debug!(component = %member.path, "starting");
    member.lifecycle().start().await
}

/// Stops members, the last one first. Each hands on its held data by the deadline.
pub(super) async fn stop_all(members: &[GraphMember], shared: &Shared, deadline: Instant) {
    members
        .iter()
        .for_each(|member| member.set_downstreams(DownstreamState::Leaving));
    for member in members.iter().rev() {
        stop_within(member, deadline, STOP_GRACE).await;
        member.withdraw(shared, &[]);
    }
}

/// Stops a member. After the deadline and the grace, it is abandoned: it must not keep the others from draining.
pub(super) async fn stop_within(member: &GraphMember, deadline: Instant, grace: Duration) {
    tracing::debug!(component = %member.path, "stopping");
    let limit = deadline.saturating_duration_since(Instant::now()) + grace;
    let stopped = tokio::time::timeout(limit, member.lifecycle().stop(deadline)).await;
    if stopped.is_err() {
        tracing::warn!(component = %member.path, "did not stop in time and was abandoned");
    }
}

/// The time after the deadline for a component to count its losses and return.
const STOP_GRACE: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::component::reloads::NotReloaded;
    use crate::service::testing::{DRAIN, graph, plan};

    #[tokio::test]
    async fn a_start_that_fails_answers_requests_for_a_reload() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let yaml = format!(
            "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"{}\"}}}}}}}}
exporters: {{nop: {{}}}}
service: {{pipelines: {{logs: {{receivers: [otlp], exporters: [nop]}}}}}}",
            taken.local_addr().unwrap()
        );
        let shared = Arc::new(Shared::default());
        let graph = graph(&plan(&yaml), &shared);
        shared.reloads.support();
        let asking = shared.clone();
        let asked = tokio::spawn(async move { asking.reloads.ask("POST /-/reload").await });
        shared.reloads.asked().await;
        let started = Running::start(graph, shared, DRAIN).await;
        assert!(started.is_err(), "the port is taken");
        assert_eq!(asked.await.unwrap(), Err(NotReloaded::Stopping));
    }
}
