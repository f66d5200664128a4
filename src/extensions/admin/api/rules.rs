// SPDX-License-Identifier: Apache-2.0

//! The rules that the `rules` extension evaluates, their alerts, and the Alertmanagers, as Prometheus shows them.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use tidegate_promql::{Labels, Millis, Selection};
use tidegate_rules::{ActiveAlert, AlertState, AlertTerms, RuleDefinition};

use super::{Api, ApiFailure, PageContent, params};
use crate::extensions::rule_status::{GroupReport, RuleReporters, RuleState};
use crate::net::pages::Request;

/// Go's text for no time.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// The rules that a request asks for.
struct RuleFilter<'a> {
    alerting: bool,
    recording: bool,
    names: Vec<&'a str>,
    groups: Vec<&'a str>,
    files: Vec<&'a str>,
    /// The labels of a rule match one of these, if there is one.
    selections: Vec<Selection>,
    with_alerts: bool,
}

impl<'a> RuleFilter<'a> {
    fn of(request: &'a Request) -> Result<Self, ApiFailure> {
        let kind = request.get("type").unwrap_or_default();
        let (alerting, recording) = match &*kind.to_ascii_lowercase() {
            "" => (true, true),
            "alert" => (true, false),
            "record" => (false, true),
            _ => {
                let why = format!("not supported value {kind:?}");
                return Err(params::invalid("type", why));
            }
        };
        let without_alerts = match request.get("exclude_alerts").unwrap_or_default() {
            "" | "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            _ => {
                let why = "error converting exclude_alerts: it is neither true nor false";
                return Err(params::invalid("exclude_alerts", why));
            }
        };
        Ok(Self {
            alerting,
            recording,
            names: request.all("rule_name[]").collect(),
            groups: request.all("rule_group[]").collect(),
            files: request.all("file[]").collect(),
            selections: Api::selections(request)?,
            with_alerts: !without_alerts,
        })
    }

    fn wants_group(&self, group: &GroupReport) -> bool {
        let wants = |list: &[&str], name: &str| list.is_empty() || list.contains(&name);
        wants(&self.groups, &group.group.name) && wants(&self.files, &group.group.file)
    }

    fn wants(&self, rule: &RuleDefinition) -> bool {
        let of_kind = if rule.alert().is_some() {
            self.alerting
        } else {
            self.recording
        };
        let of_name = self.names.is_empty() || self.names.contains(&&*rule.name);
        of_kind && of_name && (self.selections.is_empty() || self.has_labels(rule))
    }

    fn has_labels(&self, rule: &RuleDefinition) -> bool {
        let labels = rule.labels.iter();
        let labels: Labels = labels
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let mut selections = self.selections.iter();
        selections.any(|selection| selection.accepts(&labels))
    }
}

impl Api {
    /// `rules`: the groups with their rules, the state of each, and the alerts.
    pub(super) fn rules(&self, request: &Request) -> Result<PageContent, ApiFailure> {
        let filter = RuleFilter::of(request)?;
        let groups = RuleReporters::of(self.shared()).groups().into_iter();
        let groups = groups.filter(|group| filter.wants_group(group));
        let groups: Vec<Value> = groups.filter_map(|group| shown_group(&group, &filter)).collect();
        Ok(json!({"groups": groups}).into())
    }

    /// `alerts`: the pending and firing alerts of all rules.
    pub(super) fn alerts(&self, _: &Request) -> Result<PageContent, ApiFailure> {
        let groups = RuleReporters::of(self.shared()).groups();
        let rules = groups.iter().flat_map(|group| &group.rules);
        let alerts: Vec<Value> = rules
            .flat_map(|rule| rule.alerts.iter().map(shown_alert))
            .collect();
        Ok(json!({"alerts": alerts}).into())
    }

    /// `alertmanagers`: where alerts are posted to.
    pub(super) fn alertmanagers(&self, _: &Request) -> Result<PageContent, ApiFailure> {
        let all = RuleReporters::of(self.shared()).alertmanagers().into_iter();
        let active: Vec<Value> = all.map(|url| json!({"url": url})).collect();
        Ok(json!({"activeAlertmanagers": active, "droppedAlertmanagers": []}).into())
    }
}

