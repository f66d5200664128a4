// SPDX-License-Identifier: Apache-2.0

//! For tests: the plan, the graph and the running members of a configuration.

use std::sync::Arc;
use std::time::Duration;

use super::{Graph, Plan, Running};
use crate::commands::load;
use crate::component::Shared;
use crate::config::Loader;

/// The time limit of a stop.
pub(super) const DRAIN: Duration = Duration::from_secs(10);

/// The plan of a valid configuration.
pub(super) fn plan(yaml: &str) -> Plan {
    let loaded = load::load_from(Loader::default().config(&format!("yaml:\n{yaml}")));
    loaded.unwrap_or_else(|_| panic!("{yaml} should load")).plan
}

/// The graph of a plan whose components can be built.
pub(super) fn graph(plan: &Plan, shared: &Arc<Shared>) -> Graph {
    Graph::build(plan, shared).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// The running members of a plan.
pub(super) async fn run(plan: &Plan, shared: &Arc<Shared>) -> Running {
    let graph = graph(plan, shared);
    Running::start(graph, shared.clone(), DRAIN).await.unwrap()
}
