// SPDX-License-Identifier: Apache-2.0

//! Publishes ledgers, receivers' counts and the process's usage to the recorder, before each read of the
//! metrics.
//!
//! Ledgers are plain atomics that the data path adds to; they are read only here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use metrics::{Label, counter, gauge};
use parking_lot::Mutex;

use super::process::{Started, heap_bytes, usage};
use crate::batch::Signal;
use crate::built::{COMMIT, DATE, FEATURES, RUSTC, VERSION};
use crate::component::account::measure::live_bytes;
use crate::component::graph_metrics::{GraphMetrics, NodeMetrics, ReceiverMetrics};
use crate::component::{Balance, EntryCounts, Reason};
use crate::config::Class;

/// Publishes the counters of a graph as metrics.
pub(super) struct MetricsPublisher {
    graph: Mutex<GraphMetrics>,
    /// The paths of removed components. Their counts are published, their gauges are not.
    gone: Mutex<BTreeSet<Arc<str>>>,
    started: Started,
}

/// Selects a count of a receiver.
type EntryCount = fn(&EntryCounts) -> &AtomicU64;

const ENTRY_COUNTS: [(&str, EntryCount); 3] = [
    ("accepted", |counts| &counts.accepted),
    ("refused", |counts| &counts.refused),
    ("failed", |counts| &counts.failed),
];

impl MetricsPublisher {
    pub(super) fn new(graph: GraphMetrics) -> Self {
        Self {
            graph: Mutex::new(graph),
            gone: Mutex::default(),
            started: Started::now(),
        }
    }

    /// Publishes the counters of this graph from now on.
    pub(super) fn set_graph(&self, graph: GraphMetrics) {
        *self.graph.lock() = graph;
    }

    /// Publishes the gauges of these components again.
    pub(super) fn begin(&self, added: &[Arc<str>]) {
        let mut gone = self.gone.lock();
        for path in added {
            gone.remove(path);
        }
    }

    /// Publishes no gauges of these components from now on. `end` ends the present ones.
    pub(super) fn end(&self, removed: &[Arc<str>], end: impl FnOnce()) {
        let mut gone = self.gone.lock();
        gone.extend(removed.iter().cloned());
        end();
    }

    /// Publishes all current values.
    pub(super) fn publish(&self) {
        self.process();
        let graph = self.graph.lock().clone();
        let gone = self.gone.lock();
        for entry in &graph.entries {
            publish_receiver(entry);
        }
        let mut of_type = OfType::default();
        for node in &graph.nodes {
            let balance = node.ledger.balance();
            match node.class {
                Class::Exporter => publish_exporter(node, &balance),
                Class::Processor => {
                    publish_processor(node, &balance);
                    of_type.add(node, &balance);
                }
                _ => {}
            }
            publish_ledger(node, &balance);
            if !gone.contains(&node.path) {
                let labels = ledger_labels(node);
                gauge!("tidegate_held_items", labels).set(balance.held() as f64);
            }
        }
        of_type.publish();
    }

    fn process(&self) {
        gauge!("tidegate_build_info", build_labels()).set(1.0);
        let used = usage();
        gauge!("otelcol_process_uptime").set(self.started.seconds());
        gauge!("otelcol_process_cpu_seconds").set(used.cpu_seconds);
        gauge!("otelcol_process_memory_rss").set(used.resident_bytes as f64);
        if let Some(bytes) = heap_bytes() {
            gauge!("otelcol_process_runtime_heap_alloc_bytes").set(bytes as f64);
        }
        if let Some(bytes) = live_bytes() {
            gauge!("tidegate_process_live_bytes").set(bytes as f64);
        }
        gauge!("otelcol_process_runtime_total_sys_memory_bytes").set(used.data_bytes as f64);
    }
}

/// Which build this is, as labels.
fn build_labels() -> Vec<Label> {
    let labels = [
        ("version", VERSION),
        ("commit", COMMIT),
        ("date", DATE),
        ("features", FEATURES),
        ("rustc", RUSTC),
    ];
    let labels = labels.into_iter();
    labels
        .map(|(key, value)| Label::from_static_parts(key, value))
        .collect()
}

fn label(key: &'static str, value: &str) -> Label {
    Label::new(key, value.to_owned())
}

