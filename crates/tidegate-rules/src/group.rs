// SPDX-License-Identifier: Apache-2.0

//! The state of a group, and its evaluation.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_promql::{Labels, Millis};

use crate::alert::ActiveAlert;
use crate::alerting::{AlertingRule, Evaluation};
use crate::backend::{RuleBackend, RuleSample};
use crate::file::{RuleDefinition, RuleGroup};
use crate::options::RuleOptions;
use crate::recording::record;

/// Bytes of a series or an alert besides its texts, about.
const OVERHEAD: usize = 128;

/// What is known of the evaluations of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleHealth {
    /// The error of the last evaluation, if it failed.
    pub last_error: Option<String>,
    /// The time of the last evaluation, in milliseconds since the epoch.
    pub last_at: Option<Millis>,
    /// The number of evaluations.
    pub evaluations: u64,
    /// The number of those that failed.
    pub failures: u64,
    /// The number of templates that could not be expanded.
    pub template_errors: u64,
    /// The number of samples of the last evaluation.
    pub samples: usize,
    /// Whether all sources that the rule reads were silent at the last evaluation.
    pub has_stale_inputs: bool,
}

impl RuleHealth {
    /// `unknown`, `ok` or `err`, as Prometheus's API says.
    pub fn status(&self) -> &'static str {
        match (&self.last_error, self.last_at) {
            (Some(_), _) => "err",
            (None, Some(_)) => "ok",
            (None, None) => "unknown",
        }
    }
}

/// The result of an evaluation of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupSummary {
    /// Samples, stale markers included.
    pub samples: usize,
    /// Rules that failed.
    pub failures: usize,
    /// Templates that could not be expanded.
    pub template_errors: usize,
}

/// The state of a rule.
#[derive(Debug)]
struct RuleState {
    /// `None`: the rule records.
    alerting: Option<AlertingRule>,
    /// The series of the last evaluation that succeeded.
    series: BTreeSet<Labels>,
    health: RuleHealth,
}

/// A group with its state.
#[derive(Debug)]
pub struct GroupState {
    group: Arc<RuleGroup>,
    options: Arc<RuleOptions>,
    rules: Vec<RuleState>,
    /// Series of rules that are gone: the next evaluation ends them.
    ended: BTreeSet<Labels>,
}

impl GroupState {
    /// A group that was never evaluated.
    pub fn new(group: Arc<RuleGroup>, options: Arc<RuleOptions>) -> Self {
        let state = |rule: &RuleDefinition| RuleState {
            alerting: rule.alert().map(|terms| AlertingRule::new(rule, terms)),
            series: BTreeSet::new(),
            health: RuleHealth::default(),
        };
        Self {
            rules: group.rules.iter().map(state).collect(),
            group,
            options,
            ended: BTreeSet::new(),
        }
    }

    /// The group.
    pub fn group(&self) -> &Arc<RuleGroup> {
        &self.group
    }

    /// The health of each rule, in their order.
    pub fn health(&self) -> impl ExactSizeIterator<Item = &RuleHealth> {
        self.rules.iter().map(|state| &state.health)
    }

    /// The alerts that are pending or firing, and those that were resolved lately, each with its rule.
    pub fn alerts(&self) -> impl Iterator<Item = (&RuleDefinition, &ActiveAlert)> {
        let rules = self.group.rules.iter().zip(&self.rules);
        rules.flat_map(|(rule, state)| {
            let alerts = state
                .alerting
                .iter()
                .flat_map(|alerting| alerting.active.values());
            alerts.map(move |alert| (rule, alert))
        })
    }

    /// The bytes that its alerts and series take, about.
    pub fn bytes(&self) -> usize {
        let series = self
            .rules
            .iter()
            .flat_map(|state| &state.series)
            .chain(&self.ended);
        let alerts = self
            .alerts()
            .flat_map(|(_, alert)| [&alert.labels, &alert.annotations]);
        series.chain(alerts).map(bytes).sum()
    }

    /// Takes over the state of rules that a reload did not change: alerts by name and labels of their rules. The series of
    /// the other rules end at the next evaluation.
    pub fn adopt(&mut self, previous: Self) {
        let numbers = self.group.predecessors(&previous.group);
        let mut known: Vec<_> = previous.rules.into_iter().map(Some).collect();
        for (number, state) in numbers.into_iter().zip(&mut self.rules) {
            let Some(former) = number.and_then(|number| known.get_mut(number)?.take()) else {
                continue;
            };
            if let (Some(alerting), Some(former)) = (&mut state.alerting, former.alerting) {
                alerting.adopt(former);
            }
            state.series = former.series;
            state.health = former.health;
        }
        self.ended.extend(previous.ended);
        let gone = known.into_iter().flatten();
        self.ended.extend(gone.flat_map(|state| state.series));
    }

    /// The stale markers of all its series. Call it when the group goes.
    pub fn end(&mut self, at: Millis) -> Vec<RuleSample> {
        let time = at - self.query_offset();
        let mut ended = std::mem::take(&mut self.ended);
        for state in &mut self.rules {
            ended.append(&mut state.series);
        }
        ended
            .into_iter()
            .map(|labels| RuleSample::marker(labels, time))
            .collect()
    }

