// SPDX-License-Identifier: Apache-2.0

//! Unit tests of rules, as `promtool test rules` runs them.

mod file;
mod histogram;
mod outcome;
mod runner;
mod series;
mod store;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tidegate_config::Problems;

use crate::file::{RuleGroup, parse_rules};
use file::{TestFile, UnitTest};

/// Gives the name and the text of each file of one entry of `rule_files`, which may be a pattern.
///
/// # Errors
/// A file cannot be read.
pub type RuleLoader<'a> = &'a mut dyn FnMut(&str) -> Result<Vec<(String, String)>, String>;

/// The result of a file of unit tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The name of the file.
    pub name: String,
    /// The number of tests that ran.
    pub tests: usize,
    /// What failed, as `promtool` shows it.
    pub failures: Vec<String>,
}

impl Report {
    /// Whether all tests passed.
    pub fn is_success(&self) -> bool {
        self.failures.is_empty()
    }
}

/// The report as `promtool` prints it.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Unit Testing:  {}", self.name)?;
        if self.is_success() {
            return writeln!(f, "  SUCCESS");
        }
        writeln!(f, "  FAILED:")?;
        self.failures
            .iter()
            .try_for_each(|failure| writeln!(f, "{failure}"))
    }
}

/// A file of unit tests with the rules that it names.
pub struct UnitTests {
    file: TestFile,
    groups: Vec<Arc<RuleGroup>>,
}

/// A test of a file.
pub struct UnitCase<'t> {
    /// Its name. Tests without one have their number, from 1 on.
    pub name: String,
    test: &'t UnitTest,
    tests: &'t UnitTests,
}

impl UnitTests {
    /// Reads a file of unit tests, and its rule files.
    ///
    /// # Errors
    /// All that is wrong with the files, as a text.
    pub fn read(name: &str, text: &str, load: RuleLoader<'_>) -> Result<Self, String> {
        let file = file::read(name, text)?;
        let groups = groups(&file, load)?;
        Ok(Self { file, groups })
    }

    /// The tests in their order.
    pub fn cases(&self) -> impl Iterator<Item = UnitCase<'_>> {
        let tests = self.file.tests.iter().enumerate();
        tests.map(|(at, test)| UnitCase {
            name: match test.name.as_str() {
                "" => format!("test {}", at + 1),
                name => name.to_owned(),
            },
            test,
            tests: self,
        })
    }
}

impl UnitCase<'_> {
    /// Runs the test. Returns what failed, as `promtool` shows it.
    pub fn run(&self) -> Vec<String> {
        runner::run(self.test, &self.tests.file, &self.tests.groups)
    }
}

/// Runs a file of unit tests.
pub fn run(name: &str, text: &str, load: RuleLoader<'_>) -> Report {
    let mut report = Report {
        name: name.to_owned(),
        ..Report::default()
    };
    match UnitTests::read(name, text, load) {
        Err(why) => report.failures.push(why),
        Ok(tests) => {
            for case in tests.cases() {
                report.tests += 1;
                report.failures.extend(case.run());
            }
        }
    }
    report
}

