// SPDX-License-Identifier: Apache-2.0

//! The lines of a frame. Nothing here reads the clock or the terminal.

use std::fmt::Display;

use super::edges::TopEdge;
use super::snapshot::{FullQueue, RefusedPart, TopGroup, TopRow};
use crate::commands::client::printable;
use crate::commands::terminal::clip;

/// What orders the rows of each pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SortColumn {
    /// The order of the data.
    #[default]
    Data,
    In,
    Out,
    Held,
    Dropped,
}

impl SortColumn {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Data => Self::In,
            Self::In => Self::Out,
            Self::Out => Self::Held,
            Self::Held => Self::Dropped,
            Self::Dropped => Self::Data,
        }
    }

    /// The value of an edge: its own rate, and what its target holds and drops.
    pub(super) fn of_edge(self, edge: &TopEdge) -> f64 {
        match self {
            Self::Data => 0.0,
            Self::In | Self::Out => edge.from.passing.unwrap_or(-1.0),
            Self::Held | Self::Dropped => self.of(&edge.to),
        }
    }

    fn of(self, row: &TopRow) -> f64 {
        match self {
            Self::Data => 0.0,
            Self::In => row.entering.unwrap_or(-1.0),
            Self::Out => row.leaving.unwrap_or(-1.0),
            Self::Held => row.held as f64,
            Self::Dropped => row.dropped as f64,
        }
    }
}

/// The names of the columns. Each is as long as the numbers below it may be.
const HEADS: [&str; 8] = [
    "  IN/S", " OUT/S", " TOTAL", "  HELD", "FILL", "DROP/S", "   P50", "   P99",
];

/// The most room for a name that has its numbers beside it.
const MAX_NAME: usize = 48;

/// The table, in lines of at most `width` characters.
pub(super) fn table(groups: &[TopGroup], sort: SortColumn, width: usize) -> Vec<String> {
    let mut lines = vec![heading("COMPONENT", &HEADS, width)];
    for group in groups {
        lines.push(clip(printable(&group.pipeline), width));
        let mut rows: Vec<&TopRow> = group.rows.iter().collect();
        rows.sort_by(|a, b| sort.of(b).total_cmp(&sort.of(a)));
        for row in rows {
            let name = format!("  {} {}", row.class, printable(&row.id));
            lines.extend(beside(&name, &HEADS, &cells(row), width));
            lines.extend(drops(row, width));
            lines.extend(full_queues(row, width));
        }
    }
    lines
}

/// The parts in lines of at most `width` characters, with `gap` between them. A part that is longer than a line is cut.
pub(super) fn wrapped(
    parts: impl IntoIterator<Item = impl AsRef<str>>,
    gap: &str,
    width: usize,
) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        let part = printable(part.as_ref());
        let longer = lines.last().map(|line| format!("{line}{gap}{part}"));
        match longer.filter(|line| line.chars().count() <= width) {
            Some(line) => {
                lines.pop();
                lines.push(line);
            }
            None => lines.push(part),
        }
    }
    lines.into_iter().map(|line| clip(line, width)).collect()
}

/// The first line of a table, which stays in view while the others scroll. Without room for `name`, it has the columns only.
pub(super) fn heading(name: &str, heads: &[&str], width: usize) -> String {
    beside(name, heads, heads, width).pop().unwrap_or_default()
}

/// A name with its numbers beside it. If it leaves no room for them, they have the next line.
pub(super) fn beside(name: &str, heads: &[&str], cells: &[impl Display], width: usize) -> Vec<String> {
    let columns = heads.iter().zip(cells);
    let numbers: String = columns
        .map(|(head, cell)| {
            let digits = head.len();
            format!(" {cell:>digits$}")
        })
        .collect();
    let room = width.saturating_sub(numbers.len()).min(MAX_NAME);
    let lines = if name.chars().count() > room {
        vec![name.to_owned(), " ".repeat(room) + &numbers]
    } else {
        vec![format!("{name:<room$}{numbers}")]
    };
    lines.into_iter().map(|line| clip(line, width)).collect()
}

/// The lines below a component: one for each reason of its drops.
pub(super) fn drops(row: &TopRow, width: usize) -> impl Iterator<Item = String> {
    let reasons = row.reasons.iter();
    reasons.map(move |reason| clip(format!("    {}", printable(reason)), width))
}

/// The lines below an edge of a receiver: what it refuses, and the full queues behind this.
pub(super) fn refusals(row: &TopRow, width: usize) -> impl Iterator<Item = String> {
    let id = printable(&row.id);
    let reasons = row.reasons.iter();
    let lines = reasons.map(move |reason| clip(format!("    receiver {id}: {}", printable(reason)), width));
    lines.chain(full_queues(row, width))
}

/// The lines about the exporters behind the refused items of a receiver.
fn full_queues(row: &TopRow, width: usize) -> impl Iterator<Item = String> {
    let queues = row.full_queues.iter();
    queues.map(move |queue| clip(refusing(queue), width))
}

/// The exporter behind the refused items of a receiver.
fn refusing(queue: &FullQueue) -> String {
    let is = if queue.is_full { "is" } else { "was" };
    let refused = short(queue.refused as f64);
    let exporter = printable(&queue.exporter);
    let items = match queue.part {
        RefusedPart::OfReceiver => format!("of the refused, {refused}"),
        RefusedPart::OfSeveral => format!("of the refused of all receivers, {refused}"),
        RefusedPart::Uncounted => format!("{refused} refused"),
    };
    format!("    {items}: the queue of exporter {exporter} {is} full")
}

fn cells(row: &TopRow) -> [String; 8] {
    let [median, last] = latencies(row);
    [
        rate(row.entering),
        rate(row.leaving),
        short(row.total as f64),
        short(row.held as f64),
        row.shown_fill(),
        rate(row.dropping),
        median,
        last,
    ]
}

/// Median and 99th percentile of recent sends; `-` without sends.
pub(super) fn latencies(row: &TopRow) -> [String; 2] {
    let shown = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), duration);
    row.latency.map(shown)
}

/// A rate; `-` without an earlier answer.
pub(super) fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), short)
}

/// Two digits or more, and a unit.
fn duration(seconds: f64) -> String {
    match seconds {
        ..0.001 => format!("{:.0}us", seconds * 1e6),
        ..0.01 => format!("{:.1}ms", seconds * 1e3),
        ..1.0 => format!("{:.0}ms", seconds * 1e3),
        _ => format!("{seconds:.1}s"),
    }
}

/// A whole number below 100,000 exactly; three digits and a prefix above it.
pub(super) fn short(value: f64) -> String {
    const PREFIXES: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    if value < 100_000.0 {
        let decimals = usize::from(value < 1000.0 && value.fract() != 0.0);
        return format!("{value:.decimals$}");
    }
    // What rounds to 1000.0 has the next prefix: a column has room for three digits before the point.
    let prefix = PREFIXES.iter().find(|(scale, _)| value >= scale * 0.999_95);
    prefix.map_or_else(String::new, |(scale, prefix)| {
        format!("{:.1}{prefix}", value / scale)
    })
}