    /// Evaluates all rules in their order. `at` is in milliseconds since the epoch. A rule that fails keeps its state.
    pub fn evaluate(&mut self, at: Millis, backend: &mut dyn RuleBackend) -> GroupSummary {
        let query_at = at - self.query_offset();
        let mut summary = GroupSummary::default();
        let group = self.group.clone();
        for (rule, state) in group.rules.iter().zip(&mut self.rules) {
            let evaluation = Evaluation {
                rule,
                options: &self.options,
                at,
                query_at,
                limit: group.limit,
            };
            let outcome = state.evaluate(&evaluation, backend);
            let template_errors = state.alerting.as_mut().map(AlertingRule::take_template_errors);
            let template_errors = template_errors.unwrap_or_default();
            summary.template_errors += template_errors;
            state.health.template_errors += template_errors as u64;
            state.health.evaluations += 1;
            state.health.last_at = Some(at);
            match outcome {
                Ok(samples) => {
                    state.health.last_error = None;
                    state.health.samples = samples;
                    summary.samples += samples;
                }
                Err(why) => {
                    state.health.last_error = Some(why);
                    state.health.failures += 1;
                    state.health.samples = 0;
                    summary.failures += 1;
                }
            }
        }
        summary.samples += self.end_orphans(query_at, backend);
        summary
    }

    /// The alerts that receivers must hear of now, each with its rule. They count as sent. `resend_delay` and `interval` are in
    /// milliseconds; an alert is valid for four times the longer one.
    pub fn due_alerts(
        &mut self,
        at: Millis,
        resend_delay: Millis,
        interval: Millis,
    ) -> Vec<(&RuleDefinition, ActiveAlert)> {
        let valid_until = at.saturating_add(resend_delay.max(interval).saturating_mul(4));
        let mut due = Vec::new();
        for (rule, state) in self.group.rules.iter().zip(&mut self.rules) {
            let alertings = state.alerting.iter_mut();
            let alerts = alertings.flat_map(|alerting| alerting.active.values_mut());
            for alert in alerts.filter(|alert| alert.is_due(at, resend_delay)) {
                alert.last_sent_at = Some(at);
                alert.valid_until = Some(valid_until);
                due.push((rule, alert.clone()));
            }
        }
        due
    }

    /// Takes an alert of an earlier process. Returns whether a rule has this name and these labels.
    pub(crate) fn restore(
        &mut self,
        (name, labels): (&str, &[(String, String)]),
        alert: &ActiveAlert,
        (saved_at, at): (Millis, Millis),
    ) -> bool {
        let rules = self.group.rules.iter().zip(&mut self.rules);
        let mut same = rules.filter(|(rule, _)| rule.name == name && rule.labels == labels);
        let alerting = same.find_map(|(_, state)| state.alerting.as_mut());
        let is_there = alerting.is_some();
        if let Some(alerting) = alerting {
            alerting.restore(alert.clone(), saved_at, at);
        }
        is_there
    }

    /// The alerts that go on in another process if they are saved at `at`: each with its rule, and the time since when it is
    /// active then.
    pub(crate) fn lasting(
        &self,
        at: Millis,
    ) -> impl Iterator<Item = (&RuleDefinition, &ActiveAlert, Millis)> {
        let rules = self.group.rules.iter().zip(&self.rules);
        rules.flat_map(move |(rule, state)| {
            let alertings = state.alerting.iter();
            let alerts = alertings.flat_map(move |alerting| alerting.lasting(at));
            alerts.map(move |(alert, active_at)| (rule, alert, active_at))
        })
    }

    /// The number of alerts of an earlier process that wait for their series.
    pub fn waiting(&self) -> usize {
        let alertings = self.rules.iter().filter_map(|state| state.alerting.as_ref());
        alertings.map(AlertingRule::waiting).sum()
    }

    /// The query offset in milliseconds.
    fn query_offset(&self) -> Millis {
        self.group
            .query_offset
            .unwrap_or(self.options.default_query_offset)
    }

    /// Ends the series of rules that are gone, unless another rule writes them now.
    fn end_orphans(&mut self, time: Millis, backend: &mut dyn RuleBackend) -> usize {
        let ended = std::mem::take(&mut self.ended).into_iter();
        let is_over = |labels: &Labels| !self.rules.iter().any(|state| state.series.contains(labels));
        let ended = ended.filter(is_over);
        let markers: Vec<_> = ended.map(|labels| RuleSample::marker(labels, time)).collect();
        if !markers.is_empty() {
            backend.append(&markers);
        }
        markers.len()
    }
}

impl RuleState {
    /// Returns the number of samples.
    fn evaluate(
        &mut self,
        evaluation: &Evaluation<'_>,
        backend: &mut dyn RuleBackend,
    ) -> Result<usize, String> {
        let answer = backend.instant(&evaluation.rule.expr, evaluation.query_at);
        let answer = answer.map_err(|why| why.to_string())?;
        self.health.has_stale_inputs = answer.stale_inputs;
        let mut samples = match &mut self.alerting {
            Some(alerting) => alerting.evaluate(evaluation, &answer, backend)?,
            None => record(evaluation, answer)?,
        };
        let series: BTreeSet<Labels> = samples.iter().map(|sample| sample.labels.clone()).collect();
        let gone = self.series.difference(&series).cloned();
        samples.extend(gone.map(|labels| RuleSample::marker(labels, evaluation.query_at)));
        self.series = series;
        backend.append(&samples);
        Ok(samples.len())
    }
}

fn bytes(labels: &Labels) -> usize {
    let texts = labels.iter().map(|(name, value)| name.len() + value.len());
    OVERHEAD + texts.sum::<usize>()
}
