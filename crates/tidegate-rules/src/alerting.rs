// SPDX-License-Identifier: Apache-2.0

//! Evaluates an alerting rule: from series to alerts, and to their own series.

use std::collections::BTreeMap;

use tidegate_promql::{Labels, Millis, NAME, Query, SampleValue};

use crate::alert::{ActiveAlert, AlertState, Presence};
use crate::backend::{QueryAnswer, RuleBackend, RuleSample};
use crate::file::{AlertTerms, RuleDefinition};
use crate::options::{RuleOptions, StaleInputs};
use crate::template::{Template, TemplateData};

/// The label with the name of an alert.
pub(crate) const ALERT_NAME: &str = "alertname";

/// The value of the label `state` of an alert about silent sources.
const UNKNOWN: &str = "unknown";

/// Alerts of an earlier process wait so long for their series, in milliseconds.
const RESTORE_WAIT: Millis = 10 * 60_000;

/// An evaluation of a rule.
pub(crate) struct Evaluation<'a> {
    pub(crate) rule: &'a RuleDefinition,
    pub(crate) options: &'a RuleOptions,
    pub(crate) at: Millis,
    pub(crate) query_at: Millis,
    pub(crate) limit: usize,
}

/// A name with the template of its value, or the error of that.
type NamedTemplate = (String, Result<Template, String>);

/// The state of an alerting rule.
#[derive(Debug)]
pub(crate) struct AlertingRule {
    terms: AlertTerms,
    labels: Vec<NamedTemplate>,
    annotations: Vec<NamedTemplate>,
    pub(crate) active: BTreeMap<Labels, ActiveAlert>,
    /// Alerts of an earlier process whose series did not appear yet, and when it was saved.
    restored: BTreeMap<Labels, (ActiveAlert, Millis)>,
    restored_at: Millis,
    template_errors: usize,
}

/// An alert that a series asks for.
struct WantedAlert {
    annotations: Labels,
    value: f64,
}

impl AlertingRule {
    pub(crate) fn new(rule: &RuleDefinition, terms: &AlertTerms) -> Self {
        let parse = |texts: &[(String, String)]| -> Vec<NamedTemplate> {
            let parsed = texts
                .iter()
                .map(|(name, text)| (name.clone(), Template::parse(text)));
            parsed.collect()
        };
        Self {
            terms: terms.clone(),
            labels: parse(&rule.labels),
            annotations: parse(&terms.annotations),
            active: BTreeMap::new(),
            restored: BTreeMap::new(),
            restored_at: 0,
            template_errors: 0,
        }
    }

    /// Takes over the alerts of an equal rule.
    pub(crate) fn adopt(&mut self, previous: Self) {
        self.active = previous.active;
        self.restored = previous.restored;
        self.restored_at = previous.restored_at;
    }

    /// The number of failed templates since the last call.
    pub(crate) fn take_template_errors(&mut self) -> usize {
        std::mem::take(&mut self.template_errors)
    }

    /// Takes an alert of an earlier process, which waits for its series.
    pub(crate) fn restore(&mut self, alert: ActiveAlert, saved_at: Millis, at: Millis) {
        self.restored_at = at;
        self.restored.insert(alert.labels.clone(), (alert, saved_at));
    }

    /// The alerts that go on in another process if they are saved at `at`, each with the time since when it is active then.
    /// Those of an earlier process that still wait for their series are among them.
    pub(crate) fn lasting(&self, at: Millis) -> impl Iterator<Item = (&ActiveAlert, Millis)> {
        let own = self.active.values();
        let own = own.filter(|alert| alert.state != AlertState::Inactive);
        let own = own.map(|alert| (alert, alert.active_at));
        let waiting = self.restored.values();
        own.chain(waiting.map(move |(alert, saved_at)| (alert, resumed_active_at(alert, *saved_at, at))))
    }

    /// The number of alerts of an earlier process that wait for their series.
    pub(crate) fn waiting(&self) -> usize {
        self.restored.len()
    }

