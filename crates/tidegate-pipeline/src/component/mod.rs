// SPDX-License-Identifier: Apache-2.0

//! The common parts of all components: their traits, edges, factories and ledgers.

pub mod anomalies;
pub mod auth;
mod brief;
pub mod cluster;
pub mod collisions;
mod downstream;
pub mod edge;
mod error_doc;
pub mod factory;
pub mod flow;
pub mod future;
pub mod graph_metrics;
mod health;
pub mod ledger;
mod opening;
mod output_descriptor;
pub mod overview;
pub mod patterns;
pub mod queue_level;
pub mod reloads;
pub mod send_times;
pub mod services;
pub mod shared;
pub mod slow;
mod succession;
mod tables;
pub mod tap;
pub mod targets;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use tidegate_engine::Table;
use tidegate_wal::Storage;

use crate::watch::Watched;

pub use brief::Brief;
pub use cluster::{Cluster, DeltaTurn, Election};
pub use downstream::{Downstream, DownstreamState, Generation, Wiring};
pub use edge::{Edge, Entry, EntryCounts, FanOut};
pub use error_doc::ErrorDoc;
pub use factory::{
    ConfigType, ConnectorContext, ConnectorFactory, ExporterContext, ExporterFactory, ExtensionFactory,
    Factory, ProcessorContext, ProcessorFactory, ReceiverContext, ReceiverFactory, Settings, Stability,
};
pub use flow::{Consumer, Flow, PushAnswer, PushOutcome, Refused};
pub use ledger::{Balance, Ledger, PeerLabels, Reason};
pub use opening::Opening;
pub use output_descriptor::OutputDescriptor;
pub use shared::{Confirm, Evaluate, Evaluation, Evaluator, ReadToken, SelectedSource, Shared};
pub use succession::TableSuccession;
pub use tables::TableHandle;
pub use tidegate_runtime::{Account, Ceiling, Held, Limit, NoRoom, account, unix_now, wall_now};
pub use tidegate_runtime::{files, worker};

/// The error of a component that could not be built or started. The message names the option and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{component}: {message}")]
pub struct ComponentError {
    /// `receivers::nixl`, ...
    pub component: String,
    /// The problem and its remedy.
    pub message: String,
}

/// The lifecycle of every receiver, processor, exporter, connector and extension.
///
/// The service starts exporters first and receivers last, and stops components in the opposite order.
#[async_trait]
pub trait Lifecycle: Send + Sync {
    /// Checks files without which the start fails, such as a certificate. A reload asks its new components before it stops
    /// any old one.
    ///
    /// # Errors
    /// The component can't start with these files.
    fn check_files(&self) -> Result<(), ComponentError> {
        Ok(())
    }

    /// Opens sockets and starts tasks. Returns when the component is ready. The service calls it once. What has started must be
    /// known to [`Self::stop`] even if a later part fails or the future is dropped.
    async fn start(&self) -> Result<(), ComponentError> {
        Ok(())
    }

    /// Stops input, hands on the held items until `deadline`, and returns when all tasks of the component have
    /// ended. The rest counts as dropped, by [`Reason::Shutdown`]. The call is safe if `start` never ran.
    async fn stop(&self, _deadline: Instant) {}

    /// Whether its start opens a log on disk, and takes the time to read it.
    fn opens_log(&self) -> bool {
        false
    }

    /// The composites that it computes. The service lists them in [`Shared::composites`] while it runs, and until its
    /// successor runs.
    fn composites(&self) -> &[Arc<Watched>] {
        &[]
    }
}

/// An input of data. It pushes batches into its edges and answers its peers with the results.
pub trait Receiver: Lifecycle {
    /// The table whose contents it pushes, if it has one. Exporters that its pushes reach unedited may read the table
    /// instead.
    fn table(&self) -> Option<&Arc<Table>> {
        None
    }

    /// Checks what it needs of extensions, when all of them are built. A reload checks an instance that it keeps too.
    ///
    /// # Errors
    /// It can't run with them.
    fn check_needs(&self) -> Result<(), ComponentError> {
        Ok(())
    }
}

/// A component that inspects or changes data. Each pipeline has its own instance.
pub trait Processor: Lifecycle + Consumer {
    /// The metrics that it produces, if its options fix their names and labels.
    fn outputs(&self) -> Vec<OutputDescriptor> {
        Vec::new()
    }

