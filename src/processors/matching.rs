//! Which items a processor is about: names, attributes and resource attributes, exactly or by regular expression.

use std::sync::Mutex;

use regex::Regex;
use tidegate_engine::AttributeValue;

use super::actions::Plain;
use crate::batch::wire::attributes::AttributeSet;
use crate::config::{Node, Problems};
use crate::prom::labels::text;

crate::choices! {
    /// How names and values are compared.
    pub enum MatchType {
        /// Equal.
        Strict = "strict",
        /// A regular expression matches somewhere (anchor it with `^` and `$`).
        Regexp = "regexp",
    }
}

crate::options! {
    /// Selects items. Every list that is given must be satisfied: one of the names, all of the attributes.
    pub struct Selector {
        /// How names and values are compared.
        pub match_type: MatchType = MatchType::Strict,
        /// Names of metrics.
        pub metric_names: Vec<String> = Vec::new(),
        /// Names of spans.
        pub span_names: Vec<String> = Vec::new(),
        /// Attributes of the point, span or log record.
        pub attributes: Vec<Wanted> = Vec::new(),
        /// Attributes of the resource.
        #[alias = "resources"]
        pub resource_attributes: Vec<Wanted> = Vec::new(),
    }
    check = Selector::check
}

crate::options! {
    /// An attribute that must be there.
    pub struct Wanted {
        /// Its key.
        pub key: String = required,
        /// Its value; unset: any.
        pub value: Option<Plain> = None,
    }
}

impl Selector {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let lists = [&self.metric_names, &self.span_names];
        let attributes = [&self.attributes, &self.resource_attributes];
        if lists.iter().all(|list| list.is_empty()) && attributes.iter().all(|list| list.is_empty()) {
            cx.at(at)
                .error("selects nothing: give metric_names, span_names, attributes or resource_attributes");
        }
        if self.match_type == MatchType::Strict {
            return;
        }
        for key in ["metric_names", "span_names"] {
            for node in at.child(key).as_list().unwrap_or_default() {
                check_regex(node, cx);
            }
        }
        for key in ["attributes", "resource_attributes"] {
            for node in at.child(key).as_list().unwrap_or_default() {
                check_regex(node.child("value"), cx);
            }
        }
    }
}

fn check_regex(node: &Node, cx: &mut Problems) {
    if let Some(Err(error)) = node.as_str().map(Regex::new) {
        cx.at(node).error(format!("not a regular expression: {error}"));
    }
}

/// What is compared with a text.
#[derive(Debug)]
enum Matcher {
    Equal(String),
    Regex(Regex),
}

impl Matcher {
    /// `None` for a regular expression that `check` has complained about.
    fn new(how: MatchType, text: &str) -> Option<Self> {
        match how {
            MatchType::Strict => Some(Self::Equal(text.to_owned())),
            MatchType::Regexp => Regex::new(text).ok().map(Self::Regex),
        }
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Equal(wanted) => wanted == text,
            Self::Regex(regex) => regex.is_match(text),
        }
    }
}

type WantedAttribute = (String, Option<Matcher>);

/// A selector, ready to be asked.
#[derive(Debug)]
pub(in crate::processors) struct Selection {
    names: Vec<Matcher>,
    attributes: Vec<WantedAttribute>,
    resource: Vec<WantedAttribute>,
    /// The last name that was asked for, and the answer: points of a metric come one after another.
    last_name: Mutex<Option<(Vec<u8>, bool)>>,
}

impl Selection {
    pub(in crate::processors) fn new(selector: &Selector) -> Self {
        let how = selector.match_type;
        let wanted = |list: &[Wanted]| -> Vec<WantedAttribute> {
            let value = |wanted: &Wanted| Matcher::new(how, &text(&wanted.value.as_ref()?.0));
            list.iter()
                .map(|wanted| (wanted.key.clone(), value(wanted)))
                .collect()
        };
        let names = selector.metric_names.iter().chain(&selector.span_names);
        Self {
            names: names.filter_map(|name| Matcher::new(how, name)).collect(),
            attributes: wanted(&selector.attributes),
            resource: wanted(&selector.resource_attributes),
            last_name: Mutex::default(),
        }
    }

    /// Whether the resource satisfies it, as far as it is about resources.
    pub(in crate::processors) fn resource(&self, resource: &dyn AttributeSet) -> bool {
        has_all(&self.resource, resource)
    }

    /// Whether a name satisfies it, as far as it is about names.
    pub(in crate::processors) fn name(&self, name: &[u8]) -> bool {
        if self.names.is_empty() {
            return true;
        }
        let mut last = self
            .last_name
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((known, answer)) = &*last
            && known == name
        {
            return *answer;
        }
        let text = String::from_utf8_lossy(name);
        let answer = self.names.iter().any(|wanted| wanted.matches(&text));
        *last = Some((name.to_vec(), answer));
        answer
    }

    /// Whether it looks at attributes of items.
    pub(in crate::processors) fn needs_attributes(&self) -> bool {
        !self.attributes.is_empty()
    }

    /// Whether an item's attributes satisfy it.
    pub(in crate::processors) fn attributes(&self, attributes: &dyn AttributeSet) -> bool {
        has_all(&self.attributes, attributes)
    }
}

fn has_all(wanted: &[WantedAttribute], set: &dyn AttributeSet) -> bool {
    wanted.iter().all(|(key, matcher)| match (set.get(key), matcher) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(AttributeValue::Str(value)), Some(matcher)) => matcher.matches(&value),
        (Some(value), Some(matcher)) => matcher.matches(&text(&value)),
    })
}

/// `include` and `exclude` together: an item counts when it is included (or nothing says what is) and not excluded.
#[derive(Debug)]
pub(in crate::processors) struct InOut {
    include: Option<Selection>,
    exclude: Option<Selection>,
}

impl InOut {
    pub(in crate::processors) fn new(include: Option<&Selector>, exclude: Option<&Selector>) -> Self {
        Self {
            include: include.map(Selection::new),
            exclude: exclude.map(Selection::new),
        }
    }

    /// What the resource leaves open.
    pub(in crate::processors) fn resource(&self, resource: &dyn AttributeSet) -> InResource {
        InResource {
            included: self
                .include
                .as_ref()
                .is_none_or(|selection| selection.resource(resource)),
            excludable: self
                .exclude
                .as_ref()
                .is_some_and(|selection| selection.resource(resource)),
        }
    }

    /// Whether an item counts. `attributes` is called only where somebody asks for them.
    pub(in crate::processors) fn item<'a>(
        &self,
        resource: InResource,
        name: &[u8],
        attributes: &dyn Fn() -> Box<dyn AttributeSet + 'a>,
    ) -> bool {
        let satisfied = |selection: &Selection| {
            selection.name(name) && (!selection.needs_attributes() || selection.attributes(&*attributes()))
        };
        let included = resource.included && self.include.as_ref().is_none_or(satisfied);
        included && !(resource.excludable && self.exclude.as_ref().is_some_and(satisfied))
    }
}

/// What a resource decides of the items below it.
#[derive(Clone, Copy, Debug)]
pub(in crate::processors) struct InResource {
    included: bool,
    excludable: bool,
}
