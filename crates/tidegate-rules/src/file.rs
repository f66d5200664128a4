// SPDX-License-Identifier: Apache-2.0

//! Rule files: groups of recording and alerting rules, as Prometheus 3 reads them.

mod fields;
mod rule;

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_config::{Node, Problems, parse_text};
use tidegate_promql::{Millis, Query};

pub(crate) use fields::FieldReader;

/// The shortest interval of a group, in milliseconds.
pub const MIN_INTERVAL: Millis = 100;

/// The most rules in one file.
const MAX_RULES: usize = 10_000;

/// A rule file.
#[derive(Debug)]
pub struct RuleFile {
    /// Its name, as messages show it.
    pub name: String,
    /// Its groups, in their order.
    pub groups: Vec<Arc<RuleGroup>>,
}

/// Rules that are evaluated one after the other at the same time.
#[derive(Debug)]
pub struct RuleGroup {
    /// The name of its file.
    pub file: String,
    /// Its name, unique in the file.
    pub name: String,
    /// Milliseconds between evaluations; `None`: the default of the caller.
    pub interval: Option<Millis>,
    /// Its queries read so many milliseconds before the time of evaluation; `None`: the default of the caller.
    pub query_offset: Option<Millis>,
    /// The most series or alerts of a rule; 0: no limit.
    pub limit: usize,
    /// Its rules, in their order.
    pub rules: Vec<RuleDefinition>,
}

impl RuleGroup {
    /// For each of its rules, the number of the rule that it succeeds in an earlier version of the group: the first one with the
    /// same kind, name and labels that no other rule succeeds.
    pub fn predecessors(&self, earlier: &Self) -> Vec<Option<usize>> {
        let mut free: Vec<_> = earlier.rules.iter().enumerate().collect();
        let rules = self.rules.iter().map(|rule| {
            let at = free.iter().position(|(_, other)| other.is_like(rule))?;
            Some(free.remove(at).0)
        });
        rules.collect()
    }
}

/// A rule.
#[derive(Clone, Debug)]
pub struct RuleDefinition {
    /// The metric that it records, or the name of its alert.
    pub name: String,
    /// Whether it records or alerts.
    pub kind: RuleKind,
    /// Its expression.
    pub expr: Arc<Query>,
    /// Labels that it sets, those of its group included, by name. Those of an alert are templates.
    pub labels: Vec<(String, String)>,
    /// Its line in the file, from 1.
    pub line: u32,
}

/// The kind of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleKind {
    /// It writes the value of its expression as a metric.
    Record,
    /// It alerts for each series of its expression.
    Alert(AlertTerms),
}

/// The terms of an alert.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertTerms {
    /// `for`: milliseconds until it fires.
    pub hold: Millis,
    /// `keep_firing_for`: milliseconds that it fires on after its series has gone.
    pub keep_firing: Millis,
    /// Annotations, by name. They are templates.
    pub annotations: Vec<(String, String)>,
}

impl RuleDefinition {
    /// The terms of its alert; `None`: it records.
    pub fn alert(&self) -> Option<&AlertTerms> {
        match &self.kind {
            RuleKind::Record => None,
            RuleKind::Alert(terms) => Some(terms),
        }
    }

    /// Whether both have the same kind, name and labels.
    fn is_like(&self, other: &Self) -> bool {
        self.name == other.name
            && self.labels == other.labels
            && self.alert().is_some() == other.alert().is_some()
    }
}

/// Reads a rule file. All that is wrong goes to `problems`, each with its line; `None`: there was an error.
pub fn parse_rules(name: &str, text: &str, problems: &mut Problems) -> Option<RuleFile> {
    let errors = problems.error_count();
    let root = parse_text(name, text, problems);
    let mut groups = Vec::new();
    if let Some(root) = &root {
        groups = read_groups(name, root, problems);
    }
    (problems.error_count() == errors).then(|| RuleFile {
        name: name.to_owned(),
        groups,
    })
}

fn read_groups(file: &str, root: &Node, problems: &mut Problems) -> Vec<Arc<RuleGroup>> {
    let mut fields = FieldReader { problems };
    fields.known(root, "a rule file", &["groups"]);
    let mut names = BTreeSet::new();
    let (mut groups, mut rules) = (Vec::new(), 0);
    for node in fields.items(root, "groups") {
        let group = read_group(file, node, &mut fields);
        rules += group.rules.len();
        if rules > MAX_RULES {
            let why = format!("more than {MAX_RULES} rules in one file");
            fields.problems.at(node).error(why);
            break;
        }
        if !group.name.is_empty() && !names.insert(group.name.clone()) {
            let why = format!("groupname: {:?} is repeated in the same file", group.name);
            fields.problems.at(node.child("name")).error(why);
        }
        groups.push(Arc::new(group));
    }
    groups
}

