// SPDX-License-Identifier: Apache-2.0

//! `config schema`: a JSON Schema of the configuration, made from the tables of options that the reader uses.

mod values;

use std::collections::HashMap;
use std::iter::once;
use std::time::Duration;

use serde_json::{Map, Value, json};

use self::values::{AcceptedValues, REFERENCE, json_of};
use crate::batch::Signal;
use crate::built::VERSION;
use crate::commands::Failure;
use crate::commands::components::{self, About, service};
use crate::config::{Class, Decode, OptionDoc, REDACTED, YamlType};
use crate::print_line;
use crate::service::plan::DRAIN_TIMEOUT;
use crate::telemetry::TelemetryConfig;

/// The draft of JSON Schema.
const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The keywords of a schema.
type Keywords = Map<String, Value>;

/// Prints the schema.
///
/// # Errors
/// None.
pub(super) fn run() -> Result<(), Failure> {
    print_line!("{:#}", schema());
    Ok(())
}

/// The schema of the whole configuration.
///
/// No section is required, because several files may form one configuration. The schema has no title, because editors would
/// show it above the text of each option.
fn schema() -> Value {
    let components = components::all();
    let mut definitions = Definitions::default();
    let mut properties = Keywords::new();
    for class in Class::ALL {
        let section = definitions.section(class, &components);
        properties.insert(class.section().to_owned(), section.into());
    }
    let service = definitions.service(&components);
    properties.insert("service".to_owned(), service.into());
    json!({
        "$schema": DRAFT,
        "description": format!("Configuration of tidegate {VERSION}"),
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        "$defs": definitions.by_name,
    })
}

/// The schemas of tables of options. Tables that several components use are kept once.
#[derive(Default)]
struct Definitions {
    by_name: Keywords,
    names: HashMap<String, String>,
}

impl Definitions {
    /// A reference to a schema. An equal schema that has another name already keeps that name.
    fn reference(&mut self, name: &str, schema: Keywords) -> Keywords {
        let schema = Value::Object(schema);
        let known = self.names.entry(schema.to_string());
        let name = known.or_insert_with(|| name.to_owned()).clone();
        let target = format!("#/$defs/{name}");
        self.by_name.insert(name, schema);
        once(("$ref".to_owned(), target.into())).collect()
    }

    /// The schema of a section of components.
    fn section(&mut self, class: Class, components: &[About]) -> Keywords {
        let mut kinds = Vec::new();
        for about in components.iter().filter(|about| about.class == class) {
            let name = format!("{}.{}", class.section(), about.kind);
            let mut accepted = AcceptedValues::default();
            accepted.add_table(&(about.config.docs)(), self, &name);
            let mut schema = accepted.keywords();
            describe(&mut schema, about.help);
            let schema = self.reference(&name, schema);
            kinds.extend(spellings(about).map(|kind| (kind, schema.clone())));
        }
        let mut section = named(&kinds);
        describe(&mut section, &format!("The {class}s, by `type` or `type/name`."));
        section
    }

    /// The schema of `service`.
    fn service(&mut self, components: &[About]) -> Keywords {
        let signals = Signal::ALL.map(|signal| (signal.name(), pipeline(signal, components)));
        let mut pipelines = named(&signals);
        // The reader ignores pipelines of profiles, with a warning.
        if let Some(Value::Object(patterns)) = pipelines.get_mut("patternProperties") {
            patterns.insert(pattern_of("profiles"), json!({}));
        }
        let options = service::options();
        let help = |name: &str| service::help(&options, name);
        describe(&mut pipelines, &help("pipelines"));
        let mut extensions = ids(&kinds(components, &[Class::Extension], None), 0);
        describe(&mut extensions, &help("extensions"));
        let mut telemetry = self.value(&TelemetryConfig::type_help().accepts, true, "service.telemetry");
        describe(&mut telemetry, &help("telemetry"));
        let mut drain_timeout = self.value(&Duration::type_help().accepts, true, "");
        describe(&mut drain_timeout, &help("drain_timeout"));
        drain_timeout.insert("default".to_owned(), DRAIN_TIMEOUT.show().into());
        let properties = [
            ("extensions", extensions),
            ("pipelines", pipelines),
            ("telemetry", telemetry),
            ("drain_timeout", drain_timeout),
        ];
        let mut service = map_of(properties, Keywords::new());
        describe(&mut service, "The components that run, and their connections.");
        service
    }

