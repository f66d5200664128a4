// SPDX-License-Identifier: Apache-2.0

//! The relabelling rules of jobs, as the operator makes them.

use serde_json::{Map, Value, json};

use super::draft::Draft;
use super::fields::Fields;

/// The name of a label of Kubernetes in names of Prometheus.
pub(super) fn sanitised(name: &str) -> String {
    let valid = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' {
            c
        } else {
            '_'
        }
    };
    name.chars().map(valid).collect()
}

/// The first rule of each job: relabelling may change the label `job`.
pub(super) fn first() -> Vec<Value> {
    vec![json!({"source_labels": ["job"], "target_label": "__tmp_prometheus_job_name"})]
}

/// Pods that have ended have no targets.
pub(super) fn running() -> Value {
    json!({
        "action": "drop",
        "source_labels": ["__meta_kubernetes_pod_phase"],
        "regex": "(Failed|Succeeded)",
    })
}

pub(super) fn keep(label: &str, regex: &str) -> Value {
    json!({"action": "keep", "source_labels": [label], "regex": regex})
}

pub(super) fn rename(label: &str, target: &str) -> Value {
    json!({"source_labels": [label], "target_label": target})
}

pub(super) fn constant(target: &str, value: &str) -> Value {
    json!({"target_label": target, "replacement": value})
}

/// Sets a label if the source is not empty.
pub(super) fn rename_if_set(label: &str, target: &str) -> Value {
    json!({"source_labels": [label], "target_label": target, "regex": "(.+)", "replacement": "${1}"})
}

impl Draft<'_> {
    /// The rules of a selector. `object` is `pod` or `service`.
    pub(super) fn selector(&mut self, selector: Option<Fields>, object: &str, rules: &mut Vec<Value>) {
        let Some(mut selector) = selector else { return };
        let present = |key: &str| format!("__meta_kubernetes_{object}_labelpresent_{}", sanitised(key));
        let labels = |key: &str| {
            let value = format!("__meta_kubernetes_{object}_label_{}", sanitised(key));
            json!([value, present(key)])
        };
        if let Some(mut exact) = selector.part("matchLabels", &mut self.mistakes) {
            for (key, value) in exact.pairs(&mut self.mistakes) {
                let regex = format!("({value});true");
                rules.push(json!({"action": "keep", "source_labels": labels(&key), "regex": regex}));
            }
        }
        for mut expression in selector.parts("matchExpressions", &mut self.mistakes) {
            let key = expression.text("key", &mut self.mistakes).unwrap_or_default();
            let operator = expression
                .text("operator", &mut self.mistakes)
                .unwrap_or_default();
            let values = expression.texts("values", &mut self.mistakes).join("|");
            let regex = format!("({values});true");
            rules.push(match operator.as_str() {
                "In" => json!({"action": "keep", "source_labels": labels(&key), "regex": regex}),
                "NotIn" => json!({"action": "drop", "source_labels": labels(&key), "regex": regex}),
                "Exists" => keep(&present(&key), "true"),
                "DoesNotExist" => {
                    json!({"action": "drop", "source_labels": [present(&key)], "regex": "true"})
                }
                _ => {
                    let place = expression.path("operator");
                    self.mistakes
                        .push(format!("{place} is not In, NotIn, Exists or DoesNotExist"));
                    continue;
                }
            });
            self.ignore(&expression);
        }
        self.ignore(&selector);
    }

    /// The rules that an object has itself.
    pub(super) fn own_rules(&mut self, fields: &mut Fields, key: &str) -> Vec<Value> {
        const SAME: &[(&str, &str)] = &[
            ("sourceLabels", "source_labels"),
            ("targetLabel", "target_label"),
            ("regex", "regex"),
            ("modulus", "modulus"),
        ];
        // An empty text differs from an absent one.
        const TEXTS: &[&str] = &["separator", "replacement"];
        let mut rules = Vec::new();
        for mut rule in fields.parts(key, &mut self.mistakes) {
            let mut options = Map::new();
            for (field, option) in SAME {
                let value = rule.take(field).filter(|value| *value != json!(0));
                value.map(|value| options.insert((*option).to_owned(), value));
            }
            for field in TEXTS {
                let value = rule.take_given(field);
                value.map(|value| options.insert((*field).to_owned(), value));
            }
            if let Some(action) = rule.text("action", &mut self.mistakes) {
                options.insert("action".to_owned(), json!(action.to_lowercase()));
            }
            self.ignore(&rule);
            rules.push(Value::Object(options));
        }
        rules
    }
}
