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

/// A group with the answers to its queries.
struct Evaluator {
    group: GroupState,
    answers: Answers,
}

impl Evaluator {
    /// A group of these rules.
    fn new(rules: &str) -> Self {
        Self::with(RuleOptions::default(), rules)
    }

    fn with(options: RuleOptions, rules: &str) -> Self {
        Self::of_group(options, "", rules)
    }

    /// A group that has these fields beside its rules.
    fn of_group(options: RuleOptions, fields: &str, rules: &str) -> Self {
        let text = format!("groups:\n- name: g\n{fields}  rules:\n{rules}");
        let mut problems = Problems::default();
        let file = parse_rules("f.yaml", &text, &mut problems);
        let group = file.unwrap_or_else(|| panic!("{problems}")).groups.remove(0);
        Self {
            group: GroupState::new(group, Arc::new(options)),
            answers: Answers::default(),
        }
    }

    /// Evaluates the rules while the query `m` gives this vector.
    fn evaluate(&mut self, at: Millis, vector: &[(&str, f64)]) -> GroupSummary {
        self.answers.set("m", vector);
        self.group.evaluate(at, &mut self.answers)
    }

    /// The states of all alerts, in order.
    fn states(&self) -> Vec<AlertState> {
        self.alerts().map(|alert| alert.state).collect()
    }

    fn alerts(&self) -> impl Iterator<Item = &ActiveAlert> {
        self.group.alerts().map(|(_, alert)| alert)
    }

    /// The only alert, or the first one.
    fn alert(&self) -> &ActiveAlert {
        self.alerts().next().expect("an alert")
    }

    /// The health of the first rule.
    fn health(&self) -> &RuleHealth {
        self.group.health().next().expect("a rule")
    }

    /// What was appended since the last call, as text.
    fn taken(&mut self) -> Vec<String> {
        self.answers.taken()
    }
}

/// A series that lets an alert of `m` fire.
const SERIES: &[(&str, f64)] = &[("host=a", 7.0)];

const ALERT: &str = "  - alert: A\n    expr: m\n    for: 2m\n    labels: {severity: page}\n";

#[test]
fn a_recording_rule_writes_its_series_and_ends_those_that_vanish() {
    let mut rules = Evaluator::new("  - record: r\n    expr: m\n    labels: {job: x, zone: ''}\n");
    let both = [("__name__=m host=a zone=z", 1.0), ("__name__=m host=b", 2.0)];
    assert_eq!(rules.evaluate(0, &both).samples, 2);
    assert_eq!(
        rules.taken(),
        ["__name__=r,host=a,job=x 1", "__name__=r,host=b,job=x 2"]
    );
    rules.evaluate(MINUTE, &[("__name__=m host=b", 3.0)]);
    assert_eq!(
        rules.taken(),
        ["__name__=r,host=b,job=x 3", "__name__=r,host=a,job=x stale"]
    );
    let ended = rules.group.end(2 * MINUTE);
    assert!(ended.len() == 1 && ended[0].is_marker());
}

#[test]
fn series_that_become_one_are_an_error_and_the_old_ones_stay() {
    let mut rules = Evaluator::new("  - record: r\n    expr: m\n    labels: {host: x}\n");
    rules.evaluate(0, &[("host=a", 1.0)]);
    rules.taken();
    let summary = rules.evaluate(MINUTE, &[("host=a", 1.0), ("host=b", 2.0)]);
    assert_eq!(summary.failures, 1);
    assert_eq!(rules.taken(), Vec::<String>::new());
    let health = rules.health();
    assert_eq!((health.status(), health.failures), ("err", 1));
    let error = health.last_error.as_ref();
    assert!(error.is_some_and(|why| why.contains("same labelset")));
}

#[test]
fn an_alert_is_pending_then_fires_then_is_resolved_for_fifteen_minutes() {
    let mut rules = Evaluator::new(ALERT);
    let series = [("__name__=m host=a", 7.0)];
    rules.evaluate(0, &series);
    assert_eq!(rules.states(), [AlertState::Pending]);
    assert_eq!(
        rules.taken(),
        [
            "__name__=ALERTS,alertname=A,alertstate=pending,host=a,severity=page 1",
            "__name__=ALERTS_FOR_STATE,alertname=A,host=a,severity=page 0"
        ]
    );
    assert_eq!(rules.group.due_alerts(0, MINUTE, MINUTE).len(), 0);
    rules.evaluate(2 * MINUTE, &series);
    assert_eq!(rules.states(), [AlertState::Firing]);
    let due = rules.group.due_alerts(2 * MINUTE, MINUTE, MINUTE);
    assert_eq!(
        (due.len(), due[0].1.value, due[0].1.valid_until),
        (1, 7.0, Some(6 * MINUTE))
    );
    assert_eq!(rules.group.due_alerts(3 * MINUTE, MINUTE, MINUTE).len(), 0);
    rules.evaluate(3 * MINUTE, &[]);
    assert_eq!(rules.states(), [AlertState::Inactive]);
    let due = rules.group.due_alerts(3 * MINUTE, MINUTE, MINUTE);
    assert_eq!(due[0].1.resolved_at, Some(3 * MINUTE));
    rules.evaluate(18 * MINUTE, &[]);
    assert_eq!(rules.states().len(), 1);
    rules.evaluate(19 * MINUTE, &[]);
    assert_eq!(rules.states().len(), 0);
}

