// SPDX-License-Identifier: Apache-2.0

//! What takes the parts of components that a test can't have: receivers without listeners, exporters that keep what they
//! get, pages without a server. They are built in place of the configured ones, with the same options and names.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_engine::{Table, UnixNanos};

use crate::batch::{Batch, Payload, Signal};
use crate::component::{
    ConfigType, Consumer, Entry, Exporter, ExporterContext, ExporterFactory, Factory, Flow, Ledger,
    Lifecycle, Processor, ProcessorFactory, Receiver, ReceiverFactory, Refused, Settings, Shared, Stability,
    TableHandle,
};
use crate::config::Node;
use crate::delivery::{Delivery, SentForm};
use crate::exporters::prometheus::config::PrometheusExporterConfig;
use crate::exporters::{otlp, otlphttp, prometheus};
use crate::processors::composite::config::CompositeProcessorConfig;
use crate::processors::{composite, k8sattributes};
use crate::prom::catalog::Senders;
use crate::prom::{Escaping, Format, Renderer};
use crate::service::Plan;

/// All signals, for stand-ins of any component.
const SIGNALS: &[(Signal, Stability)] = &[
    (Signal::Metrics, Stability::Stable),
    (Signal::Traces, Stability::Stable),
    (Signal::Logs, Stability::Stable),
];

/// The entries of receivers, the data of exporters and the pages of one gateway under test.
#[derive(Default)]
pub(super) struct StandIns {
    entries: Mutex<BTreeMap<String, [Option<Entry>; 3]>>,
    exported: Mutex<Vec<(String, Payload)>>,
    pages: Mutex<BTreeMap<String, Arc<UnservedPage>>>,
}

impl StandIns {
    /// Those of a gateway.
    pub(super) fn of(shared: &Shared) -> Arc<Self> {
        shared.parts.get(Self::default)
    }

    /// The ids of the receivers that pipelines use.
    pub(super) fn receivers(&self) -> Vec<String> {
        self.entries.lock().keys().cloned().collect()
    }

    /// The entry of a receiver into the pipelines of a signal.
    pub(super) fn entry(&self, receiver: &str, signal: Signal) -> Option<Entry> {
        let entries = self.entries.lock();
        entries.get(receiver)?[signal as usize].clone()
    }

    /// Takes what has left each exporter since the last call, in order.
    pub(super) fn take_exported(&self) -> Vec<(String, Payload)> {
        std::mem::take(&mut *self.exported.lock())
    }

    /// The lines of the page of an exporter; `None`: the exporter has no page.
    pub(super) fn page(&self, exporter: &str, now: UnixNanos) -> Option<String> {
        let page = self.pages.lock().get(exporter).cloned()?;
        Some(page.render(now))
    }

    /// Forgets the components, which have ended. They hold the state that holds this list.
    pub(super) fn clear(&self) {
        self.entries.lock().clear();
        let pages = std::mem::take(&mut *self.pages.lock());
        drop(pages);
    }

    /// Removes expired series, as each exporter does once a second.
    pub(super) fn expire(&self, now: UnixNanos) {
        let pages: Vec<_> = self.pages.lock().values().cloned().collect();
        for page in pages {
            if let Some(own) = page.exporter.table() {
                own.expire(now);
            }
        }
    }
}

/// Replaces the components that a test can't have. Returns a line for each that is not what it seems.
pub(super) fn replace(plan: &mut Plan) -> Vec<String> {
    let mut notes = Vec::new();
    for (id, planned) in &mut plan.receivers {
        planned.factory = &RECEIVER;
        if has_metric_relabelling(&planned.options) {
            notes.push(format!(
                "receivers::{id} does not apply `metric_relabel_configs` to inputs"
            ));
        }
    }
    for planned in plan.exporters.values_mut() {
        let kind = planned.factory.kind;
        planned.factory = if kind == prometheus::FACTORY.kind {
            &PAGE
        } else if kind == otlp::FACTORY.kind {
            &GRPC_EXPORTER
        } else if kind == otlphttp::FACTORY.kind {
            &HTTP_EXPORTER
        } else {
            &EXPORTER
        };
    }
    for (id, planned) in &mut plan.processors {
        if planned.factory.kind == k8sattributes::FACTORY.kind {
            planned.factory = &PROCESSOR;
            notes.push(format!(
                "processors::{id} passes data unchanged: it needs an API server"
            ));
        } else if planned.factory.kind == composite::FACTORY.kind
            && let Some(silent) = without_webhooks(&planned.settings)
        {
            planned.settings = silent;
            notes.push(format!("processors::{id} sends no webhooks"));
        }
    }
    notes
}