    /// Whether it can change or drop the output of earlier processors, so that no reader may show their tables in place.
    ///
    /// A processor that takes points into a table of its own answers false: pages show both tables.
    fn edits(&self) -> bool {
        false
    }

    /// The table whose contents it pushes, if it has one. Exporters that its pushes reach unedited may read the
    /// table instead.
    fn table(&self) -> Option<&Arc<Table>> {
        None
    }

    /// Whether it may run while another instance with the same name ends. If not, a reload stops the old instance before
    /// it starts the new one.
    fn may_overlap(&self) -> bool {
        true
    }

    /// Whether its start takes over the state of the instance that it replaces. A reload then stops that one first.
    fn takes_over(&self) -> bool {
        false
    }
}

/// An output of data. All pipelines that name it share one instance.
pub trait Exporter: Lifecycle + Consumer {
    /// Gives it the tables of all components whose pushes reach it unedited, instead of those given before. It may read
    /// these tables, and ignore the batches with their owners in `Batch::snapshot_of`. The service calls this before the
    /// start of the gateway. At a reload, it calls it when all components of the new graph run, also for an exporter that has
    /// started before.
    fn show_tables(&self, _tables: Vec<TableHandle>) {}

    /// Sets whether queries see its tables under its names, as they do from its build on. A reload hides the instances that
    /// it replaces when it shows the tables of the new ones. If it fails, it shows those again that still run. It must not
    /// use the list [`Shared::tables`], which is locked meanwhile.
    fn set_exposed(&self, _is_exposed: bool) {}

    /// The table of its own, with data that it can't get again. The instance that replaces it may go on with this table.
    fn table(&self) -> Option<&Arc<Table>> {
        None
    }

    /// Whether it may run while another instance with the same name ends, see [`Processor::may_overlap`].
    fn may_overlap(&self) -> bool {
        false
    }

    /// Names the instance that replaces it. At the stop, that one gets the batches that could not be delivered. The
    /// ledgers of both are the same.
    fn retire(&self, _heir: Arc<dyn Consumer>) {}
}

/// A component that is an exporter of some pipelines and a receiver of others. It passes metrics unchanged.
pub trait Connector: Lifecycle + Consumer {}

/// A component beside the pipelines, such as health checks, admin pages, authentication or storage.
pub trait Extension: Lifecycle {
    /// The services that it offers to components that name it.
    fn services(&self) -> services::Services {
        services::Services::default()
    }

    /// The table of its series, if it has one. The service lists it in [`Shared::tables`].
    fn table(&self) -> Option<&Arc<Table>> {
        None
    }

    /// Checks what it needs of other extensions, when all of them are built.
    ///
    /// # Errors
    /// It can't run with them.
    fn check_needs(&self) -> Result<(), ComponentError> {
        Ok(())
    }

    /// Whether files that its options name have changed since it was built. A reload then builds it again, although its
    /// options are equal.
    fn is_outdated(&self) -> bool {
        false
    }
}

/// The name of a component, and the services that it shares with others.
#[derive(Clone)]
pub struct Context {
    /// The path of the component, for messages and labels: `receivers::nixl/node`.
    pub path: Arc<str>,
    /// The id in the configuration: `nixl/node`.
    pub id: Arc<str>,
    /// The state that all components of the gateway share: memory in use, composites, own metrics.
    pub shared: Arc<crate::component::Shared>,
}

impl Context {
    /// Creates an error that names this component.
    pub fn error(&self, message: impl Into<String>) -> ComponentError {
        ComponentError {
            component: self.path.to_string(),
            message: message.into(),
        }
    }

    /// The storage with the given id, which the option `option` names.
    ///
    /// # Errors
    /// The service has no storage extension with this id.
    pub fn storage(&self, option: &str, id: &str) -> Result<Arc<Storage>, ComponentError> {
        let found = self.shared.services.get(id).and_then(|found| found.storage);
        found.ok_or_else(|| {
            self.error(format!(
                "{option}: `{id}` is not a storage extension in `service::extensions`"
            ))
        })
    }

    /// The cluster with the given id, which the option `option` names.
    ///
    /// # Errors
    /// The service has no cluster extension with this id.
    pub fn cluster(&self, option: &str, id: &str) -> Result<Arc<Cluster>, ComponentError> {
        let found = self.shared.services.get(id).and_then(|found| found.cluster);
        found.ok_or_else(|| {
            self.error(format!(
                "{option}: `{id}` is not a cluster extension in `service::extensions`"
            ))
        })
    }
}