    /// The schema of an option. `path` is that of its table.
    fn option(&mut self, option: &OptionDoc, path: &str) -> Keywords {
        let path = format!("{path}.{}", option.name);
        let help = &option.type_help;
        let mut schema = self.value(&help.accepts, option.default.is_some(), &path);
        if schema.contains_key("pattern") {
            // An extension of JSON Schema, which editors show instead of the pattern.
            let message = format!("expected {}", help.with_article());
            schema.insert("patternErrorMessage".to_owned(), message.into());
        }
        let description = match (option.is_without_effect, help.example) {
            (true, _) => format!("Accepted without effect: {}.", option.help),
            (false, "") => format!("{} Type: {}.", option.help, help.name),
            (false, example) => format!("{} Type: {}, such as {example}.", option.help, help.name),
        };
        describe(&mut schema, &description);
        schema.extend(default_of(option).map(|default| ("default".to_owned(), default)));
        schema
    }

    /// The schema of a value. `path` names the table of options in it, if there is one.
    fn value(&mut self, accepts: &YamlType, is_nullable: bool, path: &str) -> Keywords {
        let mut accepted = AcceptedValues::default();
        accepted.add(accepts, self, path);
        if is_nullable {
            accepted.types.insert("null");
        }
        let schema = accepted.keywords();
        match accepts {
            YamlType::Options(_) | YamlType::Table(_) => self.reference(path, schema),
            _ => schema,
        }
    }
}

fn describe(schema: &mut Keywords, description: &str) {
    schema.insert("description".to_owned(), description.into());
}

/// A map with these keys and patterns of keys, and no others. It may be null.
fn map_of<K: Into<String>>(
    properties: impl IntoIterator<Item = (K, Keywords)>,
    patterns: Keywords,
) -> Keywords {
    let properties = properties.into_iter();
    let properties: Keywords = properties
        .map(|(key, schema)| (key.into(), schema.into()))
        .collect();
    let mut accepted = AcceptedValues::of_types(["object", "null"]);
    accepted
        .contents
        .insert("properties".to_owned(), properties.into());
    if !patterns.is_empty() {
        accepted
            .contents
            .insert("patternProperties".to_owned(), patterns.into());
    }
    accepted
        .contents
        .insert("additionalProperties".to_owned(), false.into());
    accepted.keywords()
}

/// A map by `kind` and `kind/name`. Editors complete the keys of `properties`, not those of patterns.
fn named(kinds: &[(&str, Keywords)]) -> Keywords {
    let patterns = kinds
        .iter()
        .map(|(kind, schema)| (pattern_of(kind), schema.clone().into()));
    let patterns: Keywords = patterns.collect();
    map_of(kinds.iter().cloned(), patterns)
}

fn pattern_of(kind: &str) -> String {
    format!("^{kind}(/.*)?$")
}

fn spellings(about: &About) -> impl Iterator<Item = &'static str> + use<> {
    once(about.kind).chain(about.aliases.iter().copied())
}

/// The type names of some classes that handle a signal.
fn kinds(components: &[About], classes: &[Class], signal: Option<Signal>) -> Vec<&'static str> {
    let handles = |about: &About| {
        signal.is_none_or(|signal| about.signals.iter().any(|(handled, _)| *handled == signal))
    };
    let found = components
        .iter()
        .filter(|about| classes.contains(&about.class) && handles(about));
    found.flat_map(spellings).collect()
}