    /// Moves the alerts to their next states. Returns their series.
    ///
    /// # Errors
    /// Two series ask for one alert, or there are too many.
    pub(crate) fn evaluate(
        &mut self,
        evaluation: &Evaluation<'_>,
        answer: &QueryAnswer,
        backend: &mut dyn RuleBackend,
    ) -> Result<Vec<RuleSample>, String> {
        let most = evaluation.options.max_alerts;
        if answer.vector.len() > most {
            return Err(format!(
                "{} series: `max_alerts` allows {most}",
                answer.vector.len()
            ));
        }
        let is_unknown = answer.stale_inputs && evaluation.options.stale == StaleInputs::Unknown;
        let mut wanted = BTreeMap::new();
        for (series, value) in &answer.vector {
            let value = value.float().unwrap_or_default();
            let (labels, alert) = self.wanted(evaluation, series, value, backend);
            if wanted.insert(labels, alert).is_some() {
                let why = "vector contains metrics with the same labelset after applying alert labels";
                return Err(why.to_owned());
            }
        }
        if is_unknown {
            let (labels, alert) = self.unknown(evaluation, backend);
            wanted.insert(labels, alert);
        }
        let count = wanted.len() + self.lingering(&wanted, evaluation.at, is_unknown);
        if count > most.saturating_mul(2) {
            return Err(format!(
                "{count} alerts, with those that fire without their series: twice `max_alerts` of {most} is allowed"
            ));
        }
        self.step(evaluation.at, wanted, is_unknown);
        self.forget_resolved(most);
        let active = self
            .active
            .values()
            .filter(|alert| alert.state != AlertState::Inactive);
        let count = active.clone().count();
        if evaluation.limit > 0 && count > evaluation.limit {
            // As in Prometheus: an alert over the limit does not exist.
            self.active.clear();
            let limit = evaluation.limit;
            return Err(format!("exceeded limit of {limit} with {count} alerts"));
        }
        Ok(active
            .flat_map(|alert| series(alert, evaluation.query_at))
            .collect())
    }

    /// The number of alerts that stay active without their series.
    fn lingering(&self, wanted: &BTreeMap<Labels, WantedAlert>, at: Millis, is_unknown: bool) -> usize {
        let lingers = |alert: &ActiveAlert| match alert.state {
            AlertState::Inactive => false,
            AlertState::Pending => is_unknown,
            AlertState::Firing => {
                let since = alert.keep_firing_since.unwrap_or(at);
                is_unknown || at - since < self.terms.keep_firing
            }
        };
        let active = self.active.iter();
        let lingering = active.filter(|(labels, alert)| lingers(alert) && !wanted.contains_key(*labels));
        lingering.count()
    }

    /// Forgets the alerts that were resolved first, above a number. Labels that change at each evaluation would otherwise
    /// fill the memory with alerts that are over.
    fn forget_resolved(&mut self, most: usize) {
        let resolved = self.active.values().filter_map(|alert| alert.resolved_at);
        let mut resolved: Vec<Millis> = resolved.collect();
        resolved.sort_unstable();
        let mut excess = resolved.len().saturating_sub(most);
        let Some(newest) = excess.checked_sub(1).and_then(|last| resolved.get(last)) else {
            return;
        };
        self.active.retain(|_, alert| {
            let is_old = alert.resolved_at.is_some_and(|at| at <= *newest);
            let is_excess = excess > 0 && is_old;
            excess -= usize::from(is_excess);
            !is_excess
        });
    }

    fn step(&mut self, at: Millis, wanted: BTreeMap<Labels, WantedAlert>, is_unknown: bool) {
        if at - self.restored_at > RESTORE_WAIT {
            self.restored.clear();
        }
        let absent = if is_unknown {
            Presence::Unknown
        } else {
            Presence::Absent
        };
        let terms = &self.terms;
        self.active.retain(|labels, alert| match wanted.get(labels) {
            Some(_) if alert.state == AlertState::Inactive => false,
            Some(_) => true,
            None => alert.step(absent, at, terms),
        });
        for (labels, WantedAlert { annotations, value }) in wanted {
            let restored = self.restored.remove(&labels);
            let alert = self.active.entry(labels).or_insert_with_key(|labels| {
                let new = ActiveAlert::pending(labels.clone(), annotations.clone(), value, at);
                restored.map_or_else(|| new, |restored| resumed(restored, at))
            });
            alert.annotations = annotations;
            alert.value = value;
            alert.step(Presence::Present, at, terms);
        }
    }

