//! The books of a whole graph, for tidegate's own telemetry: whose ledger is whose.

use std::sync::Arc;

use super::{EntryCounts, Ledger};
use crate::batch::Signal;
use crate::config::Class;

/// A gauge that is set to this has no value: no reader of the gateway's own metrics shows its series.
pub const NO_VALUE: f64 = f64::NAN;

/// All books of a graph.
#[derive(Clone, Default)]
pub struct Books {
    /// Processors (one entry a pipeline), exporters and connectors (one entry a signal).
    pub nodes: Vec<NodeBooks>,
    /// Receivers, one entry a signal.
    pub entries: Vec<EntryBooks>,
}

/// A component's ledger with its names.
#[derive(Clone)]
pub struct NodeBooks {
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
    /// The books.
    pub ledger: Arc<Ledger>,
}

/// A receiver's counts with its names.
#[derive(Clone)]
pub struct EntryBooks {
    /// `otlp/edge`: the id as configured.
    pub receiver: Arc<str>,
    /// The signal counted.
    pub signal: Signal,
    /// What became of its data.
    pub counts: Arc<EntryCounts>,
}
