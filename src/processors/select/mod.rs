// SPDX-License-Identifier: Apache-2.0

//! Selection of items: the Collector's `include` and `exclude`.
//!
//! An item must satisfy every configured list: one of the names, a high enough severity, and all of the
//! attributes.

mod matcher;
mod selection;

use regex::Regex;

use super::actions::Plain;
use crate::config::{Decode, Node, Problems, ScalarKind, TypeHelp, WithoutEffect, YamlType, wrong_type};

pub(in crate::processors) use matcher::{Matcher, MeasuredItem, Named, OnWire};
pub(in crate::processors) use selection::IncludeExclude;

crate::choices! {
    /// The comparison of names and values.
    pub enum MatchType {
        /// Equal.
        Strict = "strict",
        /// A regular expression matches a part. Anchor it with `^` and `$` for the whole.
        Regexp = "regexp",
    }
}

crate::options! {
    /// Selects items. An item must satisfy every given list: one of the names, and all attributes.
    pub struct Selector {
        /// Comparison of names and values.
        pub match_type: MatchType = MatchType::Strict,
        /// Values of the resource's `service.name`.
        pub services: Vec<String> = Vec::new(),
        /// Names of metrics.
        pub metric_names: Vec<String> = Vec::new(),
        /// Names of spans.
        pub span_names: Vec<String> = Vec::new(),
        /// Kinds of spans, such as `SPAN_KIND_SERVER`.
        pub span_kinds: Vec<String> = Vec::new(),
        /// Bodies of log records that are strings.
        #[alias = "bodies"]
        pub log_bodies: Vec<String> = Vec::new(),
        /// Severity texts of log records.
        #[alias = "severity_texts"]
        pub log_severity_texts: Vec<String> = Vec::new(),
        /// Lowest severity number of log records.
        #[alias = "severity_number"]
        pub log_severity_number: Option<Severity> = None,
        /// Instrumentation scopes.
        pub libraries: Vec<Library> = Vec::new(),
        /// Attributes of the point, span or log record.
        #[alias = "record_attributes"]
        pub attributes: Vec<Wanted> = Vec::new(),
        /// Attributes of the resource.
        #[alias = "resources"]
        pub resource_attributes: Vec<Wanted> = Vec::new(),
    }
    accepted = OF_GO;
    check = Selector::check
}

/// Options of the Collector's matcher that have no effect here.
const OF_GO: &WithoutEffect = &[("regexp", "compiled expressions need no cache")];

crate::options! {
    /// An attribute that an item must have.
    pub struct Wanted {
        /// Key of the attribute.
        pub key: String = required,
        /// Value of the attribute. Unset: any.
        pub value: Option<Plain> = None,
    }
}

crate::options! {
    /// An instrumentation scope.
    pub struct Library {
        /// Name of the scope.
        pub name: String = required,
        /// Version of the scope. Unset: any.
        pub version: Option<String> = None,
    }
}

crate::options! {
    /// A lower bound of severity.
    pub struct Severity {
        /// Lowest accepted number, or its short name.
        pub min: SeverityNumber = required,
        /// Whether records without a severity number are accepted.
        pub match_undefined: bool = false,
    }
}

/// A severity number, 1 to 24 (OpenTelemetry log data model, "Field: `SeverityNumber`").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeverityNumber(pub i32);

/// Short names of the first number of each range; the others are `TRACE2` to `TRACE4` and so on.
const SEVERITIES: [&str; 6] = ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"];
/// The numbers in a range.
const RANGE: i32 = 4;

impl SeverityNumber {
    fn parse(text: &str) -> Option<Self> {
        let name = text.trim_end_matches(|digit: char| digit.is_ascii_digit());
        let range = SEVERITIES
            .iter()
            .position(|known| known.eq_ignore_ascii_case(name))?;
        let within = match &text[name.len()..] {
            "" => 1,
            digits => digits
                .parse()
                .ok()
                .filter(|within| (2..=RANGE).contains(within))?,
        };
        Some(Self(i32::try_from(range).ok()? * RANGE + within))
    }
}

impl Decode for SeverityNumber {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let number = match node.scalar().map(|scalar| scalar.kind) {
            Some(ScalarKind::Int(number)) => i32::try_from(number)
                .ok()
                .filter(|n| (1..=24).contains(n))
                .map(Self),
            _ => node.as_str().and_then(Self::parse),
        };
        number.or_else(|| wrong_type(node, cx))
    }

    fn type_help() -> TypeHelp {
        let number = YamlType::Integer { min: 1, max: 24 };
        TypeHelp::like("severity number (1 to 24) or name", "INFO or WARN2")
            .accepting(YamlType::AnyOf(vec![number, YamlType::Pattern("^[A-Za-z]")]))
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// The lists of texts that a selector compares, by key.
const TEXTS: [&str; 6] = [
    "services",
    "metric_names",
    "span_names",
    "log_bodies",
    "log_severity_texts",
    "span_kinds",
];

impl Selector {
    /// Splits the selector into a part for the resource's attributes and the rest; `None` if one of them is empty.
    fn resource_apart(&self) -> Option<(Self, Self)> {
        let mut others = self.clone();
        let resource_attributes = std::mem::take(&mut others.resource_attributes);
        if resource_attributes.is_empty() || others.selects_nothing() {
            return None;
        }
        let resource = Self {
            match_type: self.match_type,
            resource_attributes,
            ..Self::default()
        };
        Some((resource, others))
    }

    fn selects_nothing(&self) -> bool {
        let texts = [
            &self.services,
            &self.metric_names,
            &self.span_names,
            &self.log_bodies,
            &self.log_severity_texts,
            &self.span_kinds,
        ];
        let attributes = [&self.attributes, &self.resource_attributes];
        texts.iter().all(|list| list.is_empty())
            && attributes.iter().all(|list| list.is_empty())
            && self.libraries.is_empty()
            && self.log_severity_number.is_none()
    }

    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.selects_nothing() {
            cx.at(at).error(
                "selects nothing: give names, attributes, resource_attributes, services, libraries, \
                 bodies or severities",
            );
        }
        if self.match_type == MatchType::Strict {
            return;
        }
        let aliases = ["bodies", "severity_texts"];
        for key in TEXTS.into_iter().chain(aliases) {
            for node in at.child(key).as_list().unwrap_or_default() {
                check_regex(node, cx);
            }
        }
        for (list, keys) in [
            ("attributes", &["value"][..]),
            ("record_attributes", &["value"]),
            ("resource_attributes", &["value"]),
            ("resources", &["value"]),
            ("libraries", &["name", "version"]),
        ] {
            for node in at.child(list).as_list().unwrap_or_default() {
                for key in keys {
                    check_regex(node.child(key), cx);
                }
            }
        }
    }
}

fn check_regex(node: &Node, cx: &mut Problems) {
    let Some(text) = node
        .as_str()
        .filter(|text| cx.has_room_for_expression(text, node))
    else {
        return;
    };
    if let Err(error) = Regex::new(text) {
        cx.at(node).error(format!("not a regular expression: {error}"));
    }
}

#[cfg(test)]
mod tests;
