// SPDX-License-Identifier: Apache-2.0

//! Builds the graph: exporters first, then pipelines from their end to their beginning, receivers last.
//!
//! One instance of a receiver, exporter or connector serves every pipeline that names it. Every pipeline has its
//! own processor instances. A reload builds the next graph around the instances that it keeps: their downstreams lead to new
//! edges from the commit on.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tidegate_engine::Table;

use super::cycles;
pub use super::member::GraphMember;
use super::member::{Instance, Parts};
use super::plan::{PipelinePlan, Plan, Planned};
use super::tables::TableReaders;
use super::writers::{self, SeriesWriter};
use crate::batch::Signal;
use crate::component::graph_metrics::{GraphMetrics, NodeMetrics, ReceiverMetrics};
use crate::component::{
    ComponentError, ConnectorContext, Consumer, Context, Downstream, DownstreamState, Edge, Entry,
    EntryCounts, Exporter, ExporterContext, Factory, FanOut, Ledger, Processor, ProcessorContext,
    ReceiverContext, Shared, TableHandle,
};
use crate::config::{Class, ComponentId, PipelineId};

/// Connected instances. New ones are not started. Starting order: extensions, exporters, pipelines upstream, receivers.
#[derive(Default)]
pub struct Graph {
    /// The members in starting order.
    pub members: Vec<GraphMember>,
    /// The counters for tidegate's own telemetry. Those of removed components stay.
    pub metrics: GraphMetrics,
    /// Warnings about components that could be built.
    pub warnings: Vec<BuildError>,
    /// The tables that exporters show.
    tables: Vec<(Arc<dyn Exporter>, Vec<TableHandle>)>,
    /// Where the downstreams of kept instances lead.
    connections: Vec<(Arc<Downstream>, Arc<dyn Consumer>)>,
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
        Self::rebuild(plan, shared, &[], &[], &GraphMetrics::default())
    }

    /// The same around running members: those whose parts stay equal are kept.
    ///
    /// # Errors
    /// Those of [`Self::build`]. The running members are as before.
    pub(super) fn rebuild(
        plan: &Plan,
        shared: &Arc<Shared>,
        running: &[&GraphMember],
        stopped: &[GraphMember],
        counted: &GraphMetrics,
    ) -> Result<Self, Vec<BuildError>> {
        let mut builder = Builder::new(plan, shared.clone(), (running, stopped), counted);
        builder.extensions();
        builder.exporters();
        for pipeline in &plan.pipelines {
            builder.pipeline(pipeline);
        }
        builder.receivers();
        let duplicates = writers::check(plan, &builder.series_writers);
        builder.errors.extend(duplicates.certain);
        builder.errors.extend(cycles::check(plan));
        if !builder.errors.is_empty() {
            return Err(builder.errors);
        }
        builder.graph.warnings = duplicates.possible;
        builder.graph.tables = builder.table_readers.shown();
        builder.keep_old_counts();
        Ok(builder.graph)
    }

    /// Gives the exporters of these members their tables.
    pub(super) fn show_tables(&self, of: impl Fn(&GraphMember) -> bool) {
        for (exporter, handles) in &self.tables {
            let is_meant = |member: &&GraphMember| match &member.instance {
                Instance::Exporter(one) => Arc::ptr_eq(one, exporter),
                _ => false,
            };
            if self.members.iter().find(is_meant).is_some_and(&of) {
                exporter.show_tables(handles.clone());
            }
        }
    }

    /// Leads the downstreams of kept instances to this graph, for pushes of the generation `since`.
    pub(super) fn connect(&self, since: u64) {
        for (downstream, next) in &self.connections {
            downstream.connect(since, next.clone());
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
    running: &'a [&'a GraphMember],
    /// Instances that a reload has stopped. Only their tables serve again.
    stopped: &'a [GraphMember],
    counted: &'a GraphMetrics,
    /// The ids of extensions that run and are not kept.
    changed_extensions: BTreeSet<String>,
    sinks: HashMap<ComponentId, PipelineTarget>,
    entries: HashMap<PipelineId, Arc<dyn Consumer>>,
    table_readers: TableReaders,
    graph: Graph,
    series_writers: Vec<SeriesWriter>,
    errors: Vec<BuildError>,
}

