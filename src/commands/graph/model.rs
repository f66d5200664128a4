// SPDX-License-Identifier: Apache-2.0

//! The components of a plan and their connections. It has no options, and so no secrets.

use crate::config::{Class, ComponentId};
use crate::service::Plan;
use crate::service::plan::PipelinePlan;

/// The name of a node that stands for missing processors.
const NO_PROCESSORS: &str = "no processors";

/// A component.
#[derive(Debug)]
pub(super) struct DiagramNode {
    /// `None` if the node stands for the processors of a pipeline that has none.
    pub(super) class: Option<Class>,
    /// The id in the configuration.
    pub(super) name: String,
    /// The name in logs: `receivers::otlp`, or `processors::batch@metrics` for an instance of a pipeline. No other node of
    /// the diagram has it.
    pub(super) path: String,
}

/// A pipeline. Numbers are indices of nodes.
#[derive(Debug)]
pub(super) struct DiagramPipeline {
    /// The id: `metrics/vendor`.
    pub(super) name: String,
    /// The receivers, and the connectors that feed the pipeline.
    pub(super) receivers: Vec<usize>,
    /// The processors in the order of the data, or the node that stands for them. There is at least one.
    pub(super) stages: Vec<usize>,
    /// The exporters, and the connectors that the pipeline feeds.
    pub(super) exporters: Vec<usize>,
}

/// Pipelines and their components. A receiver, connector or exporter is one node. Each pipeline has its own processors.
#[derive(Debug)]
pub(super) struct Diagram {
    /// The components that pipelines use.
    pub(super) nodes: Vec<DiagramNode>,
    /// The pipelines in the order of the file.
    pub(super) pipelines: Vec<DiagramPipeline>,
    /// The extensions that the gateway starts, in order.
    pub(super) extensions: Vec<DiagramNode>,
    /// The components that are defined and not used.
    pub(super) unused: Vec<DiagramNode>,
}

impl DiagramNode {
    fn new(class: Class, id: &ComponentId) -> Self {
        Self {
            class: Some(class),
            name: id.to_string(),
            path: format!("{}::{id}", class.section()),
        }
    }

    /// The class and the name: `receiver otlp`.
    pub(super) fn title(&self) -> String {
        match self.class {
            Some(class) => format!("{class} {}", self.name),
            None => self.name.clone(),
        }
    }

    /// Whether a pipeline has the node for itself.
    pub(super) fn is_stage(&self) -> bool {
        matches!(self.class, None | Some(Class::Processor))
    }
}

impl Diagram {
    pub(super) fn of(plan: &Plan) -> Self {
        let extensions = plan.extension_order.iter();
        let mut diagram = Self {
            nodes: Vec::new(),
            pipelines: Vec::new(),
            extensions: extensions
                .map(|id| DiagramNode::new(Class::Extension, id))
                .collect(),
            unused: unused(plan),
        };
        for pipeline in &plan.pipelines {
            diagram.add(plan, pipeline);
        }
        diagram
    }

    fn add(&mut self, plan: &Plan, pipeline: &PipelinePlan) {
        let receivers = self.ends(plan, Class::Receiver, &pipeline.receivers);
        let stages = self.stages(pipeline);
        let exporters = self.ends(plan, Class::Exporter, &pipeline.exporters);
        self.pipelines.push(DiagramPipeline {
            name: pipeline.id.to_string(),
            receivers,
            stages,
            exporters,
        });
    }

    /// The nodes at one end of a pipeline, which other pipelines may share.
    fn ends(&mut self, plan: &Plan, class: Class, ids: &[ComponentId]) -> Vec<usize> {
        let mut ends = Vec::new();
        for id in ids {
            let is_connector = plan.connectors.contains_key(id);
            let class = if is_connector { Class::Connector } else { class };
            let node = DiagramNode::new(class, id);
            let known = self.nodes.iter().position(|known| known.path == node.path);
            ends.push(known.unwrap_or_else(|| self.push(node)));
        }
        ends
    }

    fn stages(&mut self, pipeline: &PipelinePlan) -> Vec<usize> {
        let id = &pipeline.id;
        let mut stages = Vec::new();
        for processor in &pipeline.processors {
            let mut node = DiagramNode::new(Class::Processor, processor);
            node.path = format!("{}@{id}", node.path);
            stages.push(self.push(node));
        }
        if stages.is_empty() {
            stages.push(self.push(DiagramNode {
                class: None,
                name: NO_PROCESSORS.to_owned(),
                path: format!("pipelines::{id}"),
            }));
        }
        stages
    }