/// The schema of a pipeline.
fn pipeline(signal: Signal, components: &[About]) -> Keywords {
    use Class::{Connector, Exporter, Processor, Receiver};
    let parts: [(&[Class], usize); 3] = [
        (&[Receiver, Connector], 1),
        (&[Processor], 0),
        (&[Exporter, Connector], 1),
    ];
    let options = service::pipeline();
    let parts = parts.map(|(classes, least)| {
        let mut list = ids(&kinds(components, classes, Some(signal)), least);
        let name = classes[0].section();
        describe(&mut list, &service::help(&options, name));
        (name, list)
    });
    let mut pipeline = map_of(parts, Keywords::new());
    describe(&mut pipeline, &format!("A pipeline of {signal}."));
    pipeline
}

/// The schema of a list of component ids that has at least so many. It may be null if it may be empty.
fn ids(kinds: &[&str], least: usize) -> Keywords {
    let with_name = format!("^(?:{})/.|{REFERENCE}", kinds.join("|"));
    let item = json!({"anyOf": [{"enum": kinds}, {"type": "string", "pattern": with_name}]});
    let mut accepted = AcceptedValues::of_types(["array"]);
    accepted.contents.insert("items".to_owned(), item);
    if least == 0 {
        accepted.types.insert("null");
    } else {
        accepted.contents.insert("minItems".to_owned(), least.into());
    }
    accepted.keywords()
}

