// SPDX-License-Identifier: Apache-2.0

//! Runs one unit test.

use std::sync::Arc;

use tidegate_promql::{Labels, Millis, Query, SampleValue, show_duration};

use super::file::{AlertTest, ExpectedSample, ExprTest, TestFile, UnitTest};
use super::outcome::{self, FiringAlert};
use super::store::TestStore;
use crate::alert::AlertState;
use crate::alerting::ALERT_NAME;
use crate::backend::RuleBackend;
use crate::file::RuleGroup;
use crate::group::GroupState;
use crate::options::RuleOptions;

/// The most evaluations of rules in one test.
const MAX_EVALUATIONS: i64 = 5_000_000;

/// A test in progress.
struct UnitTestRun<'t> {
    test: &'t UnitTest,
    store: TestStore,
    groups: Vec<GroupState>,
    failures: Vec<String>,
}

/// Runs a test. Returns what failed.
pub(super) fn run(test: &UnitTest, file: &TestFile, groups: &[Arc<RuleGroup>]) -> Vec<String> {
    let options = Arc::new(RuleOptions {
        external_labels: test.external_labels.clone(),
        external_url: test.external_url.clone(),
        ..RuleOptions::default()
    });
    let mut run = UnitTestRun {
        test,
        store: store(test),
        groups: groups
            .iter()
            .map(|group| GroupState::new(group.clone(), options.clone()))
            .collect(),
        failures: Vec::new(),
    };
    run.all(file);
    run.failures
}

/// The input series, a value at each interval from 0 on.
fn store(test: &UnitTest) -> TestStore {
    let mut store = TestStore::default();
    for (labels, values) in &test.series {
        let samples = values.iter().enumerate().filter_map(|(at, value)| {
            let time = test.interval.saturating_mul(at as Millis);
            value.clone().map(|value| (time, value))
        });
        store.add(labels.clone(), samples.collect());
    }
    store
}

impl UnitTestRun<'_> {
    fn all(&mut self, file: &TestFile) {
        let test = self.test;
        let mut alerts: Vec<&AlertTest> = test.alerts.iter().collect();
        alerts.sort_by_key(|alert| alert.at);
        let times = test.exprs.iter().map(|expr| expr.at);
        let last = times
            .chain(alerts.iter().map(|alert| alert.at))
            .max()
            .unwrap_or(0);
        let rules: usize = self.groups.iter().map(|state| state.group().rules.len()).sum();
        if (last / file.interval).saturating_mul(rules.max(1) as i64) > MAX_EVALUATIONS {
            let why = format!(
                "more than {MAX_EVALUATIONS} evaluations of rules until {}",
                show_duration(last)
            );
            return self.fail(&format!("    {why}"));
        }
        let mut alerts = alerts.into_iter().peekable();
        let mut at = 0;
        while at <= last {
            self.store.advance(at);
            if !self.evaluate(at) {
                return;
            }
            at += file.interval;
            while let Some(alert) = alerts.next_if(|alert| alert.at < at) {
                self.check_alerts(alert);
            }
        }
        self.store.advance(last);
        if self.store.is_full() {
            return self.fail("    the test has too many samples");
        }
        for expr in &test.exprs {
            self.check_expr(expr, file.is_fuzzy);
        }
    }

    /// Evaluates all groups. Returns whether all rules have a value.
    fn evaluate(&mut self, at: Millis) -> bool {
        let mut errors = Vec::new();
        for state in &mut self.groups {
            if state.evaluate(at, &mut self.store).failures == 0 {
                continue;
            }
            let rules = state.group().rules.iter().zip(state.health());
            errors.extend(rules.filter_map(|(rule, health)| {
                let error = health.last_error.as_ref()?;
                Some(format!(
                    "    rule: {}, time: {}, err: {error}",
                    rule.name,
                    show_duration(at)
                ))
            }));
        }
        errors.iter().for_each(|error| self.fail(error));
        errors.is_empty()
    }

    fn fail(&mut self, why: &str) {
        let name = match self.test.name.as_str() {
            "" => String::new(),
            name => format!("    name: {name},\n"),
        };
        self.failures.push(name + why);
    }

    fn check_alerts(&mut self, test: &AlertTest) {
        let name = (ALERT_NAME.to_owned(), test.alert_name.clone());
        let expected = test.expected.iter().map(|alert| FiringAlert {
            labels: alert.labels.clone().into_iter().chain([name.clone()]).collect(),
            annotations: alert.annotations.clone(),
        });
        let mut expected: Vec<_> = expected.collect();
        let alerts = self.groups.iter().flat_map(GroupState::alerts);
        let firing =
            alerts.filter(|(rule, alert)| rule.name == test.alert_name && alert.state == AlertState::Firing);
        let mut found: Vec<_> = firing
            .map(|(_, alert)| FiringAlert {
                labels: alert.labels.clone(),
                annotations: alert.annotations.clone(),
            })
            .collect();
        expected.sort();
        found.sort();
        if expected != found {
            let why = format!(
                "    alertname: {}, time: {}, \n        exp:{}, \n        got:{}",
                test.alert_name,
                show_duration(test.at),
                outcome::show_alerts(&expected),
                outcome::show_alerts(&found)
            );
            self.fail(&why);
        }
    }

    fn check_expr(&mut self, test: &ExprTest, is_fuzzy: bool) {
        let head = format!("    expr: {:?}, time: {},", test.expr, show_duration(test.at));
        let answer = Query::parse(&test.expr).and_then(|query| self.store.instant(&query, test.at));
        let mut found = match answer {
            Ok(answer) => answer.vector,
            Err(why) => return self.fail(&format!("{head} err: {why}")),
        };
        let mut expected: Vec<_> = test.expected.iter().map(sample).collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        let is_same = expected.len() == found.len()
            && expected
                .iter()
                .zip(&found)
                .all(|(a, b)| outcome::is_same(a, b, is_fuzzy));
        if !is_same {
            let (expected, found) = (outcome::show_samples(&expected), outcome::show_samples(&found));
            self.fail(&format!("{head}\n        exp: {expected}\n        got: {found}"));
        }
    }
}

fn sample(expected: &ExpectedSample) -> (Labels, SampleValue) {
    let value = match &expected.histogram {
        Some(histogram) => SampleValue::Histogram(histogram.clone()),
        None => SampleValue::Float(expected.value),
    };
    (expected.labels.clone(), value)
}