/// The position of a component: its section, its id, and the end of its path.
#[derive(Clone, Copy)]
struct Position<'a> {
    class: Class,
    id: &'a ComponentId,
    pipeline: Option<&'a PipelineId>,
}

impl<'a> Position<'a> {
    fn of(class: Class, id: &'a ComponentId) -> Self {
        Self {
            class,
            id,
            pipeline: None,
        }
    }

    fn path(&self) -> String {
        let Self { class, id, pipeline } = self;
        let section = class.section();
        match pipeline {
            None => format!("{section}::{id}"),
            Some(pipeline) => format!("{section}::{id}@{pipeline}"),
        }
    }
}

fn used<T>(by_signal: &[Option<T>; 3]) -> [bool; 3] {
    by_signal.each_ref().map(Option::is_some)
}

fn parts<B>(planned: &Planned<Factory<B>>, takes: [bool; 3], gives: [bool; 3]) -> Parts {
    Parts {
        kind: planned.factory.kind,
        options: planned.options.clone(),
        takes,
        gives,
    }
}

impl<'a> Builder<'a> {
    fn new(
        plan: &'a Plan,
        shared: Arc<Shared>,
        (running, stopped): (&'a [&'a GraphMember], &'a [GraphMember]),
        counted: &'a GraphMetrics,
    ) -> Self {
        Self {
            plan,
            shared,
            running,
            stopped,
            counted,
            changed_extensions: BTreeSet::new(),
            sinks: HashMap::new(),
            entries: HashMap::new(),
            table_readers: TableReaders::default(),
            graph: Graph::default(),
            series_writers: Vec::new(),
            errors: Vec::new(),
        }
    }

    fn context(&self, position: Position<'_>) -> Context {
        Context {
            path: position.path().into(),
            id: position.id.to_string().into(),
            shared: self.shared.clone(),
        }
    }

    /// The running instance with this path, if it is built from equal parts.
    fn kept(&self, path: &str, parts: &Parts) -> Option<GraphMember> {
        if parts.name_any(&self.changed_extensions) {
            return None;
        }
        let mut same = self.running_at(path);
        same.find(|member| member.parts == *parts).cloned()
    }