/// The default of an option, where it is a plain value or a list. The options of a map have their own.
fn default_of(option: &OptionDoc) -> Option<Value> {
    let text = option.default.as_deref()?;
    if text == "unset" || text.is_empty() || text.contains(REDACTED) {
        return None;
    }
    // `[::]:4317` is a text without quotes in the table, but not in YAML.
    let is_text = matches!(option.type_help.accepts, YamlType::Text | YamlType::Scalar);
    let value = match json_of(text) {
        Some(Value::Array(_) | Value::Object(_) | Value::Null) | None if is_text => Some(Value::from(text)),
        value => value,
    };
    value.filter(|value| !value.is_object() && !value.is_null())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::commands::load::Kinds;
    use crate::config::{Loader, TypeHelp};

    fn keys(schema: &Value) -> Vec<&str> {
        let properties = schema["properties"].as_object().unwrap();
        properties.keys().map(String::as_str).collect()
    }

    /// The keys that the reader knows where a text has an unknown one.
    fn known_keys(text: &str) -> Vec<String> {
        let loaded = Loader::default().text("a.yaml", text).load(&Kinds);
        let problems = loaded.problems.sorted();
        let mut helps = problems.iter().filter_map(|problem| problem.help.as_deref());
        let known = helps.find_map(|help| help.strip_prefix("known keys: "));
        known.unwrap().split(", ").map(str::to_owned).collect()
    }

    #[test]
    fn sections_of_the_schema_are_those_of_the_reader() {
        let schema = schema();
        assert_eq!(keys(&schema), known_keys("zzzzzz: 1"));
        let service = &schema["properties"]["service"];
        assert_eq!(keys(service), known_keys("service: {zzzzzz: 1}"));
        let pipelines = &service["properties"]["pipelines"];
        for signal in Signal::ALL {
            let pipeline = &pipelines["patternProperties"][format!("^{signal}(/.*)?$")];
            let text = format!("service: {{pipelines: {{{signal}: {{zzzzzz: 1}}}}}}");
            assert_eq!(keys(pipeline), known_keys(&text));
        }
    }

    /// The table of options at or below a schema.
    fn table<'a>(root: &'a Value, mut schema: &'a Value) -> &'a Value {
        while schema.get("properties").is_none() {
            assert!(schema.is_object(), "no table");
            schema = match (schema["$ref"].as_str(), schema.get("items")) {
                (Some(target), _) => root.pointer(target.trim_start_matches('#')).unwrap(),
                (None, Some(items)) => items,
                (None, None) => &schema["additionalProperties"],
            };
        }
        schema
    }

    fn has_all(root: &Value, schema: &Value, options: &[OptionDoc]) {
        let schema = table(root, schema);
        assert_eq!(schema["additionalProperties"], false);
        for option in options {
            for name in once(&option.name).chain(option.aliases).chain(option.deprecated) {
                let property = &schema["properties"][*name];
                assert!(property["description"].is_string(), "{name}");
                let nested = option.nested();
                if !nested.is_empty() {
                    has_all(root, property, &nested);
                }
            }
        }
    }

    #[test]
    fn all_components_and_options_are_in_the_schema() {
        let schema = schema();
        for about in components::all() {
            for kind in spellings(&about) {
                let section = &schema["properties"][about.class.section()];
                let component = &section["patternProperties"][format!("^{kind}(/.*)?$")];
                assert_eq!(section["properties"][kind], *component);
                has_all(&schema, component, &(about.config.docs)());
            }
        }
        let telemetry = &schema["properties"]["service"]["properties"]["telemetry"];
        has_all(&schema, telemetry, &TelemetryConfig::options());
    }

    #[test]
    fn a_table_has_the_defaults_of_the_option_that_holds_it() {
        let schema = schema();
        let mut table_of_path = &schema["properties"]["processors"]["properties"]["composite"];
        for key in ["composites", "thresholds", "webhook", "sending_queue"] {
            table_of_path = &table(&schema, table_of_path)["properties"][key];
        }
        let queue = &table(&schema, table_of_path)["properties"];
        assert_eq!(queue["num_consumers"]["default"], 1);
        assert_eq!(queue["queue_size"]["default"], 1000);
    }

    fn untyped(options: &[OptionDoc], names: &mut BTreeSet<String>) {
        for option in options.iter().filter(|option| !option.is_without_effect) {
            if matches!(option.type_help.accepts, YamlType::Any) {
                names.insert(option.type_help.name.clone());
            }
            untyped(&option.nested(), names);
        }
    }

    #[test]
    fn only_these_types_of_options_accept_every_value() {
        let mut names = BTreeSet::new();
        for about in components::all() {
            untyped(&(about.config.docs)(), &mut names);
        }
        untyped(&TelemetryConfig::options(), &mut names);
        assert_eq!(Vec::from_iter(names), ["anything", "text, map or list"]);
    }

    #[test]
    fn equal_tables_are_one_definition() {
        let mut definitions = Definitions::default();
        let schema: Keywords = once(("type".to_owned(), json!("object"))).collect();
        let first = definitions.reference("a", schema.clone());
        assert_eq!(definitions.reference("b", schema), first);
        assert_eq!(Value::from(first), json!({"$ref": "#/$defs/a"}));
        assert_eq!(definitions.by_name.len(), 1);
    }

    #[test]
    fn defaults_are_values_of_yaml_and_never_secrets() {
        let default = |text: &str, type_help: TypeHelp| {
            default_of(&OptionDoc {
                name: "a",
                aliases: &[],
                deprecated: &[],
                type_help,
                default: Some(text.to_owned()),
                help: String::new(),
                is_without_effect: false,
            })
        };
        for (text, expected) in [
            ("localhost:4317", Some(json!("localhost:4317"))),
            ("[::]:4317", Some(json!("[::]:4317"))),
            ("\"0660\"", Some(json!("0660"))),
            ("\"\"", Some(json!(""))),
            ("unset", None),
            (REDACTED, None),
        ] {
            assert_eq!(default(text, String::type_help()), expected, "{text}");
        }
        assert_eq!(default("1000", u16::type_help()), Some(json!(1000)));
        assert_eq!(default("[a]", Vec::<String>::type_help()), Some(json!(["a"])));
        assert_eq!(default("{a: 1}", TypeHelp::plain("map")), None);
    }
}
