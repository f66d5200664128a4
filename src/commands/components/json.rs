// SPDX-License-Identifier: Apache-2.0

//! `components --json`: the components and `service`, with all that the reference says of them.

use serde_json::{Map, Value, json};

use super::{About, drop_reasons, examples, service};
use crate::built::VERSION;
use crate::component::ErrorDoc;
use crate::config::{Class, Node, OptionDoc, REDACTED, YamlType};
use crate::exporters;
use crate::extensions::admin;
use crate::telemetry::{self, OwnMetric};

/// Components, the options of `service`, the gateway's own metrics, and the paths of the HTTP API.
pub(super) fn document(components: &[About]) -> Value {
    let examples = examples::root();
    let own_metrics = telemetry::own_metrics();
    let components: Vec<_> = components
        .iter()
        .map(|about| component(about, examples.as_ref(), &own_metrics))
        .collect();
    let api: Vec<_> = admin::api_pages().iter().map(api_page).collect();
    let own_metrics: Vec<_> = own_metrics.iter().map(own_metric).collect();
    let mut of_service = Vec::new();
    add_options("", &service::options(), None, &mut of_service);
    json!({
        "version": VERSION,
        "components": components,
        "service": {"options": of_service},
        "own_metrics": own_metrics,
        "http_api": api,
    })
}

fn component(about: &About, examples: Option<&Node>, own_metrics: &[OwnMetric]) -> Value {
    let (class, kind) = (about.class, about.kind);
    let example = examples.and_then(|root| root.get(class.section())?.get(kind));
    let options = (about.config.docs)();
    let stability: Map<_, _> = about
        .levels()
        .map(|(of, level)| (of.to_owned(), level.into()))
        .collect();
    let metrics: Vec<_> = own_metrics
        .iter()
        .filter(|metric| metric.is_of(class, kind))
        .map(|metric| metric.name)
        .collect();
    let reasons: Vec<_> = drop_reasons::of(class, kind)
        .into_iter()
        .map(|reason| json!({"reason": reason.name(), "description": reason.help()}))
        .collect();
    let errors: Vec<_> = about.errors.concat().iter().map(error).collect();
    let vendors = exporters::vendor::describe(&options);
    let mut rows = Vec::new();
    add_options("", &options, example, &mut rows);
    json!({
        "class": class.as_str(),
        "type": kind,
        "aliases": about.aliases,
        "description": about.help,
        "stability": stability,
        "example": examples::text_of(class, kind),
        "options": rows,
        "vendors": vendors,
        "own_metrics": metrics,
        "drop_reasons": reasons,
        "errors": errors,
    })
}

fn error(error: &ErrorDoc) -> Value {
    let given = |text: &'static str| (!text.is_empty()).then_some(text);
    json!({
        "case": error.case,
        "answer": given(error.answer),
        "log": given(error.log),
        "remedy": error.remedy,
    })
}

/// The options of a table and those inside them. `example` is the value of the table in the example.
fn add_options(path: &str, options: &[OptionDoc], example: Option<&Node>, rows: &mut Vec<Value>) {
    for option in options {
        let path = match path {
            "" => option.name.to_owned(),
            path => format!("{path}::{}", option.name),
        };
        let example = example.and_then(|table| table.get(option.name));
        let help = &option.type_help;
        rows.push(json!({
            "path": path,
            "type": help.name,
            "default": option.default,
            "is_required": option.default.is_none(),
            "allowed": words(&help.accepts),
            "example": example_of(option, example),
            "description": option.help,
            "aliases": option.aliases,
            "deprecated": option.deprecated,
            "is_without_effect": option.is_without_effect,
        }));
        let inside = path_inside(&path, &help.accepts);
        add_options(&inside, &option.nested(), example.map(first), rows);
    }
}

/// The path of the options inside a value: `[]` stands for an item of a list, `NAME` for a key of a map.
fn path_inside(path: &str, accepts: &YamlType) -> String {
    match accepts {
        YamlType::List(item) => path_inside(&format!("{path}[]"), item),
        YamlType::Map(value) => path_inside(&format!("{path}::NAME"), value),
        YamlType::AnyOf(types) => {
            let with_options = types.iter().find(|one| one.options().is_some());
            with_options.map_or_else(|| path.to_owned(), |one| path_inside(path, one))
        }
        _ => path.to_owned(),
    }
}

/// The words that a value takes; none if it takes others.
fn words(accepts: &YamlType) -> Vec<&'static str> {
    match accepts {
        YamlType::Words { current, .. } => current.iter().copied().filter(|word| !word.is_empty()).collect(),
        YamlType::List(inner) | YamlType::Map(inner) => words(inner),
        YamlType::AnyOf(types) => types.iter().flat_map(words).collect(),
        _ => Vec::new(),
    }
}

/// The first item of a list that is a map, or the value itself.
fn first(node: &Node) -> &Node {
    let items = node.as_list().unwrap_or_default();
    items.iter().find(|item| item.as_map().is_some()).unwrap_or(node)
}

