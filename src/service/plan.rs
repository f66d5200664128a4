//! A configuration resolved to factories and settings: what `graph` builds from.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::component::{
    ConnectorFactory, ExporterFactory, ExtensionFactory, ProcessorFactory, ReceiverFactory, Settings,
};
use crate::config::{ComponentId, PipelineId};

/// A component with its options.
pub struct Planned<F: 'static> {
    /// What makes it.
    pub factory: &'static F,
    /// Its decoded options.
    pub settings: Settings,
}

/// A pipeline as configured.
#[derive(Clone, Debug)]
pub struct PipelinePlan {
    /// `metrics/vendor`.
    pub id: PipelineId,
    /// Receivers, and connectors that feed it.
    pub receivers: Vec<ComponentId>,
    /// Processors in the order in which data passes them.
    pub processors: Vec<ComponentId>,
    /// Exporters, and connectors that it feeds.
    pub exporters: Vec<ComponentId>,
}

/// Everything that is to run.
pub struct Plan {
    /// Receivers by id.
    pub receivers: BTreeMap<ComponentId, Planned<ReceiverFactory>>,
    /// Processors by id.
    pub processors: BTreeMap<ComponentId, Planned<ProcessorFactory>>,
    /// Exporters by id.
    pub exporters: BTreeMap<ComponentId, Planned<ExporterFactory>>,
    /// Connectors by id.
    pub connectors: BTreeMap<ComponentId, Planned<ConnectorFactory>>,
    /// Extensions by id.
    pub extensions: BTreeMap<ComponentId, Planned<ExtensionFactory>>,
    /// `service::extensions`: which extensions start, and in which order.
    pub extension_order: Vec<ComponentId>,
    /// The pipelines in the order of the file.
    pub pipelines: Vec<PipelinePlan>,
    /// How long a stop may take to hand on what is held.
    pub drain_timeout: Duration,
}