    /// The alert of a series.
    fn wanted(
        &mut self,
        evaluation: &Evaluation<'_>,
        series: &Labels,
        value: f64,
        backend: &mut dyn RuleBackend,
    ) -> (Labels, WantedAlert) {
        let mut errors = 0;
        let mut expanded = |templates: &[NamedTemplate]| -> Vec<(String, String)> {
            let texts = templates.iter().map(|(name, template)| {
                let text = expand(evaluation, template, (series, value), backend);
                let text = text.unwrap_or_else(|why| {
                    errors += 1;
                    format!("<error expanding template: {why}>")
                });
                (name.clone(), text)
            });
            texts.collect()
        };
        let own = expanded(&self.labels);
        let annotations = expanded(&self.annotations).into_iter().collect();
        self.template_errors += errors;
        let kept = series.iter().filter(|(name, _)| ***name != *NAME);
        let kept = kept.map(|(name, value)| (name.to_string(), value.to_string()));
        let name = (ALERT_NAME.to_owned(), evaluation.rule.name.clone());
        let labels = kept.chain(own).chain([name]).collect();
        (labels, WantedAlert { annotations, value })
    }

    /// The alert about silent sources.
    fn unknown(
        &mut self,
        evaluation: &Evaluation<'_>,
        backend: &mut dyn RuleBackend,
    ) -> (Labels, WantedAlert) {
        let (labels, _) = self.wanted(evaluation, &Labels::default(), f64::NAN, backend);
        let summary = format!(
            "The sources of all series that {} reads are silent: its state is unknown.",
            evaluation.rule.name
        );
        let alert = WantedAlert {
            annotations: [("summary", summary)].into_iter().collect(),
            value: 1.0,
        };
        (labels.with("state", UNKNOWN), alert)
    }
}

/// An alert of an earlier process goes on.
fn resumed((mut alert, saved_at): (ActiveAlert, Millis), at: Millis) -> ActiveAlert {
    alert.active_at = resumed_active_at(&alert, saved_at, at);
    alert
}

/// When an alert of an earlier process counts as active since. The time without its series does not count towards `for`.
fn resumed_active_at(alert: &ActiveAlert, saved_at: Millis, at: Millis) -> Millis {
    match alert.state {
        AlertState::Pending => alert.active_at.saturating_add((at - saved_at).max(0)).min(at),
        AlertState::Inactive | AlertState::Firing => alert.active_at,
    }
}

fn expand(
    evaluation: &Evaluation<'_>,
    template: &Result<Template, String>,
    (series, value): (&Labels, f64),
    backend: &mut dyn RuleBackend,
) -> Result<String, String> {
    let data = TemplateData {
        labels: series,
        external_labels: &evaluation.options.external_labels,
        external_url: &evaluation.options.external_url,
        value,
        now: evaluation.at,
    };
    let mut query = |text: &str| -> Result<Vec<(Labels, SampleValue)>, String> {
        let query = Query::parse(text).map_err(|why| why.to_string())?;
        let answer = backend.instant(&query, evaluation.query_at);
        answer.map(|answer| answer.vector).map_err(|why| why.to_string())
    };
    let template = template.as_ref().map_err(Clone::clone)?;
    let expanded = template.expand(&data, &mut query);
    expanded.map_err(|why| format!("error executing template __alert_{}: {why}", evaluation.rule.name))
}

/// The series that Prometheus writes for an alert.
fn series(alert: &ActiveAlert, time: Millis) -> [RuleSample; 2] {
    let sample = |labels: Labels, value: f64| RuleSample {
        labels,
        time,
        value: SampleValue::Float(value),
    };
    let named = alert.labels.with(NAME, "ALERTS");
    let since = alert.active_at.div_euclid(1000) as f64;
    [
        sample(named.with("alertstate", &alert.state.to_string()), 1.0),
        sample(alert.labels.with(NAME, "ALERTS_FOR_STATE"), since),
    ]
}
