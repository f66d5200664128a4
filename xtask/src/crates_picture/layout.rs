// SPDX-License-Identifier: Apache-2.0

//! The places of boxes and arrows: a column for each level, with the highest level on the left.
//!
//! An arrow that passes a column has a node there, so that it does not cross a box. All numbers are integers, so that the
//! picture is the same on every machine. Heights are even, so that a half is exact.

use super::Graph;

pub(super) const MARGIN: i32 = 20;
/// The width of a column.
pub(super) const WIDTH: i32 = 200;
pub(super) const LINE_HEIGHT: i32 = 12;
/// The height of a box without the lines of its description.
const NAME_HEIGHT: i32 = 28;
const PASSAGE_HEIGHT: i32 = 10;
const GAP_BETWEEN_COLUMNS: i32 = 80;
const GAP_BETWEEN_NODES: i32 = 14;

/// How often the columns are sorted: more rounds find no better order.
const ROUNDS: usize = 24;

/// Where everything stands.
pub(super) struct Layout {
    /// The boxes in the order of the crates, then the passages.
    nodes: Vec<Node>,
    /// The nodes of each arrow, from its crate to the one that it points to.
    pub(super) arrows: Vec<Vec<usize>>,
    pub(super) width: i32,
    pub(super) height: i32,
}

/// A box, or the passage of an arrow through a column.
struct Node {
    column: usize,
    height: i32,
    /// The middle.
    y: i32,
    /// The nodes of the columns beside it that arrows connect to it.
    left: Vec<usize>,
    right: Vec<usize>,
}

/// A part of an arrow, from one column to the next.
struct Step {
    column: usize,
    /// Ranks of nodes in their columns.
    from: usize,
    to: usize,
}

impl Node {
    fn new(column: usize, height: i32) -> Self {
        Self {
            column,
            height,
            y: 0,
            left: Vec::new(),
            right: Vec::new(),
        }
    }
}

impl Layout {
    pub(super) fn of(graph: &Graph) -> Self {
        let levels: Vec<usize> = (0..graph.crates.len()).map(|index| graph.level(index)).collect();
        let top = levels.iter().copied().max().unwrap_or(0);
        let boxes = graph.crates.iter().zip(levels).map(|(one, level)| {
            let lines = one.lines.len() as i32;
            Node::new(top - level, NAME_HEIGHT + LINE_HEIGHT * lines)
        });
        let mut layout = Self {
            nodes: boxes.collect(),
            arrows: Vec::new(),
            width: left_of(top) + WIDTH + MARGIN,
            height: 0,
        };
        for (from, to) in graph.arrows() {
            layout.connect(from, to);
        }
        let columns = layout.ordered(top + 1);
        layout.position_nodes(&columns);
        layout
    }

    pub(super) fn left(&self, node: usize) -> i32 {
        left_of(self.nodes[node].column)
    }

    pub(super) fn right(&self, node: usize) -> i32 {
        self.left(node) + WIDTH
    }

    pub(super) fn middle(&self, node: usize) -> i32 {
        self.nodes[node].y
    }

    pub(super) fn height(&self, node: usize) -> i32 {
        self.nodes[node].height
    }

    fn connect(&mut self, from: usize, to: usize) {
        let mut arrow = vec![from];
        for column in self.nodes[from].column + 1..self.nodes[to].column {
            arrow.push(self.nodes.len());
            self.nodes.push(Node::new(column, PASSAGE_HEIGHT));
        }
        arrow.push(to);
        for pair in arrow.windows(2) {
            self.nodes[pair[0]].right.push(pair[1]);
            self.nodes[pair[1]].left.push(pair[0]);
        }
        self.arrows.push(arrow);
    }

    /// The nodes of each column from top to bottom, in the best order that was found: with few crossings.
    fn ordered(&self, count: usize) -> Vec<Vec<usize>> {
        let mut columns = vec![Vec::new(); count];
        for (index, node) in self.nodes.iter().enumerate() {
            columns[node.column].push(index);
        }
        let mut best = columns.clone();
        for round in 0..ROUNDS {
            self.sort(&mut columns, round % 2 == 0);
            if self.crossings(&columns) < self.crossings(&best) {
                best.clone_from(&columns);
            }
        }
        best
    }

    /// Sorts each column by its neighbours on one side, which are sorted before.
    fn sort(&self, columns: &mut [Vec<usize>], is_rightward: bool) {
        let count = columns.len();
        for step in 1..count {
            let column = if is_rightward { step } else { count - 1 - step };
            let ranks = self.ranks(columns);
            columns[column].sort_by_key(|node| self.mean_rank(*node, is_rightward, &ranks));
        }
    }

    /// The place of each node in its column.
    fn ranks(&self, columns: &[Vec<usize>]) -> Vec<usize> {
        let mut ranks = vec![0; self.nodes.len()];
        for column in columns {
            for (rank, node) in column.iter().enumerate() {
                ranks[*node] = rank;
            }
        }
        ranks
    }

    /// The mean rank of the neighbours on one side, in thousandths; without neighbours, the rank of the node.
    fn mean_rank(&self, index: usize, is_rightward: bool, ranks: &[usize]) -> usize {
        let node = &self.nodes[index];
        let beside = if is_rightward { &node.left } else { &node.right };
        let sum: usize = beside.iter().map(|other| ranks[*other]).sum();
        match beside.len() {
            0 => 1000 * ranks[index],
            count => 1000 * sum / count,
        }
    }

