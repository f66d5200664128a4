// SPDX-License-Identifier: Apache-2.0

//! Checks whether the parts of a configuration fit together, as far as no component is needed
//! for it: everything named exists, everything defined is used, nothing goes in circles.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::document::{Component, Document, Pipeline, Reference};
use super::foreign;
use super::id::{Class, ComponentId, PipelineId};
use super::node::{Node, quoted};
use super::problems::Problems;
use super::suggest::nearest;

/// Which component types exist.
pub trait Registry {
    /// Type names of a class, aliases included.
    fn kinds(&self, class: Class) -> Vec<&str>;
}

/// Reports everything wrong with the whole; see the module.
pub(super) fn check(document: &Document, registry: &dyn Registry, cx: &mut Problems) {
    let checker = Checker {
        document,
        ids: Class::ALL.map(|class| (class, ids(document, class))).into(),
    };
    for component in document.components() {
        check_kind(component, registry, cx);
    }
    checker.check_sections(cx);
    for pipeline in &document.service.pipelines {
        checker.check_pipeline(pipeline, cx);
    }
    for extension in &document.service.extensions {
        checker.check_reference(extension, &[Class::Extension], cx);
    }
    for component in document.components() {
        checker.check_storage(component, cx);
        checker.check_expressions(component, cx);
    }
    checker.check_repeated_pipelines(cx);
    checker.check_ambiguous(cx);
    checker.check_connectors(cx);
    checker.check_cycles(cx);
    // A mistyped reference makes its target look unused; that can wait until it is put right.
    if !cx.has_errors() {
        checker.check_unused(cx);
    }
}

/// The most letters of a name that nobody guesses a type from.
const SHORT: usize = 3;

fn ids(document: &Document, class: Class) -> BTreeSet<&ComponentId> {
    let section = document.components().iter().filter(|c| c.class == class);
    section.map(|component| &component.id).collect()
}

fn check_kind(component: &Component, registry: &dyn Registry, cx: &mut Problems) {
    let Component { class, id, options } = component;
    let mut kinds = registry.kinds(*class);
    if kinds.contains(&id.kind.as_str()) {
        return;
    }
    cx.unread(options);
    kinds.sort_unstable();
    if let Some(instead) = foreign::instead(*class, &id.kind) {
        cx.at_key(options)
            .help(instead)
            .error(format!("`{}` is not in tidegate", id.kind));
        return;
    }
    // A short name is near to many others, and nobody means `nop` by another name.
    let likely = kinds.iter().copied();
    let likely = likely.filter(|kind| id.kind.len() > SHORT && *kind != "nop");
    let guess = nearest(&id.kind, likely)
        .map(|near| format!("did you mean `{near}`? "))
        .unwrap_or_default();
    let elsewhere = (Class::ALL.into_iter())
        .find(|class| registry.kinds(*class).contains(&id.kind.as_str()))
        .map(|class| format!("`{}` belongs under `{}`; ", id.kind, class.section()))
        .unwrap_or_default();
    cx.at_key(options)
        .help(format!("{elsewhere}{guess}valid values: {}", kinds.join(", ")))
        .error(format!(
            "unknown type: {} for id: {}",
            quoted(&id.kind),
            quoted(&id.to_string())
        ));
}

/// Where each connector is used: pipelines it is fed by and pipelines it feeds.
#[derive(Default)]
struct Usage<'a> {
    exporting: Vec<&'a PipelineId>,
    receiving: Vec<&'a PipelineId>,
}

struct Checker<'a> {
    document: &'a Document,
    ids: BTreeMap<Class, BTreeSet<&'a ComponentId>>,
}

impl<'a> Checker<'a> {
    fn has(&self, class: Class, id: &ComponentId) -> bool {
        self.ids[&class].contains(id)
    }

    fn check_sections(&self, cx: &mut Problems) {
        let root = &self.document.root;
        for class in [Class::Receiver, Class::Exporter] {
            let section = class.section();
            if is_blank(root.get(section)) {
                cx.at(root.child(section))
                    .help(format!("define at least one under `{section}:`"))
                    .error(format!("no {class} configuration specified in config"));
            }
        }
        let service = root.child("service");
        if is_blank(root.get("service").and_then(|service| service.get("pipelines"))) {
            cx.at(service.child("pipelines"))
                .help("pipelines go under `service: {pipelines: {metrics: ...}}`")
                .error("service must have at least one pipeline");
        }
    }

    fn check_pipeline(&self, pipeline: &Pipeline, cx: &mut Problems) {
        use Class::{Connector, Exporter, Processor, Receiver};
        self.check_part(pipeline, &pipeline.receivers, &[Receiver, Connector], cx);
        self.check_part(pipeline, &pipeline.processors, &[Processor], cx);
        self.check_part(pipeline, &pipeline.exporters, &[Exporter, Connector], cx);
    }

