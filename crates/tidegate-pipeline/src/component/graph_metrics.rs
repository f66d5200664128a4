// SPDX-License-Identifier: Apache-2.0

//! The counters of a whole graph, with the names of their components, for tidegate's own telemetry.

use std::sync::Arc;

use super::{EntryCounts, Ledger};
use crate::batch::Signal;
use tidegate_config::Class;

/// A gauge with this value has no value: no reader of the gateway's own metrics shows its series.
pub const NO_VALUE: f64 = f64::NAN;

/// The counters of all components of a graph. Clones share them.
#[derive(Clone, Default)]
pub struct GraphMetrics {
    /// Processors (one entry a pipeline), exporters and connectors (one entry a signal).
    pub nodes: Vec<NodeMetrics>,
    /// Receivers, one entry a signal.
    pub entries: Vec<ReceiverMetrics>,
}

/// The ledger of a processor, exporter or connector, with its labels.
#[derive(Clone)]
pub struct NodeMetrics {
    /// Processor, exporter or connector.
    pub class: Class,
    /// `batch/large`: the id as configured.
    pub id: Arc<str>,
    /// `processors::batch/large@metrics`.
    pub path: Arc<str>,
    /// The pipeline of a processor instance.
    pub pipeline: Option<Arc<str>>,
    /// The signal counted.
    pub signal: Signal,
    /// Its item counts.
    pub ledger: Arc<Ledger>,
}

/// The counts of a receiver, with its labels.
#[derive(Clone)]
pub struct ReceiverMetrics {
    /// `otlp/edge`: the id as configured.
    pub receiver: Arc<str>,
    /// The signal counted.
    pub signal: Signal,
    /// Accepted, refused and failed items.
    pub counts: Arc<EntryCounts>,
}
