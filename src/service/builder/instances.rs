// SPDX-License-Identifier: Apache-2.0

//! The instances of each class: those that a reload keeps, and those that the factories build.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Builder, PipelineTarget, Position, fed_by, parts, used};
use crate::batch::Signal;
use crate::component::{
    ConnectorContext, Consumer, Context, ExporterContext, FanOut, Ledger, Processor, ProcessorContext,
    ReceiverContext,
};
use crate::config::{Class, ComponentId};
use crate::service::graph::{BuildError, GraphMember};
use crate::service::member::Instance;
use crate::service::plan::PipelinePlan;

impl<'a> Builder<'a> {
    pub(super) fn extensions(&mut self) {
        let plan = self.plan;
        // A component must not find the services of an extension that a reload removes.
        let ids: BTreeSet<String> = plan.extension_order.iter().map(ToString::to_string).collect();
        self.shared.services.retain(|id| ids.contains(id));
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
        let mut built = Vec::new();
        for (position, planned, parts) in all {
            let is_changed = self.changed_extensions.contains(&position.id.to_string());
            let kept = self.kept(&position.path(), &parts).filter(|_| !is_changed);
            let added = self.add(kept, position, parts, [const { None }; 3], |builder| {
                let extension = (planned.factory.build)(&planned.settings, builder.context(position))?;
                let services = &builder.shared.services;
                services.add(position.id.to_string(), extension.services());
                Ok(Instance::Extension(extension))
            });
            if let Some(Instance::Extension(extension)) = added {
                self.connect_table(extension.table(), &BTreeSet::new());
                built.push((position.id, extension));
            }
        }
        // What an extension that failed would have set up is missing for the others.
        if self.errors.is_empty() {
            let failed = built.into_iter().filter_map(|(id, extension)| {
                let error = extension.check_needs().err()?;
                Some(BuildError {
                    class: Class::Extension,
                    id: id.clone(),
                    error,
                })
            });
            self.errors.extend(failed);
        }
    }

    pub(super) fn exporters(&mut self) {
        let plan = self.plan;
        for (id, planned) in &plan.exporters {
            let position = Position::of(Class::Exporter, id);
            let base = self.context(position);
            let ledgers = self.ledgers(position, &base.path);
            if ledgers.iter().all(Option::is_none) {
                continue;
            }
            let parts = parts(planned, used(&ledgers), [false; 3]);
            let kept = self.kept(&base.path, &parts);
            let added = self.add(kept, position, parts, [const { None }; 3], |builder| {
                let replaced = builder.replaced_tables(&base.path);
                let context = ExporterContext {
                    base,
                    ledgers: ledgers.clone(),
                    replaced,
                };
                (planned.factory.build)(&planned.settings, context).map(Instance::Exporter)
            });
            if let Some(Instance::Exporter(exporter)) = added {
                self.table_readers.add(id.clone(), exporter.clone());
                let consumer = exporter;
                self.sinks
                    .insert(id.clone(), PipelineTarget { consumer, ledgers });
            }
        }
    }

    pub(super) fn processor(
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
        let kept = self.kept(&base.path, &parts);
        let known = kept.as_ref().and_then(|member| member.downstreams[at].as_ref());
        let downstream = self.downstream((position, signal), known, next);
        let mut downstreams = [const { None }; 3];
        downstreams[at] = Some(downstream.clone());
        let added = self.add(kept, position, parts, downstreams, |builder| {
            let context = ProcessorContext {
                base: base.clone(),
                pipeline: pipeline.id.to_string().into(),
                signal,
                next: downstream,
                ledger: ledger.clone(),
                replaced: builder.replaced_tables(&base.path),
            };
            (planned.factory.build)(&planned.settings, context).map(Instance::Processor)
        });
        match added {
            Some(Instance::Processor(processor)) => Some(processor),
            _ => None,
        }
    }