    /// Adds a node. Gives its index.
    fn push(&mut self, mut node: DiagramNode) -> usize {
        // Names may have `@`, so two processors of different pipelines can have the same path.
        while self.nodes.iter().any(|known| known.path == node.path) {
            node.path.push('\'');
        }
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// The arrows as pairs of nodes, in the direction of the data. No pair occurs twice.
    pub(super) fn links(&self) -> Vec<(usize, usize)> {
        let mut links = Vec::new();
        for pipeline in &self.pipelines {
            if let (Some(first), Some(last)) = (pipeline.stages.first(), pipeline.stages.last()) {
                links.extend(pipeline.receivers.iter().map(|receiver| (*receiver, *first)));
                links.extend(pipeline.stages.windows(2).map(|pair| (pair[0], pair[1])));
                links.extend(pipeline.exporters.iter().map(|exporter| (*last, *exporter)));
            }
        }
        links
    }

    /// The nodes of a class.
    pub(super) fn of_class(&self, class: Class) -> Vec<usize> {
        let is_of_class = |index: &usize| self.nodes[*index].class == Some(class);
        (0..self.nodes.len()).filter(is_of_class).collect()
    }

    /// The names of the pipelines that receive from a node.
    pub(super) fn receiving(&self, node: usize) -> Vec<String> {
        let pipelines = self.pipelines.iter();
        let receiving = pipelines.filter(|pipeline| pipeline.receivers.contains(&node));
        receiving.map(|pipeline| pipeline.name.clone()).collect()
    }

    /// The names of the pipelines that export to a node.
    pub(super) fn exporting(&self, node: usize) -> Vec<String> {
        let pipelines = self.pipelines.iter();
        let exporting = pipelines.filter(|pipeline| pipeline.exporters.contains(&node));
        exporting.map(|pipeline| pipeline.name.clone()).collect()
    }

    /// Whether several pipelines use a receiver or an exporter.
    pub(super) fn is_shared(&self, node: usize) -> bool {
        match self.nodes[node].class {
            Some(Class::Receiver) => self.receiving(node).len() > 1,
            Some(Class::Exporter) => self.exporting(node).len() > 1,
            _ => false,
        }
    }
}

fn unused(plan: &Plan) -> Vec<DiagramNode> {
    let of_class = |class| -> Vec<&ComponentId> {
        match class {
            Class::Receiver => plan.receivers.keys().collect(),
            Class::Processor => plan.processors.keys().collect(),
            Class::Exporter => plan.exporters.keys().collect(),
            Class::Connector => plan.connectors.keys().collect(),
            Class::Extension => plan.extensions.keys().collect(),
        }
    };
    let mut unused = Vec::new();
    for class in Class::ALL {
        let ids = of_class(class).into_iter();
        let ids = ids.filter(|id| !is_used(plan, class, id));
        unused.extend(ids.map(|id| DiagramNode::new(class, id)));
    }
    unused
}

fn is_used(plan: &Plan, class: Class, id: &ComponentId) -> bool {
    let mut pipelines = plan.pipelines.iter();
    match class {
        Class::Receiver => pipelines.any(|pipeline| pipeline.receivers.contains(id)),
        Class::Processor => pipelines.any(|pipeline| pipeline.processors.contains(id)),
        // A connector that feeds a pipeline is an exporter of another one.
        Class::Exporter | Class::Connector => pipelines.any(|pipeline| pipeline.exporters.contains(id)),
        Class::Extension => plan.extension_order.contains(id),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{diagram, diagram_of};
    use super::*;

    #[test]
    fn connectors_and_shared_components_are_one_node_each() {
        let diagram = diagram();
        let paths: Vec<&str> = diagram.nodes.iter().map(|node| &*node.path).collect();
        assert_eq!(
            paths,
            [
                "receivers::nop",
                "receivers::nop/a-b",
                "processors::attributes@metrics/in",
                "processors::batch@metrics/in",
                "connectors::forward",
                "pipelines::metrics/out",
                "exporters::otlp/a-b",
                "processors::batch@logs",
                r#"exporters::nop/<"odd" & \b>"#,
            ]
        );
        assert_eq!(
            diagram.links(),
            [
                (0, 2),
                (1, 2),
                (2, 3),
                (3, 4),
                (4, 5),
                (5, 6),
                (0, 7),
                (7, 6),
                (7, 8)
            ]
        );
        let shared: Vec<usize> = (0..9).filter(|node| diagram.is_shared(*node)).collect();
        assert_eq!(shared, [0, 6]);
    }

    #[test]
    fn extensions_and_unused_components_are_listed_apart() {
        let diagram = diagram();
        let titles =
            |nodes: &[DiagramNode]| -> Vec<String> { nodes.iter().map(DiagramNode::title).collect() };
        assert_eq!(
            titles(&diagram.extensions),
            ["extension health_check", "extension admin"]
        );
        assert_eq!(titles(&diagram.unused), ["receiver nop/idle"]);
    }

    #[test]
    fn two_processors_never_have_the_same_path() {
        let diagram = diagram_of(
            "yaml:
receivers: {nop: {}}
processors: {batch/a: {}, batch/a@logs/x: {}}
exporters: {nop: {}}
service:
  pipelines:
    logs/x@logs/b: {receivers: [nop], processors: [batch/a], exporters: [nop]}
    logs/b: {receivers: [nop], processors: [batch/a@logs/x], exporters: [nop]}
",
        );
        let paths: Vec<&str> = diagram
            .pipelines
            .iter()
            .map(|pipeline| {
                let stage = pipeline.stages[0];
                &*diagram.nodes[stage].path
            })
            .collect();
        assert_eq!(
            paths,
            [
                "processors::batch/a@logs/x@logs/b",
                "processors::batch/a@logs/x@logs/b'"
            ]
        );
    }
}
