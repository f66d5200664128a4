// SPDX-License-Identifier: Apache-2.0

//! The gateway's own metrics of each ring.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use metrics::{Gauge, Label};
use parking_lot::Mutex;
use tidegate_ring::{Error, Mode, Reader, Reset};

use crate::component::Context;

/// Rings that have series of their own; those of further names share one.
const MAX_NAMED: usize = 1_000;
/// The name that they share.
const OTHERS: &str = "(others)";

/// The rings named so far: agents may be called anything, come and go, and nothing that was counted is forgotten.
#[derive(Default)]
pub(super) struct Names(Mutex<HashSet<Arc<str>>>);

/// The names of all receivers of a gateway, by the paths of these.
#[derive(Default)]
struct NamesOfReceivers(Mutex<HashMap<Arc<str>, Arc<Names>>>);

impl Names {
    /// The names of a receiver. They stay when a reload builds the receiver again, as the metrics do.
    pub(super) fn of(base: &Context) -> Arc<Self> {
        let receivers = base.shared.parts.get(NamesOfReceivers::default);
        let mut all = receivers.0.lock();
        all.entry(base.path.clone()).or_default().clone()
    }

    fn label(&self, ring: &Arc<str>) -> Arc<str> {
        let mut names = self.0.lock();
        if names.len() < MAX_NAMED || names.contains(ring) {
            names.insert(ring.clone());
            ring.clone()
        } else {
            OTHERS.into()
        }
    }
}

/// The metrics of one ring, with handles that are resolved once.
pub(super) struct RingMetrics {
    labels: [Label; 2],
    events: metrics::Counter,
    deselected: metrics::Counter,
    suspected_loss: metrics::Counter,
    fill: Gauge,
    /// The description of the ring at its last opening.
    info: Option<Gauge>,
}

impl RingMetrics {
    pub(super) fn new(receiver: &Arc<str>, ring: &Arc<str>, names: &Names) -> Self {
        let labels = [
            Label::new("receiver", receiver.clone()),
            Label::new("ring", names.label(ring)),
        ];
        Self {
            events: metrics::counter!("tidegate_nixl_ring_events_total", labels.iter()),
            deselected: metrics::counter!("tidegate_nixl_ring_deselected_events_total", labels.iter()),
            suspected_loss: metrics::counter!("tidegate_nixl_ring_suspected_loss_total", labels.iter()),
            fill: metrics::gauge!("tidegate_nixl_ring_fill_ratio", labels.iter()),
            info: None,
            labels,
        }
    }

    /// The id of the receiver, for log lines.
    pub(super) fn receiver(&self) -> &str {
        self.labels[0].value()
    }

    fn with(&self, key: &'static str, value: impl Into<metrics::SharedString>) -> Vec<Label> {
        self.labels
            .iter()
            .cloned()
            .chain([Label::new(key, value)])
            .collect()
    }

    pub(super) fn opened(&mut self, reader: &Reader) {
        self.no_longer();
        let mut labels = self.with("version", reader.geometry().layout.label());
        labels.push(Label::new("owner_uid", reader.owner_uid().to_string()));
        let mode = match reader.mode() {
            Mode::Consume => "consume",
            Mode::Peek => "peek",
            Mode::PeekLocked => "peek_locked",
        };
        labels.push(Label::new("mode", mode));
        let info = metrics::gauge!("tidegate_nixl_ring_info", labels);
        info.set(1.0);
        self.info = Some(info);
    }

    /// Clears the description of the ring.
    fn no_longer(&mut self) {
        if let Some(info) = self.info.take() {
            info.set(0.0);
        }
    }

    pub(super) fn filled(&self, fill: f64, full: bool) {
        self.fill.set(fill);
        self.suspected_loss.increment(u64::from(full));
    }

    pub(super) fn took(&self, events: usize, deselected: usize) {
        self.events.increment(events as u64);
        self.deselected.increment(deselected as u64);
    }

    pub(super) fn reset(&self, reason: Reset, lost: u64) {
        metrics::counter!(
            "tidegate_nixl_ring_resets_total",
            self.with("reason", reason.reason())
        )
        .increment(1);
        metrics::counter!(
            "tidegate_nixl_ring_lost_events_total",
            self.with("reason", reason.reason())
        )
        .increment(lost);
    }

    pub(super) fn closed(&mut self, reason: Reset) {
        self.no_longer();
        self.reset(reason, 0);
        self.fill.set(0.0);
    }

    pub(super) fn failed(&self, error: &Error) {
        tracing::warn!(receiver = self.receiver(), %error, "a ring could not be read");
        metrics::counter!(
            "tidegate_nixl_ring_errors_total",
            self.with("reason", error.reason())
        )
        .increment(1);
    }

    pub(super) fn rejected(&self, why: &str, events: usize) {
        tracing::error!(
            receiver = self.receiver(),
            why,
            events,
            "the pipelines refuse these events permanently; they are dropped"
        );
        metrics::counter!("tidegate_nixl_ring_rejected_events_total", self.labels.iter())
            .increment(events as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::testing::keeps_one_for_each_component;

    #[test]
    fn names_of_rings_stay_when_a_receiver_is_rebuilt() {
        keeps_one_for_each_component(Names::of);
    }

    #[test]
    fn names_beyond_the_cap_share_one() {
        let names = Names::default();
        let name = |at: usize| names.label(&format!("rank_{at}").into());
        (0..MAX_NAMED).for_each(|at| assert_eq!(&*name(at), format!("rank_{at}")));
        assert_eq!(&*name(MAX_NAMED), OTHERS);
        assert_eq!(&*name(3), "rank_3", "a known one keeps its name");
    }
}
