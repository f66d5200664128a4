// SPDX-License-Identifier: Apache-2.0

//! The lines of a frame. Nothing here reads the clock or the terminal.

use super::edges::TopEdge;
use super::snapshot::{FullQueue, TopGroup, TopRow};
use crate::commands::client::printable;
use crate::commands::terminal::clip;

/// The column that orders the rows of each pipeline.
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

const HEAD: [&str; 9] = [
    "IN/S", "OUT/S", "TOTAL", "HELD", "FILL", "DROP/S", "DROPPED", "P50", "P99",
];

/// The columns without latencies.
const NARROW: usize = 7;

/// The width of each number, and the space before it.
pub(super) const CELL: usize = 8;

/// The least width that shows reasons, and totals of edges.
pub(super) const WIDE: usize = 110;

/// The least width that shows latencies.
const WIDEST: usize = 126;

/// The room for reasons.
const LAST: usize = 20;

/// The table, in lines of at most `width` characters.
pub(super) fn table(groups: &[TopGroup], sort: SortColumn, width: usize) -> Vec<String> {
    let columns = if width >= WIDEST { HEAD.len() } else { NARROW };
    let numbers = CELL * columns;
    let room = width.saturating_sub(numbers);
    let name = if width >= WIDE {
        room.saturating_sub(LAST).min(48)
    } else {
        room
    };
    let line = |first: &str, cells: &[String], last: &str| {
        let cells: String = cells
            .iter()
            .take(columns)
            .map(|cell| format!("{cell:>CELL$}"))
            .collect();
        let last = if width >= WIDE { last } else { "" };
        clip(
            format!("{:<name$}{cells}  {last}", clip(first.to_owned(), name))
                .trim_end()
                .to_owned(),
            width,
        )
    };
    let mut lines = vec![line("COMPONENT", &HEAD.map(str::to_owned), "DROPS BY REASON")];
    for group in groups {
        lines.push(clip(printable(&group.pipeline), width));
        let mut rows: Vec<&TopRow> = group.rows.iter().collect();
        rows.sort_by(|a, b| sort.of(b).total_cmp(&sort.of(a)));
        for row in rows {
            let first = format!("  {} {}", row.class, printable(&row.id));
            lines.push(line(&first, &cells(row), &printable(&row.reasons)));
            lines.extend(row.full_queues.iter().map(|queue| clip(refusing(queue), width)));
        }
    }
    lines
}

/// The exporter behind the refused items of the row above.
fn refusing(queue: &FullQueue) -> String {
    let is = if queue.is_full { "is" } else { "was" };
    let refused = short(queue.refused as f64);
    let exporter = printable(&queue.exporter);
    format!("    {refused} refused: the queue of exporter {exporter} {is} full")
}

fn cells(row: &TopRow) -> [String; 9] {
    let [median, last] = row
        .latency
        .map(|seconds| seconds.map_or_else(|| "-".to_owned(), duration));
    [
        rate(row.entering),
        rate(row.leaving),
        short(row.total as f64),
        short(row.held as f64),
        row.shown_fill(),
        rate(row.dropping),
        short(row.dropped as f64),
        median,
        last,
    ]
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
    let prefix = PREFIXES.iter().find(|(scale, _)| value >= *scale);
    prefix.map_or_else(String::new, |(scale, prefix)| {
        format!("{:.1}{prefix}", value / scale)
    })
}
