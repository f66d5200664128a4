//! The page of tidegate's own metrics: what components counted through the recorder, then the ledgers of the graph.
//!
//! Ledgers are plain atomics that the data path adds to; they are read only here.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use metrics_exporter_prometheus::PrometheusHandle;

use super::process::{Started, usage};
use crate::component::books::{Books, EntryBooks, NodeBooks};
use crate::component::{Balance, EntryCounts, Reason};
use crate::config::Class;

/// Renders the page.
pub(super) struct Page {
    recorder: PrometheusHandle,
    books: Books,
    started: Started,
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
    pub(super) fn new(recorder: PrometheusHandle, books: Books) -> Self {
        Self {
            recorder,
            books,
            started: Started::now(),
        }
    }

    pub(super) fn render(&self) -> String {
        self.recorder.run_upkeep();
        let mut page = Text(self.recorder.render());
        self.process(&mut page);
        for (name, count) in ENTRY_FAMILIES {
            self.entries(&mut page, name, count);
        }
        self.exporters(&mut page);
        self.processors(&mut page);
        self.ledgers(&mut page);
        page.0
    }

    fn process(&self, page: &mut Text) {
        let used = usage();
        page.family("otelcol_process_uptime", "counter");
        page.sample("otelcol_process_uptime", &[], self.started.seconds());
        page.family("otelcol_process_cpu_seconds", "counter");
        page.sample("otelcol_process_cpu_seconds", &[], used.cpu_seconds);
        page.family("otelcol_process_memory_rss", "gauge");
        page.sample("otelcol_process_memory_rss", &[], used.resident_bytes as f64);
    }

    fn entries(&self, page: &mut Text, what: &str, count: EntryCount) {
        for signal in crate::batch::Signal::ALL {
            let family = format!("otelcol_receiver_{what}_{}", signal.items());
            page.family(&family, "counter");
            for EntryBooks { receiver, counts, .. } in
                self.books.entries.iter().filter(|e| e.signal == signal)
            {
                page.sample(
                    &family,
                    &[("receiver", receiver)],
                    count(counts).load(Relaxed) as f64,
                );
            }
        }
    }

    fn of_class(&self, class: Class) -> impl Iterator<Item = &NodeBooks> {
        self.books.nodes.iter().filter(move |node| node.class == class)
    }

    fn exporters(&self, page: &mut Text) {
        /// Reasons that mean the destination did not get it.
        const FAILED: [Reason; 3] = [Reason::Rejected, Reason::RetriesExhausted, Reason::Shutdown];
        for signal in crate::batch::Signal::ALL {
            let of_signal = || {
                self.of_class(Class::Exporter)
                    .filter(|node| node.signal == signal)
            };
            let families: [(&str, BalanceCount); 3] = [
                ("sent", |balance| balance.left + balance.absorbed),
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
            for (what, count) in families {
                let family = format!("otelcol_exporter_{what}_{}", signal.items());
                page.family(&family, "counter");
                for node in of_signal() {
                    page.sample(
                        &family,
                        &[("exporter", &node.id)],
                        count(&node.ledger.balance()) as f64,
                    );
                }
            }
        }
    }

    fn processors(&self, page: &mut Text) {
        let families: [(&str, BalanceCount); 2] = [
            ("incoming", |balance| balance.entered),
            ("outgoing", |balance| balance.left),
        ];
        for (what, count) in families {
            let family = format!("otelcol_processor_{what}_items");
            page.family(&family, "counter");
            for node in self.of_class(Class::Processor) {
                let pipeline = node.pipeline.as_deref().unwrap_or_default();
                let labels = [
                    ("processor", &*node.id),
                    ("pipeline", pipeline),
                    ("otel_signal", node.signal.name()),
                ];
                page.sample(&family, &labels, count(&node.ledger.balance()) as f64);
            }
        }
    }

    /// in + made = out + absorbed + dropped + held, for every component.
    fn ledgers(&self, page: &mut Text) {
        page.family("tidegate_component_items_total", "counter");
        for node in &self.books.nodes {
            let balance = node.ledger.balance();
            let flows = [
                ("in", balance.entered),
                ("made", balance.made),
                ("out", balance.left),
                ("absorbed", balance.absorbed),
            ];
            for (flow, count) in flows {
                let labels = [
                    ("component", &*node.path),
                    ("signal", node.signal.name()),
                    ("flow", flow),
                ];
                page.sample("tidegate_component_items_total", &labels, count as f64);
            }
        }
        page.family("tidegate_dropped_items_total", "counter");
        for node in &self.books.nodes {
            let balance = node.ledger.balance();
            for reason in Reason::ALL {
                let labels = [
                    ("component", &*node.path),
                    ("signal", node.signal.name()),
                    ("reason", reason.name()),
                ];
                let count = balance.dropped[reason as usize];
                page.sample("tidegate_dropped_items_total", &labels, count as f64);
            }
        }
        page.family("tidegate_held_items", "gauge");
        for node in &self.books.nodes {
            let labels = [("component", &*node.path), ("signal", node.signal.name())];
            page.sample(
                "tidegate_held_items",
                &labels,
                node.ledger.balance().held() as f64,
            );
        }
    }
}

/// Text exposition 0.0.4 of names that are ours and label values that may be anything.
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str) {
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<_> = labels
            .iter()
            .map(|(key, value)| format!("{key}=\"{}\"", escaped(value)))
            .collect();
        match labels.is_empty() {
            true => self.line(format_args!("{name} {value}")),
            false => self.line(format_args!("{name}{{{}}} {value}", labels.join(","))),
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string can't fail.
        let _ = writeln!(self.0, "{line}");
    }
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
