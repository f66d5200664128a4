// SPDX-License-Identifier: Apache-2.0

//! `ScrapeConfig` objects: one job each, with the discoveries that the receiver has.

use serde_json::{Map, Value, json};

use super::draft::{Draft, Generated, LIMITS, Origin};
use super::fields::Fields;
use super::rules::{constant, first};
use super::values::Values;

const SAME: &[(&str, &str)] = &[
    ("scrapeInterval", "scrape_interval"),
    ("scrapeTimeout", "scrape_timeout"),
    ("metricsPath", "metrics_path"),
    ("params", "params"),
    ("honorLabels", "honor_labels"),
    ("honorTimestamps", "honor_timestamps"),
    ("trackTimestampsStaleness", "track_timestamps_staleness"),
    ("enableCompression", "enable_compression"),
];

/// The options of a discovery in an object, and its place in jobs.
type Discovery = (
    &'static str,
    &'static str,
    fn(&mut Draft<'_>, &mut Fields) -> Map<String, Value>,
);

const DISCOVERIES: &[Discovery] = &[
    ("staticConfigs", "static_configs", fixed),
    ("fileSDConfigs", "file_sd_configs", files),
    ("httpSDConfigs", "http_sd_configs", service),
    ("dnsSDConfigs", "dns_sd_configs", names),
    ("kubernetesSDConfigs", "kubernetes_sd_configs", kubernetes),
];

/// The job of a `ScrapeConfig`.
pub(super) fn job(origin: &Origin<'_>, spec: &Value, values: &mut Values, to: &mut Generated) {
    let mut draft = Draft::new(origin, "", values);
    let mut fields = Fields::of("", spec.clone(), &mut draft.mistakes);
    draft.copy(&mut fields, SAME);
    draft.copy(&mut fields, LIMITS);
    draft.lowercase(&mut fields, "scheme", "scheme");
    draft.lowercase(
        &mut fields,
        "nameValidationScheme",
        "metric_name_validation_scheme",
    );
    escaping(&mut draft, &mut fields);
    let client = draft.client(&mut fields);
    draft.options.extend(client);
    if fields.take("scrapeClass").is_some() {
        draft.mistakes.push("scrapeClass is not supported".to_owned());
    }
    let mut rules = first();
    let job_name = fields.text("jobName", &mut draft.mistakes);
    rules.extend(job_name.map(|name| constant("job", &name)));
    rules.extend(draft.own_rules(&mut fields, "relabelings"));
    draft.set("relabel_configs", Value::Array(rules));
    let metric_rules = draft.own_rules(&mut fields, "metricRelabelings");
    if !metric_rules.is_empty() {
        draft.set("metric_relabel_configs", Value::Array(metric_rules));
    }
    let mut has_targets = false;
    for (key, option, read) in DISCOVERIES {
        let mut list = Vec::new();
        for mut part in fields.parts(key, &mut draft.mistakes) {
            list.push(Value::Object(read(&mut draft, &mut part)));
            draft.ignore(&part);
        }
        if !list.is_empty() {
            has_targets = true;
            draft.set(option, Value::Array(list));
        }
    }
    draft.ignore(&fields);
    if !has_targets {
        let known: Vec<_> = DISCOVERIES.iter().map(|(key, ..)| *key).collect();
        draft
            .mistakes
            .push(format!("none of {} is set", known.join(", ")));
    }
    draft.finish(to);
}

fn escaping(draft: &mut Draft<'_>, fields: &mut Fields) {
    let Some(name) = fields.text("nameEscapingScheme", &mut draft.mistakes) else {
        return;
    };
    let option = match name.as_str() {
        "AllowUTF8" => "allow-utf-8".to_owned(),
        other => other.to_lowercase(),
    };
    draft.set("metric_name_escaping_scheme", json!(option));
}

fn take_all(fields: &mut Fields, table: &[(&str, &str)], options: &mut Map<String, Value>) {
    for (field, option) in table {
        if let Some(value) = fields.take(field) {
            options.insert((*option).to_owned(), value);
        }
    }
}

fn fixed(_: &mut Draft<'_>, fields: &mut Fields) -> Map<String, Value> {
    let mut options = Map::new();
    take_all(
        fields,
        &[("targets", "targets"), ("labels", "labels")],
        &mut options,
    );
    options
}

fn files(draft: &mut Draft<'_>, fields: &mut Fields) -> Map<String, Value> {
    let mut options = Map::new();
    draft.may_name_files(&fields.path("files"));
    let table = [("files", "files"), ("refreshInterval", "refresh_interval")];
    take_all(fields, &table, &mut options);
    options
}

fn service(draft: &mut Draft<'_>, fields: &mut Fields) -> Map<String, Value> {
    let mut options = draft.client(fields);
    let table = [("url", "url"), ("refreshInterval", "refresh_interval")];
    take_all(fields, &table, &mut options);
    options
}

fn names(_: &mut Draft<'_>, fields: &mut Fields) -> Map<String, Value> {
    let mut options = Map::new();
    let table = [
        ("names", "names"),
        ("type", "type"),
        ("port", "port"),
        ("refreshInterval", "refresh_interval"),
    ];
    take_all(fields, &table, &mut options);
    options
}

fn kubernetes(draft: &mut Draft<'_>, fields: &mut Fields) -> Map<String, Value> {
    let mut options = draft.client(fields);
    let role = fields.text("role", &mut draft.mistakes);
    role.map(|role| options.insert("role".to_owned(), json!(role.to_lowercase())));
    let table = [("apiServer", "api_server"), ("attachMetadata", "attach_metadata")];
    take_all(fields, &table, &mut options);
    if let Some(mut part) = fields.part("namespaces", &mut draft.mistakes) {
        let mut namespaces = Map::new();
        let table = [("names", "names"), ("ownNamespace", "own_namespace")];
        take_all(&mut part, &table, &mut namespaces);
        draft.ignore(&part);
        options.insert("namespaces".to_owned(), Value::Object(namespaces));
    }
    let mut selectors = Vec::new();
    for mut part in fields.parts("selectors", &mut draft.mistakes) {
        let mut selector = Map::new();
        let role = part.text("role", &mut draft.mistakes).unwrap_or_default();
        selector.insert("role".to_owned(), json!(role.to_lowercase()));
        take_all(
            &mut part,
            &[("label", "label"), ("field", "field")],
            &mut selector,
        );
        draft.ignore(&part);
        selectors.push(Value::Object(selector));
    }
    if !selectors.is_empty() {
        options.insert("selectors".to_owned(), Value::Array(selectors));
    }
    options
}