    fn crossings(&self, columns: &[Vec<usize>]) -> usize {
        let steps = self.steps(&self.ranks(columns));
        let crossed = |step: &Step| steps.iter().filter(|other| is_crossed(step, other)).count();
        steps.iter().map(crossed).sum()
    }

    fn steps(&self, ranks: &[usize]) -> Vec<Step> {
        let pairs = self.arrows.iter().flat_map(|arrow| arrow.windows(2));
        let steps = pairs.map(|pair| Step {
            column: self.nodes[pair[0]].column,
            from: ranks[pair[0]],
            to: ranks[pair[1]],
        });
        steps.collect()
    }

    /// Chooses the height of the picture and the place of each node, from right to left.
    fn position_nodes(&mut self, columns: &[Vec<usize>]) {
        let needed = columns.iter().map(|column| self.needed_height(column));
        let room = needed.max().unwrap_or(0);
        self.height = room + 2 * MARGIN;
        for column in columns.iter().rev() {
            for (node, y) in column.iter().zip(self.middles(column, room)) {
                self.nodes[*node].y = y;
            }
        }
    }

    fn needed_height(&self, column: &[usize]) -> i32 {
        let heights = column
            .iter()
            .map(|node| self.nodes[*node].height + GAP_BETWEEN_NODES);
        heights.sum::<i32>() - GAP_BETWEEN_NODES
    }

    /// Places that are near to those that the nodes want, at least a gap apart and inside the picture.
    fn middles(&self, column: &[usize], room: i32) -> Vec<i32> {
        let offsets = self.offsets(column);
        let nodes = column.iter().zip(&offsets);
        let wanted: Vec<i32> = nodes
            .map(|(node, offset)| self.wanted(*node, room) - offset)
            .collect();
        let top = MARGIN + column.first().map_or(0, |first| self.nodes[*first].height / 2);
        let bottom = top + room - self.needed_height(column);
        let first = rising(&wanted).into_iter().map(|y| y.clamp(top, bottom));
        first.zip(offsets).map(|(y, offset)| y + offset).collect()
    }

    /// The distance of each node from the first of its column, if nothing but gaps is between them.
    fn offsets(&self, column: &[usize]) -> Vec<i32> {
        let (mut offset, mut offsets) = (0, vec![0]);
        for pair in column.windows(2) {
            offset +=
                i32::midpoint(self.nodes[pair[0]].height, self.nodes[pair[1]].height) + GAP_BETWEEN_NODES;
            offsets.push(offset);
        }
        offsets
    }

    /// The mean place of the neighbours on the right; without any, the middle of the picture.
    fn wanted(&self, node: usize, room: i32) -> i32 {
        let right = &self.nodes[node].right;
        let sum: i32 = right.iter().map(|other| self.nodes[*other].y).sum();
        match right.len() {
            0 => MARGIN + room / 2,
            count => sum / count as i32,
        }
    }
}

fn left_of(column: usize) -> i32 {
    MARGIN + column as i32 * (WIDTH + GAP_BETWEEN_COLUMNS)
}

fn is_crossed(step: &Step, other: &Step) -> bool {
    step.column == other.column && step.from < other.from && step.to > other.to
}

/// Numbers that do not fall, as near as possible to those given: a part that falls becomes its mean.
fn rising(wanted: &[i32]) -> Vec<i32> {
    let mut parts: Vec<(i32, i32)> = Vec::new();
    for wanted in wanted {
        let (mut sum, mut count) = (*wanted, 1);
        while let Some((sum_before, count_before)) = parts.last().copied()
            && sum_before * count > sum * count_before
        {
            parts.pop();
            sum += sum_before;
            count += count_before;
        }
        parts.push((sum, count));
    }
    let means = parts
        .into_iter()
        .map(|(sum, count)| vec![sum.div_euclid(count); count as usize]);
    means.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::Crate;
    use super::*;

    fn one(name: &str, uses: &[usize]) -> Crate {
        Crate {
            name: name.to_owned(),
            lines: Vec::new(),
            uses: uses.to_vec(),
        }
    }

    #[test]
    fn an_arrow_has_a_node_in_every_column_that_it_passes() {
        let crates = vec![one("a", &[1, 3]), one("b", &[2]), one("c", &[]), one("d", &[])];
        let layout = Layout::of(&Graph { crates });
        let columns = |arrow: &Vec<usize>| -> Vec<usize> {
            arrow.iter().map(|node| layout.nodes[*node].column).collect()
        };
        let found: Vec<_> = layout.arrows.iter().map(columns).collect();
        assert_eq!(found, [vec![0, 1], vec![0, 1, 2], vec![1, 2]]);
    }

    #[test]
    fn boxes_of_a_column_do_not_overlap() {
        let crates = vec![one("a", &[2]), one("b", &[2]), one("c", &[])];
        let layout = Layout::of(&Graph { crates });
        let distance = (layout.middle(0) - layout.middle(1)).abs();
        assert_eq!(distance, NAME_HEIGHT + GAP_BETWEEN_NODES);
    }

    #[test]
    fn numbers_that_fall_become_their_mean() {
        assert_eq!(rising(&[1, 6, 2, 9, -20]), [-1, -1, -1, -1, -1]);
        assert_eq!(rising(&[1, 6, 2, 9]), [1, 4, 4, 9]);
    }
}
