// SPDX-License-Identifier: Apache-2.0

//! An alert as the API v2 of Alertmanagers takes it.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use tidegate_promql::{Labels, Millis};
use tidegate_rules::{ActiveAlert, RuleDefinition};

use crate::prom::model::LabelSet;
use crate::prom::relabel::{self, Rule as RelabelRule, Validation};

/// The text of a time.
fn shown(time: Millis) -> String {
    let time = Duration::from_millis(u64::try_from(time).unwrap_or_default());
    humantime::format_rfc3339_millis(UNIX_EPOCH + time).to_string()
}

fn object(labels: &Labels) -> Map<String, Value> {
    let pairs = labels.iter();
    pairs
        .map(|(name, value)| (name.to_string(), Value::from(&**value)))
        .collect()
}

/// The labels of an alert with the external ones. Its own win.
pub(super) fn labelled(alert: &ActiveAlert, external: &Labels) -> Labels {
    let all = external.iter().chain(alert.labels.iter());
    all.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The labels after relabelling. `None`: a rule drops the alert, or no label is left, which an Alertmanager would refuse.
pub(super) fn relabelled(rules: &[RelabelRule], labels: Labels) -> Option<Labels> {
    if rules.is_empty() {
        return Some(labels);
    }
    let pairs = labels.iter();
    let mut set: LabelSet = pairs.map(|(name, value)| (&**name, &**value)).collect();
    let keeps = relabel::apply(rules, Validation::Utf8, &mut set);
    (keeps && !set.is_empty()).then(|| set.iter().collect())
}

/// The JSON of an alert with these labels. `external_url`: where its query shows; empty: nowhere.
pub(super) fn json_of(
    alert: &ActiveAlert,
    labels: &Labels,
    rule: &RuleDefinition,
    external_url: &str,
) -> Bytes {
    let mut body = json!({
        "labels": object(labels),
        "annotations": object(&alert.annotations),
        "startsAt": shown(alert.fired_at.unwrap_or(alert.active_at)),
    });
    if let Some(end) = alert.resolved_at.or(alert.valid_until) {
        body["endsAt"] = shown(end).into();
    }
    if !external_url.is_empty() {
        let expr = rule.expr.to_string();
        let expr = utf8_percent_encode(&expr, NON_ALPHANUMERIC);
        body["generatorURL"] = format!("{external_url}/graph?g0.expr={expr}&g0.tab=1").into();
    }
    body.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::testing::options;
    use crate::extensions::rules::config::RulesConfig;

    #[test]
    fn alerts_are_relabelled_as_in_prometheus() {
        let table = [
            ("", Some("alertname=A,replica=r1,zone=x")),
            ("{action: labeldrop, regex: replica}", Some("alertname=A,zone=x")),
            (
                "{source_labels: [zone], target_label: alertname, replacement: \"in $1\"}",
                Some("alertname=in x,replica=r1,zone=x"),
            ),
            (
                "{action: keep, source_labels: [zone], regex: x|y}",
                Some("alertname=A,replica=r1,zone=x"),
            ),
            (
                "{action: drop, source_labels: [alertname, zone], regex: A;x}",
                None,
            ),
            ("{action: labelkeep, regex: nothing}", None),
        ];
        for (rule, expected) in table {
            let config = options::<RulesConfig>(&format!("{{files: [a], alert_relabel_configs: [{rule}]}}"));
            let labels = Labels::from_iter([("zone", "x"), ("alertname", "A"), ("replica", "r1")]);
            let labels = relabelled(&config.unwrap().alert_relabel_configs, labels);
            let shown = labels.map(|labels| {
                let pairs = labels.iter().map(|(name, value)| format!("{name}={value}"));
                pairs.collect::<Vec<_>>().join(",")
            });
            assert_eq!(shown.as_deref(), expected, "{rule}");
        }
    }
}