/// The settings of a `composite` without its webhooks. `None`: it has none.
fn without_webhooks(settings: &Settings) -> Option<Settings> {
    let config: Arc<CompositeProcessorConfig> = settings.get();
    let mut config = (*config).clone();
    let mut has_any = false;
    for composite in &mut config.composites {
        for threshold in &mut composite.thresholds {
            has_any |= threshold.webhook.take().is_some();
        }
    }
    has_any.then(|| Settings::of(config))
}

/// Whether a job of a `prometheus` receiver changes or drops series that it scrapes.
fn has_metric_relabelling(options: &Node) -> bool {
    let jobs = options
        .get("config")
        .and_then(|config| config.get("scrape_configs"));
    let jobs = jobs.and_then(Node::as_list).unwrap_or_default();
    jobs.iter().any(|job| job.get("metric_relabel_configs").is_some())
}

static RECEIVER: ReceiverFactory = Factory {
    kind: "test_input",
    aliases: &[],
    stability: SIGNALS,
    help: "gets data from a test",
    errors: &[],
    config: ConfigType::of::<String>(),
    build: |_, cx| {
        let stand_ins = StandIns::of(&cx.base.shared);
        let mut entries = stand_ins.entries.lock();
        entries.insert(cx.base.id.to_string(), cx.entries);
        Ok(Arc::new(IdleReceiver))
    },
};

struct IdleReceiver;

impl Lifecycle for IdleReceiver {}
impl Receiver for IdleReceiver {}

static EXPORTER: ExporterFactory = Factory {
    kind: "test_output",
    aliases: &[],
    stability: SIGNALS,
    help: "keeps data for a test",
    errors: &[],
    config: ConfigType::of::<String>(),
    build: |_, cx| Ok(Arc::new(KeepingExporter::new(cx, None))),
};

static GRPC_EXPORTER: ExporterFactory = Factory {
    kind: "test_output_otlp",
    aliases: &[],
    stability: SIGNALS,
    help: "keeps data for a test, as `otlp` sends it",
    errors: &[],
    config: ConfigType::of::<String>(),
    build: |settings, cx| {
        Ok(Arc::new(KeepingExporter::new(
            cx,
            Some(&otlp::delivery(settings)),
        )))
    },
};

static HTTP_EXPORTER: ExporterFactory = Factory {
    kind: "test_output_otlphttp",
    aliases: &[],
    stability: SIGNALS,
    help: "keeps data for a test, as `otlphttp` sends it",
    errors: &[],
    config: ConfigType::of::<String>(),
    build: |settings, cx| {
        let delivery = otlphttp::delivery(settings);
        Ok(Arc::new(KeepingExporter::new(cx, Some(&delivery))))
    },
};

struct KeepingExporter {
    id: String,
    stand_ins: Arc<StandIns>,
    ledgers: [Option<Arc<Ledger>>; 3],
    /// The conversions before data is sent.
    form: Option<SentForm>,
}

impl KeepingExporter {
    fn new(cx: ExporterContext, delivery: Option<&Delivery>) -> Self {
        let form = delivery.map(|delivery| {
            let bounds = cx.base.shared.memory.bounds_of_tables();
            SentForm::of(delivery, cx.ledger(Signal::Metrics), bounds)
        });
        Self {
            id: cx.base.id.to_string(),
            stand_ins: StandIns::of(&cx.base.shared),
            ledgers: cx.ledgers,
            form,
        }
    }
}

impl Lifecycle for KeepingExporter {}
impl Exporter for KeepingExporter {}

impl Consumer for KeepingExporter {
    fn admit(&self, _: &Batch, _: &mut Flow) -> Result<(), Refused> {
        Ok(())
    }

    fn consume(&self, batch: Batch, flow: &mut Flow) {
        let batch = match &self.form {
            Some(form) => form.apply(batch, flow),
            None => batch,
        };
        if batch.items() == 0 {
            return;
        }
        if let Some(ledger) = &self.ledgers[batch.signal() as usize] {
            ledger.leave(batch.items());
        }
        let mut exported = self.stand_ins.exported.lock();
        exported.push((self.id.clone(), batch.payload));
    }
}