    fn running_at(&self, path: &str) -> impl Iterator<Item = &'a GraphMember> {
        let running = self.running.iter().copied();
        running.filter(move |member| *member.path == *path)
    }

    /// The table of the instance that a new one replaces.
    fn replaced_table(&self, path: &str) -> Option<Arc<Table>> {
        let stopped = self.stopped.iter().filter(|member| *member.path == *path);
        let mut all = self.running_at(path).chain(stopped);
        all.find_map(GraphMember::own_table)
    }

    /// The downstream of a component. That of a kept instance leads to `next` from the commit on.
    fn downstream(&mut self, kept: Option<&Arc<Downstream>>, next: Arc<dyn Consumer>) -> Arc<Downstream> {
        match kept {
            Some(downstream) => {
                self.graph.connections.push((downstream.clone(), next));
                downstream.clone()
            }
            None => Arc::new(Downstream::new(
                self.shared.wiring.clone(),
                next,
                DownstreamState::Open,
            )),
        }
    }

    /// Adds a kept or a built instance, or records the error of the build.
    fn add<T>(
        &mut self,
        position: Position<'_>,
        parts: Parts,
        downstreams: [Option<Arc<Downstream>>; 3],
        built: Result<T, ComponentError>,
        instance: impl FnOnce(T) -> Instance,
    ) {
        match built {
            Ok(one) => self.graph.members.push(GraphMember {
                path: position.path().into(),
                class: position.class,
                parts,
                instance: instance(one),
                table: None,
                downstreams,
            }),
            Err(error) => self.errors.push(BuildError {
                class: position.class,
                id: position.id.clone(),
                error,
            }),
        }
    }

    fn extensions(&mut self) {
        let plan = self.plan;
        let planned = |id: &'a ComponentId| Some((id, plan.extensions.get(id)?));
        let all: Vec<_> = plan.extension_order.iter().filter_map(planned).collect();
        let all = all.into_iter().map(|(id, planned)| {
            let position = Position::of(Class::Extension, id);
            (position, planned, parts(planned, [false; 3], [false; 3]))
        });
        let all: Vec<_> = all.collect();
        let is_kept = |member: &GraphMember| {
            let mut same = all
                .iter()
                .filter(|(position, ..)| position.path() == *member.path);
            same.any(|(.., parts)| *parts == member.parts) && !member.is_outdated()
        };
        let running = self.running.iter();
        let gone = running.filter(|member| member.class == Class::Extension && !is_kept(member));
        let prefix = Class::Extension.section().len() + 2;
        self.changed_extensions = gone.map(|member| member.path[prefix..].to_owned()).collect();
        for (
            position,
            Planned {
                factory, settings, ..
            },
            parts,
        ) in all
        {
            let is_changed = self.changed_extensions.contains(&position.id.to_string());
            if let Some(member) = self.kept(&position.path(), &parts).filter(|_| !is_changed) {
                self.graph.members.push(member);
                continue;
            }
            let built = (factory.build)(settings, self.context(position));
            if let Ok(extension) = &built {
                self.shared
                    .services
                    .add(position.id.to_string(), extension.services());
            }
            self.add(position, parts, [const { None }; 3], built, Instance::Extension);
        }
    }

    fn exporters(&mut self) {
        let plan = self.plan;
        for (id, planned) in &plan.exporters {
            let position = Position::of(Class::Exporter, id);
            let base = self.context(position);
            let ledgers = self.ledgers(position, &base.path);
            if ledgers.iter().all(Option::is_none) {
                continue;
            }
            let parts = parts(planned, used(&ledgers), [false; 3]);
            if let Some(member) = self.kept(&base.path, &parts) {
                self.graph.members.push(member);
            } else {
                let replaced = self.replaced_table(&base.path);
                let context = ExporterContext {
                    base,
                    ledgers: ledgers.clone(),
                    replaced,
                };
                let built = (planned.factory.build)(&planned.settings, context);
                let before = self.graph.members.len();
                self.add(position, parts, [const { None }; 3], built, Instance::Exporter);
                if self.graph.members.len() == before {
                    continue;
                }
            }
            if let Some(Instance::Exporter(exporter)) =
                self.graph.members.last().map(|member| member.instance.clone())
            {
                self.table_readers.add(id.clone(), exporter.clone());
                let consumer = exporter;
                self.sinks
                    .insert(id.clone(), PipelineTarget { consumer, ledgers });
            }
        }
    }

    /// A ledger for each signal whose pipelines name the component at their end.
    fn ledgers(&mut self, position: Position<'_>, path: &Arc<str>) -> [Option<Arc<Ledger>>; 3] {
        Signal::ALL.map(|signal| {
            let mut fed = self.plan.pipelines.iter();
            let is_used = fed.any(|p| p.id.signal == signal && p.exporters.contains(position.id));
            is_used.then(|| self.open_ledger(position, path, signal))
        })
    }

    /// The ledger of a component. Instances that follow each other share it, so that no count falls.
    fn open_ledger(&mut self, position: Position<'_>, path: &Arc<str>, signal: Signal) -> Arc<Ledger> {
        let mut counted = self.counted.nodes.iter();
        let known = counted.find(|node| node.path == *path && node.signal == signal);
        let ledger = known.map_or_else(Arc::default, |node| node.ledger.clone());
        self.graph.metrics.nodes.push(NodeMetrics {
            class: position.class,
            id: position.id.to_string().into(),
            path: path.clone(),
            pipeline: position.pipeline.map(|pipeline| pipeline.to_string().into()),
            signal,
            ledger: ledger.clone(),
        });
        ledger
    }

    /// Keeps the counts of components that a reload removes: what they dropped stays counted.
    fn keep_old_counts(&mut self) {
        let metrics = &mut self.graph.metrics;
        for old in &self.counted.nodes {
            let mut nodes = metrics.nodes.iter();
            if !nodes.any(|node| Arc::ptr_eq(&node.ledger, &old.ledger)) {
                metrics.nodes.push(old.clone());
            }
        }
        for old in &self.counted.entries {
            let mut entries = metrics.entries.iter();
            if !entries.any(|entry| Arc::ptr_eq(&entry.counts, &old.counts)) {
                metrics.entries.push(old.clone());
            }
        }
    }

    /// The entry of a pipeline, built at its first request. Pipelines after its connectors are built before it.
    fn pipeline(&mut self, pipeline: &'a PipelinePlan) -> Arc<dyn Consumer> {
        if let Some(entry) = self.entries.get(&pipeline.id) {
            return entry.clone();
        }
        let signal = pipeline.id.signal;
        let sinks = self.pipeline_sinks(pipeline);
        let stages: Vec<_> = pipeline
            .processors
            .iter()
            .map(|id| {
                let position = Position {
                    class: Class::Processor,
                    id,
                    pipeline: Some(&pipeline.id),
                };
                let base = self.context(position);
                let ledger = self.open_ledger(position, &base.path, signal);
                (position, base, ledger)
            })
            .collect();
        let mut next = FanOut::to(stages.last().map(|(.., ledger)| ledger.clone()), sinks);
        let mut readers = self.table_readers.after(self.plan, pipeline);
        let mut is_edited = false;
        for (at, (position, base, ledger)) in stages.iter().enumerate().rev() {
            let Some(processor) = self.processor(pipeline, *position, base, ledger, next.clone()) else {
                continue;
            };
            self.connect_table(processor.table(), &readers);
            self.series_writers.push(SeriesWriter {
                pipeline: pipeline.id.clone(),
                id: position.id.clone(),
                outputs: processor.outputs(),
                is_edited,
            });
            let edits = processor.edits();
            if edits {
                is_edited = true;
                readers.clear();
            }
            let upstream = at.checked_sub(1).and_then(|before| stages.get(before));
            let from = upstream.map(|(.., ledger)| ledger.clone());
            let edge = Edge::new(from, ledger.clone(), processor).editing(edits);
            next = Arc::new(if self.shared.wants_details() {
                edge.timed(Some(duration(pipeline, position.id)))
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
        let (Some(table), Some(member)) = (table, self.graph.members.last_mut()) else {
            return;
        };
        let handle = member
            .table
            .get_or_insert_with(|| TableHandle::new(table))
            .clone();
        self.table_readers.attach(&handle, readers);
    }

    fn processor(
        &mut self,
        pipeline: &PipelinePlan,
        position: Position<'_>,
        base: &Context,
        ledger: &Arc<Ledger>,
        next: Arc<dyn Consumer>,
    ) -> Option<Arc<dyn Processor>> {
        let plan = self.plan;
        let planned = plan.processors.get(position.id)?;
        let (signal, at) = (pipeline.id.signal, pipeline.id.signal as usize);
        let mut only = [false; 3];
        only[at] = true;
        let parts = parts(planned, only, only);
        if let Some(member) = self.kept(&base.path, &parts) {
            self.downstream(member.downstreams[at].as_ref(), next);
            let instance = member.instance.clone();
            self.graph.members.push(member);
            return match instance {
                Instance::Processor(processor) => Some(processor),
                _ => None,
            };
        }
        let downstream = self.downstream(None, next);
        let replaced = self.replaced_table(&base.path);
        let context = ProcessorContext {
            base: base.clone(),
            pipeline: pipeline.id.to_string().into(),
            signal,
            next: downstream.clone(),
            ledger: ledger.clone(),
            replaced,
        };
        let built = (planned.factory.build)(&planned.settings, context);
        let processor = built.as_ref().ok().cloned();
        let mut downstreams = [const { None }; 3];
        downstreams[at] = Some(downstream);
        self.add(position, parts, downstreams, built, Instance::Processor);
        processor
    }

    /// Edges to the exporters and connectors at the end of a pipeline.
    fn pipeline_sinks(&mut self, pipeline: &PipelinePlan) -> Vec<Arc<dyn Consumer>> {
        let mut edges: Vec<Arc<dyn Consumer>> = Vec::new();
        for id in &pipeline.exporters {
            let sink = if let Some((id, _)) = self.plan.connectors.get_key_value(id) {
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

    fn connector(&mut self, id: &'a ComponentId) -> Option<PipelineTarget> {
        if let Some(sink) = self.sinks.get(id) {
            return Some(sink.clone());
        }
        let plan = self.plan;
        let planned = plan.connectors.get(id)?;
        let position = Position::of(Class::Connector, id);
        let base = self.context(position);
        let ledgers = self.ledgers(position, &base.path);
        let nexts = Signal::ALL.map(|signal| {
            let fed = plan
                .pipelines
                .iter()
                .filter(|p| p.id.signal == signal && p.receivers.contains(id));
            let targets: Vec<_> = fed.map(|pipeline| self.pipeline(pipeline)).collect();
            (!targets.is_empty()).then(|| FanOut::to(ledgers[signal as usize].clone(), targets))
        });
        let parts = parts(planned, used(&ledgers), used(&nexts));
        let kept = self.kept(&base.path, &parts);
        let mut downstreams = [const { None }; 3];
        for ((downstream, next), at) in downstreams.iter_mut().zip(nexts).zip(0..) {
            let kept = kept
                .as_ref()
                .and_then(|member: &GraphMember| member.downstreams.get(at)?.as_ref());
            *downstream = next.map(|next| self.downstream(kept, next));
        }
        if let Some(member) = kept {
            self.graph.members.push(member);
        } else {
            let context = ConnectorContext {
                base,
                outputs: downstreams
                    .clone()
                    .map(|downstream| downstream.map(|downstream| downstream as Arc<dyn Consumer>)),
                ledgers: ledgers.clone(),
            };
            let built = (planned.factory.build)(&planned.settings, context);
            built.as_ref().ok()?;
            self.add(position, parts, downstreams, built, Instance::Connector);
        }
        let Some(Instance::Connector(connector)) =
            self.graph.members.last().map(|member| member.instance.clone())
        else {
            return None;
        };
        let sink = PipelineTarget {
            consumer: connector,
            ledgers,
        };
        self.sinks.insert(id.clone(), sink.clone());
        Some(sink)
    }

    fn receivers(&mut self) {
        let plan = self.plan;
        for (id, planned) in &plan.receivers {
            let nexts = Signal::ALL.map(|signal| self.receiver_next(id, signal));
            if nexts.iter().all(Option::is_none) {
                continue;
            }
            let position = Position::of(Class::Receiver, id);
            let base = self.context(position);
            let parts = parts(planned, [false; 3], used(&nexts));
            let kept = self.kept(&base.path, &parts);
            let mut downstreams = [const { None }; 3];
            for ((downstream, next), at) in downstreams.iter_mut().zip(nexts).zip(0..) {
                let kept = kept
                    .as_ref()
                    .and_then(|member: &GraphMember| member.downstreams.get(at)?.as_ref());
                *downstream = next.map(|next| self.downstream(kept, next));
            }
            let entries = Signal::ALL.map(|signal| {
                let downstream = downstreams[signal as usize].clone()?;
                Some(self.receiver_entry(id, signal, downstream))
            });
            if let Some(member) = kept {
                self.graph.members.push(member);
            } else {
                let built = (planned.factory.build)(&planned.settings, ReceiverContext { base, entries });
                let is_built = built.is_ok();
                self.add(position, parts, downstreams, built, Instance::Receiver);
                if !is_built {
                    continue;
                }
            }
            if let Some(Instance::Receiver(receiver)) =
                self.graph.members.last().map(|member| member.instance.clone())
            {
                let readers = self.table_readers.after_receiver(plan, id);
                self.connect_table(receiver.table(), &readers);
            }
        }
    }

    /// The pipelines that take a signal from a receiver.
    fn receiver_next(&self, id: &ComponentId, signal: Signal) -> Option<Arc<dyn Consumer>> {
        let fed = self
            .plan
            .pipelines
            .iter()
            .filter(|p| p.id.signal == signal && p.receivers.contains(id));
        let targets: Vec<_> = fed
            .filter_map(|pipeline| self.entries.get(&pipeline.id).cloned())
            .collect();
        (!targets.is_empty()).then(|| FanOut::to(None, targets))
    }

    fn receiver_entry(&mut self, id: &ComponentId, signal: Signal, downstream: Arc<Downstream>) -> Entry {
        let receiver: Arc<str> = id.to_string().into();
        let mut counted = self.counted.entries.iter();
        let known = counted.find(|entry| entry.receiver == receiver && entry.signal == signal);
        let counts = known.map_or_else(Arc::<EntryCounts>::default, |entry| entry.counts.clone());
        self.graph.metrics.entries.push(ReceiverMetrics {
            receiver,
            signal,
            counts: counts.clone(),
        });
        let entry = Entry::new(signal, downstream, counts);
        entry.watched(format!("receivers::{id}").into(), self.shared.clone())
    }
}
