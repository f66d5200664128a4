// SPDX-License-Identifier: Apache-2.0

//! The options of `service`, for the reference and the schema.

use std::time::Duration;

use crate::config::{Decode, OptionDoc, TypeHelp, YamlType};
use crate::service::plan::DRAIN_TIMEOUT;
use crate::telemetry::TelemetryConfig;

/// The options of `service`.
pub fn options() -> Vec<OptionDoc> {
    vec![
        option(
            "extensions",
            ids("[admin]"),
            Some("[]"),
            "The extensions to run, in the order of their start.",
        ),
        option(
            "pipelines",
            TypeHelp::plain("map").accepting(YamlType::Map(Box::new(YamlType::Options(pipeline)))),
            Some("{}"),
            "The pipelines, by `signal` or `signal/name`.",
        ),
        option(
            "telemetry",
            TelemetryConfig::type_help(),
            Some("{}"),
            "tidegate's own telemetry.",
        ),
        option(
            "drain_timeout",
            Duration::type_help(),
            Some(&DRAIN_TIMEOUT.show()),
            "The time limit for a stop to deliver all held data.",
        ),
    ]
}

/// The options of a pipeline.
pub fn pipeline() -> Vec<OptionDoc> {
    vec![
        option(
            "receivers",
            ids("[otlp]"),
            None,
            "The receivers, and the connectors that feed the pipeline.",
        ),
        option(
            "processors",
            ids("[memory_limiter]"),
            Some("[]"),
            "The processors, in the order of the data.",
        ),
        option(
            "exporters",
            ids("[otlphttp]"),
            None,
            "The exporters, and the connectors that the pipeline feeds.",
        ),
    ]
}

/// The text of an option.
pub fn help(options: &[OptionDoc], name: &str) -> String {
    let option = options.iter().find(|option| option.name == name);
    option.map_or_else(String::new, |option| option.help.clone())
}

fn ids(example: &'static str) -> TypeHelp {
    TypeHelp::like("list of component ids", example).accepting(YamlType::List(Box::new(YamlType::Text)))
}

/// `default`: `None` for a required option.
fn option(name: &'static str, type_help: TypeHelp, default: Option<&str>, help: &str) -> OptionDoc {
    OptionDoc {
        name,
        aliases: &[],
        deprecated: &[],
        type_help,
        default: default.map(str::to_owned),
        help: help.to_owned(),
        is_without_effect: false,
    }
}
