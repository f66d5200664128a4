// SPDX-License-Identifier: Apache-2.0

//! An overview of the components of a gateway, for pages about the gateway itself.

use std::time::SystemTime;

use super::graph_metrics::GraphMetrics;

/// The graph as the service built it.
pub struct Overview {
    /// The time at which the gateway built its first graph. Reloads keep it.
    pub built: SystemTime,
    /// The pipelines, in the order of the file.
    pub pipelines: Vec<PipelineOverview>,
    /// The running extensions, in the order of their start.
    pub extensions: Vec<String>,
    /// The configuration as YAML, with all secrets masked.
    pub config: String,
    /// The counters of all components.
    pub metrics: GraphMetrics,
}

/// A pipeline, with the ids of its components.
pub struct PipelineOverview {
    /// The id: `metrics/vendor`.
    pub id: String,
    /// The receivers, and the connectors that feed the pipeline.
    pub receivers: Vec<String>,
    /// The processors, in the order of the data.
    pub processors: Vec<String>,
    /// The exporters, and the connectors that the pipeline feeds.
    pub exporters: Vec<String>,
}
