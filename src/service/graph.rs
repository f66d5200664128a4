// SPDX-License-Identifier: Apache-2.0

//! Builds the graph: exporters first, then pipelines from their end to their beginning, receivers last.
//!
//! One instance of a receiver, exporter or connector serves every pipeline that names it. Every pipeline has its
//! own processor instances.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tidegate_engine::Table;

use super::cycles;
use super::plan::{PipelinePlan, Plan, Planned};
use super::tables::TableReaders;
use super::writers::{self, SeriesWriter};
use crate::batch::Signal;
use crate::component::graph_metrics::{GraphMetrics, NodeMetrics, ReceiverMetrics};
use crate::component::{
    ComponentError, Connector, ConnectorContext, Consumer, Context, Edge, Entry, EntryCounts, Exporter,
    ExporterContext, Extension, FanOut, Ledger, Lifecycle, Processor, ProcessorContext, Receiver,
    ReceiverContext, Shared, TableHandle,
};
use crate::config::{Class, ComponentId, PipelineId};

/// A component instance in the graph.
pub struct GraphMember {
    /// `receivers::nixl`, or `processors::batch@metrics` for an instance of a pipeline.
    pub path: Arc<str>,
    /// Starts and stops it.
    pub life: Arc<dyn Lifecycle>,
    /// Its table, if it has one.
    pub table: Option<TableHandle>,
}

impl GraphMember {
    /// Lists the table of the member, which has started, and lets its readers see it.
    pub fn publish_table(&self, shared: &Shared) {
        if let Some(handle) = &self.table {
            handle.open();
            if let Some(table) = handle.table() {
                shared.tables.add(table);
            }
        }
    }

    /// Takes the table of the member, which has stopped, off the list. Exporters that are still running show it.
    pub fn withdraw_table(&self, shared: &Shared) {
        if let Some(table) = self.table.as_ref().and_then(TableHandle::table) {
            shared.tables.remove(&table);
        }
    }
}

/// Connected instances that are not started. Starting order: extensions, exporters, pipelines upstream, receivers.
pub struct Graph {
    /// The members in starting order.
    pub members: Vec<GraphMember>,
    /// The counters for tidegate's own telemetry.
    pub metrics: GraphMetrics,
    /// Warnings about components that could be built.
    pub warnings: Vec<BuildError>,
}

/// A failed build, with the component at fault.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct BuildError {
    /// The section of the component.
    pub class: Class,
    /// The id of the component.
    pub id: ComponentId,
    /// The error of the component.
    pub error: ComponentError,
}

impl Graph {
    /// Builds every component that a pipeline or `service::extensions` names. Opens no files or sockets.
    ///
    /// # Errors
    /// Components can't be built, or certainly make the same series twice. Each has an error.
    pub fn build(plan: &Plan, shared: &Arc<Shared>) -> Result<Self, Vec<BuildError>> {
        let mut builder = Builder::new(plan, shared.clone());
        builder.extensions();
        builder.exporters();
        for pipeline in &plan.pipelines {
            builder.pipeline(pipeline);
        }
        builder.receivers();
        let duplicates = writers::check(plan, &builder.series_writers);
        builder.errors.extend(duplicates.certain);
        builder.errors.extend(cycles::check(plan));
        if builder.errors.is_empty() {
            Ok(Self {
                members: builder.members,
                metrics: builder.metrics,
                warnings: duplicates.possible,
            })
        } else {
            Err(builder.errors)
        }
    }
}

/// The histogram of the time that a processor itself takes.
fn duration(pipeline: &PipelinePlan, id: &ComponentId) -> metrics::Histogram {
    metrics::histogram!(
        "otelcol_processor_internal_duration",
        "processor" => id.to_string(),
        "pipeline" => pipeline.id.to_string(),
        "otel.signal" => pipeline.id.signal.name(),
    )
}

/// An exporter or connector as a target of pipelines.
#[derive(Clone)]
struct PipelineTarget {
    consumer: Arc<dyn Consumer>,
    ledgers: [Option<Arc<Ledger>>; 3],
}

struct Builder<'a> {
    plan: &'a Plan,
    shared: Arc<Shared>,
    sinks: HashMap<ComponentId, PipelineTarget>,
    entries: HashMap<PipelineId, Arc<dyn Consumer>>,
    table_readers: TableReaders,
    members: Vec<GraphMember>,
    metrics: GraphMetrics,
    series_writers: Vec<SeriesWriter>,
    errors: Vec<BuildError>,
}

impl<'a> Builder<'a> {
    fn new(plan: &'a Plan, shared: Arc<Shared>) -> Self {
        Self {
            plan,
            shared,
            sinks: HashMap::new(),
            entries: HashMap::new(),
            table_readers: TableReaders::default(),
            members: Vec::new(),
            metrics: GraphMetrics::default(),
            series_writers: Vec::new(),
            errors: Vec::new(),
        }
    }