fn read_group(file: &str, node: &Node, fields: &mut FieldReader<'_>) -> RuleGroup {
    const FIELDS: [&str; 6] = ["name", "interval", "query_offset", "limit", "labels", "rules"];
    fields.known(node, "a group", &FIELDS);
    let name = fields.text(node, "name").unwrap_or_default();
    if name.is_empty() {
        fields.problems.at(node).error("Groupname must not be empty");
    }
    // As in Prometheus, zero is the default.
    let interval = fields
        .duration(node, "interval")
        .filter(|interval| *interval != 0);
    if interval.is_some_and(|interval| interval < MIN_INTERVAL) {
        let why = format!("an interval is {MIN_INTERVAL}ms at least");
        fields.problems.at(node.child("interval")).error(why);
    }
    let query_offset = fields.duration(node, "query_offset");
    let limit = fields.count(node, "limit");
    let labels = fields.labels(node, "labels");
    let rules = rule::read_rules(node, &labels, fields);
    RuleGroup {
        file: file.to_owned(),
        name,
        interval,
        query_offset,
        limit,
        rules,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        let mut problems = Problems::default();
        let file = parse_rules("rules.yaml", text, &mut problems);
        assert_eq!(file.is_none(), problems.has_errors());
        let line = |span: Option<tidegate_config::Span>| span.map_or(0, |span| span.line);
        let sorted = problems.sorted();
        let shown = sorted
            .iter()
            .map(|problem| format!("{}: {}", line(problem.span), problem.message));
        shown.collect()
    }

    #[test]
    fn a_file_has_its_groups_and_rules() {
        let text = include_str!("../tests/data/mixins.yaml");
        let mut problems = Problems::default();
        let file = parse_rules("mixins.yaml", text, &mut problems);
        let file = file.unwrap_or_else(|| panic!("{problems}"));
        assert!(problems.is_empty(), "{problems}");
        let rules: usize = file.groups.iter().map(|group| group.rules.len()).sum();
        assert!(rules >= 30, "{rules}");
        let group = &file.groups[0];
        assert_eq!(group.interval, Some(30_000));
        assert_eq!(group.rules[0].name, "instance:node_cpu_utilisation:rate5m");
        assert_eq!(group.rules[0].line, 7);
    }

    #[test]
    fn an_empty_file_has_no_groups() {
        for text in ["", "# nothing\n", "groups: []\n", "groups:\n"] {
            assert_eq!(messages(text), Vec::<String>::new(), "{text:?}");
        }
    }

    #[test]
    fn all_problems_show_at_once_with_their_lines() {
        let text = "\
groups:
- name: a
  interval: 10ms
  speed: 1
  rules:
  - record: a{b}
    expr: up
  - alert: A
    expr: sum(
  - alert: B
    record: b
    expr: up
  - expr: up
  - record: c
    for: 5m
    expr: up
  - alert: D
    expr: up
    labels: {__name__: x}
    annotations: {summary: '{{ $value'}
- name: a
";
        let found = messages(text);
        let expected = [
            "3: an interval is 100ms at least",
            "4: field speed not found in a group",
            "6: braces present in the recording rule name; should it be in expr?: a{b}",
            "9: could not parse expression: ",
            "10: only one of 'record' and 'alert' must be set",
            "13: one of 'record' or 'alert' must be set",
            "15: invalid field 'for' in recording rule",
            "19: invalid label name: __name__",
            "20: annotation \"summary\": ",
            "21: groupname: \"a\" is repeated in the same file",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found} is not {expected}");
        }
    }

    #[test]
    fn the_same_rule_twice_is_refused_and_a_variant_is_not() {
        let rule = |expr: &str| format!("  - alert: A\n    expr: {expr}\n    labels: {{severity: page}}\n");
        let group = |rules: String| format!("groups:\n- name: a\n  rules:\n{rules}");
        let found = messages(&group(rule("up == 0") + &rule("up == 0")));
        assert_eq!(
            found,
            ["7: rule \"A\" is repeated in the same group: it stands on line 4"]
        );
        assert_eq!(
            messages(&group(rule("up == 0") + &rule("up == 1"))),
            Vec::<String>::new()
        );
    }

    #[test]
    fn labels_of_a_group_go_to_its_rules() {
        let text = "groups:\n- name: a\n  labels: {team: x, tier: 1}\n  rules:\n  - record: r\n    expr: up\n    labels: {team: y}\n";
        let file = parse_rules("a", text, &mut Problems::default()).unwrap();
        let labels = &file.groups[0].rules[0].labels;
        let pairs: Vec<_> = labels.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(pairs, [("team", "y"), ("tier", "1")]);
    }
}