fn publish_receiver(entry: &ReceiverMetrics) {
    let transports = entry.counts.transports.lock();
    for (what, count) in ENTRY_COUNTS {
        let name = format!("otelcol_receiver_{what}_{}", entry.signal.items());
        let receiver = || label("receiver", &entry.receiver);
        for (transport, counts) in transports.iter() {
            let labels = vec![receiver(), label("transport", transport)];
            counter!(name.clone(), labels).absolute(count(counts).load(Relaxed));
        }
        if transports.is_empty() {
            counter!(name, vec![receiver()]).absolute(count(&entry.counts).load(Relaxed));
        }
    }
}

fn publish_exporter(node: &NodeMetrics, balance: &Balance) {
    let name = |what| format!("otelcol_exporter_{what}_{}", node.signal.items());
    let exporter = || label("exporter", &node.id);
    for peer in node.ledger.peer_counts() {
        let labels = || {
            let of_peer = peer.labels.iter().map(|(key, value)| label(key, value));
            std::iter::once(exporter()).chain(of_peer).collect::<Vec<_>>()
        };
        counter!(name("sent"), labels()).absolute(peer.sent);
        counter!(name("send_failed"), labels()).absolute(peer.failed);
    }
    let full = balance.dropped[Reason::QueueFull as usize];
    counter!(name("enqueue_failed"), vec![exporter()]).absolute(full);
}

fn publish_processor(node: &NodeMetrics, balance: &Balance) {
    let labels = || {
        vec![
            label("processor", &node.id),
            label("pipeline", node.pipeline.as_deref().unwrap_or_default()),
            label("otel.signal", node.signal.name()),
        ]
    };
    counter!("otelcol_processor_incoming_items", labels()).absolute(balance.entered);
    counter!("otelcol_processor_outgoing_items", labels()).absolute(balance.left);
}

/// Counts of a processor type. All instances with one id share a count, because several pipelines use them.
#[derive(Default)]
struct OfType(BTreeMap<(&'static str, Arc<str>), u64>);

impl OfType {
    fn add(&mut self, node: &NodeMetrics, balance: &Balance) {
        let name = match (kind_of(&node.id), node.signal) {
            ("filter", Signal::Metrics) => "otelcol_processor_filter_datapoints_filtered",
            ("filter", Signal::Traces) => "otelcol_processor_filter_spans_filtered",
            ("filter", Signal::Logs) => "otelcol_processor_filter_logs_filtered",
            ("memory_limiter", Signal::Metrics) => "otelcol_processor_memory_limiter_accepted_metric_points",
            ("memory_limiter", Signal::Traces) => "otelcol_processor_memory_limiter_accepted_spans",
            ("memory_limiter", Signal::Logs) => "otelcol_processor_memory_limiter_accepted_log_records",
            _ => return,
        };
        let count = match kind_of(&node.id) {
            "filter" => balance.dropped[Reason::Filtered as usize],
            _ => balance.entered,
        };
        *self.0.entry((name, node.id.clone())).or_default() += count;
    }

    fn publish(self) {
        for ((name, id), count) in self.0 {
            let key = if kind_of(&id) == "filter" {
                "filter"
            } else {
                "processor"
            };
            counter!(name, vec![label(key, &id)]).absolute(count);
        }
    }
}

/// The type of an id: `filter` for `filter/a`.
fn kind_of(id: &str) -> &str {
    id.split_once('/').map_or(id, |(kind, _)| kind)
}

fn ledger_labels(node: &NodeMetrics) -> Vec<Label> {
    vec![
        label("component", &node.path),
        label("signal", node.signal.name()),
    ]
}

/// Publishes the counts of a component: in + made + restored = out + absorbed + dropped + held.
fn publish_ledger(node: &NodeMetrics, balance: &Balance) {
    let with = |more| [ledger_labels(node), vec![more]].concat();
    let flows = [
        ("in", balance.entered),
        ("made", balance.made),
        ("restored", balance.restored),
        ("out", balance.left),
        ("absorbed", balance.absorbed),
    ];
    for (flow, count) in flows {
        counter!("tidegate_component_items_total", with(label("flow", flow))).absolute(count);
    }
    for reason in Reason::ALL {
        let count = balance.dropped[reason as usize];
        counter!(
            "tidegate_dropped_items_total",
            with(label("reason", reason.name()))
        )
        .absolute(count);
    }
}