    fn context(&self, class: Class, id: &ComponentId, place: &str) -> Context {
        Context {
            path: format!("{}::{id}{place}", class.section()).into(),
            id: id.to_string().into(),
            shared: self.shared.clone(),
        }
    }

    /// Keeps a built instance, or records its error.
    fn keep<T>(
        &mut self,
        class: Class,
        id: &ComponentId,
        path: Arc<str>,
        built: Result<Arc<T>, ComponentError>,
        life: fn(Arc<T>) -> Arc<dyn Lifecycle>,
    ) -> Option<Arc<T>>
    where
        T: ?Sized,
    {
        match built {
            Ok(instance) => {
                self.members.push(GraphMember {
                    path,
                    life: life(instance.clone()),
                    table: None,
                });
                Some(instance)
            }
            Err(error) => {
                self.errors.push(BuildError {
                    class,
                    id: id.clone(),
                    error,
                });
                None
            }
        }
    }

    fn extensions(&mut self) {
        for id in &self.plan.extension_order {
            let Some(Planned { factory, settings }) = self.plan.extensions.get(id) else {
                continue;
            };
            let context = self.context(Class::Extension, id, "");
            let path = context.path.clone();
            let built = (factory.build)(settings, context);
            let kept = self.keep(Class::Extension, id, path, built, |life: Arc<dyn Extension>| life);
            if let Some(extension) = kept {
                self.shared.services.add(id.to_string(), extension.services());
            }
        }
    }

    fn exporters(&mut self) {
        for (id, Planned { factory, settings }) in &self.plan.exporters {
            let base = self.context(Class::Exporter, id, "");
            let ledgers = self.ledgers(Class::Exporter, id, &base.path);
            if ledgers.iter().all(Option::is_none) {
                continue;
            }
            let path = base.path.clone();
            let built = (factory.build)(
                settings,
                ExporterContext {
                    base,
                    ledgers: ledgers.clone(),
                },
            );
            if let Some(exporter) =
                self.keep(Class::Exporter, id, path, built, |life: Arc<dyn Exporter>| life)
            {
                self.table_readers.add(id.clone(), exporter.clone());
                self.sinks.insert(
                    id.clone(),
                    PipelineTarget {
                        consumer: exporter,
                        ledgers,
                    },
                );
            }
        }
    }

    /// A ledger for each signal whose pipelines name `id` at their end.
    fn ledgers(&mut self, class: Class, id: &ComponentId, path: &Arc<str>) -> [Option<Arc<Ledger>>; 3] {
        Signal::ALL.map(|signal| {
            let used = self
                .plan
                .pipelines
                .iter()
                .any(|p| p.id.signal == signal && p.exporters.contains(id));
            used.then(|| self.open_ledger(class, id, path, None, signal))
        })
    }

    fn open_ledger(
        &mut self,
        class: Class,
        id: &ComponentId,
        path: &Arc<str>,
        pipeline: Option<&PipelineId>,
        signal: Signal,
    ) -> Arc<Ledger> {
        let ledger = Arc::new(Ledger::default());
        self.metrics.nodes.push(NodeMetrics {
            class,
            id: id.to_string().into(),
            path: path.clone(),
            pipeline: pipeline.map(|pipeline| pipeline.to_string().into()),
            signal,
            ledger: ledger.clone(),
        });
        ledger
    }

    /// The entry of a pipeline, built at its first request. Pipelines after its connectors are built before it.
    fn pipeline(&mut self, pipeline: &PipelinePlan) -> Arc<dyn Consumer> {
        if let Some(entry) = self.entries.get(&pipeline.id) {
            return entry.clone();
        }
        let signal = pipeline.id.signal;
        let sinks = self.pipeline_sinks(pipeline);
        let place = format!("@{}", pipeline.id);
        let stages: Vec<_> = pipeline
            .processors
            .iter()
            .map(|id| {
                let base = self.context(Class::Processor, id, &place);
                let ledger = self.open_ledger(Class::Processor, id, &base.path, Some(&pipeline.id), signal);
                (id, base, ledger)
            })
            .collect();
        let mut next = FanOut::to(stages.last().map(|(_, _, ledger)| ledger.clone()), sinks);
        let mut readers = self.table_readers.after(self.plan, pipeline);
        let mut is_edited = false;
        for (at, (id, base, ledger)) in stages.iter().enumerate().rev() {
            let Some(processor) = self.processor(pipeline, id, base, ledger, next.clone()) else {
                continue;
            };
            self.connect_table(processor.table(), &readers);
            self.series_writers.push(SeriesWriter {
                pipeline: pipeline.id.clone(),
                id: (*id).clone(),
                outputs: processor.outputs(),
                is_edited,
            });
            let edits = processor.edits();
            if edits {
                is_edited = true;
                readers.clear();
            }
            let upstream = at.checked_sub(1).and_then(|before| stages.get(before));
            let from = upstream.map(|(_, _, ledger)| ledger.clone());
            let edge = Edge::new(from, ledger.clone(), processor).editing(edits);
            next = Arc::new(if self.shared.wants_details() {
                edge.timed(Some(duration(pipeline, id)))
            } else {
                edge
            });
        }
        self.table_readers.note(pipeline.id.clone(), readers);
        self.entries.insert(pipeline.id.clone(), next.clone());
        next
    }