static PAGE: ExporterFactory = Factory {
    kind: "test_page",
    aliases: &[],
    stability: SIGNALS,
    help: "shows a page to a test",
    errors: &[],
    config: ConfigType::of::<String>(),
    build: |settings, cx| {
        let config: Arc<PrometheusExporterConfig> = settings.get();
        let stand_ins = StandIns::of(&cx.base.shared);
        let id = cx.base.id.to_string();
        let senders = Senders::of(&cx.base.shared);
        let renderer = Renderer::new(Format::Text, config.style(Escaping::default())).sharing(senders);
        let page = Arc::new(UnservedPage {
            exporter: (prometheus::FACTORY.build)(settings, cx)?,
            live: Mutex::default(),
            renderer: Mutex::new(renderer),
        });
        stand_ins.pages.lock().insert(id, page.clone());
        Ok(page)
    },
};

/// A `prometheus` exporter that is never started, so that it has no listener.
struct UnservedPage {
    exporter: Arc<dyn Exporter>,
    live: Mutex<Vec<TableHandle>>,
    renderer: Mutex<Renderer>,
}

impl UnservedPage {
    fn render(&self, now: UnixNanos) -> String {
        let live = self.live.lock().clone();
        let live = live.iter().filter_map(TableHandle::table);
        let tables: Vec<Arc<Table>> = live.chain(self.exporter.table().cloned()).collect();
        let page = self.renderer.lock().render(&tables, now);
        String::from_utf8_lossy(&page.body).into_owned()
    }
}

impl Lifecycle for UnservedPage {}

impl Exporter for UnservedPage {
    fn show_tables(&self, tables: Vec<TableHandle>) {
        (*self.live.lock()).clone_from(&tables);
        self.exporter.show_tables(tables);
    }

    fn set_exposed(&self, is_exposed: bool) {
        self.exporter.set_exposed(is_exposed);
    }

    fn table(&self) -> Option<&Arc<Table>> {
        self.exporter.table()
    }
}

impl Consumer for UnservedPage {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        self.exporter.admit(batch, flow)
    }

    fn consume(&self, batch: Batch, flow: &mut Flow) {
        self.exporter.consume(batch, flow);
    }

    fn absorbs(&self) -> bool {
        self.exporter.absorbs()
    }
}

static PROCESSOR: ProcessorFactory = Factory {
    kind: "test_pass",
    aliases: &[],
    stability: SIGNALS,
    help: "passes data in a test",
    errors: &[],
    config: ConfigType::of::<String>(),
    build: |_, cx| Ok(Arc::new(PassingProcessor { next: cx.next })),
};

struct PassingProcessor {
    next: Arc<dyn Consumer>,
}

impl Lifecycle for PassingProcessor {}
impl Processor for PassingProcessor {}

impl Consumer for PassingProcessor {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        self.next.admit(batch, flow)
    }

    fn consume(&self, batch: Batch, flow: &mut Flow) {
        self.next.consume(batch, flow);
    }

    fn decodes(&self) -> bool {
        self.next.decodes()
    }

    fn absorbs(&self) -> bool {
        self.next.absorbs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::load;
    use crate::config::Loader;

    #[test]
    fn thresholds_stay_without_their_webhooks() {
        let yaml = "yaml:
receivers: {nop: {}}
processors:
  composite:
    composites:
      - name: recent
        metric: hits
        function: sum
        window: 10s
        thresholds: [{above: 1, webhook: {endpoint: \"http://127.0.0.1:1\"}}, {below: 0}]
  composite/plain: {composites: [{name: plain, metric: hits, function: max}]}
exporters: {nop: {}}
service:
  pipelines: {metrics: {receivers: [nop], processors: [composite, composite/plain], exporters: [nop]}}";
        let loaded = load::load_from(Loader::default().config(yaml));
        let mut plan = loaded.unwrap_or_else(|_| panic!("{yaml} should load")).plan;
        assert_eq!(replace(&mut plan), ["processors::composite sends no webhooks"]);
        let thresholds: Vec<_> = plan
            .processors
            .values()
            .flat_map(|planned| {
                let config: Arc<CompositeProcessorConfig> = planned.settings.get();
                config
                    .composites
                    .iter()
                    .flat_map(|one| one.thresholds.clone())
                    .collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(thresholds.len(), 2);
        assert!(thresholds.iter().all(|threshold| threshold.webhook.is_none()));
    }
}
