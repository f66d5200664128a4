// SPDX-License-Identifier: Apache-2.0

//! The positions of the boxes of the picture.
//!
//! A node is in the column of its longest path from a receiver. Exporters are in the last one. Each pipeline has a row, and each
//! connector has one. So an arrow can follow the row of its pipeline through the columns that it passes, and meets no box there.
//! All numbers are integers, so that the picture is the same on every machine.

use super::model::Diagram;
use crate::config::Class;

pub(super) const MARGIN: i32 = 24;
pub(super) const BOX_HEIGHT: i32 = 30;
/// The distance of boxes, and of rows.
pub(super) const GAP: i32 = 14;
/// The height of the title of a pipeline.
pub(super) const TITLE_HEIGHT: i32 = 22;
/// The distance of the frame of a pipeline from its boxes.
pub(super) const PADDING: i32 = 10;
/// The top of the first row. Headings are above it.
pub(super) const TOP: i32 = MARGIN + 20;
const GAP_BETWEEN_COLUMNS: i32 = 64;
/// The least width of a column: its heading fits.
const MIN_WIDTH: i32 = 160;
/// The most characters of a name in a box.
const MAX_CHARS: usize = 32;

/// The positions of all nodes.
pub(super) struct DiagramLayout {
    /// The left and the right side of each column.
    columns: Vec<(i32, i32)>,
    /// The column of each node.
    levels: Vec<usize>,
    /// The vertical middle of each node.
    middles: Vec<i32>,
    /// The right side of the last column.
    pub(super) right: i32,
    /// The lowest point of rows and boxes.
    pub(super) bottom: i32,
}

impl DiagramLayout {
    pub(super) fn of(diagram: &Diagram) -> Self {
        let links = diagram.links();
        let levels = levels(diagram, &links);
        let columns = columns(diagram, &levels);
        let mut layout = Self {
            right: columns.last().map_or(MARGIN, |(_, right)| *right),
            columns,
            levels,
            middles: vec![TOP; diagram.nodes.len()],
            bottom: TOP,
        };
        layout.stack_rows(diagram);
        for class in [Class::Receiver, Class::Exporter] {
            layout.align(&diagram.of_class(class), &links);
        }
        layout
    }

    pub(super) fn columns(&self) -> &[(i32, i32)] {
        &self.columns
    }

    pub(super) fn level(&self, node: usize) -> usize {
        self.levels[node]
    }

    /// The left and the right side of a node.
    pub(super) fn sides(&self, node: usize) -> (i32, i32) {
        self.columns[self.levels[node]]
    }

    pub(super) fn middle(&self, node: usize) -> i32 {
        self.middles[node]
    }

    /// Gives each pipeline and each connector a row. A connector is below the last pipeline that feeds it.
    fn stack_rows(&mut self, diagram: &Diagram) {
        let mut top = TOP;
        for (index, pipeline) in diagram.pipelines.iter().enumerate() {
            for stage in &pipeline.stages {
                self.middles[*stage] = top + TITLE_HEIGHT + BOX_HEIGHT / 2;
            }
            top += TITLE_HEIGHT + BOX_HEIGHT + PADDING + GAP;
            let later = &diagram.pipelines[index + 1..];
            let is_fed_later = |node: usize| later.iter().any(|pipeline| pipeline.exporters.contains(&node));
            for node in pipeline.exporters.iter().copied() {
                if diagram.nodes[node].class == Some(Class::Connector) && !is_fed_later(node) {
                    self.middles[node] = top + BOX_HEIGHT / 2;
                    top += BOX_HEIGHT + GAP;
                }
            }
        }
        self.bottom = self.bottom.max(top - GAP);
    }

    /// Puts the nodes of an outer column near the rows that arrows connect to them.
    fn align(&mut self, nodes: &[usize], links: &[(usize, usize)]) {
        let mut wanted: Vec<(i32, usize)> = nodes
            .iter()
            .map(|node| (self.wanted(*node, links), *node))
            .collect();
        wanted.sort_unstable();
        let first = TOP + BOX_HEIGHT / 2;
        let mut middles: Vec<i32> = Vec::new();
        for (middle, _) in &wanted {
            let least = middles.last().map_or(first, |last| last + BOX_HEIGHT + GAP);
            middles.push(least.max(*middle));
        }
        // All nodes go up by the mean distance that they were pushed down.
        let pushed: i32 = middles
            .iter()
            .zip(&wanted)
            .map(|(middle, (wanted, _))| middle - wanted)
            .sum();
        let mean = pushed / (middles.len() as i32).max(1);
        let room = middles.first().map_or(0, |middle| middle - first);
        let shift = mean.min(room);
        for (middle, (_, node)) in middles.iter().zip(&wanted) {
            self.middles[*node] = middle - shift;
            self.bottom = self.bottom.max(middle - shift + BOX_HEIGHT / 2);
        }
    }

