// SPDX-License-Identifier: Apache-2.0

//! The actions of `attributes` and `resource` on a set of attributes: the Collector's actions, in written order.

use http::HeaderName;
use regex::Regex;
use tidegate_engine::{AttributeRef, AttributeValue, Attributes};

use crate::batch::ClientMetadata;
use crate::batch::wire::attributes::AttributeSet;
use crate::config::{Decode, Node, Problems, ScalarKind, TypeHelp, YamlType, wrong_type};

crate::choices! {
    /// The effect of an action.
    pub enum Verb {
        /// Adds a key that is missing.
        Insert = "insert",
        /// Replaces the value of a key that exists.
        Update = "update",
        /// Adds the key or replaces its value.
        Upsert = "upsert",
        /// Removes the key, or the keys that match `pattern`.
        Delete = "delete",
        /// Replaces the value by its hash.
        Hash = "hash",
        /// Adds an attribute for each named group of `pattern`.
        Extract = "extract",
        /// Changes the type of the value.
        Convert = "convert",
    }
}

crate::choices! {
    /// Target types of `convert`.
    pub enum Type {
        /// Whole number.
        Int = "int",
        /// Number.
        Double = "double",
        /// Text.
        String = "string",
    }
}

crate::options! {
    /// One action.
    pub struct Action {
        /// Key of the attribute.
        pub key: String = String::new(),
        /// Effect of the action.
        pub action: Verb = required,
        /// New value.
        pub value: Option<Plain> = None,
        /// Attribute that supplies the new value.
        pub from_attribute: Option<String> = None,
        /// Header of the sender's request that supplies the new value: `metadata.NAME`. Several values are joined
        /// by `;`. The receiver must keep the header (`include_metadata`).
        pub from_context: Option<FromContext> = None,
        /// Regular expression. It selects the keys to delete or hash, or the groups to extract.
        pub pattern: Option<Pattern> = None,
        /// Target type of `convert`.
        pub converted_type: Option<Type> = None,
    }
    check = Action::check
}

impl Action {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let puts = matches!(self.action, Verb::Insert | Verb::Update | Verb::Upsert);
        let by_pattern = matches!(self.action, Verb::Delete | Verb::Hash) && self.pattern.is_some();
        if self.key.is_empty() && !by_pattern {
            cx.at(at.child("key"))
                .error(format!("action `{}` needs a `key`", self.action));
        }
        let sources = [
            self.value.is_some(),
            self.from_attribute.is_some(),
            self.from_context.is_some(),
        ];
        if puts && sources.into_iter().filter(|given| *given).count() != 1 {
            cx.at(at.child("action")).error(format!(
                "action `{}` needs one of `value`, `from_attribute` and `from_context`",
                self.action
            ));
        }
        match (self.action, &self.pattern) {
            (Verb::Extract, None) => cx
                .at(at.child("action"))
                .error("action `extract` needs a `pattern`"),
            (Verb::Extract, Some(pattern)) if pattern.groups().count() == 0 => {
                cx.at(at.child("pattern"))
                    .error("needs at least one named group, as in `(?P<name>...)`");
            }
            _ => {}
        }
        if self.action == Verb::Convert && self.converted_type.is_none() {
            cx.at(at.child("action"))
                .error("action `convert` needs a `converted_type`");
        }
    }

    /// Applies the action. `client` is the kept metadata of the request that brought the set.
    pub(in crate::processors) fn apply(&self, set: &mut dyn AttributeSet, client: Option<&ClientMetadata>) {
        match self.action {
            Verb::Insert if set.has(&self.key) => {}
            Verb::Update if !set.has(&self.key) => {}
            Verb::Insert | Verb::Update | Verb::Upsert => {
                if let Some(value) = self.source(set, client) {
                    set.set(&self.key, value);
                }
            }
            Verb::Delete => self.each_key(set, |set, key| set.remove(key)),
            Verb::Hash => self.each_key(set, |set, key| change(set, key, |value| Some(hash(value).into()))),
            Verb::Convert => change(set, &self.key, |value| self.convert(value)),
            Verb::Extract => self.extract(set),
        }
    }

    fn source(&self, set: &dyn AttributeSet, client: Option<&ClientMetadata>) -> Option<AttributeValue> {
        match (&self.value, &self.from_attribute, &self.from_context) {
            (Some(value), _, _) => Some(value.0.clone()),
            (None, Some(key), _) => set.get(key),
            (None, None, Some(header)) => header.value(client?),
            (None, None, None) => None,
        }
    }

    /// Calls `act` for each existing key that `key` or `pattern` selects.
    fn each_key(&self, set: &mut dyn AttributeSet, act: impl Fn(&mut dyn AttributeSet, &str)) {
        if !self.key.is_empty() && set.has(&self.key) {
            act(set, &self.key);
        }
        let Some(pattern) = &self.pattern else { return };
        let matches = |key: &String| *key != self.key && pattern.0.is_match(key);
        for key in set.keys().iter().filter(|key| matches(key)) {
            act(set, key);
        }
    }

    /// Converts a value; `None` if it can't be converted and stays unchanged.
    fn convert(&self, value: &AttributeValue) -> Option<AttributeValue> {
        let text = crate::prom::labels::text(value.view());
        match self.converted_type? {
            Type::String => Some(text.into()),
            Type::Double => text.parse::<f64>().ok().map(AttributeValue::Double),
            Type::Int => match value {
                AttributeValue::Double(number) if number.is_finite() => {
                    Some(AttributeValue::Int(*number as i64))
                }
                AttributeValue::Bool(truth) => Some(AttributeValue::Int(i64::from(*truth))),
                _ => text.parse().ok().map(AttributeValue::Int),
            },
        }
    }

    fn extract(&self, set: &mut dyn AttributeSet) {
        let (Some(AttributeValue::Str(text)), Some(pattern)) = (set.get(&self.key), &self.pattern) else {
            return;
        };
        let Some(found) = pattern.0.captures(&text) else {
            return;
        };
        // A group without a match gives an empty text, as in the Collector.
        for name in pattern.groups() {
            set.set(name, found.name(name).map_or("", |part| part.as_str()).into());
        }
    }
}

