// SPDX-License-Identifier: Apache-2.0

//! The edges of the graph: which items go from one component to the next, and what the next one does with them.

use std::collections::HashSet;

use super::snapshot::TopRow;
use super::view::{SortColumn, beside, drops, heading, latencies, rate, refusals, short};
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

/// The names of the columns. Each is as long as the numbers below it may be.
const HEADS: [&str; 7] = [
    "ITEMS/S", " TOTAL", "  HELD", "FILL", "DROP/S", "   P50", "   P99",
];

/// The table, in lines of at most `width` characters.
pub(super) fn edge_table(groups: &[EdgeGroup], sort: SortColumn, width: usize) -> Vec<String> {
    let mut lines = vec![heading("FROM -> TO", &HEADS, width)];
    for group in groups {
        lines.push(clip(printable(&group.pipeline), width));
        let mut edges: Vec<&TopEdge> = group.edges.iter().collect();
        edges.sort_by(|a, b| sort.of_edge(b).total_cmp(&sort.of_edge(a)));
        let mut receivers = HashSet::new();
        for (at, edge) in edges.iter().enumerate() {
            let name = format!("  {} -> {}", printable(&edge.from.id), printable(&edge.to.id));
            lines.extend(beside(&name, &HEADS, &cells(edge), width));
            // The first edge of a receiver shows what it refuses.
            if edge.from.class == "receiver" && receivers.insert(&edge.from.id) {
                lines.extend(refusals(&edge.from, width));
            }
            // Successive edges to one component show its drops once.
            let next = edges.get(at + 1);
            if next.is_none_or(|next| (next.to.class, &next.to.id) != (edge.to.class, &edge.to.id)) {
                lines.extend(drops(&edge.to, width));
            }
        }
    }
    lines
}

fn cells(TopEdge { from, to }: &TopEdge) -> [String; 7] {
    let [median, last] = latencies(to);
    [
        rate(from.passing),
        short(from.passed as f64),
        short(to.held as f64),
        to.shown_fill(),
        rate(to.dropping),
        median,
        last,
    ]
}