    /// The mean position of the nodes that arrows connect to a node.
    fn wanted(&self, node: usize, links: &[(usize, usize)]) -> i32 {
        let others = links.iter().filter_map(|(from, to)| {
            let after = (*from == node).then_some(*to);
            after.or((*to == node).then_some(*from))
        });
        let middles: Vec<i32> = others.map(|other| self.middles[other]).collect();
        middles.iter().sum::<i32>() / (middles.len() as i32).max(1)
    }
}

/// The column of each node.
fn levels(diagram: &Diagram, links: &[(usize, usize)]) -> Vec<usize> {
    let mut levels: Vec<usize> = vec![0; diagram.nodes.len()];
    // A path has fewer arrows than there are nodes: a configuration with a cycle is refused.
    for _ in 0..diagram.nodes.len() {
        let before = levels.clone();
        for (from, to) in links {
            levels[*to] = levels[*to].max(levels[*from] + 1);
        }
        if levels == before {
            break;
        }
    }
    let last = levels.iter().copied().max().unwrap_or(0);
    for node in diagram.of_class(Class::Exporter) {
        levels[node] = last;
    }
    levels
}

/// The sides of each column: its names, and the titles of pipelines that begin there, fit.
fn columns(diagram: &Diagram, levels: &[usize]) -> Vec<(i32, i32)> {
    let count = levels.iter().max().map_or(0, |last| last + 1);
    let mut widths = vec![MIN_WIDTH; count];
    let names = diagram.nodes.iter().map(|node| &node.name).zip(levels);
    let firsts = diagram.pipelines.iter().filter_map(|pipeline| {
        let first = pipeline.stages.first()?;
        Some((&pipeline.name, &levels[*first]))
    });
    for (name, level) in names.chain(firsts) {
        widths[*level] = widths[*level].max(box_width(name));
    }
    let mut left = MARGIN;
    let mut columns = Vec::new();
    for width in widths {
        columns.push((left, left + width));
        left += width + GAP_BETWEEN_COLUMNS;
    }
    columns
}

/// The width of a box with a name. Characters outside ASCII may be twice as wide as others.
pub(super) fn box_width(name: &str) -> i32 {
    let name = shortened(name);
    let cells: i32 = name.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum();
    cells * 37 / 5 + 2 * PADDING
}

/// The part of a name that a box has room for.
pub(super) fn shortened(name: &str) -> String {
    if name.chars().count() <= MAX_CHARS {
        return name.to_owned();
    }
    name.chars().take(MAX_CHARS - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{diagram, diagram_of};
    use super::*;

    #[test]
    fn a_column_is_the_longest_path_and_exporters_are_last() {
        let layout = DiagramLayout::of(&diagram());
        assert_eq!(layout.levels, [0, 0, 1, 2, 3, 4, 5, 1, 5]);
        assert_eq!(layout.columns.len(), 6);
    }

    /// Whether boxes of the same column have a distance.
    fn is_free(layout: &DiagramLayout) -> bool {
        let count = layout.levels.len();
        let mut pairs = (0..count).flat_map(|one| (one + 1..count).map(move |other| (one, other)));
        pairs.all(|(one, other)| {
            let distance = (layout.middles[one] - layout.middles[other]).abs();
            layout.levels[one] != layout.levels[other] || distance >= BOX_HEIGHT + GAP
        })
    }

    #[test]
    fn boxes_do_not_overlap_and_are_inside_the_picture() {
        let many = "yaml:
receivers: {nop/a: {}, nop/b: {}, nop/c: {}}
exporters: {nop/a: {}, nop/b: {}, nop/c: {}}
service: {pipelines: {logs: {receivers: [nop/a, nop/b, nop/c], exporters: [nop/a, nop/b, nop/c]}}}
";
        for diagram in [diagram(), diagram_of(many)] {
            let layout = DiagramLayout::of(&diagram);
            assert!(is_free(&layout), "{:?}", layout.middles);
            let (first, last) = (TOP + BOX_HEIGHT / 2, layout.bottom - BOX_HEIGHT / 2);
            assert!(
                layout
                    .middles
                    .iter()
                    .all(|middle| (first..=last).contains(middle))
            );
        }
    }

    #[test]
    fn a_receiver_of_two_pipelines_is_between_them() {
        let diagram = diagram_of(
            "yaml:
receivers: {nop: {}}
exporters: {nop: {}}
service:
  pipelines:
    logs: {receivers: [nop], exporters: [nop]}
    traces: {receivers: [nop], exporters: [nop]}
",
        );
        let layout = DiagramLayout::of(&diagram);
        let stages: Vec<usize> = diagram
            .pipelines
            .iter()
            .map(|pipeline| pipeline.stages[0])
            .collect();
        let mean = i32::midpoint(layout.middle(stages[0]), layout.middle(stages[1]));
        assert_eq!(layout.middle(0), mean);
        assert!(layout.middle(stages[0]) < mean);
    }

    #[test]
    fn a_long_name_is_cut_and_a_column_fits_it() {
        let name = "n".repeat(100);
        assert_eq!(shortened(&name).chars().count(), MAX_CHARS);
        assert!(box_width(&name) > MIN_WIDTH);
        assert_eq!(shortened("otlp/a-b"), "otlp/a-b");
    }
}
