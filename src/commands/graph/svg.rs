// SPDX-License-Identifier: Apache-2.0

//! The diagram as a picture for browsers, with light and dark colours.

use super::layout::{BOX_HEIGHT, DiagramLayout, GAP, MARGIN, PADDING, TITLE_HEIGHT, box_width, shortened};
use super::model::{Diagram, DiagramNode, DiagramPipeline};
use crate::config::Class;

/// The least width of the picture: lists below the pipelines need room.
const MIN_WIDTH: i32 = 480;
/// The length of the straight part of a line under its arrowhead.
const ARROWHEAD: i32 = 10;
/// The height of a heading of a list.
const HEADING_HEIGHT: i32 = 24;

const STYLE: &str = "<style>text{font:12px ui-monospace,monospace;fill:#1b1f24}.h{font-size:11px;fill:#5b636d}\
.g{fill:#fff}.f{fill:#f3f4f6;stroke:#c9ced6}.l{fill:none;stroke:#5b636d}.a{fill:#5b636d}\
.receiver{fill:#dbeafe;stroke:#2f6db5}.exporter{fill:#dcf5e3;stroke:#2b8049}.connector{fill:#eee2fb;stroke:#7d45b0}\
.processor,.extension{fill:#fff;stroke:#5b636d}.empty{fill:none;stroke:#8b939d;stroke-dasharray:4 3}\
@media(prefers-color-scheme:dark){text{fill:#e6e8eb}.h{fill:#a3abb5}\
.g{fill:#14171b}.f{fill:#1d2126;stroke:#3a414a}.l{stroke:#a3abb5}.a{fill:#a3abb5}\
.receiver{fill:#173354;stroke:#6cb2ff}.exporter{fill:#153a22;stroke:#5fd38d}.connector{fill:#38214f;stroke:#d3a2f5}\
.processor,.extension{fill:#14171b;stroke:#a3abb5}.empty{fill:none;stroke:#7a828c}}</style>";
const MARKER: &str = r#"<marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path class="a" d="M0 0L8 4L0 8z"/></marker>"#;

pub(super) fn render(diagram: &Diagram) -> String {
    let layout = DiagramLayout::of(diagram);
    let mut lines = headings(diagram, &layout);
    let pipelines = diagram.pipelines.iter();
    lines.extend(pipelines.map(|pipeline| frame(&layout, pipeline)));
    let links = diagram.links().into_iter();
    lines.extend(links.map(|(from, to)| arrow(diagram, &layout, from, to)));
    for (index, node) in diagram.nodes.iter().enumerate() {
        let class = node.class.map_or("empty", Class::as_str);
        lines.push(labelled_box(
            node,
            class,
            &node.name,
            layout.sides(index),
            layout.middle(index),
        ));
    }
    let (right, mut bottom) = (layout.right.max(MIN_WIDTH), layout.bottom);
    for (heading, class, nodes) in [
        ("extensions", "extension", &diagram.extensions),
        ("not used", "empty", &diagram.unused),
    ] {
        bottom = list(&mut lines, (heading, class), nodes, (bottom, right));
    }
    let (width, height) = (right + MARGIN, bottom + MARGIN);
    let head = [
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">"#
        ),
        "<title>Pipelines of the configuration</title>".to_owned(),
        STYLE.to_owned(),
        MARKER.to_owned(),
        format!(r#"<rect class="g" width="{width}" height="{height}"/>"#),
    ];
    [&head[..], &lines, &["</svg>\n".to_owned()]].concat().join("\n")
}

/// The headings of the columns.
fn headings(diagram: &Diagram, layout: &DiagramLayout) -> Vec<String> {
    let middle = match diagram.of_class(Class::Connector).as_slice() {
        [] => "processors",
        _ => "processors, connectors",
    };
    let columns = layout.columns();
    let columns = [columns.first(), columns.get(1), columns.last()];
    let headings = columns
        .into_iter()
        .flatten()
        .zip(["receivers", middle, "exporters"]);
    headings
        .map(|((left, _), heading)| label("h", *left, MARGIN + 8, heading))
        .collect()
}

/// The frame around the processors of a pipeline, with its title.
fn frame(layout: &DiagramLayout, pipeline: &DiagramPipeline) -> String {
    let (Some(first), Some(last)) = (pipeline.stages.first(), pipeline.stages.last()) else {
        return String::new();
    };
    let (left, (_, right)) = (layout.sides(*first).0, layout.sides(*last));
    let top = layout.middle(*first) - BOX_HEIGHT / 2 - TITLE_HEIGHT;
    let (x, width) = (left - PADDING, right - left + 2 * PADDING);
    let height = TITLE_HEIGHT + BOX_HEIGHT + PADDING;
    let title = escaped(&format!("pipeline {}", pipeline.name));
    format!(
        r#"<g><title>{title}</title><rect class="f" x="{x}" y="{top}" width="{width}" height="{height}" rx="8"/>{}</g>"#,
        label("h", left, top + 15, &shortened(&pipeline.name))
    )
}

