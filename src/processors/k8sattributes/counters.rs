// SPDX-License-Identifier: Apache-2.0

//! Counts resources by what was found for them.

use std::sync::Arc;

use metrics::Counter;

/// Why the pod of a resource is not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unmatched {
    /// The pods are not known yet.
    NotSynced,
    /// The resource has no value of an association.
    NoIdentifier,
    /// No pod has these values.
    Unknown,
    /// The pod does not count.
    Excluded,
    /// Memory for its attributes is short.
    Memory,
}

/// All reasons, in the order of their numbers.
const REASONS: [&str; 5] = ["not_synced", "no_identifier", "unknown", "excluded", "memory"];

/// The counters of a processor.
pub(super) struct MatchCounters {
    enriched: Counter,
    unmatched: [Counter; REASONS.len()],
}

impl MatchCounters {
    pub(super) fn new(processor: &Arc<str>) -> Self {
        let enriched = metrics::counter!("tidegate_k8sattributes_enriched_resources_total", "processor" => processor.clone());
        let unmatched = REASONS.map(|reason| {
            metrics::counter!(
                "tidegate_k8sattributes_unmatched_resources_total",
                "processor" => processor.clone(), "reason" => reason
            )
        });
        Self { enriched, unmatched }
    }

    pub(super) fn count(&self, result: Result<(), Unmatched>) {
        match result {
            Ok(()) => self.enriched.increment(1),
            Err(why) => self.unmatched[why as usize].increment(1),
        }
    }
}
