// SPDX-License-Identifier: Apache-2.0

//! Groups over time: recorded series, the states of alerts, and what outlasts a restart.

mod model;
mod restart;

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_config::Problems;
use tidegate_promql::{Labels, Millis, Query, QueryError, QuerySeries, SampleValue};

use super::*;

const MINUTE: Millis = 60_000;

/// Answers each query by its text, and keeps what was appended.
#[derive(Default)]
struct Answers {
    by_query: BTreeMap<String, Vec<(Labels, SampleValue)>>,
    failing: Option<String>,
    stale: bool,
    appended: Vec<RuleSample>,
}

impl Answers {
    fn set(&mut self, query: &str, vector: &[(&str, f64)]) {
        let vector = vector
            .iter()
            .map(|(text, value)| (labels(text), SampleValue::Float(*value)));
        self.by_query.insert(query.to_owned(), vector.collect());
    }

    /// What was appended since the last call, as text.
    fn taken(&mut self) -> Vec<String> {
        let samples = std::mem::take(&mut self.appended).into_iter();
        let shown = samples.map(|sample| {
            let value = match sample.value.float() {
                _ if sample.is_marker() => "stale".to_owned(),
                value => value.unwrap_or_default().to_string(),
            };
            let pairs = sample
                .labels
                .iter()
                .map(|(name, value)| format!("{name}={value}"));
            format!("{} {value}", pairs.collect::<Vec<_>>().join(","))
        });
        shown.collect()
    }
}

impl RuleBackend for Answers {
    fn instant(&mut self, query: &Query, _: Millis) -> Result<QueryAnswer, QueryError> {
        if let Some(why) = &self.failing {
            return Err(QueryError::Execution(why.clone()));
        }
        let vector = self.by_query.get(&query.to_string()).cloned().unwrap_or_default();
        Ok(QueryAnswer {
            vector,
            stale_inputs: self.stale,
        })
    }

    fn append(&mut self, samples: &[RuleSample]) {
        self.appended.extend_from_slice(samples);
    }
}

fn labels(text: &str) -> Labels {
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.collect()
}

fn group_of(rules: &str) -> Arc<RuleGroup> {
    let text = format!("groups:\n- name: g\n  rules:\n{rules}");
    let mut problems = Problems::default();
    let file = parse_rules("f.yaml", &text, &mut problems);
    file.unwrap_or_else(|| panic!("{problems}")).groups.remove(0)
}

fn state(rules: &str, options: RuleOptions) -> GroupState {
    GroupState::new(group_of(rules), Arc::new(options))
}

/// The states of all alerts, in order.
fn states(group: &GroupState) -> Vec<AlertState> {
    group.alerts().map(|(_, alert)| alert.state).collect()
}

const ALERT: &str = "  - alert: A\n    expr: m\n    for: 2m\n    labels: {severity: page}\n";

#[test]
fn a_recording_rule_writes_its_series_and_ends_those_that_vanish() {
    let mut group = state(
        "  - record: r\n    expr: m\n    labels: {job: x, zone: ''}\n",
        RuleOptions::default(),
    );
    let mut answers = Answers::default();
    answers.set(
        "m",
        &[("__name__=m host=a zone=z", 1.0), ("__name__=m host=b", 2.0)],
    );
    assert_eq!(group.evaluate(0, &mut answers).samples, 2);
    assert_eq!(
        answers.taken(),
        ["__name__=r,host=a,job=x 1", "__name__=r,host=b,job=x 2"]
    );
    answers.set("m", &[("__name__=m host=b", 3.0)]);
    group.evaluate(MINUTE, &mut answers);
    assert_eq!(
        answers.taken(),
        ["__name__=r,host=b,job=x 3", "__name__=r,host=a,job=x stale"]
    );
    let ended = group.end(2 * MINUTE);
    assert!(ended.len() == 1 && ended[0].is_marker());
}

#[test]
fn series_that_become_one_are_an_error_and_the_old_ones_stay() {
    let mut group = state(
        "  - record: r\n    expr: m\n    labels: {host: x}\n",
        RuleOptions::default(),
    );
    let mut answers = Answers::default();
    answers.set("m", &[("host=a", 1.0)]);
    group.evaluate(0, &mut answers);
    answers.taken();
    answers.set("m", &[("host=a", 1.0), ("host=b", 2.0)]);
    assert_eq!(group.evaluate(MINUTE, &mut answers).failures, 1);
    assert_eq!(answers.taken(), Vec::<String>::new());
    let health: Vec<_> = group.health().collect();
    assert_eq!((health[0].status(), health[0].failures), ("err", 1));
    assert!(
        health[0]
            .last_error
            .as_ref()
            .is_some_and(|why| why.contains("same labelset"))
    );
}

