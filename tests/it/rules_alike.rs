// SPDX-License-Identifier: Apache-2.0

//! Rules in the patterns of public mixins: `promtool` and `tidegate test` find the same recordings and alerts.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use tidegate::config::{Problems, parse_text};

use super::examples::example_rules;
use super::kit::command::{Finished, finished};
use super::kit::gateway::tidegate;
use super::kit::promtool_test_rules;

/// The end of the name of a file of expectations. Its rules are in the file without `.test`.
const EXPECTATIONS: &str = ".test.yaml";

/// The rules that the data must have at least.
const RULES: usize = 150;

/// Files of rules, each with the file of its expectations.
fn files() -> Vec<(PathBuf, PathBuf)> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/rules");
    let mut found = Vec::new();
    for entry in directory.read_dir().expect("it is there").flatten() {
        let path = entry.path();
        if !path.to_string_lossy().ends_with(EXPECTATIONS) {
            let expectations = path.with_extension("test.yaml");
            found.push((path, expectations));
        }
    }
    found.sort();
    assert!(!found.is_empty(), "{}", directory.display());
    found
}

fn read(file: &Path) -> Value {
    let text = fs::read_to_string(file).expect("a file of the test");
    let mut problems = Problems::default();
    let root = parse_text("data.yaml", &text, &mut problems);
    root.unwrap_or_else(|| panic!("{}: {problems}", file.display()))
        .to_json()
}

/// The items of a list. A list that is not there is empty.
fn items<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// What a file of expectations says of its rules.
#[derive(Default)]
struct Expected {
    /// Recorded series with a value, and alerts that fire.
    names: BTreeSet<String>,
    /// Labels of series of `ALERTS` that are pending.
    pending: Vec<String>,
    /// Alerts that do not fire at a time.
    quiet: BTreeSet<String>,
}

impl Expected {
    fn read(file: &Path) -> Self {
        let root = read(file);
        let mut expected = Self::default();
        for test in items(&root, "tests") {
            for alert in items(test, "alert_rule_test") {
                let fires = !items(alert, "exp_alerts").is_empty();
                let names = if fires {
                    &mut expected.names
                } else {
                    &mut expected.quiet
                };
                names.insert(text(&alert["alertname"]));
            }
            for series in items(test, "promql_expr_test") {
                expected.add_series(series);
            }
        }
        expected
    }

    fn add_series(&mut self, series: &Value) {
        let samples = items(series, "exp_samples");
        let labels = samples.iter().map(|sample| text(&sample["labels"]));
        let is_pending = |labels: &String| labels.contains("alertstate=\"pending\"");
        self.pending.extend(labels.filter(is_pending));
        if !samples.is_empty() {
            // A name in braces and quotes has other characters than PromQL's names.
            let name = text(&series["expr"]);
            let name = name.trim_start_matches("{\"").trim_end_matches("\"}");
            self.names.insert(name.to_owned());
        }
    }

    fn is_pending(&self, alert: &str) -> bool {
        let label = format!("alertname=\"{alert}\"");
        self.pending.iter().any(|labels| labels.contains(&label))
    }
}

/// What `promtool` and `tidegate` say of files of expectations.
fn run(files: &[PathBuf]) -> [Finished; 2] {
    let mut gateway = tidegate();
    [
        finished(promtool_test_rules().args(files)),
        finished(gateway.arg("test").args(files)),
    ]
}

#[test]
fn promtool_and_tidegate_agree_on_rules_in_the_patterns_of_mixins() {
    let files = files().into_iter().map(|(_, expectations)| expectations);
    let files: Vec<PathBuf> = files.chain([example_rules()]).collect();
    for Finished { code, output, errors } in run(&files) {
        assert_eq!(code, Some(0), "{output}{errors}");
    }
}

#[test]
fn each_rule_of_the_data_has_expectations() {
    let mut count = 0;
    for (rules, expectations) in files() {
        let expected = Expected::read(&expectations);
        let rules = read(&rules);
        for rule in items(&rules, "groups")
            .iter()
            .flat_map(|group| items(group, "rules"))
        {
            count += 1;
            let alert = rule["alert"].as_str();
            let name = alert.or_else(|| rule["record"].as_str()).expect("a name");
            assert!(expected.names.contains(name), "{name} has no value");
            let is_constant = rule["expr"] == "vector(1)";
            if let Some(alert) = alert {
                assert!(
                    is_constant || expected.quiet.contains(alert),
                    "{alert} always fires"
                );
                let waits = rule.get("for").is_some();
                assert!(!waits || expected.is_pending(alert), "{alert} is never pending");
            }
        }
    }
    assert!(count >= RULES, "{count} rules");
}

/// The text with another value in its first expected sample, or with one more label of its first expected alert.
fn changed(text: &str, is_value: bool) -> String {
    let (from, to) = if is_value {
        (", value: ", ", value: 4242")
    } else {
        ("exp_labels: {", "exp_labels: {changed: value, ")
    };
    assert!(text.contains(from), "{text}");
    text.replacen(from, to, 1)
}

#[test]
fn a_changed_expectation_fails_in_promtool_and_in_tidegate() {
    let directory = TempDir::new().expect("a temporary directory");
    let mut copies = Vec::new();
    for (at, (rules, expectations)) in files().into_iter().enumerate() {
        let in_directory = |path: &Path| directory.path().join(path.file_name().expect("a file"));
        fs::copy(&rules, in_directory(&rules)).expect("a copy");
        let text = fs::read_to_string(&expectations).expect("a file of the test");
        let copy = in_directory(&expectations);
        fs::write(&copy, changed(&text, at.is_multiple_of(2))).expect("a file in a fresh directory");
        copies.push(copy);
    }
    let [promtool, gateway] = run(&copies);
    let said = promtool.output + &promtool.errors;
    assert_eq!(promtool.code, Some(1), "{said}");
    assert_eq!(said.matches("FAILED:").count(), copies.len(), "{said}");
    let said = gateway.output + &gateway.errors;
    assert_eq!(gateway.code, Some(1), "{said}");
    // Of each file, only the test with the change fails.
    assert_eq!(said.matches("\n  FAIL  ").count(), copies.len(), "{said}");
}