    pub(super) fn connector(&mut self, id: &'a ComponentId) -> Option<PipelineTarget> {
        if let Some(sink) = self.sinks.get(id) {
            return Some(sink.clone());
        }
        let plan = self.plan;
        let planned = plan.connectors.get(id)?;
        let position = Position::of(Class::Connector, id);
        // Every pipeline that ends in it asks. One error is enough.
        if self.has_failed(position) {
            return None;
        }
        let base = self.context(position);
        let ledgers = self.ledgers(position, &base.path);
        let nexts = Signal::ALL.map(|signal| {
            let fed = fed_by(plan, id, signal);
            let targets: Vec<_> = fed.map(|pipeline| self.pipeline(pipeline)).collect();
            (!targets.is_empty()).then(|| FanOut::to(ledgers[signal as usize].clone(), targets))
        });
        let parts = parts(planned, used(&ledgers), used(&nexts));
        let kept = self.kept(&base.path, &parts);
        let downstreams = self.downstreams(position, kept.as_ref(), nexts);
        let outputs = downstreams
            .clone()
            .map(|downstream| downstream.map(|downstream| downstream as Arc<dyn Consumer>));
        let added = self.add(kept, position, parts, downstreams, |_| {
            let context = ConnectorContext {
                base,
                outputs,
                ledgers: ledgers.clone(),
            };
            (planned.factory.build)(&planned.settings, context).map(Instance::Connector)
        });
        let Some(Instance::Connector(connector)) = added else {
            return None;
        };
        let sink = PipelineTarget {
            consumer: connector,
            ledgers,
        };
        self.sinks.insert(id.clone(), sink.clone());
        Some(sink)
    }

    fn has_failed(&self, position: Position<'_>) -> bool {
        let mut errors = self.errors.iter();
        errors.any(|error| error.class == position.class && error.id == *position.id)
    }

    pub(super) fn receivers(&mut self) {
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
            let downstreams = self.downstreams(position, kept.as_ref(), nexts);
            let entries = Signal::ALL.map(|signal| {
                let downstream = downstreams[signal as usize].clone()?;
                Some(self.receiver_entry(id, signal, downstream))
            });
            let added = self.add(kept, position, parts, downstreams, |_| {
                let context = ReceiverContext { base, entries };
                (planned.factory.build)(&planned.settings, context).map(Instance::Receiver)
            });
            if let Some(Instance::Receiver(receiver)) = added {
                let readers = self.table_readers.after_receiver(plan, id);
                self.connect_table(receiver.table(), &readers);
                let failed = receiver.check_needs().err();
                self.errors.extend(failed.map(|error| BuildError {
                    class: Class::Receiver,
                    id: id.clone(),
                    error,
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::component::{ConnectorFactory, Factory, Shared};
    use crate::config::Class;
    use crate::connectors::forward;
    use crate::service::Graph;
    use crate::service::testing::plan;

    static BROKEN: ConnectorFactory = Factory {
        kind: forward::FACTORY.kind,
        aliases: &[],
        stability: forward::FACTORY.stability,
        help: forward::FACTORY.help,
        errors: forward::FACTORY.errors,
        config: forward::FACTORY.config,
        build: |_, cx| Err(cx.base.error("it is broken")),
    };

    #[test]
    fn a_connector_that_can_not_be_built_is_one_error() {
        let mut plan = plan(
            "receivers: {nop: {}}
exporters: {nop: {}}
connectors: {forward: {}}
service:
  pipelines:
    logs/a: {receivers: [nop], exporters: [forward]}
    logs/b: {receivers: [nop], exporters: [forward, nop]}
    logs/end: {receivers: [forward], exporters: [nop]}",
        );
        for planned in plan.connectors.values_mut() {
            planned.factory = &BROKEN;
        }
        let built = Graph::build(&plan, &Arc::new(Shared::default()));
        let errors = built.err().unwrap_or_default();
        let found: Vec<_> = errors
            .iter()
            .map(|error| (error.class, error.id.to_string()))
            .collect();
        assert_eq!(found, [(Class::Connector, "forward".to_owned())]);
    }
}