    /// Gives the table of the newest member to the exporters that its pushes reach unedited.
    fn connect_table(&mut self, table: Option<&Arc<Table>>, readers: &BTreeSet<ComponentId>) {
        let Some(table) = table else { return };
        let handle = TableHandle::new(table);
        self.table_readers.attach(&handle, readers);
        if let Some(member) = self.members.last_mut() {
            member.table = Some(handle);
        }
    }

    fn processor(
        &mut self,
        pipeline: &PipelinePlan,
        id: &ComponentId,
        base: &Context,
        ledger: &Arc<Ledger>,
        next: Arc<dyn Consumer>,
    ) -> Option<Arc<dyn Processor>> {
        let Planned { factory, settings } = self.plan.processors.get(id)?;
        let context = ProcessorContext {
            base: base.clone(),
            pipeline: pipeline.id.to_string().into(),
            signal: pipeline.id.signal,
            next,
            ledger: ledger.clone(),
        };
        let built = (factory.build)(settings, context);
        self.keep(
            Class::Processor,
            id,
            base.path.clone(),
            built,
            |life: Arc<dyn Processor>| life,
        )
    }

    /// Edges to the exporters and connectors at the end of a pipeline.
    fn pipeline_sinks(&mut self, pipeline: &PipelinePlan) -> Vec<Arc<dyn Consumer>> {
        let mut edges: Vec<Arc<dyn Consumer>> = Vec::new();
        for id in &pipeline.exporters {
            let sink = if self.plan.connectors.contains_key(id) {
                self.connector(id)
            } else {
                self.sinks.get(id).cloned()
            };
            let Some(sink) = sink else { continue };
            if let Some(ledger) = &sink.ledgers[pipeline.id.signal as usize] {
                let edge = Edge::new(None, ledger.clone(), sink.consumer);
                edges.push(Arc::new(if self.shared.wants_details() {
                    edge.timed(None)
                } else {
                    edge
                }));
            }
        }
        edges
    }

    fn connector(&mut self, id: &ComponentId) -> Option<PipelineTarget> {
        if let Some(sink) = self.sinks.get(id) {
            return Some(sink.clone());
        }
        let plan = self.plan;
        let Planned { factory, settings } = plan.connectors.get(id)?;
        let base = self.context(Class::Connector, id, "");
        let ledgers = self.ledgers(Class::Connector, id, &base.path);
        let outputs = Signal::ALL.map(|signal| {
            let fed = plan
                .pipelines
                .iter()
                .filter(|p| p.id.signal == signal && p.receivers.contains(id));
            let targets: Vec<_> = fed.map(|pipeline| self.pipeline(pipeline)).collect();
            (!targets.is_empty()).then(|| FanOut::to(ledgers[signal as usize].clone(), targets))
        });
        let path = base.path.clone();
        let built = (factory.build)(
            settings,
            ConnectorContext {
                base,
                outputs,
                ledgers: ledgers.clone(),
            },
        );
        let connector = self.keep(Class::Connector, id, path, built, |life: Arc<dyn Connector>| life)?;
        let sink = PipelineTarget {
            consumer: connector,
            ledgers,
        };
        self.sinks.insert(id.clone(), sink.clone());
        Some(sink)
    }

    fn receivers(&mut self) {
        let plan = self.plan;
        for (id, Planned { factory, settings }) in &plan.receivers {
            let entries = Signal::ALL.map(|signal| self.receiver_entry(id, signal));
            if entries.iter().all(Option::is_none) {
                continue;
            }
            let base = self.context(Class::Receiver, id, "");
            let path = base.path.clone();
            let built = (factory.build)(settings, ReceiverContext { base, entries });
            let kept = self.keep(Class::Receiver, id, path, built, |life: Arc<dyn Receiver>| life);
            if let Some(receiver) = kept {
                let readers = self.table_readers.after_receiver(plan, id);
                self.connect_table(receiver.table(), &readers);
            }
        }
    }

    fn receiver_entry(&mut self, id: &ComponentId, signal: Signal) -> Option<Entry> {
        let fed = self
            .plan
            .pipelines
            .iter()
            .filter(|p| p.id.signal == signal && p.receivers.contains(id));
        let targets: Vec<_> = fed
            .filter_map(|pipeline| self.entries.get(&pipeline.id).cloned())
            .collect();
        if targets.is_empty() {
            return None;
        }
        let counts = Arc::new(EntryCounts::default());
        self.metrics.entries.push(ReceiverMetrics {
            receiver: id.to_string().into(),
            signal,
            counts: counts.clone(),
        });
        let entry = Entry::new(signal, FanOut::to(None, targets), counts);
        Some(entry.watched(format!("receivers::{id}").into(), self.shared.clone()))
    }
}
