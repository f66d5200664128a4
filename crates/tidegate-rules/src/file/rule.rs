// SPDX-License-Identifier: Apache-2.0

//! One rule of a group.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tidegate_config::Node;
use tidegate_promql::Query;

use super::{AlertTerms, FieldReader, MAX_RULES, RuleDefinition, RuleKind};
use crate::template::Template;

/// The fields that only an alert has.
const OF_ALERTS: [&str; 3] = ["annotations", "for", "keep_firing_for"];

/// Reads the rules of a group. Wrong ones are reported and left out.
pub(super) fn read_rules(
    group: &Node,
    labels: &BTreeMap<String, String>,
    fields: &mut FieldReader<'_>,
) -> Vec<RuleDefinition> {
    let mut rules: Vec<RuleDefinition> = Vec::new();
    let mut lines = HashMap::new();
    for node in fields.items(group, "rules") {
        let Some(rule) = read_rule(node, labels, fields) else {
            continue;
        };
        let key = format!("{:?} {}", (&rule.name, &rule.labels, &rule.kind), rule.expr);
        if let Some(line) = lines.insert(key, rule.line) {
            let why = format!(
                "rule {:?} is repeated in the same group: it stands on line {line}",
                rule.name
            );
            fields.problems.at(node).error(why);
        }
        rules.push(rule);
        // The caller reports them.
        if rules.len() > MAX_RULES {
            break;
        }
    }
    rules
}

fn read_rule(
    node: &Node,
    of_group: &BTreeMap<String, String>,
    fields: &mut FieldReader<'_>,
) -> Option<RuleDefinition> {
    const FIELDS: [&str; 7] = [
        "record",
        "alert",
        "expr",
        "labels",
        OF_ALERTS[0],
        OF_ALERTS[1],
        OF_ALERTS[2],
    ];
    fields.known(node, "a rule", &FIELDS);
    let record = fields.text(node, "record").unwrap_or_default();
    let alert = fields.text(node, "alert").unwrap_or_default();
    let is_alert = !alert.is_empty();
    let expr = read_expr(node, fields);
    let mut labels = of_group.clone();
    labels.extend(fields.labels(node, "labels"));
    let kind = if is_alert {
        RuleKind::Alert(read_terms(node, &labels, fields))
    } else {
        RuleKind::Record
    };
    let name = match (record.is_empty(), is_alert) {
        (false, true) => {
            fields
                .problems
                .at(node)
                .error("only one of 'record' and 'alert' must be set");
            return None;
        }
        (true, false) => {
            fields
                .problems
                .at(node)
                .error("one of 'record' or 'alert' must be set");
            return None;
        }
        (true, true) => alert,
        (false, false) => {
            check_record(node, &record, fields);
            record
        }
    };
    Some(RuleDefinition {
        name,
        kind,
        expr: Arc::new(expr?),
        labels: labels.into_iter().collect(),
        line: node.span().line,
    })
}

fn read_expr(node: &Node, fields: &mut FieldReader<'_>) -> Option<Query> {
    let text = fields.text(node, "expr").unwrap_or_default();
    if text.is_empty() {
        fields.problems.at(node).error("field 'expr' must be set in rule");
        return None;
    }
    let parsed = Query::parse(&text);
    let at = fields.problems.at(node.child("expr"));
    parsed
        .map_err(|why| at.error(format!("could not parse expression: {why}")))
        .ok()
}

/// Checks what a recording rule may not have.
fn check_record(node: &Node, name: &str, fields: &mut FieldReader<'_>) {
    if name.contains(['{', '}']) {
        let why = format!("braces present in the recording rule name; should it be in expr?: {name}");
        fields.problems.at(node.child("record")).error(why);
    }
    for field in OF_ALERTS {
        if let Some(value) = node.get(field).filter(|value| !value.is_null()) {
            let why = format!("invalid field '{field}' in recording rule");
            fields.problems.at_key(value).error(why);
        }
    }
}

fn read_terms(node: &Node, labels: &BTreeMap<String, String>, fields: &mut FieldReader<'_>) -> AlertTerms {
    let annotations = fields.map(node, "annotations", |name| {
        name.is_empty().then(|| "invalid annotation name: ".to_owned())
    });
    check_templates(node.child("labels"), "label", labels, fields);
    check_templates(node.child("annotations"), "annotation", &annotations, fields);
    AlertTerms {
        hold: fields.duration(node, "for").unwrap_or_default(),
        keep_firing: fields.duration(node, "keep_firing_for").unwrap_or_default(),
        annotations: annotations.into_iter().collect(),
    }
}

fn check_templates(node: &Node, kind: &str, texts: &BTreeMap<String, String>, fields: &mut FieldReader<'_>) {
    for (name, text) in texts {
        if let Err(why) = Template::parse(text) {
            let message = format!("{kind} {name:?}: {why}");
            fields.problems.at(node.child(name)).error(message);
        }
    }
}
