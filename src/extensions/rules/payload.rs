// SPDX-License-Identifier: Apache-2.0

//! An alert as the API v2 of Alertmanagers takes it.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use tidegate_promql::{Labels, Millis};
use tidegate_rules::{ActiveAlert, RuleDefinition};

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
