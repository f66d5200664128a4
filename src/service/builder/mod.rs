// SPDX-License-Identifier: Apache-2.0

//! Builds the graph: exporters first, then pipelines from their end to their beginning, receivers last.
//!
//! One instance of a receiver, exporter or connector serves every pipeline that names it. Every pipeline has its
//! own processor instances. A reload builds the next graph around the instances that it keeps: their downstreams lead to new
//! edges from the commit on. `instances` builds the components of each class.

mod instances;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tidegate_engine::Table;

use super::graph::{BuildError, Graph, GraphMember};
use super::member::{Instance, Parts};
use super::plan::{PipelinePlan, Plan, Planned};
use super::tables::TableReaders;
use super::writers::SeriesWriter;
use crate::batch::Signal;
use crate::component::graph_metrics::{GraphMetrics, NodeMetrics, ReceiverMetrics};
use crate::component::tap::{ComponentSide, TapPoint, TapSide, TapSite};
use crate::component::{
    ComponentError, Consumer, Context, Downstream, DownstreamState, Edge, Entry, EntryCounts, Factory,
    FanOut, Ledger, Shared, TableHandle,
};
use crate::config::{Class, ComponentId, PipelineId};

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

/// A graph that is being built.
pub(super) struct Builder<'a> {
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
    pub(super) series_writers: Vec<SeriesWriter>,
    pub(super) errors: Vec<BuildError>,
}

/// The position of a component: its section, its id, and the end of its path.
#[derive(Clone, Copy)]
pub(super) struct Position<'a> {
    pub(super) class: Class,
    pub(super) id: &'a ComponentId,
    pub(super) pipeline: Option<&'a PipelineId>,
}

impl<'a> Position<'a> {
    pub(super) fn of(class: Class, id: &'a ComponentId) -> Self {
        Self {
            class,
            id,
            pipeline: None,
        }
    }

    pub(super) fn path(&self) -> String {
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

fn parts<B, S>(planned: &Planned<Factory<B, S>>, takes: [bool; 3], gives: [bool; 3]) -> Parts {
    Parts {
        kind: planned.factory.kind,
        options: planned.options.clone(),
        takes,
        gives,
    }
}

/// The pipelines of a signal that name a component as a receiver.
fn fed_by<'a>(plan: &'a Plan, id: &ComponentId, signal: Signal) -> impl Iterator<Item = &'a PipelinePlan> {
    let pipelines = plan.pipelines.iter();
    pipelines.filter(move |one| one.id.signal == signal && one.receivers.contains(id))
}

