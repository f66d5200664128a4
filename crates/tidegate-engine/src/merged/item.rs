// SPDX-License-Identifier: Apache-2.0

//! The parts of a series: the runs, the values in the order in which they add up, and the first of them.

use std::sync::Arc;

use super::ProducerId;
use super::report::{MergeMode, ReportKind, RunReport, kind};
use super::retained::CompactedTotal;
use crate::{UnixNanos, Value};

/// A value of a run or of a retained total.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'a> {
    pub(super) producer: ProducerId,
    pub(super) start: UnixNanos,
    pub(super) time: UnixNanos,
    pub(super) mode: MergeMode,
    pub(super) value: &'a Value,
}

/// Start, producer, and whether the value is retained: the item with the smallest rank is the head.
pub(super) type HeadRank = (UnixNanos, ProducerId, bool);

impl Item<'_> {
    pub(super) fn head_rank(&self) -> HeadRank {
        (self.start, self.producer, self.mode.is_retained())
    }
}

/// The run with the smallest start. Its kind is the kind of the series, and its bounds are shown.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) rank: HeadRank,
    pub(super) kind: ReportKind,
    pub(super) bounds: Option<Arc<[f64]>>,
}

impl Head {
    pub(super) fn of(item: &Item<'_>) -> Self {
        Self {
            rank: item.head_rank(),
            kind: kind(item.mode, item.value),
            bounds: bounds(item.value).cloned(),
        }
    }

    pub(super) fn fits(&self, other: &Self) -> bool {
        let are_same = match (&self.bounds, &other.bounds) {
            (Some(one), Some(other)) => same_bounds(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        self.kind == other.kind && are_same
    }
}

pub(super) fn bounds(value: &Value) -> Option<&Arc<[f64]>> {
    match value {
        Value::Histogram(histogram) => Some(&histogram.bounds),
        _ => None,
    }
}

/// The newest report of a run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) report: RunReport,
    /// Whether a leader has folded it: it is part of the retained total.
    pub(super) is_folded: bool,
    /// Whether it is the level of a run whose lease has ended: it does not count, until the run is seen again.
    pub(super) is_hidden: bool,
}

impl Run {
    pub(super) fn item(&self) -> Item<'_> {
        Item {
            producer: self.report.producer,
            start: self.report.start,
            time: self.report.time,
            mode: self.report.mode,
            value: &self.report.value,
        }
    }
}

/// Whether two lists of bounds are equal. Most are the same list.
pub(super) fn same_bounds(one: &Arc<[f64]>, other: &Arc<[f64]>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

/// Shows all values that count by producer and start, the compacted ones of a producer first.
pub(super) fn items<'a>(
    runs: &'a [Box<Run>],
    compacted: &'a [(ProducerId, CompactedTotal)],
    take: &mut dyn FnMut(Item<'a>),
) {
    let mut compacted = compacted.iter().peekable();
    for run in runs.iter().filter(|run| !run.is_hidden) {
        while let Some((producer, total)) = compacted.next_if(|(id, _)| *id <= run.report.producer) {
            compacted_items(*producer, total, take);
        }
        take(run.item());
    }
    compacted.for_each(|(producer, total)| compacted_items(*producer, total, take));
}

fn compacted_items<'a>(producer: ProducerId, total: &'a CompactedTotal, take: &mut dyn FnMut(Item<'a>)) {
    for part in &total.parts {
        take(Item {
            producer,
            start: part.start,
            time: part.time,
            mode: MergeMode::Add,
            value: &part.value,
        });
    }
}