#[test]
fn an_alert_is_pending_then_fires_then_is_resolved_for_fifteen_minutes() {
    let mut group = state(ALERT, RuleOptions::default());
    let mut answers = Answers::default();
    answers.set("m", &[("__name__=m host=a", 7.0)]);
    group.evaluate(0, &mut answers);
    assert_eq!(states(&group), [AlertState::Pending]);
    assert_eq!(
        answers.taken(),
        [
            "__name__=ALERTS,alertname=A,alertstate=pending,host=a,severity=page 1",
            "__name__=ALERTS_FOR_STATE,alertname=A,host=a,severity=page 0"
        ]
    );
    assert_eq!(group.due_alerts(0, MINUTE, MINUTE).len(), 0);
    group.evaluate(2 * MINUTE, &mut answers);
    assert_eq!(states(&group), [AlertState::Firing]);
    let due = group.due_alerts(2 * MINUTE, MINUTE, MINUTE);
    assert_eq!(
        (due.len(), due[0].1.value, due[0].1.valid_until),
        (1, 7.0, Some(6 * MINUTE))
    );
    assert_eq!(group.due_alerts(3 * MINUTE, MINUTE, MINUTE).len(), 0);
    answers.set("m", &[]);
    group.evaluate(3 * MINUTE, &mut answers);
    assert_eq!(states(&group), [AlertState::Inactive]);
    let due = group.due_alerts(3 * MINUTE, MINUTE, MINUTE);
    assert_eq!(due[0].1.resolved_at, Some(3 * MINUTE));
    group.evaluate(18 * MINUTE, &mut answers);
    assert_eq!(states(&group).len(), 1);
    group.evaluate(19 * MINUTE, &mut answers);
    assert_eq!(states(&group).len(), 0);
}

#[test]
fn series_that_change_at_each_evaluation_do_not_fill_the_memory() {
    let options = || RuleOptions {
        max_alerts: 3,
        ..RuleOptions::default()
    };
    let mut group = state("  - alert: A\n    expr: m\n", options());
    let mut answers = Answers::default();
    for at in 0..20 {
        let host = format!("host={at}");
        answers.set("m", &[(host.as_str(), 1.0)]);
        assert_eq!(group.evaluate(at, &mut answers).failures, 0);
    }
    let alerts: Vec<_> = group.alerts().collect();
    let mut hosts: Vec<&str> = alerts.iter().map(|(_, alert)| alert.labels.get("host")).collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["16", "17", "18", "19"], "the newest resolved ones stay");
    let rules = "  - alert: A\n    expr: m\n    keep_firing_for: 10m\n";
    let mut group = state(rules, options());
    for at in 0..20 {
        let host = format!("host={at}");
        answers.set("m", &[(host.as_str(), 1.0)]);
        let failures = group.evaluate(at * MINUTE, &mut answers).failures;
        // Six alerts fire at most. The rule works again when the first of them have ended.
        assert_eq!(failures > 0, (6..=10).contains(&at) || at >= 16, "{at}");
        assert!(group.alerts().count() <= 9, "{at}");
    }
}

#[test]
fn alerts_of_equal_names_go_out_with_their_own_rules() {
    let rules = "  - alert: A\n    expr: m\n  - alert: A\n    expr: n\n";
    let mut group = state(rules, RuleOptions::default());
    let mut answers = Answers::default();
    answers.set("m", &[("host=a", 7.0)]);
    answers.set("n", &[("host=b", 7.0)]);
    group.evaluate(0, &mut answers);
    let due = group.due_alerts(0, MINUTE, MINUTE);
    let shown = due
        .iter()
        .map(|(rule, alert)| format!("{} {}", rule.expr, alert.labels.get("host")));
    assert_eq!(shown.collect::<Vec<_>>(), ["m a", "n b"]);
}

#[test]
fn an_error_keeps_the_state() {
    let mut group = state(ALERT, RuleOptions::default());
    let mut answers = Answers::default();
    answers.set("m", &[("host=a", 7.0)]);
    group.evaluate(0, &mut answers);
    answers.failing = Some("no".to_owned());
    group.evaluate(MINUTE, &mut answers);
    assert_eq!(states(&group), [AlertState::Pending]);
    answers.failing = None;
    group.evaluate(2 * MINUTE, &mut answers);
    assert_eq!(states(&group), [AlertState::Firing]);
    assert_eq!(group.health().next().map(RuleHealth::status), Some("ok"));
}

