//! What every component sees: the traits it implements, the edge it pushes into, its factory, its ledger.

pub mod auth;
mod brief;
pub mod collisions;
pub mod edge;
pub mod factory;
pub mod flow;
pub mod future;
pub mod graph_metrics;
pub mod ledger;
mod output_descriptor;
pub mod overview;
pub mod patterns;
pub mod services;
pub mod shared;
pub mod slow;
pub mod strays;
pub mod targets;
#[cfg(test)]
pub(crate) mod testing;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use tidegate_wal::Storage;

pub use brief::Brief;
pub use edge::{Edge, Entry, EntryCounts, FanOut};
pub use factory::{
    ConfigType, ConnectorContext, ConnectorFactory, ExporterContext, ExporterFactory, ExtensionFactory,
    Factory, ProcessorContext, ProcessorFactory, ReceiverContext, ReceiverFactory, Settings, Stability,
};
pub use flow::{Answer, Consumer, Flow, PushOutcome, Refused};
pub use ledger::{Balance, Ledger, PeerLabels, Reason};
pub use output_descriptor::OutputDescriptor;
pub use shared::{Evaluate, Evaluation, Evaluator, SelectedSource, Shared};
pub use tidegate_runtime::{Account, Ceiling, Held, Limit, NoRoom, account, unix_now, wall_now};
pub(crate) use tidegate_runtime::{files, worker};

/// Why a component could not be built or started, for people: names the option and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{component}: {message}")]
pub struct ComponentError {
    /// `receivers::nixl`, ...
    pub component: String,
    /// What went wrong and what to do about it.
    pub message: String,
}

/// A part with a life: every receiver, processor, exporter, connector and extension.
///
/// The service starts exporters first and receivers last, and stops them in the other direction.
#[async_trait]
pub trait Lifecycle: Send + Sync {
    /// Opens sockets and starts tasks. Returns when the component is ready. Called once.
    async fn start(&self) -> Result<(), ComponentError> {
        Ok(())
    }

    /// Stops taking in, hands on what it holds (as far as `deadline` allows) and returns when no task of it is left.
    /// What could not be handed on is counted as dropped by `Reason::Shutdown`. Safe when `start` never ran.
    async fn stop(&self, _deadline: Instant) {}
}

/// Brings data in: pushes batches into the edge it was built with and acknowledges its peer by the answer.
pub trait Receiver: Lifecycle {}

/// Looks at or changes what passes. One instance a pipeline.
pub trait Processor: Lifecycle + Consumer {
    /// The metrics that it produces, as far as its options fix their names and labels.
    fn outputs(&self) -> Vec<OutputDescriptor> {
        Vec::new()
    }

    /// Whether it may change or drop the output of processors before it.
    fn edits(&self) -> bool {
        false
    }
}

/// Takes data out. One instance, shared by all pipelines that name it.
pub trait Exporter: Lifecycle + Consumer {}

/// An exporter of some pipelines and a receiver of others.
pub trait Connector: Lifecycle + Consumer {}

/// Serves people and the cluster: health, admin pages.
pub trait Extension: Lifecycle {
    /// What it does for components that name it.
    fn services(&self) -> services::Services {
        services::Services::default()
    }
}

/// What the service gives a component when it builds it.
#[derive(Clone)]
pub struct Context {
    /// `receivers::nixl/node`: for messages and labels.
    pub path: Arc<str>,
    /// `nixl/node`: the component's id as configured.
    pub id: Arc<str>,
    /// What the gateway shares with its components (memory in use, composites, own metrics).
    pub shared: Arc<crate::component::Shared>,
}

impl Context {
    /// A component error that names this component.
    pub fn error(&self, message: impl Into<String>) -> ComponentError {
        ComponentError {
            component: self.path.to_string(),
            message: message.into(),
        }
    }

    /// The storage that the option `option` names.
    ///
    /// # Errors
    /// No extension of this id keeps anything.
    pub fn storage(&self, option: &str, id: &str) -> Result<Arc<Storage>, ComponentError> {
        let found = self.shared.services.get(id).and_then(|found| found.storage);
        found.ok_or_else(|| {
            self.error(format!(
                "{option}: `{id}` is no storage extension among `service::extensions`"
            ))
        })
    }
}
