// SPDX-License-Identifier: Apache-2.0

//! `PodMonitor` and `ServiceMonitor` objects: a job for each of their endpoints.

use serde_json::{Map, Value, json};

use super::draft::{Draft, Generated, LIMITS, Origin};
use super::fields::{Fields, Mistakes};
use super::rules::{constant, first, keep, rename, rename_if_set, running, sanitised};
use super::values::Values;
use crate::config::operator::EndpointsRole;

/// The most endpoints of an object.
const MAX_ENDPOINTS: usize = 1000;

/// Fields of an endpoint with the same meaning in jobs.
const ENDPOINT: &[(&str, &str)] = &[
    ("interval", "scrape_interval"),
    ("scrapeTimeout", "scrape_timeout"),
    ("path", "metrics_path"),
    ("params", "params"),
    ("honorLabels", "honor_labels"),
    ("honorTimestamps", "honor_timestamps"),
    ("trackTimestampsStaleness", "track_timestamps_staleness"),
];

/// What a monitor selects.
#[derive(Clone, Copy)]
enum Selected {
    Pods,
    Services(EndpointsRole),
}

impl Selected {
    /// The word for its labels.
    fn object(self) -> &'static str {
        match self {
            Self::Pods => "pod",
            Self::Services(_) => "service",
        }
    }

    fn role(self) -> &'static str {
        match self {
            Self::Pods => "pod",
            Self::Services(role) => role.role(),
        }
    }
}

/// The jobs of a `PodMonitor`.
pub(super) fn of_pods(origin: &Origin<'_>, spec: &Value, values: &mut Values, to: &mut Generated) {
    jobs(origin, spec, Selected::Pods, "podMetricsEndpoints", values, to);
}

/// The jobs of a `ServiceMonitor`.
pub(super) fn of_services(
    origin: &Origin<'_>,
    spec: &Value,
    role: EndpointsRole,
    values: &mut Values,
    to: &mut Generated,
) {
    let role = match spec["serviceDiscoveryRole"].as_str() {
        Some("Endpoints") => EndpointsRole::Endpoints,
        Some("EndpointSlice") => EndpointsRole::EndpointSlice,
        _ => role,
    };
    jobs(origin, spec, Selected::Services(role), "endpoints", values, to);
}

fn jobs(
    origin: &Origin<'_>,
    spec: &Value,
    selected: Selected,
    key: &str,
    values: &mut Values,
    to: &mut Generated,
) {
    let mut rest = spec.clone();
    let endpoints = rest.as_object_mut().and_then(|fields| fields.remove(key));
    let endpoints = match endpoints {
        Some(Value::Array(endpoints)) => endpoints,
        _ => Vec::new(),
    };
    if endpoints.is_empty() {
        to.note(&format!("{origin}: {key} has no endpoint, so there is no job"));
    }
    if endpoints.len() > MAX_ENDPOINTS {
        to.note(&format!(
            "{origin}: {key} has more than {MAX_ENDPOINTS} endpoints; the others are skipped"
        ));
    }
    let mut unused = Vec::new();
    for (index, endpoint) in endpoints.into_iter().take(MAX_ENDPOINTS).enumerate() {
        let mut draft = Draft::new(origin, &format!("/{index}"), values);
        let mut fields = Fields::of("", rest.clone(), &mut draft.mistakes);
        let endpoint = Fields::of(&format!("{key}[{index}]"), endpoint, &mut draft.mistakes);
        job(&mut draft, &mut fields, endpoint, selected);
        unused = fields.rest();
        draft.finish(to);
    }
    // Once for all endpoints.
    to.note_ignored(origin, &unused);
}

fn job(draft: &mut Draft<'_>, fields: &mut Fields, mut endpoint: Fields, selected: Selected) {
    draft.copy(&mut endpoint, ENDPOINT);
    draft.lowercase(&mut endpoint, "scheme", "scheme");
    let client = draft.client(&mut endpoint);
    draft.options.extend(client);
    draft.copy(fields, LIMITS);
    discovery(draft, fields, selected);
    // The rules keep the same objects with either mechanism.
    fields.take("selectorMechanism");
    fields.take("serviceDiscoveryRole");
    if fields.take("scrapeClass").is_some() {
        draft.mistakes.push("scrapeClass is not supported".to_owned());
    }
    let rules = match selected {
        Selected::Pods => pod_rules(draft, fields, &mut endpoint),
        Selected::Services(role) => service_rules(draft, fields, &mut endpoint, role),
    };
    draft.set("relabel_configs", Value::Array(rules));
    let metric_rules = draft.own_rules(&mut endpoint, "metricRelabelings");
    if !metric_rules.is_empty() {
        draft.set("metric_relabel_configs", Value::Array(metric_rules));
    }
    draft.ignore(&endpoint);
}

/// The discovery in the namespaces of the object, which are its own by default.
fn discovery(draft: &mut Draft<'_>, fields: &mut Fields, selected: Selected) {
    let mut discovery = Map::new();
    discovery.insert("role".to_owned(), json!(selected.role()));
    let selector = fields.part("namespaceSelector", &mut draft.mistakes);
    let (mut is_any, mut names) = (false, Vec::new());
    if let Some(mut selector) = selector {
        is_any = selector.flag("any", &mut draft.mistakes) == Some(true);
        names = selector.texts("matchNames", &mut draft.mistakes);
        draft.ignore(&selector);
    }
    if names.is_empty() {
        names.push(draft.origin.namespace.to_owned());
    }
    if !is_any {
        discovery.insert("namespaces".to_owned(), json!({"names": names}));
    }
    if let Some(mut attach) = fields.part("attachMetadata", &mut draft.mistakes) {
        let mut attached = Map::new();
        for key in ["node", "namespace"] {
            let flag = attach.flag(key, &mut draft.mistakes);
            flag.map(|flag| attached.insert(key.to_owned(), json!(flag)));
        }
        draft.ignore(&attach);
        discovery.insert("attach_metadata".to_owned(), Value::Object(attached));
    }
    draft.set("kubernetes_sd_configs", json!([discovery]));
}

