// SPDX-License-Identifier: Apache-2.0

//! A configuration resolved to factories and settings, from which `builder` builds the components.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use crate::batch::Signal;
use crate::component::graph_metrics::GraphMetrics;
use crate::component::overview::{Overview, PipelineOverview};
use crate::component::{
    ConnectorFactory, ExporterFactory, ExtensionFactory, Factory, ProcessorFactory, ReceiverFactory,
    Settings, Stability,
};
use crate::config::{
    Class, Component, ComponentId, Decode, Document, Node, PipelineId, Problems, Reference, Span,
};
use crate::extensions::rules::RuleFiles;
use crate::{connectors, exporters, extensions, processors, receivers, telemetry};

/// The default time limit of a stop: within the 30 s that Kubernetes grants, with a margin for slow exits.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// A component with its options.
pub struct Planned<F: 'static> {
    /// The factory.
    pub factory: &'static F,
    /// Its decoded options.
    pub settings: Settings,
    /// The options as written, after substitution. They hold secrets.
    pub options: Node,
}

/// A pipeline as configured.
#[derive(Clone, Debug)]
pub struct PipelinePlan {
    /// The id: `metrics/vendor`.
    pub id: PipelineId,
    /// The receivers, and the connectors that feed the pipeline.
    pub receivers: Vec<ComponentId>,
    /// The processors, in the order of the data.
    pub processors: Vec<ComponentId>,
    /// The exporters, and the connectors that the pipeline feeds.
    pub exporters: Vec<ComponentId>,
}

/// All components and options of a gateway.
pub struct Plan {
    /// Receivers by id.
    pub receivers: BTreeMap<ComponentId, Planned<ReceiverFactory>>,
    /// Processors by id.
    pub processors: BTreeMap<ComponentId, Planned<ProcessorFactory>>,
    /// Exporters by id.
    pub exporters: BTreeMap<ComponentId, Planned<ExporterFactory>>,
    /// Connectors by id.
    pub connectors: BTreeMap<ComponentId, Planned<ConnectorFactory>>,
    /// Extensions by id.
    pub extensions: BTreeMap<ComponentId, Planned<ExtensionFactory>>,
    /// `service::extensions`: the extensions to start, in order.
    pub extension_order: Vec<ComponentId>,
    /// The pipelines in the order of the file.
    pub pipelines: Vec<PipelinePlan>,
    /// `service::telemetry`.
    pub telemetry: telemetry::TelemetryConfig,
    /// The same as written; `None`: the defaults.
    pub telemetry_options: Option<Node>,
    /// The time limit for a stop to hand on all held data.
    pub drain_timeout: Duration,
    places: HashMap<(Class, ComponentId), Span>,
}

impl Plan {
    /// Decodes the options of every component and checks them with its factory. All problems go to `cx`. `None`
    /// only if no option of the service itself could be read.
    pub fn resolve(document: &Document, cx: &mut Problems) -> Option<Self> {
        let telemetry = match &document.service.telemetry {
            Some(node) => telemetry::TelemetryConfig::decode(node, cx),
            None => Some(telemetry::TelemetryConfig::default()),
        };
        let mut resolver = Resolver { document, cx };
        let plan = Self {
            receivers: resolver.section(Class::Receiver, receivers::FACTORIES),
            processors: resolver.section(Class::Processor, processors::FACTORIES),
            exporters: resolver.section(Class::Exporter, exporters::FACTORIES),
            connectors: resolver.section(Class::Connector, connectors::FACTORIES),
            extensions: resolver.section(Class::Extension, extensions::FACTORIES),
            extension_order: ids(&document.service.extensions),
            pipelines: document.service.pipelines.iter().map(pipeline_plan).collect(),
            telemetry: telemetry?,
            telemetry_options: document.service.telemetry.clone(),
            drain_timeout: document.service.drain_timeout.unwrap_or(DRAIN_TIMEOUT),
            places: spans(document),
        };
        plan.check_signals(document, cx);
        plan.check_shown(document, cx);
        plan.check_levels(cx);
        super::outputs::check(&plan, document, cx);
        super::refresh::check(&plan, cx);
        super::leaders::check(&plan, cx);
        Some(plan)
    }

