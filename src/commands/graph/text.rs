// SPDX-License-Identifier: Apache-2.0

//! The diagram as text for a terminal.

use super::model::{Diagram, DiagramNode, DiagramPipeline};
use crate::config::Class;

/// The most characters of a line. A line with a longer name is longer, so that each name is in one piece.
const COLUMNS: usize = 80;

/// The column in which the components of a pipeline begin.
const INDENT: usize = 14;

pub(super) fn render(diagram: &Diagram) -> String {
    let pipelines = diagram.pipelines.iter();
    let mut blocks: Vec<String> = pipelines.map(|pipeline| block(diagram, pipeline)).collect();
    blocks.extend(list(
        "extensions",
        diagram.extensions.iter().map(|node| node.name.clone()),
    ));
    blocks.extend(connectors(diagram));
    blocks.extend(shared(diagram));
    blocks.extend(list("not used", diagram.unused.iter().map(DiagramNode::title)));
    blocks.join("\n")
}

fn block(diagram: &Diagram, pipeline: &DiagramPipeline) -> String {
    let items = |nodes: &[usize]| -> Vec<String> { nodes.iter().map(|node| item(diagram, *node)).collect() };
    let mut text = format!("pipeline {}\n", pipeline.name);
    for (part, items) in [
        ("receivers", commas(items(&pipeline.receivers))),
        ("processors", arrows(&items(&pipeline.stages))),
        ("exporters", commas(items(&pipeline.exporters))),
    ] {
        wrap(&mut text, &format!("  {part:<11}"), INDENT, &items);
    }
    text
}

fn item(diagram: &Diagram, index: usize) -> String {
    let DiagramNode { class, name, .. } = &diagram.nodes[index];
    match class {
        None => "none".to_owned(),
        Some(Class::Connector) => format!("{name} (connector)"),
        Some(_) if diagram.is_shared(index) => format!("{name} (shared)"),
        Some(_) => name.clone(),
    }
}

/// A block with a list of names, if there are any.
fn list(title: &str, names: impl Iterator<Item = String>) -> Option<String> {
    let names = commas(names.collect());
    let mut text = format!("{title}\n");
    wrap(&mut text, " ", 2, &names);
    (!names.is_empty()).then_some(text)
}

/// The pipelines before and after each connector.
fn connectors(diagram: &Diagram) -> Option<String> {
    let mut text = String::from("connectors\n");
    let nodes = diagram.of_class(Class::Connector);
    for node in &nodes {
        let mut pipelines = commas(diagram.exporting(*node));
        pipelines.push("->".to_owned());
        pipelines.extend(commas(diagram.receiving(*node)));
        wrap(
            &mut text,
            &format!("  {}:", diagram.nodes[*node].name),
            4,
            &pipelines,
        );
    }
    (!nodes.is_empty()).then_some(text)
}

/// The pipelines of each shared receiver and exporter.
fn shared(diagram: &Diagram) -> Option<String> {
    let mut text = String::from("shared\n");
    let nodes = [Class::Receiver, Class::Exporter]
        .map(|class| diagram.of_class(class))
        .concat();
    let shared: Vec<usize> = nodes
        .into_iter()
        .filter(|node| diagram.is_shared(*node))
        .collect();
    for node in &shared {
        let pipelines = [diagram.receiving(*node), diagram.exporting(*node)].concat();
        let head = format!("  {}:", diagram.nodes[*node].title());
        wrap(&mut text, &head, 4, &commas(pipelines));
    }
    (!shared.is_empty()).then_some(text)
}

/// Adds a comma to all but the last.
fn commas(mut items: Vec<String>) -> Vec<String> {
    if let Some((_, others)) = items.split_last_mut() {
        others.iter_mut().for_each(|item| item.push(','));
    }
    items
}

/// Puts an arrow before all but the first.
fn arrows(items: &[String]) -> Vec<String> {
    let items = items.iter().enumerate();
    let arrow = |(index, item): (usize, &String)| match index {
        0 => item.clone(),
        _ => format!("-> {item}"),
    };
    items.map(arrow).collect()
}

/// Adds a line of `head` and items. More lines follow, from the column `indent`, if they do not fit.
fn wrap(text: &mut String, head: &str, indent: usize, items: &[String]) {
    let mut line = head.to_owned();
    for item in items {
        let width = line.chars().count();
        if width >= indent && width + 1 + item.chars().count() > COLUMNS {
            text.push_str(&line);
            text.push('\n');
            line = " ".repeat(indent - 1);
        }
        line.push(' ');
        line.push_str(item);
    }
    text.push_str(&line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::super::testing::{diagram, diagram_of};
    use super::*;

    #[test]
    fn each_pipeline_is_a_block_and_shared_components_are_marked() {
        let expected = r#"pipeline metrics/in
  receivers   nop (shared), nop/a-b
  processors  attributes -> batch
  exporters   forward (connector)

pipeline metrics/out
  receivers   forward (connector)
  processors  none
  exporters   otlp/a-b (shared)

pipeline logs
  receivers   nop (shared)
  processors  batch
  exporters   otlp/a-b (shared), nop/<"odd" & \b>

extensions
  health_check, admin

connectors
  forward: metrics/in -> metrics/out

shared
  receiver nop: metrics/in, logs
  exporter otlp/a-b: metrics/out, logs

not used
  receiver nop/idle
"#;
        assert_eq!(render(&diagram()), expected);
    }

    #[test]
    fn lines_have_at_most_80_characters_and_names_are_not_cut() {
        let names: Vec<String> = (0..20).map(|number| format!("nop/exporter-{number}")).collect();
        let long = format!("nop/{}", "n".repeat(90));
        let defined: Vec<String> = names.iter().map(|name| format!("{name}: {{}}")).collect();
        let diagram = diagram_of(&format!(
            "yaml:
receivers: {{{long}: {{}}}}
exporters: {{{}}}
service:
  pipelines:
    logs: {{receivers: [{long}], exporters: [{all}]}}
    traces: {{receivers: [{long}], exporters: [{all}]}}
",
            defined.join(", "),
            all = names.join(", ")
        ));
        let text = render(&diagram);
        let is_long = |line: &&str| line.chars().count() > COLUMNS;
        for line in text.lines().filter(is_long) {
            assert!(line.contains(&long), "{line}");
        }
        for line in [
            &*format!("  receivers   {long} (shared)"),
            "  exporters   nop/exporter-0 (shared), nop/exporter-1 (shared),",
            "              nop/exporter-18 (shared), nop/exporter-19 (shared)",
            &*format!("  receiver {long}:"),
            "    logs, traces",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