/// The port of an endpoint.
struct Port {
    /// The rule that keeps the targets with it.
    rule: Option<Value>,
    /// Its name or number, for the label `endpoint`.
    label: Option<String>,
}

/// The port by `port`, `portNumber` or `targetPort`, in this order. `named` is the label with the names of ports.
fn port(endpoint: &mut Fields, named: &str, mistakes: &mut Mistakes) -> Port {
    const NAME: &str = "__meta_kubernetes_pod_container_port_name";
    const NUMBER: &str = "__meta_kubernetes_pod_container_port_number";
    let name = endpoint.text("port", mistakes);
    let number = endpoint.take("portNumber");
    let target = endpoint.take("targetPort");
    let (label, value) = match (name, number, target) {
        (Some(name), _, _) => (named, name),
        (None, Some(number), _) => (NUMBER, number.to_string()),
        (None, None, Some(Value::String(name))) => (NAME, name),
        (None, None, Some(number)) => (NUMBER, number.to_string()),
        (None, None, None) => {
            return Port {
                rule: None,
                label: None,
            };
        }
    };
    let is_zero = label == NUMBER && value == "0";
    Port {
        rule: (!is_zero).then(|| keep(label, &value)),
        label: Some(value),
    }
}

fn pod_rules(draft: &mut Draft<'_>, fields: &mut Fields, endpoint: &mut Fields) -> Vec<Value> {
    let mut rules = first();
    if endpoint.flag("filterRunning", &mut draft.mistakes) != Some(false) {
        rules.push(running());
    }
    let selector = fields.part("selector", &mut draft.mistakes);
    draft.selector(selector, Selected::Pods.object(), &mut rules);
    let named = "__meta_kubernetes_pod_container_port_name";
    let port = port(endpoint, named, &mut draft.mistakes);
    rules.extend(port.rule);
    rules.extend([
        rename("__meta_kubernetes_namespace", "namespace"),
        rename("__meta_kubernetes_pod_container_name", "container"),
        rename("__meta_kubernetes_pod_name", "pod"),
    ]);
    rules.extend(target_labels(draft, fields, "podTargetLabels", "pod"));
    rules.push(constant(
        "job",
        &format!("{}/{}", draft.origin.namespace, draft.origin.name),
    ));
    rules.extend(job_label(draft, fields, "pod"));
    rules.extend(port.label.map(|label| constant("endpoint", &label)));
    rules.extend(draft.own_rules(endpoint, "relabelings"));
    rules
}

fn service_rules(
    draft: &mut Draft<'_>,
    fields: &mut Fields,
    endpoint: &mut Fields,
    role: EndpointsRole,
) -> Vec<Value> {
    let prefix = match role {
        EndpointsRole::Endpoints => "__meta_kubernetes_endpoint",
        EndpointsRole::EndpointSlice => "__meta_kubernetes_endpointslice",
    };
    let mut rules = first();
    let selector = fields.part("selector", &mut draft.mistakes);
    draft.selector(selector, Selected::Services(role).object(), &mut rules);
    let port = port(endpoint, &format!("{prefix}_port_name"), &mut draft.mistakes);
    rules.extend(port.rule);
    let of_kind = |kind: &str, target: &str| {
        json!({
            "source_labels": [format!("{prefix}_address_target_kind"), format!("{prefix}_address_target_name")],
            "separator": ";",
            "regex": format!("{kind};(.*)"),
            "replacement": "${1}",
            "target_label": target,
        })
    };
    rules.extend([
        of_kind("Node", "node"),
        of_kind("Pod", "pod"),
        rename("__meta_kubernetes_namespace", "namespace"),
        rename("__meta_kubernetes_service_name", "service"),
        rename("__meta_kubernetes_pod_name", "pod"),
        rename("__meta_kubernetes_pod_container_name", "container"),
    ]);
    if endpoint.flag("filterRunning", &mut draft.mistakes) != Some(false) {
        rules.push(running());
    }
    rules.extend(target_labels(draft, fields, "targetLabels", "service"));
    rules.extend(target_labels(draft, fields, "podTargetLabels", "pod"));
    rules.push(json!({
        "source_labels": ["__meta_kubernetes_service_name"],
        "target_label": "job",
        "replacement": "${1}",
    }));
    rules.extend(job_label(draft, fields, "service"));
    rules.extend(port.label.map(|label| constant("endpoint", &label)));
    rules.extend(draft.own_rules(endpoint, "relabelings"));
    rules
}

/// Labels of the selected objects that targets have too.
fn target_labels(draft: &mut Draft<'_>, fields: &mut Fields, key: &str, object: &str) -> Vec<Value> {
    let names = fields.texts(key, &mut draft.mistakes);
    let rule = |name: &String| {
        let name = sanitised(name);
        rename_if_set(&format!("__meta_kubernetes_{object}_label_{name}"), &name)
    };
    names.iter().map(rule).collect()
}

/// The label whose value is the job of a target.
fn job_label(draft: &mut Draft<'_>, fields: &mut Fields, object: &str) -> Option<Value> {
    let name = fields.text("jobLabel", &mut draft.mistakes)?;
    let label = format!("__meta_kubernetes_{object}_label_{}", sanitised(&name));
    Some(rename_if_set(&label, "job"))
}