    /// `classes` are those that may stand in this part, the one it is named for first.
    fn check_part(
        &self,
        pipeline: &Pipeline,
        references: &[Reference],
        classes: &[Class],
        cx: &mut Problems,
    ) {
        let class = classes[0];
        let written = pipeline.node.get(class.section());
        if class != Class::Processor && is_blank(written) {
            let message = format!("must have at least one {class}");
            cx.at(written.unwrap_or(&pipeline.node)).error(message);
        }
        let mut seen = HashSet::new();
        for reference in references {
            self.check_reference(reference, classes, cx);
            if !seen.insert(&reference.id) {
                let id = quoted(&reference.id.to_string());
                let message = format!("references {class} {id} multiple times");
                cx.at(&reference.node).error(message);
            }
        }
    }

    /// Reports a reference to something that is in none of the sections it may be in.
    fn check_reference(&self, reference: &Reference, classes: &[Class], cx: &mut Problems) {
        let id = &reference.id;
        if classes.iter().any(|class| self.has(*class, id)) {
            return;
        }
        let text = id.to_string();
        let known = classes.iter().flat_map(|class| &self.ids[class]);
        let known: Vec<_> = known.map(ToString::to_string).collect();
        let near = nearest(&text, known.iter().map(String::as_str));
        let section = classes[0].section();
        let elsewhere = Class::ALL.into_iter().find(|class| self.has(*class, id));
        let help = match (near, elsewhere) {
            (_, Some(class)) => format!("`{text}` is {} {class}", article(class)),
            (Some(near), None) => format!("did you mean `{near}`?"),
            (None, None) if known.is_empty() => format!("define it under `{section}:`"),
            (None, None) => format!("configured: {}", known.join(", ")),
        };
        cx.at(&reference.node).help(help).error(format!(
            "references {} {} which is not configured",
            classes[0],
            quoted(&text)
        ));
    }

    /// Every `storage` and `sending_queue::storage` names an extension that starts.
    fn check_storage(&self, component: &Component, cx: &mut Problems) {
        let options = &component.options;
        let peer = options.get("protocol").and_then(|protocol| protocol.get("otlp"));
        let queues = [Some(options), peer].into_iter().flatten();
        let queues = queues.filter_map(|around| around.get("sending_queue"));
        for node in std::iter::once(options)
            .chain(queues)
            .filter_map(|around| around.get("storage"))
        {
            let Some(id) = node.as_text().filter(|id| !self.starts(id)) else {
                continue;
            };
            let help = if self.ids[&Class::Extension]
                .iter()
                .any(|known| known.to_string() == id)
            {
                format!("add `{id}` to `service::extensions`")
            } else {
                format!(
                    "define it, as in `extensions: {{{id}: {{directory: /var/lib/tidegate}}}}`, and name it under \
                     `service::extensions`"
                )
            };
            let message = format!("{} is not an extension that the gateway starts", node.shown());
            cx.at(node).help(help).error(message);
        }
    }

    /// An extension computes the expressions of composites.
    fn check_expressions(&self, component: &Component, cx: &mut Problems) {
        const COMPUTES: &str = "admin";
        let mut extensions = self.document.service.extensions.iter();
        if component.class != Class::Processor
            || component.id.kind != "composite"
            || extensions.any(|extension| extension.id.kind == COMPUTES)
        {
            return;
        }
        let composites = component.options.get("composites").and_then(Node::as_list);
        let mut composites = composites.unwrap_or_default().iter();
        let expression = |composite: &Node| composite.get("expr").filter(|node| !node.is_null()).cloned();
        if let Some(node) = composites.find_map(expression) {
            let help = "add `admin: {}` to `extensions`, and `admin` to `service::extensions`";
            cx.at(&node)
                .help(help)
                .error("`expr` needs the `admin` extension, which computes it");
        }
    }

    fn starts(&self, id: &str) -> bool {
        let mut extensions = self.document.service.extensions.iter();
        extensions.any(|extension| extension.id.to_string() == id)
    }

    fn check_repeated_pipelines(&self, cx: &mut Problems) {
        let mut seen = HashSet::new();
        for pipeline in &self.document.service.pipelines {
            if !seen.insert(&pipeline.id) {
                let message = "another pipeline has the same id";
                cx.at_key(&pipeline.node).error(message);
            }
        }
    }

    fn check_ambiguous(&self, cx: &mut Problems) {
        for connector in self.document.section(Class::Connector) {
            for class in [Class::Receiver, Class::Exporter] {
                if self.has(class, &connector.id) {
                    let id = quoted(&connector.id.to_string());
                    cx.at_key(&connector.options)
                        .help("give one of them another name: `type/name`")
                        .error(format!(
                            "ambiguous id: found both {id} {class} and {id} connector"
                        ));
                }
            }
        }
    }

    fn check_connectors(&self, cx: &mut Problems) {
        let usage = self.connector_usage();
        for connector in self.document.section(Class::Connector) {
            let Some(used) = usage.get(&connector.id) else {
                continue;
            };
            let (there, missing, pipelines) = match (&used.exporting[..], &used.receiving[..]) {
                (exporting, []) => ("exporter", "receiver", exporting),
                ([], receiving) => ("receiver", "exporter", receiving),
                _ => continue,
            };
            let id = quoted(&connector.id.to_string());
            let pipelines: Vec<_> = pipelines.iter().map(ToString::to_string).collect();
            cx.at_key(&connector.options).error(format!(
                "connector {id} is used as {there} in [{}] but as {missing} in no pipeline",
                pipelines.join(", ")
            ));
        }
    }

