// SPDX-License-Identifier: Apache-2.0

//! The diagram as input of Graphviz.

use super::model::{Diagram, DiagramNode};
use crate::config::Class;

const HEAD: &str = r##"digraph "tidegate" {
  rankdir=LR;
  fontname="sans-serif";
  node [shape=box, style="rounded,filled", fillcolor="#ffffff", fontname="sans-serif"];"##;

pub(super) fn render(diagram: &Diagram) -> String {
    let mut lines = vec![HEAD.to_owned()];
    for (class, rank) in [(Class::Receiver, "min"), (Class::Exporter, "max")] {
        lines.push(format!("  {{\n    rank={rank};"));
        let nodes = diagram.of_class(class);
        lines.extend(nodes.iter().map(|node| statement("    ", &diagram.nodes[*node])));
        lines.push("  }".to_owned());
    }
    for node in diagram.of_class(Class::Connector) {
        lines.push(statement("  ", &diagram.nodes[node]));
    }
    for pipeline in &diagram.pipelines {
        let stages = pipeline.stages.iter().map(|stage| &diagram.nodes[*stage]);
        let id = format!("pipeline::{}", pipeline.name);
        lines.extend(cluster(&id, &pipeline.name, stages));
    }
    lines.extend(cluster("extensions", "extensions", diagram.extensions.iter()));
    lines.extend(cluster("unused", "not used", diagram.unused.iter()));
    for (from, to) in diagram.links() {
        let [from, to] = [from, to].map(|node| quoted(&diagram.nodes[node].path));
        lines.push(format!("  {from} -> {to};"));
    }
    lines.push("}\n".to_owned());
    lines.join("\n")
}

/// A frame with nodes, if there are any.
fn cluster<'a>(id: &str, title: &str, nodes: impl Iterator<Item = &'a DiagramNode>) -> Vec<String> {
    let mut lines = vec![
        format!("  subgraph {} {{", quoted(&format!("cluster_{id}"))),
        format!("    label={};", label(title)),
    ];
    let before = lines.len();
    lines.extend(nodes.map(|node| statement("    ", node)));
    if lines.len() == before {
        return Vec::new();
    }
    lines.push("  }".to_owned());
    lines
}

fn statement(indent: &str, node: &DiagramNode) -> String {
    let style = match node.class {
        Some(Class::Receiver) => r##", fillcolor="#dbeafe""##,
        Some(Class::Exporter) => r##", fillcolor="#dcf5e3""##,
        Some(Class::Connector) => r##", fillcolor="#eee2fb""##,
        Some(Class::Processor | Class::Extension) => "",
        None => r#", style="dashed""#,
    };
    let (id, name) = (quoted(&node.path), label(&node.name));
    format!("{indent}{id} [label={name}{style}];")
}

/// A label. Graphviz reads entities such as `&lt;` in it.
fn label(text: &str) -> String {
    quoted(&text.replace('&', "&amp;"))
}

fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', r"\\").replace('"', r#"\""#);
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::super::testing::diagram;
    use super::*;

    #[test]
    fn pipelines_are_clusters_and_ids_are_quoted() {
        let expected = r##"digraph "tidegate" {
  rankdir=LR;
  fontname="sans-serif";
  node [shape=box, style="rounded,filled", fillcolor="#ffffff", fontname="sans-serif"];
  {
    rank=min;
    "receivers::nop" [label="nop", fillcolor="#dbeafe"];
    "receivers::nop/a-b" [label="nop/a-b", fillcolor="#dbeafe"];
  }
  {
    rank=max;
    "exporters::otlp/a-b" [label="otlp/a-b", fillcolor="#dcf5e3"];
    "exporters::nop/<\"odd\" & \\b>" [label="nop/<\"odd\" &amp; \\b>", fillcolor="#dcf5e3"];
  }
  "connectors::forward" [label="forward", fillcolor="#eee2fb"];
  subgraph "cluster_pipeline::metrics/in" {
    label="metrics/in";
    "processors::attributes@metrics/in" [label="attributes"];
    "processors::batch@metrics/in" [label="batch"];
  }
  subgraph "cluster_pipeline::metrics/out" {
    label="metrics/out";
    "pipelines::metrics/out" [label="no processors", style="dashed"];
  }
  subgraph "cluster_pipeline::logs" {
    label="logs";
    "processors::batch@logs" [label="batch"];
  }
  subgraph "cluster_extensions" {
    label="extensions";
    "extensions::health_check" [label="health_check"];
    "extensions::admin" [label="admin"];
  }
  subgraph "cluster_unused" {
    label="not used";
    "receivers::nop/idle" [label="nop/idle", fillcolor="#dbeafe"];
  }
  "receivers::nop" -> "processors::attributes@metrics/in";
  "receivers::nop/a-b" -> "processors::attributes@metrics/in";
  "processors::attributes@metrics/in" -> "processors::batch@metrics/in";
  "processors::batch@metrics/in" -> "connectors::forward";
  "connectors::forward" -> "pipelines::metrics/out";
  "pipelines::metrics/out" -> "exporters::otlp/a-b";
  "receivers::nop" -> "processors::batch@logs";
  "processors::batch@logs" -> "exporters::otlp/a-b";
  "processors::batch@logs" -> "exporters::nop/<\"odd\" & \\b>";
}
"##;
        assert_eq!(render(&diagram()), expected);
    }

    #[test]
    fn a_quoted_text_ends_where_it_should() {
        assert_eq!(quoted(r#"a"\"#), r#""a\"\\""#);
        assert_eq!(label("&lt;"), r#""&amp;lt;""#);
    }
}