#[test]
fn more_alerts_than_the_limit_are_an_error_without_output() {
    let text = "groups:\n- name: g\n  limit: 1\n  rules:\n".to_owned() + ALERT;
    let file = parse_rules("f.yaml", &text, &mut Problems::default()).unwrap();
    let mut group = GroupState::new(file.groups[0].clone(), Arc::default());
    let mut answers = Answers::default();
    answers.set("m", &[("host=a", 1.0), ("host=b", 1.0)]);
    assert_eq!(group.evaluate(0, &mut answers).failures, 1);
    assert_eq!((states(&group).len(), answers.taken().len()), (0, 0));
    let why = group.health().next().and_then(|health| health.last_error.clone());
    assert_eq!(why.as_deref(), Some("exceeded limit of 1 with 2 alerts"));
}

#[test]
fn a_silent_source_keeps_the_alert_and_says_that_the_state_is_unknown() {
    let options = RuleOptions {
        stale: StaleInputs::Unknown,
        ..RuleOptions::default()
    };
    let mut group = state(ALERT, options);
    let mut answers = Answers::default();
    answers.set("m", &[("host=a", 7.0)]);
    group.evaluate(0, &mut answers);
    group.evaluate(2 * MINUTE, &mut answers);
    answers.set("m", &[]);
    answers.stale = true;
    group.evaluate(3 * MINUTE, &mut answers);
    group.evaluate(5 * MINUTE, &mut answers);
    assert_eq!(states(&group), [AlertState::Firing, AlertState::Firing]);
    let unknown = group
        .alerts()
        .find(|(_, alert)| alert.labels.get("state") == "unknown");
    let (_, unknown) = unknown.unwrap();
    assert_eq!(
        (unknown.labels.get("alertname"), unknown.labels.get("severity")),
        ("A", "page")
    );
    answers.stale = false;
    group.evaluate(6 * MINUTE, &mut answers);
    assert_eq!(states(&group), [AlertState::Inactive, AlertState::Inactive]);
}

#[test]
fn by_default_a_silent_source_resolves_the_alert() {
    let mut group = state(ALERT, RuleOptions::default());
    let mut answers = Answers::default();
    answers.set("m", &[("host=a", 7.0)]);
    group.evaluate(0, &mut answers);
    group.evaluate(2 * MINUTE, &mut answers);
    answers.set("m", &[]);
    answers.stale = true;
    group.evaluate(3 * MINUTE, &mut answers);
    assert_eq!(states(&group), [AlertState::Inactive]);
}

#[test]
fn a_template_that_fails_shows_its_error_and_counts() {
    let rules = "  - alert: A\n    expr: m\n    annotations: {a: '{{ query \"m\" | first | value }}', b: '{{ $value | humanize | first }}'}\n";
    let mut group = state(rules, RuleOptions::default());
    let mut answers = Answers::default();
    answers.set("m", &[("host=a", 7.0)]);
    assert_eq!(group.evaluate(0, &mut answers).template_errors, 1);
    let (_, alert) = group.alerts().next().unwrap();
    assert_eq!(alert.annotations.get("a"), "7");
    let error = alert.annotations.get("b");
    assert!(
        error.starts_with("<error expanding template: error executing template __alert_A: "),
        "{error}"
    );
}

#[test]
fn a_reload_keeps_equal_rules_and_ends_the_series_of_others() {
    let record = "  - record: r\n    expr: m\n";
    let mut before = state(&(ALERT.to_owned() + record), RuleOptions::default());
    let mut answers = Answers::default();
    answers.set("m", &[("host=a", 7.0)]);
    before.evaluate(0, &mut answers);
    answers.taken();
    let mut after = state(ALERT, RuleOptions::default());
    after.adopt(before);
    after.evaluate(2 * MINUTE, &mut answers);
    assert_eq!(states(&after), [AlertState::Firing]);
    assert!(answers.taken().contains(&"__name__=r,host=a stale".to_owned()));
}

#[test]
fn the_offset_of_a_group_moves_its_samples() {
    let text = "groups:\n- name: g\n  query_offset: 30s\n  rules:\n  - record: r\n    expr: m\n";
    let file = parse_rules("f.yaml", text, &mut Problems::default()).unwrap();
    let mut group = GroupState::new(file.groups[0].clone(), Arc::default());
    let mut answers = Answers::default();
    answers.set("m", &[("host=a", 7.0)]);
    group.evaluate(MINUTE, &mut answers);
    assert_eq!(answers.appended[0].time, 30_000);
}

#[test]
fn an_answer_is_a_vector_or_a_scalar() {
    let none = Vec::<QuerySeries>::new();
    let value = |text: &str| Query::parse(text).and_then(|query| query.instant(&none, 0));
    let found = value("m").and_then(|value| QueryAnswer::from_instant(value, false));
    assert_eq!(found, Ok(QueryAnswer::default()));
    let found = value("1").and_then(|value| QueryAnswer::from_instant(value, true));
    assert_eq!(found.map(|answer| answer.vector.len()), Ok(1));
    let found = value("\"a\"").and_then(|value| QueryAnswer::from_instant(value, false));
    assert!(found.is_err());
}