#[test]
fn series_that_change_at_each_evaluation_do_not_fill_the_memory() {
    let options = || RuleOptions {
        max_alerts: 3,
        ..RuleOptions::default()
    };
    let mut rules = Evaluator::with(options(), "  - alert: A\n    expr: m\n");
    for at in 0..20 {
        let host = format!("host={at}");
        assert_eq!(rules.evaluate(at, &[(host.as_str(), 1.0)]).failures, 0);
    }
    let mut hosts: Vec<&str> = rules.alerts().map(|alert| alert.labels.get("host")).collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["16", "17", "18", "19"], "the newest resolved ones stay");
    let keeping = "  - alert: A\n    expr: m\n    keep_firing_for: 10m\n";
    let mut rules = Evaluator::with(options(), keeping);
    for at in 0..20 {
        let host = format!("host={at}");
        let failures = rules.evaluate(at * MINUTE, &[(host.as_str(), 1.0)]).failures;
        // Six alerts fire at most. The rule works again when the first of them have ended.
        assert_eq!(failures > 0, (6..=10).contains(&at) || at >= 16, "{at}");
        assert!(rules.alerts().count() <= 9, "{at}");
    }
}

#[test]
fn alerts_of_equal_names_go_out_with_their_own_rules() {
    let mut rules = Evaluator::new("  - alert: A\n    expr: m\n  - alert: A\n    expr: n\n");
    rules.answers.set("n", &[("host=b", 7.0)]);
    rules.evaluate(0, SERIES);
    let due = rules.group.due_alerts(0, MINUTE, MINUTE);
    let shown = due
        .iter()
        .map(|(rule, alert)| format!("{} {}", rule.expr, alert.labels.get("host")));
    assert_eq!(shown.collect::<Vec<_>>(), ["m a", "n b"]);
}

#[test]
fn an_error_keeps_the_state() {
    let mut rules = Evaluator::new(ALERT);
    rules.evaluate(0, SERIES);
    rules.answers.failing = Some("no".to_owned());
    rules.evaluate(MINUTE, SERIES);
    assert_eq!(rules.states(), [AlertState::Pending]);
    rules.answers.failing = None;
    rules.evaluate(2 * MINUTE, SERIES);
    assert_eq!(rules.states(), [AlertState::Firing]);
    assert_eq!(rules.health().status(), "ok");
}

#[test]
fn more_alerts_than_the_limit_are_an_error_without_output() {
    let mut rules = Evaluator::of_group(RuleOptions::default(), "  limit: 1\n", ALERT);
    let summary = rules.evaluate(0, &[("host=a", 1.0), ("host=b", 1.0)]);
    assert_eq!(summary.failures, 1);
    assert_eq!((rules.states().len(), rules.taken().len()), (0, 0));
    let why = rules.health().last_error.clone();
    assert_eq!(why.as_deref(), Some("exceeded limit of 1 with 2 alerts"));
}

/// An alert that has fired when all its sources become silent.
fn silenced(options: RuleOptions) -> Evaluator {
    let mut rules = Evaluator::with(options, ALERT);
    rules.evaluate(0, SERIES);
    rules.evaluate(2 * MINUTE, SERIES);
    rules.answers.stale = true;
    rules.evaluate(3 * MINUTE, &[]);
    rules
}

#[test]
fn a_silent_source_keeps_the_alert_and_says_that_the_state_is_unknown() {
    let mut rules = silenced(RuleOptions {
        stale: StaleInputs::Unknown,
        ..RuleOptions::default()
    });
    rules.evaluate(5 * MINUTE, &[]);
    assert_eq!(rules.states(), [AlertState::Firing, AlertState::Firing]);
    let unknown = rules
        .alerts()
        .find(|alert| alert.labels.get("state") == "unknown")
        .unwrap();
    assert_eq!(
        (unknown.labels.get("alertname"), unknown.labels.get("severity")),
        ("A", "page")
    );
    rules.answers.stale = false;
    rules.evaluate(6 * MINUTE, &[]);
    assert_eq!(rules.states(), [AlertState::Inactive, AlertState::Inactive]);
}

#[test]
fn by_default_a_silent_source_resolves_the_alert() {
    let rules = silenced(RuleOptions::default());
    assert_eq!(rules.states(), [AlertState::Inactive]);
}

#[test]
fn a_template_that_fails_shows_its_error_and_counts() {
    let mut rules = Evaluator::new(
        "  - alert: A\n    expr: m\n    annotations: {a: '{{ query \"m\" | first | value }}', b: '{{ $value | humanize | first }}'}\n",
    );
    assert_eq!(rules.evaluate(0, SERIES).template_errors, 1);
    let annotations = &rules.alert().annotations;
    assert_eq!(annotations.get("a"), "7");
    let error = annotations.get("b");
    assert!(
        error.starts_with("<error expanding template: error executing template __alert_A: "),
        "{error}"
    );
}

#[test]
fn a_reload_keeps_equal_rules_and_ends_the_series_of_others() {
    let record = "  - record: r\n    expr: m\n";
    let mut before = Evaluator::new(&(ALERT.to_owned() + record));
    before.evaluate(0, SERIES);
    let mut after = Evaluator::new(ALERT);
    after.group.adopt(before.group);
    after.evaluate(2 * MINUTE, SERIES);
    assert_eq!(after.states(), [AlertState::Firing]);
    assert!(after.taken().contains(&"__name__=r,host=a stale".to_owned()));
}

#[test]
fn the_offset_of_a_group_moves_its_samples() {
    let record = "  - record: r\n    expr: m\n";
    let mut rules = Evaluator::of_group(RuleOptions::default(), "  query_offset: 30s\n", record);
    rules.evaluate(MINUTE, SERIES);
    assert_eq!(rules.answers.appended[0].time, 30_000);
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
