// SPDX-License-Identifier: Apache-2.0

//! The diagram as a flowchart of Mermaid. Ids are numbers, and names are labels.

use std::fmt::Write as _;

use super::model::{Diagram, DiagramNode};
use crate::config::Class;

/// The style of nodes that stand for nothing that runs.
const EMPTY: &str = "  classDef empty stroke-dasharray: 4 3";

pub(super) fn render(diagram: &Diagram) -> String {
    let mut lines = vec!["flowchart LR".to_owned(), EMPTY.to_owned()];
    for (index, node) in diagram.nodes.iter().enumerate() {
        if !node.is_stage() {
            lines.push(format!("  n{index}{}", shape(node)));
        }
    }
    for (index, pipeline) in diagram.pipelines.iter().enumerate() {
        lines.push(format!("  subgraph p{index}[{}]", label(&pipeline.name)));
        let stages = pipeline.stages.iter();
        lines.extend(stages.map(|stage| format!("    n{stage}{}", shape(&diagram.nodes[*stage]))));
        lines.push("  end".to_owned());
    }
    let extensions = diagram.extensions.iter().map(shape);
    lines.extend(group("extensions", "extensions", 'x', extensions));
    let unused = diagram
        .unused
        .iter()
        .map(|node| format!("[{}]:::empty", label(&node.title())));
    lines.extend(group("unused", "not used", 'u', unused));
    let links = diagram.links().into_iter();
    lines.extend(links.map(|(from, to)| format!("  n{from} --> n{to}")));
    lines.join("\n") + "\n"
}

/// A frame with nodes of these shapes, if there are any.
fn group(id: &str, title: &str, prefix: char, shapes: impl Iterator<Item = String>) -> Vec<String> {
    let shapes = shapes.enumerate();
    let nodes: Vec<String> = shapes
        .map(|(index, shape)| format!("    {prefix}{index}{shape}"))
        .collect();
    if nodes.is_empty() {
        return nodes;
    }
    let head = format!("  subgraph {id}[{}]", label(title));
    [vec![head], nodes, vec!["  end".to_owned()]].concat()
}

/// The shape of a node, with its label.
fn shape(node: &DiagramNode) -> String {
    let (open, close) = match node.class {
        Some(Class::Receiver | Class::Exporter) => ("([", "])"),
        Some(Class::Connector) => ("{{", "}}"),
        Some(Class::Processor | Class::Extension) => ("[", "]"),
        None => ("[", "]:::empty"),
    };
    [open, &label(&node.name), close].concat()
}

/// A quoted text, with all characters as codes that could have a meaning in it.
fn label(text: &str) -> String {
    let mut label = String::from("\"");
    for c in text.chars() {
        if c.is_alphanumeric() || " -./_".contains(c) {
            label.push(c);
        } else {
            let _ = write!(label, "#{};", u32::from(c));
        }
    }
    label.push('"');
    label
}

#[cfg(test)]
mod tests {
    use super::super::testing::diagram;
    use super::*;

    #[test]
    fn pipelines_are_subgraphs_and_odd_characters_are_codes() {
        let expected = r#"flowchart LR
  classDef empty stroke-dasharray: 4 3
  n0(["nop"])
  n1(["nop/a-b"])
  n4{{"forward"}}
  n6(["otlp/a-b"])
  n8(["nop/#60;#34;odd#34; #38; #92;b#62;"])
  subgraph p0["metrics/in"]
    n2["attributes"]
    n3["batch"]
  end
  subgraph p1["metrics/out"]
    n5["no processors"]:::empty
  end
  subgraph p2["logs"]
    n7["batch"]
  end
  subgraph extensions["extensions"]
    x0["health_check"]
    x1["admin"]
  end
  subgraph unused["not used"]
    u0["receiver nop/idle"]:::empty
  end
  n0 --> n2
  n1 --> n2
  n2 --> n3
  n3 --> n4
  n4 --> n5
  n5 --> n6
  n0 --> n7
  n7 --> n6
  n7 --> n8
"#;
        assert_eq!(render(&diagram()), expected);
    }
}
