// SPDX-License-Identifier: Apache-2.0

//! Selectors, compiled for a signal.

use std::collections::HashSet;

use regex::RegexSet;
use tidegate_engine::AttributeValue;

use super::matcher::Candidate;
use super::{MatchType, Plain, Selector, Severity, Wanted};
use crate::batch::Signal;
use crate::batch::wire::attributes::AttributeSet;
use crate::prom::labels::text;

/// Alternative texts.
#[derive(Debug)]
enum Texts {
    /// No text is required.
    Any,
    Equal(HashSet<String>),
    Regex(RegexSet),
}

impl Texts {
    /// Compiles the texts. Invalid regular expressions, which `check` has reported, select nothing.
    fn new<'a>(how: MatchType, texts: impl IntoIterator<Item = &'a String>) -> Self {
        let texts: Vec<&String> = texts.into_iter().collect();
        match how {
            _ if texts.is_empty() => Self::Any,
            MatchType::Strict => Self::Equal(texts.into_iter().cloned().collect()),
            MatchType::Regexp => Self::Regex(RegexSet::new(texts).unwrap_or_default()),
        }
    }

    fn allow(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Equal(wanted) => wanted.contains(text),
            Self::Regex(regexes) => regexes.is_match(text),
        }
    }

    fn is_any(&self) -> bool {
        matches!(self, Self::Any)
    }

    /// Whether the list has these bytes, which should be UTF-8.
    fn allow_bytes(&self, bytes: &[u8]) -> bool {
        self.is_any() || self.allow(&String::from_utf8_lossy(bytes))
    }
}

/// The allowed values of an attribute.
#[derive(Debug)]
enum WantedValues {
    Any,
    /// A value of the same type: 42 is not "42".
    Equal(AttributeValue),
    /// The text of a plain value matches.
    Regex(RegexSet),
}

impl WantedValues {
    fn new(how: MatchType, wanted: Option<&Plain>) -> Self {
        match (how, wanted) {
            (_, None) => Self::Any,
            (MatchType::Strict, Some(value)) => Self::Equal(value.0.clone()),
            (MatchType::Regexp, Some(value)) => {
                Self::Regex(RegexSet::new([text(value.0.view())]).unwrap_or_default())
            }
        }
    }

    fn allow(&self, value: &AttributeValue) -> bool {
        use AttributeValue::{Bool, Double, Int, Str};
        match (self, value) {
            (Self::Any, _) => true,
            (Self::Equal(Double(wanted)), Double(value)) => wanted == value,
            (Self::Equal(wanted), value) => wanted == value,
            (Self::Regex(regex), Str(value)) => regex.is_match(value),
            (Self::Regex(regex), Bool(_) | Int(_) | Double(_)) => regex.is_match(&text(value.view())),
            (Self::Regex(_), _) => false,
        }
    }
}

/// A key and its allowed values.
type WantedAttribute = (String, WantedValues);

/// A compiled selector.
#[derive(Debug)]
pub(super) struct Selection {
    services: Texts,
    resource: Vec<WantedAttribute>,
    libraries: Vec<(Texts, Texts)>,
    names: Texts,
    span_kinds: Texts,
    bodies: Texts,
    severity_texts: Texts,
    severity: Option<Severity>,
    attributes: Vec<WantedAttribute>,
}

impl Selection {
    /// Compiles a selector. The error names an option that has no meaning for the signal.
    fn new(selector: &Selector, signal: Signal) -> Result<Self, String> {
        let of = [
            (Signal::Metrics, "metric_names", selector.metric_names.is_empty()),
            (Signal::Traces, "span_names", selector.span_names.is_empty()),
            (Signal::Traces, "span_kinds", selector.span_kinds.is_empty()),
            (Signal::Logs, "log_bodies", selector.log_bodies.is_empty()),
            (
                Signal::Logs,
                "log_severity_texts",
                selector.log_severity_texts.is_empty(),
            ),
            (
                Signal::Logs,
                "log_severity_number",
                selector.log_severity_number.is_none(),
            ),
        ];
        if let Some((_, key, _)) = of.iter().find(|(only, _, unset)| *only != signal && !unset) {
            return Err(format!("{key} does not apply to {}", signal.name()));
        }
        let how = selector.match_type;
        let wanted = |list: &[Wanted]| -> Vec<WantedAttribute> {
            list.iter()
                .map(|wanted| (wanted.key.clone(), WantedValues::new(how, wanted.value.as_ref())))
                .collect()
        };
        let libraries = selector.libraries.iter();
        Ok(Self {
            services: Texts::new(how, &selector.services),
            resource: wanted(&selector.resource_attributes),
            libraries: libraries
                .map(|library| {
                    (
                        Texts::new(how, [&library.name]),
                        Texts::new(how, &library.version),
                    )
                })
                .collect(),
            names: Texts::new(how, selector.metric_names.iter().chain(&selector.span_names)),
            span_kinds: Texts::new(how, &selector.span_kinds),
            bodies: Texts::new(how, &selector.log_bodies),
            severity_texts: Texts::new(how, &selector.log_severity_texts),
            severity: selector.log_severity_number.clone(),
            attributes: wanted(&selector.attributes),
        })
    }

