// SPDX-License-Identifier: Apache-2.0

//! The graph: connected instances. `builder` builds it.

use std::sync::Arc;

use super::builder::Builder;
pub use super::member::GraphMember;
use super::plan::Plan;
use super::{cycles, writers};
use crate::component::graph_metrics::GraphMetrics;
use crate::component::{ComponentError, Consumer, Downstream, Exporter, Shared, TableHandle};
use crate::config::{Class, ComponentId};

/// Connected instances. New ones are not started. Starting order: extensions, exporters, pipelines upstream, receivers.
#[derive(Default)]
pub struct Graph {
    /// The members in starting order.
    pub members: Vec<GraphMember>,
    /// The counters for tidegate's own telemetry. Those of removed components stay.
    pub metrics: GraphMetrics,
    /// Warnings about components that could be built.
    pub warnings: Vec<BuildError>,
    /// The tables that exporters show.
    pub(super) tables: Vec<(Arc<dyn Exporter>, Vec<TableHandle>)>,
    /// Where the downstreams of kept instances lead.
    pub(super) connections: Vec<(Arc<Downstream>, Arc<dyn Consumer>)>,
}

/// A failed build, with the component at fault.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct BuildError {
    /// The section of the component.
    pub class: Class,
    /// The id of the component.
    pub id: ComponentId,
    /// The error of the component.
    pub error: ComponentError,
}

impl Graph {
    /// Builds every component that a pipeline or `service::extensions` names. Opens no files or sockets.
    ///
    /// # Errors
    /// Components can't be built, or certainly make the same series twice. Each has an error.
    pub fn build(plan: &Plan, shared: &Arc<Shared>) -> Result<Self, Vec<BuildError>> {
        Self::rebuild(plan, shared, &[], &[], &GraphMetrics::default())
    }

    /// The same around running members: those whose parts stay equal are kept.
    ///
    /// # Errors
    /// Those of [`Self::build`]. The running members are as before.
    pub(super) fn rebuild(
        plan: &Plan,
        shared: &Arc<Shared>,
        running: &[&GraphMember],
        stopped: &[GraphMember],
        counted: &GraphMetrics,
    ) -> Result<Self, Vec<BuildError>> {
        let mut builder = Builder::new(plan, shared.clone(), (running, stopped), counted);
        builder.instances();
        let duplicates = writers::check(plan, &builder.series_writers);
        builder.errors.extend(duplicates.certain);
        builder.errors.extend(cycles::check(plan));
        builder.finish(duplicates.possible)
    }

    /// Gives the exporters their tables.
    pub(super) fn show_tables(&self) {
        for (exporter, handles) in &self.tables {
            exporter.show_tables(handles.clone());
        }
    }

    /// Leads the downstreams of kept instances to this graph, for pushes of the generation `since`.
    pub(super) fn connect(&self, since: u64) {
        for (downstream, next) in &self.connections {
            downstream.connect(since, next.clone());
        }
    }
}