    /// The files beside those of the configuration whose contents belong to it: those of the `rules` extensions that run.
    pub fn rule_files(&self) -> Vec<RuleFiles> {
        let running = self
            .extension_order
            .iter()
            .filter_map(|id| self.extensions.get(id));
        let of_rules = running.filter(|planned| planned.factory.kind == extensions::rules::FACTORY.kind);
        of_rules.map(|planned| RuleFiles::of(&planned.settings)).collect()
    }

    /// An overview for pages about the gateway itself. `config` is the source of the plan, without secrets. `built` is the
    /// time of the first graph.
    pub fn overview(&self, config: String, metrics: GraphMetrics, built: SystemTime) -> Overview {
        let texts = |ids: &[ComponentId]| ids.iter().map(ToString::to_string).collect();
        let pipelines = self.pipelines.iter().map(|pipeline| PipelineOverview {
            id: pipeline.id.to_string(),
            receivers: texts(&pipeline.receivers),
            processors: texts(&pipeline.processors),
            exporters: texts(&pipeline.exporters),
        });
        Overview {
            built,
            pipelines: pipelines.collect(),
            extensions: texts(&self.extension_order),
            config,
            metrics,
        }
    }

    /// The place of a component's definition.
    pub fn span_of(&self, class: Class, id: &ComponentId) -> Option<Span> {
        self.places.get(&(class, id.clone())).copied()
    }

    /// Checks that pipelines name only components that handle their signal.
    fn check_signals(&self, document: &Document, cx: &mut Problems) {
        for pipeline in &document.service.pipelines {
            let signal = pipeline.id.signal;
            let named = [&pipeline.receivers, &pipeline.processors, &pipeline.exporters];
            for reference in named.into_iter().flatten() {
                let Some((kind, signals)) = self.signals(&reference.id) else {
                    continue;
                };
                if !signals.iter().any(|(handled, _)| *handled == signal) {
                    let handled: Vec<_> = signals.iter().map(|(handled, _)| handled.name()).collect();
                    cx.at(&reference.node)
                        .help(format!("`{kind}` handles {}", handled.join(", ")))
                        .error(format!("telemetry type {signal} is not supported by `{kind}`"));
                }
            }
        }
    }

    /// Checks that `admin::exporter` names a running `prometheus` exporter.
    fn check_shown(&self, document: &Document, cx: &mut Problems) {
        let runs = |id: &ComponentId| {
            self.pipelines
                .iter()
                .any(|pipeline| pipeline.exporters.contains(id))
        };
        let defined = document.section(Class::Exporter);
        let shows = defined.iter().map(|exporter| &exporter.id);
        let shows = shows.filter(|id| id.kind == exporters::prometheus::FACTORY.kind && runs(id));
        let shows: Vec<String> = shows.map(ToString::to_string).collect();
        for extension in document.section(Class::Extension) {
            let planned = self.extensions.get(&extension.id);
            let is_admin =
                planned.is_some_and(|planned| planned.factory.kind == extensions::admin::FACTORY.kind);
            let named = extension.options.get("exporter").filter(|_| is_admin);
            let Some(node) = named.filter(|node| {
                node.as_text()
                    .is_some_and(|name| !shows.iter().any(|id| id == name))
            }) else {
                continue;
            };
            let help = match shows.as_slice() {
                [] => "leave it out: queries name all series by the defaults of `prometheus`".to_owned(),
                shows => format!("valid values: {}", shows.join(", ")),
            };
            let message = format!("{} is not a `prometheus` exporter of a pipeline", node.shown());
            cx.at(node).help(help).error(message);
        }
    }