    /// Whether the resource satisfies the conditions on resources.
    pub(super) fn resource(&self, resource: &dyn AttributeSet) -> bool {
        let service = || match resource.get("service.name") {
            Some(name) => self.services.allow(&text(name.view())),
            None => false,
        };
        (self.services.is_any() || service()) && has_all(&self.resource, resource)
    }

    /// Whether it has conditions on scopes.
    pub(super) fn needs_scope(&self) -> bool {
        !self.libraries.is_empty()
    }

    /// Whether the scope satisfies the conditions on scopes.
    pub(super) fn scope(&self, name: &[u8], version: &[u8]) -> bool {
        let mut libraries = self.libraries.iter();
        self.libraries.is_empty()
            || libraries.any(|(names, versions)| names.allow_bytes(name) && versions.allow_bytes(version))
    }

    /// Whether a name satisfies the conditions on names.
    pub(super) fn name(&self, name: &[u8]) -> bool {
        self.names.allow_bytes(name)
    }

    /// Whether an item satisfies the conditions other than those on its name, scope and resource.
    pub(super) fn item(&self, item: &dyn Candidate) -> bool {
        (self.span_kinds.is_any() || self.span_kinds.allow(span_kind(item.span_kind())))
            && self
                .severity
                .as_ref()
                .is_none_or(|severity| severity.allows(item.severity_number()))
            && (self.severity_texts.is_any() || self.severity_texts.allow_bytes(item.severity_text()))
            && (self.bodies.is_any() || self.body(item))
            && (self.attributes.is_empty() || has_all(&self.attributes, &*item.attributes()))
    }

    fn body(&self, item: &dyn Candidate) -> bool {
        match item.body() {
            AttributeValue::Str(body) => self.bodies.allow(&body),
            _ => false,
        }
    }
}

impl Severity {
    fn allows(&self, number: i32) -> bool {
        match number {
            0 => self.match_undefined,
            number => number >= self.min.0,
        }
    }
}

/// The protobuf name of a span kind, which the Collector's configuration uses.
fn span_kind(kind: i32) -> &'static str {
    match kind {
        1 => "SPAN_KIND_INTERNAL",
        2 => "SPAN_KIND_SERVER",
        3 => "SPAN_KIND_CLIENT",
        4 => "SPAN_KIND_PRODUCER",
        5 => "SPAN_KIND_CONSUMER",
        _ => "SPAN_KIND_UNSPECIFIED",
    }
}

fn has_all(wanted: &[WantedAttribute], set: &dyn AttributeSet) -> bool {
    wanted
        .iter()
        .all(|(key, values)| set.get(key).is_some_and(|value| values.allow(&value)))
}

/// `include` and `exclude` together: an item matches when it is included (or there is no `include`) and not
/// excluded.
#[derive(Debug)]
pub(in crate::processors) struct IncludeExclude {
    pub(super) include: Option<Selection>,
    /// An item that satisfies one of them is excluded.
    pub(super) excludes: Vec<Selection>,
}

impl IncludeExclude {
    /// Compiles both selectors. The error names an option that has no effect on the signal.
    pub(in crate::processors) fn new(
        include: Option<&Selector>,
        exclude: Option<&Selector>,
        signal: Signal,
    ) -> Result<Self, String> {
        let of = |what: &str, selector: &Selector| {
            Selection::new(selector, signal).map_err(|error| format!("{what}::{error}"))
        };
        Ok(Self {
            include: include.map(|selector| of("include", selector)).transpose()?,
            excludes: exclude
                .map(|selector| of("exclude", selector))
                .transpose()?
                .into_iter()
                .collect(),
        })
    }

    /// Compiles both selectors as in the Collector's `filter`. For metrics, `resource_attributes` of `exclude`
    /// exclude by themselves, and its other conditions exclude in addition.
    pub(in crate::processors) fn of_filter(
        include: Option<&Selector>,
        exclude: Option<&Selector>,
        signal: Signal,
    ) -> Result<Self, String> {
        let apart = exclude
            .filter(|_| signal == Signal::Metrics)
            .and_then(Selector::resource_apart);
        let Some((resource, others)) = apart else {
            return Self::new(include, exclude, signal);
        };
        let mut both = Self::new(include, Some(&resource), signal)?;
        both.excludes
            .extend(Self::new(None, Some(&others), signal)?.excludes);
        Ok(both)
    }
}
