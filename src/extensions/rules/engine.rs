// SPDX-License-Identifier: Apache-2.0

//! What all groups of an extension share: the view of the tables, the recorded series and the Alertmanagers.

use std::sync::Arc;

use tidegate_engine::UnixNanos;
use tidegate_promql::Labels;
use tidegate_rules::{ActiveAlert, RuleDefinition, RuleOptions, RuleSample};

use super::alertmanager::{Alertmanager, UnsentAlerts, WaitingAlert, count_unsent};
use super::config::RulesConfig;
use super::metrics::{SampleLoss, count_lost};
use super::orphans::Orphans;
use super::payload::{json_of, labelled, relabelled};
use crate::component::{ComponentError, Context, Shared};
use crate::prom::catalog::View;
use crate::prom::recorded::RecordedSeries;
use crate::prom::relabel::Rule as RelabelRule;

/// An alert that leaves: its labels on the way, its state, and its rule.
type LeavingAlert<'a> = (Labels, &'a ActiveAlert, &'a RuleDefinition);

/// The shared part of all groups.
pub(super) struct RuleEngine {
    pub(super) config: Arc<RulesConfig>,
    pub(super) options: Arc<RuleOptions>,
    pub(super) shared: Arc<Shared>,
    pub(super) view: Arc<View>,
    pub(super) recorded: Arc<RecordedSeries>,
    pub(super) alertmanagers: Vec<Arc<Alertmanager>>,
    pub(super) orphans: Orphans,
    /// The id of the extension, for metrics.
    pub(super) component: Arc<str>,
    /// Labels of all alerts that leave.
    external: Labels,
}

impl RuleEngine {
    /// # Errors
    /// The TLS files or the authenticator of an Alertmanager can't be used.
    pub(super) fn new(config: Arc<RulesConfig>, base: &Context) -> Result<Self, ComponentError> {
        let alertmanagers = config.alertmanagers.iter().map(|one| {
            let alertmanager = Alertmanager::new(one, config.max_queued_alerts, base)?;
            Ok(Arc::new(alertmanager))
        });
        Ok(Self {
            alertmanagers: alertmanagers.collect::<Result<_, ComponentError>>()?,
            options: Arc::new(config.rule_options()),
            shared: base.shared.clone(),
            view: View::of(&base.shared),
            recorded: RecordedSeries::of(&base.shared, &base.id),
            orphans: Orphans::default(),
            component: base.id.clone(),
            external: config.labels_of_alerts(),
            config,
        })
    }

    /// Takes the samples of a rule.
    pub(super) fn record(&self, samples: &[RuleSample], now: UnixNanos) {
        let mut histograms = 0;
        let numbers = samples.iter().filter_map(|sample| {
            let number = sample.value.float();
            histograms += usize::from(number.is_none());
            Some((&sample.labels, sample.time, number?))
        });
        let lost = self.recorded.append(numbers, now);
        count_lost(&self.component, SampleLoss::Limit, lost.over_limit);
        count_lost(&self.component, SampleLoss::Refused, lost.refused);
        count_lost(&self.component, SampleLoss::Histogram, histograms);
    }

    /// Gives alerts to all Alertmanagers, after relabelling.
    pub(super) fn send(&self, alerts: &[(&RuleDefinition, ActiveAlert)]) {
        if self.alertmanagers.is_empty() || alerts.is_empty() {
            return;
        }
        let leaving = alerts.iter().filter_map(|(rule, alert)| {
            let labels = labelled(alert, &self.external);
            let labels = relabelled(&self.config.alert_relabel_configs, labels)?;
            Some((labels, alert, *rule))
        });
        let leaving: Vec<LeavingAlert<'_>> = leaving.collect();
        let of_all = self.waiting(&leaving, &[]);
        for one in &self.alertmanagers {
            // Few Alertmanagers have rules of their own.
            let own = one.relabel_configs();
            let of_one = (!own.is_empty()).then(|| self.waiting(&leaving, own));
            let waiting = of_one.as_ref().unwrap_or(&of_all);
            one.count_relabelled(alerts.len() - waiting.len());
            one.enqueue(waiting);
        }
    }

    /// Takes the alerts that were not sent, after the senders have ended.
    pub(super) fn take_unsent(&self) -> Vec<UnsentAlerts> {
        let all = self.alertmanagers.iter();
        all.map(|one| (one.shown().to_owned(), one.take_rest())).collect()
    }

    /// Sends what an earlier instance has not sent. Nobody sends alerts for an Alertmanager that is gone.
    pub(super) fn send_unsent(&self, unsent: Vec<UnsentAlerts>) {
        for (alertmanager, alerts) in unsent {
            let mut all = self.alertmanagers.iter();
            match all.find(|one| one.shown() == alertmanager) {
                Some(one) => one.enqueue(&alerts),
                None => count_unsent(&self.component, &alertmanager, alerts.len()),
            }
        }
    }

    /// The alerts after the rules of an Alertmanager.
    fn waiting(&self, alerts: &[LeavingAlert<'_>], rules: &[RelabelRule]) -> Vec<WaitingAlert> {
        let alerts = alerts.iter().filter_map(|(labels, alert, rule)| {
            let labels = relabelled(rules, labels.clone())?;
            let json = json_of(alert, &labels, rule, &self.options.external_url);
            Some((labels, json))
        });
        alerts.collect()
    }
}
