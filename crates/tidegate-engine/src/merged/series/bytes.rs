// SPDX-License-Identifier: Apache-2.0

//! The bytes that a series has allocated, and those that a report adds.

use std::sync::Arc;

use super::super::item::{Run, bounds};
use super::super::report::RunReport;
use super::super::retained::{CompactedTotal, bytes_of};
use super::super::{ProducerId, growth};
use super::{MergedSeries, RunIndex};
use crate::Value;

impl MergedSeries {
    /// The bytes that it has allocated.
    pub(in crate::merged) fn bytes(&self) -> usize {
        let lists = self.runs.capacity() * size_of::<Box<Run>>()
            + self.runs.len() * size_of::<Run>()
            + self.compacted.capacity() * size_of::<(ProducerId, CompactedTotal)>();
        self.fixed + lists + self.values + self.retained + self.shown_bytes()
    }

    /// Bytes of the merged value. They count before a reader computes it.
    fn shown_bytes(&self) -> usize {
        self.merged.bytes().max(self.largest)
    }

    /// Bytes that a value allocates.
    pub(super) fn bytes_of(&self, value: &Value) -> usize {
        bytes_beside(self.bounds.as_ref(), value)
    }

    /// Bytes that a report allocates beyond those of the one that it replaces.
    pub(in crate::merged) fn growth(&self, place: RunIndex, report: &RunReport) -> usize {
        let new = self.bytes_of(&report.value);
        let shown = bytes_of(&report.value).saturating_sub(self.shown_bytes());
        match place {
            RunIndex::Known(at) => {
                let old = self
                    .runs
                    .get(at)
                    .map_or(0, |run| self.bytes_of(&run.report.value));
                shown + new.saturating_sub(old)
            }
            _ => {
                let list = growth::<Box<Run>>(self.runs.len(), self.runs.capacity());
                shown + new + list + size_of::<Run>()
            }
        }
    }

    /// Bytes that a compacted total allocates beyond those of the known one.
    pub(in crate::merged) fn growth_by_compacted(
        &self,
        producer: ProducerId,
        compacted: &CompactedTotal,
    ) -> usize {
        let known = self.compacted_of(producer).map(CompactedTotal::bytes);
        let list = if known.is_some() {
            0
        } else {
            growth::<(ProducerId, CompactedTotal)>(self.compacted.len(), self.compacted.capacity())
        };
        let shown = compacted.largest().saturating_sub(self.shown_bytes());
        shown + list + compacted.bytes().saturating_sub(known.unwrap_or(0))
    }

    /// The bytes that it has allocated, recounted.
    #[cfg(test)]
    pub(in crate::merged) fn counted_bytes(&self) -> usize {
        let values = self.runs.iter().map(|run| self.bytes_of(&run.report.value));
        let compacted = self.compacted.iter().map(|(_, total)| total.bytes());
        let lists = self.bytes() - self.values - self.retained;
        lists + values.sum::<usize>() + compacted.sum::<usize>()
    }
}

/// Bytes that a value allocates beside the `shared` bounds.
pub(super) fn bytes_beside(shared: Option<&Arc<[f64]>>, value: &Value) -> usize {
    let both = bounds(value).zip(shared);
    let is_shared = both.is_some_and(|(one, shared)| Arc::ptr_eq(one, shared));
    if is_shared { value.bytes() } else { bytes_of(value) }
}
