// SPDX-License-Identifier: Apache-2.0

//! Own metrics of watches, by kind of object.

use std::time::Duration;

use tidegate_runtime::{Every, wall_now};

use crate::ObjectKind;
use crate::error::WatchError;

/// At most one log line in this time about the errors of a watch.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// The metrics of a watch. Watches of one kind add up.
pub(crate) struct WatchMetrics {
    kind: &'static str,
    errors: Every,
    refusals: Every,
}

impl WatchMetrics {
    pub(crate) fn new(kind: ObjectKind) -> Self {
        Self {
            kind: kind.resource(),
            errors: Every::new(LOG_INTERVAL),
            refusals: Every::new(LOG_INTERVAL),
        }
    }

    pub(crate) fn object_added(&self) {
        metrics::gauge!("tidegate_kubernetes_objects", "kind" => self.kind).increment(1.0);
    }

    pub(crate) fn objects_removed(&self, objects: usize) {
        metrics::gauge!("tidegate_kubernetes_objects", "kind" => self.kind).decrement(objects as f64);
    }

    pub(crate) fn event(&self, name: &'static str) {
        metrics::counter!("tidegate_kubernetes_events_total", "kind" => self.kind, "type" => name)
            .increment(1);
        self.current();
    }

    /// The server has just sent something.
    pub(crate) fn current(&self) {
        let now = wall_now() as f64 / 1e9;
        metrics::gauge!("tidegate_kubernetes_last_event_timestamp_seconds", "kind" => self.kind).set(now);
    }

    pub(crate) fn list_begun(&self) {
        metrics::counter!("tidegate_kubernetes_lists_total", "kind" => self.kind).increment(1);
    }

    pub(crate) fn watch_begun(&self) {
        metrics::counter!("tidegate_kubernetes_watches_total", "kind" => self.kind).increment(1);
    }

    /// Counts a watch among those without a whole list, or no longer.
    pub(crate) fn incomplete(&self, change: f64) {
        metrics::gauge!("tidegate_kubernetes_incomplete_watches", "kind" => self.kind).increment(change);
    }

    pub(crate) fn failed(&self, error: &WatchError) {
        let reason = error.reason();
        metrics::counter!("tidegate_kubernetes_errors_total", "kind" => self.kind, "reason" => reason)
            .increment(1);
        if let Some(suppressed) = self.errors.ready() {
            let kind = self.kind;
            tracing::warn!(
                kind,
                reason,
                suppressed,
                "the watch of Kubernetes failed; its objects stay: {error}"
            );
        }
    }

    pub(crate) fn object_refused(&self, reason: &'static str) {
        metrics::counter!("tidegate_kubernetes_refused_objects_total", "kind" => self.kind, "reason" => reason)
            .increment(1);
        if let Some(suppressed) = self.refusals.ready() {
            let kind = self.kind;
            tracing::warn!(kind, reason, suppressed, "an object of Kubernetes is not kept");
        }
    }
}
