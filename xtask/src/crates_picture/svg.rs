// SPDX-License-Identifier: Apache-2.0

//! The layout as text. Readers with a dark page see it on white.

use super::layout::{LINE_HEIGHT, Layout, MARGIN, WIDTH};
use super::{Crate, Graph};

const TITLE: &str = "Dependencies between the crates of the workspace";
const LEGEND: &str = "An arrow points from a crate to one that it depends on. The picture leaves out arrows that a \
                      longer path implies, and dependencies of tests.";
/// The height of the legend.
const FOOT: i32 = 30;

const STYLE: &str = "<style>text{font:10px sans-serif;fill:#444}.n{font:bold 12px sans-serif;fill:#111}\
                     .b{fill:#eef4fb;stroke:#456}.e{fill:none;stroke:#678}</style>";
const ARROWHEAD: &str = r##"<marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="#678"/></marker>"##;

pub(super) fn svg(graph: &Graph, layout: &Layout) -> String {
    let (width, height) = (layout.width, layout.height + FOOT);
    let mut lines = vec![
        format!(r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">"#),
        format!("<title>{TITLE}</title>"),
        STYLE.to_owned(),
        ARROWHEAD.to_owned(),
        format!(r##"<rect width="{width}" height="{height}" fill="#fff"/>"##),
    ];
    // Boxes hide the beginning of their arrows.
    lines.extend(layout.arrows.iter().map(|arrow| path(layout, arrow)));
    for (node, one) in graph.crates.iter().enumerate() {
        lines.extend(labelled_box(layout, node, one));
    }
    lines.push(label("", MARGIN, height - MARGIN, LEGEND));
    lines.push("</svg>\n".to_owned());
    lines.join("\n")
}

fn path(layout: &Layout, arrow: &[usize]) -> String {
    let curves: String = arrow
        .windows(2)
        .map(|pair| curve(layout, pair[0], pair[1]))
        .collect();
    let (x, y) = (layout.left(arrow[0]), layout.middle(arrow[0]));
    format!(r#"<path class="e" marker-end="url(#a)" d="M{x} {y}{curves}"/>"#)
}

/// A line through the column of a node, and a curve to the next.
fn curve(layout: &Layout, from: usize, to: usize) -> String {
    let (start, end) = (layout.right(from), layout.left(to));
    let (y, next_y) = (layout.middle(from), layout.middle(to));
    let half = i32::midpoint(start, end);
    format!("H{start}C{half} {y} {half} {next_y} {end} {next_y}")
}

fn labelled_box(layout: &Layout, node: usize, one: &Crate) -> Vec<String> {
    let (x, height) = (layout.left(node), layout.height(node));
    let y = layout.middle(node) - height / 2;
    let mut lines = vec![
        format!(r#"<rect class="b" x="{x}" y="{y}" width="{WIDTH}" height="{height}" rx="4"/>"#),
        label(r#" class="n""#, x + 8, y + 17, &one.name),
    ];
    for (index, line) in one.lines.iter().enumerate() {
        lines.push(label("", x + 8, y + 31 + LINE_HEIGHT * index as i32, line));
    }
    lines
}

fn label(attribute: &str, x: i32, y: i32, text: &str) -> String {
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    format!(r#"<text{attribute} x="{x}" y="{y}">{text}</text>"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_no_markup() {
        assert_eq!(
            label("", 1, 2, "a<b>&c"),
            r#"<text x="1" y="2">a&lt;b&gt;&amp;c</text>"#
        );
    }
}
