//! tidegate's own metrics: what components counted through the recorder, then the ledgers of the graph.
//!
//! Ledgers are plain atomics that the data path adds to; they are read only here.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use metrics_exporter_prometheus::PrometheusHandle;
use tidegate_engine::AttributeRef;

use super::family::{Family, parse, text};
use super::process::{Started, usage};
use crate::component::books::{Books, EntryBooks, NodeBooks};
use crate::component::{Balance, EntryCounts, Reason};
use crate::config::Class;
use crate::prom::labels::Labels;

/// Where the metrics are looked up.
pub(super) struct Page {
    recorder: PrometheusHandle,
    books: Books,
    started: Started,
    /// `target_info`, rendered.
    target: String,
}

/// A count of a receiver.
type EntryCount = fn(&EntryCounts) -> &AtomicU64;
/// A number of a balance.
type BalanceCount = fn(&Balance) -> u64;

/// One family from counts of receivers.
const ENTRY_FAMILIES: [(&str, EntryCount); 3] = [
    ("accepted", |counts| &counts.accepted),
    ("refused", |counts| &counts.refused),
    ("failed", |counts| &counts.failed),
];

impl Page {
    /// `resource` are the attributes of the gateway itself, for the page's `target_info`.
    pub(super) fn new(recorder: PrometheusHandle, books: Books, resource: &[(String, String)]) -> Self {
        let mut labels = Labels::default();
        for (key, value) in resource {
            labels.add(key, AttributeRef::Str(value));
        }
        Self {
            recorder,
            books,
            started: Started::now(),
            target: format!("# TYPE target_info gauge\ntarget_info{{{}}} 1\n", labels.render()),
        }
    }

    /// The page: every family, and what it is of.
    pub(super) fn render(&self) -> String {
        self.target.clone() + &text(&self.families())
    }

    /// Everything as it is now.
    pub(super) fn families(&self) -> Vec<Family> {
        self.recorder.run_upkeep();
        let mut families = parse(&self.recorder.render());
        self.process(&mut families);
        for (name, count) in ENTRY_FAMILIES {
            self.entries(&mut families, name, count);
        }
        self.exporters(&mut families);
        self.processors(&mut families);
        self.ledgers(&mut families);
        families
    }

    fn process(&self, families: &mut Vec<Family>) {
        let used = usage();
        let single = |mut family: Family, value| {
            family.sample(&[], value);
            family
        };
        families.extend([
            single(Family::counter("otelcol_process_uptime"), self.started.seconds()),
            single(Family::counter("otelcol_process_cpu_seconds"), used.cpu_seconds),
            single(
                Family::gauge("otelcol_process_memory_rss"),
                used.resident_bytes as f64,
            ),
        ]);
    }

    fn entries(&self, families: &mut Vec<Family>, what: &str, count: EntryCount) {
        for signal in crate::batch::Signal::ALL {
            let mut family = Family::counter(format!("otelcol_receiver_{what}_{}", signal.items()));
            for EntryBooks { receiver, counts, .. } in
                self.books.entries.iter().filter(|e| e.signal == signal)
            {
                let transports = counts.transports.lock().unwrap_or_else(PoisonError::into_inner);
                for (transport, counts) in transports.iter() {
                    let labels = [("receiver", &**receiver), ("transport", transport)];
                    family.sample(&labels, count(counts).load(Relaxed) as f64);
                }
                if transports.is_empty() {
                    family.sample(&[("receiver", receiver)], count(counts).load(Relaxed) as f64);
                }
            }
            families.push(family);
        }
    }

    fn of_class(&self, class: Class) -> impl Iterator<Item = &NodeBooks> {
        self.books.nodes.iter().filter(move |node| node.class == class)
    }

    fn exporters(&self, families: &mut Vec<Family>) {
        /// Reasons that mean the destination did not get it.
        const FAILED: [Reason; 3] = [Reason::Rejected, Reason::RetriesExhausted, Reason::Shutdown];
        for signal in crate::batch::Signal::ALL {
            let of_signal = || {
                self.of_class(Class::Exporter)
                    .filter(|node| node.signal == signal)
            };
            let counts: [(&str, BalanceCount); 3] = [
                ("sent", Balance::sent),
                ("send_failed", |balance| {
                    FAILED
                        .iter()
                        .map(|reason| balance.dropped[*reason as usize])
                        .sum()
                }),
                ("enqueue_failed", |balance| {
                    balance.dropped[Reason::QueueFull as usize]
                }),
            ];
            for (what, count) in counts {
                let mut family = Family::counter(format!("otelcol_exporter_{what}_{}", signal.items()));
                for node in of_signal() {
                    family.sample(&[("exporter", &node.id)], count(&node.ledger.balance()) as f64);
                }
                families.push(family);
            }
        }
    }

    fn processors(&self, families: &mut Vec<Family>) {
        let counts: [(&str, BalanceCount); 2] = [
            ("incoming", |balance| balance.entered),
            ("outgoing", |balance| balance.left),
        ];
        for (what, count) in counts {
            let mut family = Family::counter(format!("otelcol_processor_{what}_items"));
            for node in self.of_class(Class::Processor) {
                let pipeline = node.pipeline.as_deref().unwrap_or_default();
                let labels = [
                    ("processor", &*node.id),
                    ("pipeline", pipeline),
                    ("otel_signal", node.signal.name()),
                ];
                family.sample(&labels, count(&node.ledger.balance()) as f64);
            }
            families.push(family);
        }
    }

    /// in + made + restored = out + absorbed + dropped + held, for every component.
    fn ledgers(&self, families: &mut Vec<Family>) {
        let mut items = Family::counter("tidegate_component_items_total");
        let mut dropped = Family::counter("tidegate_dropped_items_total");
        let mut held = Family::gauge("tidegate_held_items");
        for node in &self.books.nodes {
            let balance = node.ledger.balance();
            let whose = [("component", &*node.path), ("signal", node.signal.name())];
            let with = |key, value| [whose[0], whose[1], (key, value)];
            let flows = [
                ("in", balance.entered),
                ("made", balance.made),
                ("restored", balance.restored),
                ("out", balance.left),
                ("absorbed", balance.absorbed),
            ];
            for (flow, count) in flows {
                items.sample(&with("flow", flow), count as f64);
            }
            for reason in Reason::ALL {
                let count = balance.dropped[reason as usize];
                dropped.sample(&with("reason", reason.name()), count as f64);
            }
            held.sample(&whose, balance.held() as f64);
        }
        families.extend([items, dropped, held]);
    }
}