/// The groups of all rule files, in the order of their evaluation.
fn groups(file: &TestFile, load: RuleLoader<'_>) -> Result<Vec<Arc<RuleGroup>>, String> {
    let mut problems = Problems::default();
    let mut groups = Vec::new();
    for pattern in &file.rule_files {
        for (name, text) in load(pattern)? {
            let rules = parse_rules(&name, &text, &mut problems);
            groups.extend(rules.into_iter().flat_map(|rules| rules.groups));
        }
    }
    if problems.has_errors() {
        return Err(problems.to_string());
    }
    let mut order = BTreeMap::new();
    for (at, name) in file.order.iter().enumerate() {
        if order.insert(name.as_str(), at).is_some() {
            return Err(format!("group name repeated in evaluation order: {name}"));
        }
    }
    groups.sort_by_key(|group| order.get(group.name.as_str()).copied());
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> Report {
        let mut load = |name: &str| match name {
            "mixins.yaml" => {
                let text = include_str!("../../tests/data/mixins.yaml");
                Ok(vec![(name.to_owned(), text.to_owned())])
            }
            "simple.yaml" => {
                let text = "
groups:
- name: a
  rules:
  - record: doubled
    expr: 2 * load
  - alert: Loaded
    expr: doubled > 10
    for: 2m
    labels: {severity: page}
    annotations: {summary: '{{ $labels.host }} has {{ $value }}'}
";
                Ok(vec![(name.to_owned(), text.to_owned())])
            }
            _ => Err(format!("no file {name}")),
        };
        run("tests.yaml", text, &mut load)
    }

    fn simple(tests: &str) -> Report {
        report(&format!(
            "rule_files: [simple.yaml]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n  - {{series: 'load{{host=\"a\"}}', values: '1+1x20'}}\n{tests}"
        ))
    }

    #[test]
    fn a_test_that_holds_passes() {
        let found = simple(
            "  alert_rule_test:
  - eval_time: 6m
    alertname: Loaded
  - eval_time: 7m
    alertname: Loaded
    exp_alerts:
    - exp_labels: {host: a, severity: page}
      exp_annotations: {summary: a has 16}
  promql_expr_test:
  - expr: doubled
    eval_time: 4m
    exp_samples: [{labels: 'doubled{host=\"a\"}', value: 10}]
  - expr: sum(ALERTS)
    eval_time: 5m
    exp_samples: [{labels: '{}', value: 1}]
  - expr: ALERTS_FOR_STATE
    eval_time: 7m
    exp_samples: [{labels: 'ALERTS_FOR_STATE{alertname=\"Loaded\",host=\"a\",severity=\"page\"}', value: 300}]
",
        );
        assert_eq!(found.failures, Vec::<String>::new());
        assert_eq!(found.to_string(), "Unit Testing:  tests.yaml\n  SUCCESS\n");
    }

    #[test]
    fn a_test_that_does_not_hold_shows_both_sides() {
        let found = simple(
            "  alert_rule_test:
  - eval_time: 7m
    alertname: Loaded
  promql_expr_test:
  - expr: doubled
    eval_time: 4m
    exp_samples: [{labels: 'doubled{host=\"a\"}', value: 11}]
",
        );
        let expected = "    alertname: Loaded, time: 7m, 
        exp:[], 
        got:[
            0:
              Labels:{alertname=\"Loaded\", host=\"a\", severity=\"page\"}
              Annotations:{summary=\"a has 16\"}
            ]
";
        assert_eq!(found.failures[0].trim_end(), expected.trim_end());
        let expected = "    expr: \"doubled\", time: 4m,
        exp: {__name__=\"doubled\", host=\"a\"} 1.1E+01
        got: {__name__=\"doubled\", host=\"a\"} 1E+01";
        assert_eq!(found.failures[1].trim_end(), expected);
        assert!(!found.is_success());
    }

    #[test]
    fn a_near_value_holds_in_a_fuzzy_file_only() {
        let text = |fuzzy: bool| {
            format!(
                "fuzzy_compare: {fuzzy}\ntests:\n- promql_expr_test:\n  - {{expr: 0.1 + 0.2, eval_time: 1m, exp_samples: [{{labels: '{{}}', value: 0.3}}]}}\n"
            )
        };
        assert!(report(&text(true)).is_success());
        assert!(!report(&text(false)).is_success());
    }

    #[test]
    fn the_rules_of_the_test_data_hold() {
        let found = report(include_str!("../../tests/data/mixins_test.yaml"));
        assert!(found.is_success() && found.tests > 0, "{found}");
    }

    #[test]
    fn files_that_are_wrong_are_failures() {
        for text in [
            "",
            "a: [",
            "tests:\n- series: 1\n",
            "rule_files: [none.yaml]\n",
            "rule_files: [simple.yaml]\ngroup_eval_order: [a, a]\n",
        ] {
            assert!(!report(text).is_success(), "{text:?}");
        }
    }
}
