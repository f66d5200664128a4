// SPDX-License-Identifier: Apache-2.0

//! The edges of the graph: which items go from one component to the next, and what the next one does with them.

use super::snapshot::TopRow;
use super::view::{CELL, SortColumn, WIDE, rate, short};
use crate::commands::client::printable;
use crate::commands::terminal::clip;

/// A pipeline with its edges in data order.
#[derive(Clone, Debug)]
pub(super) struct EdgeGroup {
    pub(super) pipeline: String,
    pub(super) edges: Vec<TopEdge>,
}

/// A connection of two components.
#[derive(Clone, Debug)]
pub(super) struct TopEdge {
    pub(super) from: TopRow,
    pub(super) to: TopRow,
}

/// The edges of a pipeline. Each receiver leads to the first processor, or to all exporters if there is none.
pub(super) fn connect(receivers: &[TopRow], processors: &[TopRow], exporters: &[TopRow]) -> Vec<TopEdge> {
    let mut edges = Vec::new();
    let mut connect = |all: &[TopRow], to: &TopRow| {
        edges.extend(all.iter().map(|from| TopEdge {
            from: from.clone(),
            to: to.clone(),
        }));
    };
    let mut last = receivers;
    for processor in processors {
        connect(last, processor);
        last = std::slice::from_ref(processor);
    }
    exporters.iter().for_each(|exporter| connect(last, exporter));
    edges
}

/// The last column needs a wide terminal.
const HEAD: [&str; 6] = ["ITEMS/S", "HELD", "FILL", "DROP/S", "DROPPED", "TOTAL"];

/// The characters of a line that are neither ids nor numbers.
const GAPS: usize = "   -> ".len();

/// The most room for an id.
const MAX_ID: usize = 48;

/// The table, in lines of at most `width` characters.
pub(super) fn edge_table(groups: &[EdgeGroup], sort: SortColumn, width: usize) -> Vec<String> {
    let columns = if width >= WIDE { HEAD.len() } else { HEAD.len() - 1 };
    let room = width.saturating_sub(GAPS + CELL * columns);
    let id = (room / 2).min(MAX_ID);
    let line = |from: &str, to: &str, cells: &[String]| {
        let [from, to] = [from, to].map(|text| clip(text.to_owned(), id));
        let cells = cells.iter().take(columns);
        let cells: String = cells.map(|cell| format!("{cell:>CELL$}")).collect();
        clip(format!("  {from:<id$} -> {to:<id$}{cells}"), width)
    };
    let mut lines = vec![line("FROM", "TO", &HEAD.map(str::to_owned))];
    for group in groups {
        lines.push(clip(printable(&group.pipeline), width));
        let mut edges: Vec<&TopEdge> = group.edges.iter().collect();
        edges.sort_by(|a, b| sort.of_edge(b).total_cmp(&sort.of_edge(a)));
        lines.extend(
            edges
                .into_iter()
                .map(|edge| line(&printable(&edge.from.id), &printable(&edge.to.id), &cells(edge))),
        );
    }
    lines
}

fn cells(TopEdge { from, to }: &TopEdge) -> [String; 6] {
    [
        rate(from.passing),
        short(to.held as f64),
        to.shown_fill(),
        rate(to.dropping),
        short(to.dropped as f64),
        short(from.passed as f64),
    ]
}