impl<'a> Builder<'a> {
    pub(super) fn new(
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

    /// Builds all instances, or records why they can't be built.
    pub(super) fn instances(&mut self) {
        let plan = self.plan;
        self.extensions();
        self.exporters();
        for pipeline in &plan.pipelines {
            self.pipeline(pipeline);
        }
        self.receivers();
    }

    /// The graph, with warnings about components that could be built.
    ///
    /// # Errors
    /// What the build has recorded.
    pub(super) fn finish(mut self, warnings: Vec<BuildError>) -> Result<Graph, Vec<BuildError>> {
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        self.graph.warnings = warnings;
        self.graph.tables = self.table_readers.shown();
        self.keep_old_counts();
        Ok(self.graph)
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

    /// The tables of the instances that a new one replaces, the newest first. On the return from a plan that failed, the
    /// instance of the old plan has stopped, and its table has what that of the failed plan lacks.
    fn replaced_tables(&self, path: &str) -> Vec<Arc<Table>> {
        let stopped = self.stopped.iter().filter(|member| *member.path == *path);
        let all = self.running_at(path).chain(stopped);
        all.filter_map(GraphMember::own_table).collect()
    }

    /// The downstream of a component. That of a kept instance leads to `next` from the commit on.
    fn downstream(
        &mut self,
        (position, signal): (Position<'_>, Signal),
        kept: Option<&Arc<Downstream>>,
        next: Arc<dyn Consumer>,
    ) -> Arc<Downstream> {
        match kept {
            Some(downstream) => {
                self.graph.connections.push((downstream.clone(), next));
                downstream.clone()
            }
            None => {
                let wiring = self.shared.wiring.clone();
                let downstream = Downstream::new(wiring, next, DownstreamState::Open);
                let tap = self.tap_point(position, signal, TapSide::Output);
                Arc::new(downstream.tapped(tap))
            }
        }
    }

    /// The point that copies what enters or leaves a component.
    fn tap_point(&self, position: Position<'_>, signal: Signal, side: TapSide) -> Arc<TapPoint> {
        self.shared.taps.point(TapSite {
            component: ComponentSide {
                class: position.class,
                id: position.id.to_string().into(),
                side,
            },
            pipeline: position.pipeline.map(|pipeline| pipeline.to_string().into()),
            signal,
        })
    }

    /// The downstreams of a component by signal.
    fn downstreams(
        &mut self,
        position: Position<'_>,
        kept: Option<&GraphMember>,
        nexts: [Option<Arc<dyn Consumer>>; 3],
    ) -> [Option<Arc<Downstream>>; 3] {
        let mut downstreams = [const { None }; 3];
        for ((downstream, next), signal) in downstreams.iter_mut().zip(nexts).zip(Signal::ALL) {
            let kept = kept.and_then(|member| member.downstreams[signal as usize].as_ref());
            *downstream = next.map(|next| self.downstream((position, signal), kept, next));
        }
        downstreams
    }

    /// Adds the kept instance, or one that `build` makes. `None` if it can't be built: the error is recorded.
    fn add(
        &mut self,
        kept: Option<GraphMember>,
        position: Position<'_>,
        parts: Parts,
        downstreams: [Option<Arc<Downstream>>; 3],
        build: impl FnOnce(&Self) -> Result<Instance, ComponentError>,
    ) -> Option<Instance> {
        let built = match kept {
            Some(member) => Ok(member),
            None => build(self).map(|instance| GraphMember {
                path: position.path().into(),
                class: position.class,
                parts,
                instance,
                table: None,
                downstreams,
            }),
        };
        match built {
            Ok(member) => {
                let instance = member.instance.clone();
                self.graph.members.push(member);
                Some(instance)
            }
            Err(error) => {
                self.errors.push(BuildError {
                    class: position.class,
                    id: position.id.clone(),
                    error,
                });
                None
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
            let tap = self.tap_point(*position, signal, TapSide::Input);
            let edge = Edge::new(from, ledger.clone(), processor)
                .editing(edits)
                .tapped(tap);
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

    /// Edges to the exporters and connectors at the end of a pipeline.
    fn pipeline_sinks(&mut self, pipeline: &PipelinePlan) -> Vec<Arc<dyn Consumer>> {
        let mut edges: Vec<Arc<dyn Consumer>> = Vec::new();
        for id in &pipeline.exporters {
            let (class, sink) = if let Some((id, _)) = self.plan.connectors.get_key_value(id) {
                (Class::Connector, self.connector(id))
            } else {
                (Class::Exporter, self.sinks.get(id).cloned())
            };
            let Some(sink) = sink else { continue };
            if let Some(ledger) = &sink.ledgers[pipeline.id.signal as usize] {
                let position = Position {
                    class,
                    id,
                    pipeline: Some(&pipeline.id),
                };
                let tap = self.tap_point(position, pipeline.id.signal, TapSide::Input);
                let edge = Edge::new(None, ledger.clone(), sink.consumer).tapped(tap);
                edges.push(Arc::new(if self.shared.wants_details() {
                    edge.timed(None)
                } else {
                    edge
                }));
            }
        }
        edges
    }

    /// The pipelines that take a signal from a receiver.
    fn receiver_next(&self, id: &ComponentId, signal: Signal) -> Option<Arc<dyn Consumer>> {
        let fed = fed_by(self.plan, id, signal);
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