    fn connector_usage(&self) -> HashMap<&'a ComponentId, Usage<'a>> {
        let mut usage: HashMap<_, Usage<'a>> = HashMap::new();
        for pipeline in &self.document.service.pipelines {
            for exporter in &pipeline.exporters {
                if self.has(Class::Connector, &exporter.id) {
                    let used = usage.entry(&exporter.id).or_default();
                    used.exporting.push(&pipeline.id);
                }
            }
            for receiver in &pipeline.receivers {
                if self.has(Class::Connector, &receiver.id) {
                    let used = usage.entry(&receiver.id).or_default();
                    used.receiving.push(&pipeline.id);
                }
            }
        }
        usage
    }

    fn check_cycles(&self, cx: &mut Problems) {
        let usage = self.connector_usage();
        let mut steps: BTreeMap<&PipelineId, Vec<(&ComponentId, &PipelineId)>> = BTreeMap::new();
        for (connector, used) in &usage {
            for from in &used.exporting {
                let onward = used.receiving.iter().map(|to| (*connector, *to));
                steps.entry(from).or_default().extend(onward);
            }
        }
        for onward in steps.values_mut() {
            onward.sort_unstable();
        }
        while let Some(cycle) = take_cycle(&mut steps) {
            self.report_cycle(&cycle, cx);
        }
    }

    fn report_cycle(&self, cycle: &[(&PipelineId, &ComponentId)], cx: &mut Problems) {
        let Some((first, _)) = cycle.first() else {
            return;
        };
        let steps = cycle
            .iter()
            .map(|(pipeline, connector)| format!("pipeline {pipeline} -> connector {connector} -> "));
        let steps: String = steps.collect();
        let pipelines = &self.document.service.pipelines;
        if let Some(pipeline) = pipelines.iter().find(|p| p.id == **first) {
            let message = format!("cycle detected: {steps}pipeline {first}");
            cx.at_key(&pipeline.node).error(message);
        }
    }

    fn check_unused(&self, cx: &mut Problems) {
        let service = &self.document.service;
        // A connector is named as a receiver and as an exporter.
        let used: HashSet<(Class, &ComponentId)> = service
            .pipelines
            .iter()
            .flat_map(|pipeline| {
                named(&pipeline.receivers, &[Class::Receiver, Class::Connector])
                    .chain(named(&pipeline.processors, &[Class::Processor]))
                    .chain(named(&pipeline.exporters, &[Class::Exporter, Class::Connector]))
            })
            .chain(named(&service.extensions, &[Class::Extension]))
            .collect();
        for component in self.document.components() {
            if !used.contains(&(component.class, &component.id)) {
                let place = match component.class {
                    Class::Extension => "service::extensions does not name it",
                    _ => "no pipeline uses it",
                };
                let message = format!("{} is defined, but {place}", component.class);
                cx.at_key(&component.options).warning(message);
            }
        }
    }
}

/// What a list names: each id may be a component of one of the classes.
fn named<'a>(
    references: &'a [Reference],
    classes: &'a [Class],
) -> impl Iterator<Item = (Class, &'a ComponentId)> {
    references
        .iter()
        .flat_map(move |reference| classes.iter().map(move |class| (*class, &reference.id)))
}

/// Whether a section or list is absent, null or empty. One of a wrong type has been reported.
fn is_blank(node: Option<&Node>) -> bool {
    node.is_none_or(|node| {
        node.is_null()
            || node.as_map().is_some_and(<[_]>::is_empty)
            || node.as_list().is_some_and(<[_]>::is_empty)
    })
}

fn article(class: Class) -> &'static str {
    match class {
        Class::Exporter | Class::Extension => "an",
        _ => "a",
    }
}

type Steps<'a> = BTreeMap<&'a PipelineId, Vec<(&'a ComponentId, &'a PipelineId)>>;

/// Finds a cycle and takes its pipelines out of the graph, so that each is found once.
fn take_cycle<'a>(steps: &mut Steps<'a>) -> Option<Vec<(&'a PipelineId, &'a ComponentId)>> {
    // Pipelines that lead nowhere are in no cycle; without them every walk ends in one.
    loop {
        let pipelines: BTreeSet<_> = steps.keys().copied().collect();
        for onward in steps.values_mut() {
            onward.retain(|(_, to)| pipelines.contains(to));
        }
        let before = steps.len();
        steps.retain(|_, onward| !onward.is_empty());
        if steps.len() == before {
            break;
        }
    }
    let mut walk: Vec<(&PipelineId, &ComponentId)> = Vec::new();
    let mut at = *steps.keys().next()?;
    while !walk.iter().any(|(pipeline, _)| *pipeline == at) {
        let (connector, to) = *steps.get(at)?.first()?;
        walk.push((at, connector));
        at = to;
    }
    let start = walk.iter().position(|(pipeline, _)| *pipeline == at)?;
    let cycle = walk.split_off(start);
    for (pipeline, _) in &cycle {
        steps.remove(pipeline);
    }
    Some(cycle)
}