/// A value of the option as YAML: that of the example, or else one that the type suggests.
fn example_of(option: &OptionDoc, example: Option<&Node>) -> Option<String> {
    if option.is_without_effect || option.type_help.accepts.options().is_some() {
        return None;
    }
    if let Some(node) = example {
        let text = node.scalar().map(|scalar| scalar.text.clone());
        return Some(text.unwrap_or_else(|| node.to_json().to_string()));
    }
    let default = option.default.as_deref().unwrap_or_default();
    let is_empty = ["", "unset", "[]", "{}", "\"\"", REDACTED].contains(&default);
    if !is_empty {
        return Some(default.to_owned());
    }
    let help = &option.type_help;
    let suggested = match (words(&help.accepts).first(), &help.accepts, help.example) {
        (Some(word), ..) => Some(*word),
        (None, YamlType::Boolean, _) => Some("true"),
        (None, _, "") => None,
        (None, _, example) => example.split(" or ").next(),
    };
    suggested.map(|text| as_item(text, &help.accepts))
}

/// A suggested value of a list as its item, others as they are.
fn as_item(text: &str, accepts: &YamlType) -> String {
    match accepts {
        YamlType::List(_) if !text.starts_with('[') => format!("[{text}]"),
        _ => text.to_owned(),
    }
}

fn own_metric(metric: &OwnMetric) -> Value {
    let of: Vec<_> = Class::ALL
        .into_iter()
        .filter(|class| metric.is_of_class(*class))
        .map(Class::section)
        .collect();
    let kinds = metric.kinds();
    let kinds: Vec<_> = kinds
        .map(|(class, kind)| format!("{}/{kind}", class.section()))
        .collect();
    json!({
        "name": metric.name,
        "kind": metric.kind,
        "unit": metric.unit,
        "level": metric.level,
        "description": metric.help,
        "of_all": of,
        "of": kinds,
    })
}

fn api_page(page: &admin::ApiPage) -> Value {
    json!({"path": page.path, "methods": page.methods, "description": page.about})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::components::all;

    fn option<'a>(component: &'a Value, path: &str) -> &'a Value {
        let options = component["options"].as_array().unwrap();
        options.iter().find(|option| option["path"] == path).unwrap()
    }

    #[test]
    fn the_document_has_options_examples_metrics_and_reasons() {
        let document = document(&all());
        let components = document["components"].as_array().unwrap();
        let of = |class: &str, kind: &str| {
            let mut all = components.iter();
            all.find(|one| one["class"] == class && one["type"] == kind)
                .unwrap()
        };
        let otlphttp = of("exporter", "otlphttp");
        let sizer = option(otlphttp, "sending_queue::sizer");
        assert_eq!(sizer["allowed"], json!(["requests", "items", "bytes"]));
        assert_eq!(sizer["default"], "requests");
        assert_eq!(
            option(otlphttp, "endpoint")["example"],
            "https://otlp.example.com:4318"
        );
        assert_eq!(option(otlphttp, "timeout")["example"], "30s");
        let reasons = otlphttp["drop_reasons"].as_array().unwrap();
        assert!(reasons.iter().any(|reason| reason["reason"] == "queue_full"));
        let metrics = otlphttp["own_metrics"].as_array().unwrap();
        assert!(
            metrics.contains(&json!("otelcol_exporter_sent_spans")),
            "{metrics:?}"
        );
        let refused = |status: &str| {
            let mut errors = of("receiver", "otlp")["errors"].as_array().unwrap().iter();
            errors.any(|error| {
                error["answer"]
                    .as_str()
                    .is_some_and(|answer| answer.contains(status))
            })
        };
        assert!(refused("401") && refused("RESOURCE_EXHAUSTED") && !refused("422"));
        let errors = otlphttp["errors"].as_array().unwrap();
        assert!(
            errors
                .iter()
                .any(|error| error["log"] == "the destination is down")
        );
        let processors = option(&document["service"], "pipelines::NAME::processors");
        assert_eq!(processors["default"], "[]");
        let composite = of("processor", "composite");
        assert_eq!(option(composite, "composites[]::window")["example"], "10s");
        assert_eq!(option(composite, "composites[]::name")["is_required"], true);
        // A webhook has other defaults than an exporter.
        let webhook = "composites[]::thresholds[]::webhook";
        let default = |path: &str| &option(composite, &format!("{webhook}::{path}"))["default"];
        assert_eq!(default("sending_queue::num_consumers"), "1");
        assert_eq!(default("retry_on_failure::initial_interval"), "500ms");
        assert_eq!(option(otlphttp, "sending_queue::num_consumers")["default"], "10");
    }

    #[test]
    fn an_example_has_the_form_of_its_type_and_is_no_masked_secret() {
        let items = YamlType::List(Box::new(YamlType::Text));
        assert_eq!(as_item("a", &items), "[a]");
        assert_eq!(as_item("[a, b]", &items), "[a, b]");
        assert_eq!(as_item("a", &YamlType::Text), "a");
        let document = document(&all());
        let components = document["components"].as_array().unwrap().iter();
        let options = components.flat_map(|component| component["options"].as_array().unwrap());
        let masked: Vec<_> = options.filter(|option| option["example"] == REDACTED).collect();
        assert!(masked.is_empty(), "{masked:?}");
    }

    #[test]
    fn owners_of_metrics_are_components() {
        let known = all();
        for metric in telemetry::own_metrics() {
            for (class, kind) in metric.kinds() {
                let is_known = known
                    .iter()
                    .any(|about| about.class == class && about.kind == kind);
                assert!(is_known, "{}: {class:?} {kind}", metric.name);
            }
        }
    }
}