    /// Warns of log levels for components that do not exist.
    fn check_levels(&self, cx: &mut Problems) {
        let options = self.telemetry_options.as_ref();
        let Some(levels) = options.and_then(|options| options.get("logs")?.get("levels")) else {
            return;
        };
        for name in self.telemetry.logs.levels.keys() {
            let named = telemetry::named_component(name);
            if let Some((class, id)) = named.filter(|(class, id)| self.span_of(*class, id).is_none()) {
                cx.at_key(levels.child(name))
                    .help(format!(
                        "define `{id}` in `{}`, or correct the name",
                        class.section()
                    ))
                    .warning(format!("no {} has the id `{id}`", class.as_str()));
            }
        }
    }

    fn signals(&self, id: &ComponentId) -> Option<(&'static str, &'static [(Signal, Stability)])> {
        fn of<B>(planned: &Planned<Factory<B>>) -> (&'static str, &'static [(Signal, Stability)]) {
            (planned.factory.kind, planned.factory.stability)
        }
        (self.receivers.get(id).map(of))
            .or_else(|| self.processors.get(id).map(of))
            .or_else(|| self.exporters.get(id).map(of))
            .or_else(|| self.connectors.get(id).map(of))
    }
}

struct Resolver<'a> {
    document: &'a Document,
    cx: &'a mut Problems,
}

impl Resolver<'_> {
    /// Decodes every defined component of a class. A bad component is an error even if no pipeline uses it.
    fn section<B: 'static, S: 'static>(
        &mut self,
        class: Class,
        factories: &[&'static Factory<B, S>],
    ) -> BTreeMap<ComponentId, Planned<Factory<B, S>>> {
        let mut resolved = BTreeMap::new();
        for Component { id, options, .. } in self.document.section(class) {
            // Another check has already reported an unknown type.
            let found = factories
                .iter()
                .copied()
                .find(|factory| answers_to(factory, &id.kind));
            let Some(factory) = found else { continue };
            if let Some(settings) = (factory.config.decode)(options, self.cx) {
                let options = options.clone();
                resolved.insert(
                    id.clone(),
                    Planned {
                        factory,
                        settings,
                        options,
                    },
                );
            }
        }
        resolved
    }
}

fn answers_to<B, S>(factory: &Factory<B, S>, kind: &str) -> bool {
    factory.kind == kind || factory.aliases.contains(&kind)
}

fn ids(references: &[Reference]) -> Vec<ComponentId> {
    references.iter().map(|reference| reference.id.clone()).collect()
}

fn pipeline_plan(pipeline: &crate::config::Pipeline) -> PipelinePlan {
    PipelinePlan {
        id: pipeline.id.clone(),
        receivers: ids(&pipeline.receivers),
        processors: ids(&pipeline.processors),
        exporters: ids(&pipeline.exporters),
    }
}

fn spans(document: &Document) -> HashMap<(Class, ComponentId), Span> {
    let place = |c: &Component| {
        (
            (c.class, c.id.clone()),
            c.options.key_span().unwrap_or(c.options.span()),
        )
    };
    document.components().iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use crate::commands::load;
    use crate::config::Loader;

    #[test]
    fn log_levels_of_components_that_do_not_exist_are_warnings() {
        let yaml = "yaml:
receivers: {nop: {}}
exporters: {nop/a: {}}
service:
  telemetry: {logs: {levels: {'exporters::nop/a': debug, 'exporters::nop/b': debug, 'receivers::nop/a': debug}}}
  pipelines: {logs: {receivers: [nop], exporters: [nop/a]}}";
        let checked = load::check_loader(Loader::default().config(yaml));
        let problems = checked.problems.to_string();
        assert!(checked.plan.is_some(), "{problems}");
        for warning in ["no exporter has the id `nop/b`", "no receiver has the id `nop/a`"] {
            assert!(problems.contains(warning), "{problems}");
        }
        assert_eq!(problems.matches(" has the id ").count(), 2, "{problems}");
    }
}
