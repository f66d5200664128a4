// SPDX-License-Identifier: Apache-2.0

//! The metrics of rules.

use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// The metrics of a group.
pub(super) struct GroupMetrics {
    pub(super) evaluations: Counter,
    pub(super) failures: Counter,
    pub(super) template_errors: Counter,
    pub(super) missed: Counter,
    pub(super) duration: Histogram,
}

impl GroupMetrics {
    /// `group`: its file and name.
    pub(super) fn new(component: &Arc<str>, group: &str) -> Self {
        let labels = [
            ("component", component.to_string()),
            ("rule_group", group.to_owned()),
        ];
        Self {
            evaluations: counter!("tidegate_rule_evaluations_total", &labels),
            failures: counter!("tidegate_rule_evaluation_failures_total", &labels),
            template_errors: counter!("tidegate_rule_template_errors_total", &labels),
            missed: counter!("tidegate_rule_evaluations_missed_total", &labels),
            duration: histogram!("tidegate_rule_group_duration_seconds", &labels),
        }
    }
}

/// The reason why a recorded sample is lost.
#[derive(Clone, Copy)]
pub(super) enum SampleLoss {
    /// More series than `max_series`.
    Limit,
    /// A pipeline refused it.
    Refused,
    /// A native histogram, which tables of rules do not keep.
    Histogram,
}

/// Counts lost samples.
pub(super) fn count_lost(component: &Arc<str>, why: SampleLoss, samples: usize) {
    if samples == 0 {
        return;
    }
    let reason = match why {
        SampleLoss::Limit => "limit",
        SampleLoss::Refused => "refused",
        SampleLoss::Histogram => "histogram",
    };
    counter!("tidegate_rule_samples_dropped_total", "component" => component.clone(), "reason" => reason)
        .increment(samples as u64);
}

/// The metrics of an Alertmanager.
pub(super) struct AlertmanagerMetrics {
    pub(super) sent: Counter,
    pub(super) errors: Counter,
    pub(super) waiting: Gauge,
    component: Arc<str>,
    alertmanager: String,
}

/// The reason why an alert is not sent.
#[derive(Clone, Copy)]
pub(super) enum AlertLoss {
    /// Too many alerts waited.
    QueueFull,
    /// The Alertmanager refuses it permanently.
    Refused,
    /// Relabelling drops it.
    Relabelled,
    /// The gateway or the extension stopped.
    Shutdown,
}

impl AlertmanagerMetrics {
    pub(super) fn new(component: &Arc<str>, alertmanager: &str) -> Self {
        let labels = [
            ("component", component.to_string()),
            ("alertmanager", alertmanager.to_owned()),
        ];
        Self {
            sent: counter!("tidegate_alerts_sent_total", &labels),
            errors: counter!("tidegate_alert_errors_total", &labels),
            waiting: gauge!("tidegate_alerts_waiting", &labels),
            component: component.clone(),
            alertmanager: alertmanager.to_owned(),
        }
    }

    /// Counts alerts that are not sent.
    pub(super) fn count_dropped(&self, why: AlertLoss, alerts: usize) {
        if alerts == 0 {
            return;
        }
        let reason = match why {
            AlertLoss::QueueFull => "queue_full",
            AlertLoss::Refused => "refused",
            AlertLoss::Relabelled => "relabelled",
            AlertLoss::Shutdown => "shutdown",
        };
        counter!(
            "tidegate_alerts_dropped_total",
            "component" => self.component.clone(),
            "alertmanager" => self.alertmanager.clone(),
            "reason" => reason
        )
        .increment(alerts as u64);
    }
}
