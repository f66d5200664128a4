// SPDX-License-Identifier: Apache-2.0

//! `rule_files` and `alerting` of Prometheus: the `rules` extension, with the extensions that have its credentials.

use super::map_of;
use super::remote_write::{Outputs, extension, tls};
use super::report::Report;
use crate::config::{Entry, Node};

/// Options of `global` about rules: the name in Prometheus and the name here.
const GLOBAL: [(&str, &str); 2] = [
    ("evaluation_interval", "interval"),
    ("rule_query_offset", "query_offset"),
];

/// Moves the rules of a file into a `rules` extension. `false`: the file names no rule files.
pub(super) fn take(root: &mut Node, outputs: &mut Outputs, report: &mut Report) -> bool {
    let files = root.get("rule_files").and_then(Node::as_list);
    if files.is_none_or(<[_]>::is_empty) {
        return false;
    }
    let span = root.span();
    let mut options = Node::empty_map(span);
    if let Some(files) = root.take("rule_files") {
        options.set("files", files);
    }
    if let Some(global) = root.get_mut("global") {
        for (key, name) in GLOBAL {
            if let Some(value) = global.take(key) {
                options.set(name, value);
            }
        }
        if let Some(labels) = global.get("external_labels") {
            options.set("external_labels", labels.clone());
        }
    }
    if let Some(alerting) = root.take("alerting") {
        add_alerting(&alerting, &mut options, outputs, report);
    }
    outputs.add_extension("admin", "", Node::empty_map(span));
    outputs.add_extension("rules", "", options);
    report.note(
        "`admin` keeps the history that the rules read; if it has no room for a rule, `tidegate validate` names the rule",
    );
    true
}

fn add_alerting(alerting: &Node, options: &mut Node, outputs: &mut Outputs, report: &mut Report) {
    let mut alertmanagers = Vec::new();
    for Entry { key, value } in alerting.as_map().unwrap_or_default() {
        match key.as_str() {
            "alert_relabel_configs" => options.set(key, value.clone()),
            "alertmanagers" => {
                for item in value.as_list().unwrap_or_default() {
                    alertmanagers.extend(alertmanagers_of(item, outputs, report));
                }
            }
            _ => report.add(value, format!("not in tidegate: {}", instead(key))),
        }
    }
    if !alertmanagers.is_empty() {
        options.set("alertmanagers", Node::of_items(alertmanagers, alerting.span()));
    }
}

/// The Alertmanagers of an item of `alertmanagers`: one for each address.
fn alertmanagers_of(item: &Node, outputs: &mut Outputs, report: &mut Report) -> Vec<Node> {
    let groups = item.get("static_configs");
    let targets = groups.map_or_else(Vec::new, |groups| static_targets(groups, report));
    let mut scheme = "http";
    let mut common = Node::empty_map(item.span());
    for Entry { key, value } in item.as_map().unwrap_or_default() {
        match key.as_str() {
            "scheme" => scheme = value.as_text().unwrap_or(scheme),
            "api_version" if value.as_text() == Some("v2") => {}
            "path_prefix" | "timeout" | "alert_relabel_configs" => common.set(key, value.clone()),
            "tls_config" => common.set("tls", tls(value, report)),
            "static_configs" => {}
            key => match extension(key, value, report) {
                // Without an address, nothing uses the credentials.
                Some(_) if targets.is_empty() => {}
                Some((kind, options)) => {
                    let id = outputs.add_extension(kind, "alertmanager", options);
                    let id = Node::of_text(&id, value.span());
                    common.set("auth", map_of(value.span(), [("authenticator", id)]));
                }
                None => report.add(value, format!("not in tidegate: {}", instead(key))),
            },
        }
    }
    let targets = targets.into_iter().filter_map(Node::as_text);
    let alertmanagers = targets.map(|target| {
        let endpoint = Node::of_text(&format!("{scheme}://{target}"), item.span());
        let mut alertmanager = map_of(item.span(), [("endpoint", endpoint)]);
        for Entry { key, value } in common.as_map().unwrap_or_default() {
            alertmanager.set(key, value.clone());
        }
        alertmanager
    });
    alertmanagers.collect()
}

/// The addresses of `static_configs`. Reports their labels: in Prometheus, `__scheme__` and others change the address.
fn static_targets<'a>(groups: &'a Node, report: &mut Report) -> Vec<&'a Node> {
    let mut targets = Vec::new();
    for group in groups.as_list().unwrap_or_default() {
        if let Some(labels) = group.get("labels") {
            report.add(labels, format!("not in tidegate: {}", instead("labels")));
        }
        let addresses = group.get("targets").and_then(Node::as_list);
        targets.extend(addresses.unwrap_or_default());
    }
    targets
}

/// The replacement for an option of `alerting`.
fn instead(key: &str) -> &'static str {
    match key {
        "api_version" => "Alertmanagers have the API v2 since version 0.16",
        _ if key.ends_with("_sd_configs") || ["labels", "relabel_configs"].contains(&key) => {
            "name the addresses in `alertmanagers` of the `rules` extension"
        }
        _ => "use the options that `tidegate components rules` lists",
    }
}
