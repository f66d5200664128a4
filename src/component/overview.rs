//! What runs in a gateway, for pages about the gateway itself.

use std::time::SystemTime;

use super::graph_metrics::GraphMetrics;

/// The graph as it was built.
pub struct Overview {
    /// When it was built.
    pub built: SystemTime,
    /// The pipelines, in the order of the file.
    pub pipelines: Vec<PipelineOverview>,
    /// Extensions that run, in the order of their start.
    pub extensions: Vec<String>,
    /// The configuration as YAML, with all secrets masked.
    pub config: String,
    /// The counters of all components.
    pub metrics: GraphMetrics,
}

/// A pipeline by the ids of its components.
pub struct PipelineOverview {
    /// `metrics/vendor`.
    pub id: String,
    /// Receivers, and connectors that feed it.
    pub receivers: Vec<String>,
    /// Processors in the order in which data passes them.
    pub processors: Vec<String>,
    /// Exporters, and connectors that it feeds.
    pub exporters: Vec<String>,
}
