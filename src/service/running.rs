// SPDX-License-Identifier: Apache-2.0

//! A running graph: it starts from exporters to receivers, and stops in the opposite order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::graph::{Graph, GraphMember};
use crate::component::account::default_limit;
use crate::component::shared::Phase;
use crate::component::{ComponentError, Shared};

/// Running components.
pub struct Running {
    members: Vec<GraphMember>,
    shared: Arc<Shared>,
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
        let memory = shared.memory.clone();
        let mut running = Self {
            members: Vec::new(),
            shared,
            watching: tokio::spawn(async move { memory.watch().await }),
        };
        for member in graph.members {
            tracing::debug!(component = %member.path, "starting");
            let started = member.life.start().await;
            if started.is_ok() {
                member.publish_table(&running.shared);
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

    /// Stops receivers first and exporters last. Each hands on its held data; `drain` limits the whole stop.
    pub async fn stop(self, drain: Duration) {
        self.shared.health.enter(Phase::Stopping);
        let deadline = Instant::now() + drain;
        for member in self.members.iter().rev() {
            tracing::debug!(component = %member.path, "stopping");
            // A component that overruns its deadline must not keep the others from draining.
            let grace = deadline.saturating_duration_since(Instant::now()) + STOP_GRACE;
            if tokio::time::timeout(grace, member.life.stop(deadline))
                .await
                .is_err()
            {
                tracing::warn!(component = %member.path, "did not stop in time and was abandoned");
            }
            member.withdraw_table(&self.shared);
        }
        self.watching.abort();
    }
}

/// The time after the deadline for a component to count its losses and return.
const STOP_GRACE: Duration = Duration::from_millis(250);