/// A group with the rules that are asked for; `None`: it has none of them.
fn shown_group(report: &GroupReport, filter: &RuleFilter<'_>) -> Option<Value> {
    let rules = report.group.rules.iter().enumerate();
    let rules: Vec<Value> = rules
        .filter(|(_, rule)| filter.wants(rule))
        .map(|(number, rule)| shown_rule(rule, report.rules.get(number), filter.with_alerts))
        .collect();
    (!rules.is_empty()).then(|| {
        json!({
            "name": report.group.name,
            "file": report.group.file,
            "rules": rules,
            "interval": report.interval.as_secs_f64(),
            "limit": report.group.limit,
            "evaluationTime": report.took.as_secs_f64(),
            "lastEvaluation": shown_time(report.evaluated),
        })
    })
}

/// A rule. `state` is missing before the first evaluation.
fn shown_rule(rule: &RuleDefinition, state: Option<&RuleState>, with_alerts: bool) -> Value {
    let took = state.map_or(Duration::ZERO, |state| state.took);
    let mut shown = json!({
        "name": rule.name,
        "query": rule.expr.to_string(),
        "health": state.map_or("unknown", |state| state.health.status()),
        "evaluationTime": took.as_secs_f64(),
        "lastEvaluation": shown_time(state.and_then(|state| state.health.last_at)),
    });
    let labels = pairs(&rule.labels);
    if let Some(why) = state.and_then(|state| state.health.last_error.clone()) {
        shown["lastError"] = why.into();
    }
    match rule.alert() {
        None => {
            shown["type"] = "recording".into();
            if !labels.is_empty() {
                shown["labels"] = labels.into();
            }
        }
        Some(terms) => {
            shown["labels"] = labels.into();
            let alerts = state.map_or(&[][..], |state| state.alerts.as_slice());
            show_alerting(&mut shown, terms, alerts, with_alerts);
        }
    }
    shown
}

fn show_alerting(shown: &mut Value, terms: &AlertTerms, alerts: &[ActiveAlert], with_alerts: bool) {
    let is_any = |state: AlertState| alerts.iter().any(|alert| alert.state == state);
    let state = [AlertState::Firing, AlertState::Pending]
        .into_iter()
        .find(|state| is_any(*state));
    shown["type"] = "alerting".into();
    shown["state"] = state.unwrap_or(AlertState::Inactive).to_string().into();
    shown["duration"] = seconds(terms.hold).into();
    shown["keepFiringFor"] = seconds(terms.keep_firing).into();
    shown["annotations"] = pairs(&terms.annotations).into();
    let alerts = alerts.iter().filter(|_| with_alerts);
    shown["alerts"] = alerts.map(shown_alert).collect::<Vec<_>>().into();
}

fn shown_alert(alert: &ActiveAlert) -> Value {
    let mut shown = json!({
        "labels": object(&alert.labels),
        "annotations": object(&alert.annotations),
        "state": alert.state.to_string(),
        "activeAt": shown_time(Some(alert.active_at)),
        "value": shown_value(alert.value),
    });
    if let Some(since) = alert.keep_firing_since {
        shown["keepFiringSince"] = shown_time(Some(since)).into();
    }
    shown
}

fn seconds(time: Millis) -> f64 {
    time as f64 / 1000.0
}

fn shown_time(time: Option<Millis>) -> String {
    let time = time.and_then(|time| u64::try_from(time).ok());
    let text = |time| humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(time)).to_string();
    time.map_or_else(|| NEVER.to_owned(), text)
}

/// A number as Go writes it with an exponent: `1e+00`.
fn shown_value(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

fn object(labels: &Labels) -> Map<String, Value> {
    let labels = labels.iter();
    labels
        .map(|(name, value)| (name.to_string(), Value::from(&**value)))
        .collect()
}

fn pairs(list: &[(String, String)]) -> Map<String, Value> {
    let list = list.iter();
    list.map(|(name, value)| (name.clone(), Value::from(value.as_str())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_exponents_of_go() {
        let table = [
            (1.0, "1e+00"),
            (0.0, "0e+00"),
            (-12.5, "-1.25e+01"),
            (0.001, "1e-03"),
            (1e100, "1e+100"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ];
        for (value, expected) in table {
            assert_eq!(shown_value(value), expected);
        }
    }

    #[test]
    fn times_are_shown_to_the_millisecond() {
        assert_eq!(shown_time(None), NEVER);
        assert_eq!(shown_time(Some(1_700_000_000_123)), "2023-11-14T22:13:20.123Z");
    }
}