/// An arrow. It follows the row of a pipeline, where no other boxes are, and crosses to another row between two columns.
fn arrow(diagram: &Diagram, layout: &DiagramLayout, from: usize, to: usize) -> String {
    let ((_, start), (end, _)) = (layout.sides(from), layout.sides(to));
    let (from_level, to_level) = (layout.level(from), layout.level(to));
    let columns = layout.columns();
    let (leave, arrive) = if diagram.nodes[to].is_stage() {
        (start, columns.get(from_level + 1).map_or(end, |(left, _)| *left))
    } else {
        let before = to_level.checked_sub(1).and_then(|before| columns.get(before));
        (before.map_or(start, |(_, right)| *right), end)
    };
    let arrive = arrive - ARROWHEAD;
    let (y, next_y, half) = (
        layout.middle(from),
        layout.middle(to),
        i32::midpoint(leave, arrive),
    );
    format!(
        r#"<path class="l" marker-end="url(#arrow)" d="M{start} {y}H{leave}C{half} {y} {half} {next_y} {arrive} {next_y}H{end}"/>"#
    )
}

/// A heading and a box for each node, in lines as long as the picture is wide. Gives the lowest point.
fn list(
    lines: &mut Vec<String>,
    (heading, class): (&str, &str),
    nodes: &[DiagramNode],
    (top, right): (i32, i32),
) -> i32 {
    if nodes.is_empty() {
        return top;
    }
    lines.push(label("h", MARGIN, top + 2 * GAP, heading));
    let (mut left, mut middle) = (MARGIN, top + GAP + HEADING_HEIGHT + BOX_HEIGHT / 2);
    for node in nodes {
        // A component that is not used can have any class, so its box names the class.
        let name = match class {
            "empty" => node.title(),
            _ => node.name.clone(),
        };
        let width = box_width(&name);
        if left > MARGIN && left + width > right {
            (left, middle) = (MARGIN, middle + BOX_HEIGHT + GAP);
        }
        lines.push(labelled_box(node, class, &name, (left, left + width), middle));
        left += width + GAP;
    }
    middle + BOX_HEIGHT / 2
}

fn labelled_box(
    node: &DiagramNode,
    class: &str,
    name: &str,
    (left, right): (i32, i32),
    middle: i32,
) -> String {
    let (y, width) = (middle - BOX_HEIGHT / 2, right - left);
    let title = escaped(&node.title());
    format!(
        r#"<g><title>{title}</title><rect class="{class}" x="{left}" y="{y}" width="{width}" height="{BOX_HEIGHT}" rx="5"/>{}</g>"#,
        label("n", left + PADDING, middle + 4, &shortened(name))
    )
}

fn label(class: &str, x: i32, y: i32, text: &str) -> String {
    format!(
        r#"<text class="{class}" x="{x}" y="{y}">{}</text>"#,
        escaped(text)
    )
}

/// The text without markup. XML has no code for the two characters that are replaced.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::super::testing::diagram;
    use super::*;

    /// The names of elements that are open at the end, and whether each end had its beginning.
    fn open_elements(svg: &str) -> (Vec<&str>, bool) {
        let (mut open, mut is_balanced): (Vec<&str>, bool) = (Vec::new(), true);
        for tag in svg.split('<').skip(1).filter_map(|rest| rest.split('>').next()) {
            let name = tag.split_whitespace().next().unwrap_or_default();
            if let Some(name) = name.strip_prefix('/') {
                is_balanced &= open.pop() == Some(name);
            } else if !tag.ends_with('/') {
                open.push(name);
            }
        }
        (open, is_balanced)
    }

    #[test]
    fn elements_are_balanced_and_names_have_no_markup() {
        let svg = render(&diagram());
        assert_eq!(open_elements(&svg), (Vec::new(), true), "{svg}");
        assert!(svg.contains(r#">nop/&lt;"odd" &amp; \b&gt;</text>"#), "{svg}");
        assert!(!svg.contains("<script") && !svg.contains("href"), "{svg}");
    }

    #[test]
    fn each_node_has_one_box_and_each_link_one_arrow() {
        let svg = render(&diagram());
        for (text, count) in [
            (r#"<rect class="receiver""#, 2),
            (r#"<rect class="processor""#, 3),
            (r#"<rect class="connector""#, 1),
            (r#"<rect class="exporter""#, 2),
            (r#"<rect class="extension""#, 2),
            (r#"<rect class="empty""#, 2),
            (r#"<rect class="f""#, 3),
            (r#"<path class="l""#, 9),
            ("<title>receiver nop</title>", 1),
            ("<title>connector forward</title>", 1),
            ("<title>pipeline metrics/out</title>", 1),
            ("<title>receiver nop/idle</title>", 1),
        ] {
            assert_eq!(svg.matches(text).count(), count, "{text} in {svg}");
        }
    }

    #[test]
    fn colours_follow_the_scheme_of_the_reader() {
        let svg = render(&diagram());
        assert_eq!(svg.matches("prefers-color-scheme:dark").count(), 1);
        assert!(!svg.contains("url(http") && !svg.contains("@import"));
    }

    #[test]
    fn an_arrow_crosses_rows_only_between_two_columns() {
        let diagram = diagram();
        let layout = DiagramLayout::of(&diagram);
        let columns = layout.columns();
        for (from, to) in diagram.links() {
            let path = arrow(&diagram, &layout, from, to);
            let (_, curve) = path.split_once('H').unwrap();
            let (leave, curve) = curve.split_once('C').unwrap();
            let numbers: Vec<i32> = curve
                .split([' ', 'H', '"'])
                .filter_map(|number| number.parse().ok())
                .collect();
            let (leave, arrive): (i32, i32) = (leave.parse().unwrap(), numbers[4]);
            let is_between = |pair: &[(i32, i32)]| pair[0].1 <= leave && arrive <= pair[1].0;
            assert!(columns.windows(2).any(is_between), "{path}");
        }
    }
}