fn change(set: &mut dyn AttributeSet, key: &str, change: impl Fn(&AttributeValue) -> Option<AttributeValue>) {
    let Some(value) = set.get(key) else { return };
    match change(&value) {
        Some(changed) if changed != value => set.set(key, changed),
        _ => {}
    }
}

/// SHA-256 in hexadecimal digits, of the bytes that the Collector digests: texts unchanged, numbers in 8
/// little-endian bytes, booleans in one byte. An empty text stays empty. Other values are digested as text. The
/// Collector replaces them by an empty text.
fn hash(value: &AttributeValue) -> String {
    match value {
        AttributeValue::Str(text) if text.is_empty() => String::new(),
        AttributeValue::Str(text) => sha256(text.as_bytes()),
        AttributeValue::Int(number) => sha256(&number.to_le_bytes()),
        AttributeValue::Double(number) => sha256(&number.to_le_bytes()),
        AttributeValue::Bool(truth) => sha256(&[u8::from(*truth)]),
        other => sha256(crate::prom::labels::text(other.view()).as_bytes()),
    }
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A header of the sender's request.
#[derive(Clone, Debug, PartialEq)]
pub struct FromContext(HeaderName);

impl FromContext {
    fn value(&self, client: &ClientMetadata) -> Option<AttributeValue> {
        let values = client.headers().get_all(&self.0).iter();
        let values: Vec<_> = values
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
            .collect();
        (!values.is_empty()).then(|| values.join(";").into())
    }
}

impl Decode for FromContext {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let text = String::decode(node, cx)?;
        if text == "client.address" || text.starts_with("auth.") {
            cx.at(node)
                .help("name a header that the receiver keeps: `metadata.x-tenant`")
                .error(format!("`from_context: {text}` is not supported"));
            return None;
        }
        let name = text.strip_prefix("metadata.").unwrap_or(&text);
        match HeaderName::try_from(name) {
            Ok(name) => Some(Self(name)),
            Err(_) => wrong_type(node, cx),
        }
    }

    fn type_help() -> TypeHelp {
        TypeHelp::like("header of the request", "metadata.x-tenant").accepting(YamlType::Text)
    }

    fn show(&self) -> String {
        format!("metadata.{}", self.0)
    }
}

/// A plain value of an attribute in the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Plain(pub AttributeValue);

impl Decode for Plain {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let Some(scalar) = node.scalar() else {
            return wrong_type(node, cx);
        };
        Some(Self(match scalar.kind {
            ScalarKind::Bool(truth) => truth.into(),
            ScalarKind::Float(number) => number.into(),
            ScalarKind::Int(number) => {
                i64::try_from(number).map_or_else(|_| scalar.text.clone().into(), AttributeValue::Int)
            }
            ScalarKind::Null | ScalarKind::Str => scalar.text.clone().into(),
        }))
    }

    fn type_help() -> TypeHelp {
        TypeHelp::plain("string, number or boolean").accepting(YamlType::Scalar)
    }
}

/// A regular expression in the configuration. Matching takes time linear in the text.
#[derive(Clone, Debug)]
pub struct Pattern(pub Regex);

impl Pattern {
    fn groups(&self) -> impl Iterator<Item = &str> {
        self.0.capture_names().flatten()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Decode for Pattern {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let text = String::decode(node, cx)?;
        if !cx.has_room_for_expression(&text, node) {
            return None;
        }
        match Regex::new(&text) {
            Ok(regex) => Some(Self(regex)),
            Err(error) => {
                cx.at(node).error(format!("not a regular expression: {error}"));
                None
            }
        }
    }

    fn type_help() -> TypeHelp {
        TypeHelp::like("regular expression", "^k8s\\.").accepting(YamlType::Text)
    }

    fn show(&self) -> String {
        self.0.as_str().to_owned()
    }
}

/// A set during its changes.
pub(in crate::processors) struct Decoded {
    attributes: Attributes,
    is_changed: bool,
}

impl Decoded {
    pub(in crate::processors) fn new(attributes: &Attributes) -> Self {
        Self {
            attributes: attributes.clone(),
            is_changed: false,
        }
    }

    /// The changed set; `None` if nothing has changed.
    pub(in crate::processors) fn changed(self) -> Option<Attributes> {
        self.is_changed.then_some(self.attributes)
    }
}

impl AttributeSet for Decoded {
    fn get(&self, key: &str) -> Option<AttributeValue> {
        self.attributes.get(key).map(AttributeRef::to_value)
    }

    fn has(&self, key: &str) -> bool {
        self.attributes.get(key).is_some()
    }

    fn set(&mut self, key: &str, value: AttributeValue) {
        self.is_changed = true;
        self.attributes = self.attributes.merge(&[(key, value)].into_iter().collect());
    }

    fn remove(&mut self, key: &str) {
        self.is_changed |= self.attributes.get(key).is_some();
        self.attributes = self.attributes.filter(|other| other != key);
    }

    fn keys(&self) -> Vec<String> {
        self.attributes.iter().map(|(key, _)| key.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests;
