//! What `attributes` and `resource` do to a set of attributes: the Collector's actions, in written order.

use regex::Regex;
use tidegate_engine::{AttributeRef, AttributeValue, Attributes};

use crate::batch::wire::attributes::AttributeSet;
use crate::config::{Decode, Kind, Node, Problems, TypeHelp, wrong_type};

crate::choices! {
    /// What an action does.
    pub enum Verb {
        /// Adds where the key is not there.
        Insert = "insert",
        /// Replaces where the key is there.
        Update = "update",
        /// Either.
        Upsert = "upsert",
        /// Removes the key, or the keys that match `pattern`.
        Delete = "delete",
        /// Replaces the value by its hash.
        Hash = "hash",
        /// Puts what the named groups of `pattern` match into attributes of their names.
        Extract = "extract",
        /// Changes the type of the value.
        Convert = "convert",
    }
}

crate::choices! {
    /// Types that `convert` knows.
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
        /// The attribute's key.
        pub key: String = String::new(),
        /// What is done.
        pub action: Verb = required,
        /// The value to put in.
        pub value: Option<Plain> = None,
        /// The attribute whose value is put in.
        pub from_attribute: Option<String> = None,
        /// Regular expression: keys to delete, or groups to extract.
        pub pattern: Option<Pattern> = None,
        /// What to convert to.
        pub converted_type: Option<Type> = None,
    }
    check = Action::check
}

impl Action {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let puts = matches!(self.action, Verb::Insert | Verb::Update | Verb::Upsert);
        if self.key.is_empty() && !(self.action == Verb::Delete && self.pattern.is_some()) {
            cx.at(at.child("key"))
                .error(format!("action `{}` needs a `key`", self.action));
        }
        if puts && (self.value.is_some() == self.from_attribute.is_some()) {
            cx.at(at.child("action")).error(format!(
                "action `{}` needs one of `value` and `from_attribute`",
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

    /// Does it.
    pub(in crate::processors) fn apply(&self, set: &mut dyn AttributeSet) {
        match self.action {
            Verb::Insert if set.has(&self.key) => {}
            Verb::Update if !set.has(&self.key) => {}
            Verb::Insert | Verb::Update | Verb::Upsert => {
                if let Some(value) = self.source(set) {
                    set.set(&self.key, value);
                }
            }
            Verb::Delete => self.delete(set),
            Verb::Hash => self.change(set, |value| Some(hash(&value).into())),
            Verb::Convert => self.change(set, |value| self.convert(&value)),
            Verb::Extract => self.extract(set),
        }
    }

    fn source(&self, set: &dyn AttributeSet) -> Option<AttributeValue> {
        match (&self.value, &self.from_attribute) {
            (Some(value), _) => Some(value.0.clone()),
            (None, Some(key)) => set.get(key),
            (None, None) => None,
        }
    }

    fn delete(&self, set: &mut dyn AttributeSet) {
        if !self.key.is_empty() && set.has(&self.key) {
            set.remove(&self.key);
        }
        let Some(pattern) = &self.pattern else { return };
        for key in set.keys().iter().filter(|key| pattern.0.is_match(key)) {
            set.remove(key);
        }
    }

    fn change(&self, set: &mut dyn AttributeSet, change: impl Fn(AttributeValue) -> Option<AttributeValue>) {
        let Some(value) = set.get(&self.key) else { return };
        match change(value.clone()) {
            Some(changed) if changed != value => set.set(&self.key, changed),
            _ => {}
        }
    }

    /// What can't be converted stays as it is.
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
        for name in pattern.groups() {
            if let Some(part) = found.name(name) {
                set.set(name, part.as_str().into());
            }
        }
    }
}

/// SHA-256 in hexadecimal digits: people hash to hide personal data, so it must not be easy to undo.
fn hash(value: &AttributeValue) -> String {
    let digest = ring::digest::digest(
        &ring::digest::SHA256,
        crate::prom::labels::text(value.view()).as_bytes(),
    );
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
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
            Kind::Bool(truth) => truth.into(),
            Kind::Float(number) => number.into(),
            Kind::Int(number) => {
                i64::try_from(number).map_or_else(|_| scalar.text.clone().into(), AttributeValue::Int)
            }
            Kind::Null | Kind::Str => scalar.text.clone().into(),
        }))
    }

    fn type_help() -> TypeHelp {
        TypeHelp::plain("string, number or boolean")
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
        match Regex::new(&text) {
            Ok(regex) => Some(Self(regex)),
            Err(error) => {
                cx.at(node).error(format!("not a regular expression: {error}"));
                None
            }
        }
    }

    fn type_help() -> TypeHelp {
        TypeHelp::like("regular expression", "^k8s\\.")
    }

    fn show(&self) -> String {
        self.0.as_str().to_owned()
    }
}

/// A set that is being changed.
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

    /// The set as it is now; `None` when it is as it was.
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
mod tests {
    use super::*;
    use crate::component::testing::settings;

    /// What an action makes of `{a: "x-1", n: 7}`.
    fn done(action: &str) -> Attributes {
        let before = Attributes::new(vec![("a".into(), "x-1".into()), ("n".into(), 7i64.into())]);
        let mut set = Decoded::new(&before);
        settings::<Action>(action).get::<Action>().apply(&mut set);
        set.changed().unwrap_or(before)
    }

    fn with(pairs: &[(&str, AttributeValue)]) -> Attributes {
        pairs.iter().cloned().collect()
    }

    #[test]
    fn every_action_does_what_the_collectors_does() {
        let (a, n) = (
            ("a", AttributeValue::from("x-1")),
            ("n", AttributeValue::from(7i64)),
        );
        let text = |text: &str| AttributeValue::from(text);
        let sha256 = text("7902699be42c8a8e46fbbb4501726517e86b22c56a189f7625a6da49081b2451");
        let table: [(&str, Attributes); 13] = [
            (
                "{key: b, action: insert, value: 1}",
                with(&[a.clone(), n.clone(), ("b", 1i64.into())]),
            ),
            (
                "{key: a, action: insert, value: 1}",
                with(&[a.clone(), n.clone()]),
            ),
            (
                "{key: b, action: update, value: 1}",
                with(&[a.clone(), n.clone()]),
            ),
            (
                "{key: a, action: update, value: true}",
                with(&[("a", true.into()), n.clone()]),
            ),
            (
                "{key: b, action: upsert, from_attribute: a}",
                with(&[a.clone(), n.clone(), ("b", text("x-1"))]),
            ),
            (
                "{key: b, action: upsert, from_attribute: zz}",
                with(&[a.clone(), n.clone()]),
            ),
            ("{key: a, action: delete}", with(std::slice::from_ref(&n))),
            ("{action: delete, pattern: '^[an]$'}", with(&[])),
            ("{key: n, action: hash}", with(&[a.clone(), ("n", sha256)])),
            (
                "{key: n, action: convert, converted_type: string}",
                with(&[a.clone(), ("n", text("7"))]),
            ),
            (
                "{key: a, action: convert, converted_type: int}",
                with(&[a.clone(), n.clone()]),
            ),
            (
                "{key: n, action: convert, converted_type: double}",
                with(&[a.clone(), ("n", 7.0.into())]),
            ),
            (
                "{key: a, action: extract, pattern: '(?P<letter>[a-z])-(?P<n>[0-9])'}",
                with(&[a.clone(), ("letter", text("x")), ("n", text("1"))]),
            ),
        ];
        for (action, expected) in table {
            assert_eq!(done(action), expected, "{action}");
        }
    }

    #[test]
    fn actions_that_make_no_sense_are_refused() {
        let wrong = [
            "{action: insert, value: 1}",
            "{key: a, action: insert}",
            "{key: a, action: upsert, value: 1, from_attribute: b}",
            "{key: a, action: extract}",
            "{key: a, action: extract, pattern: '[a-z]'}",
            "{key: a, action: convert}",
            "{key: a, action: delete, pattern: '('}",
            "{key: a, action: remove}",
        ];
        for action in wrong {
            let mut problems = Problems::default();
            let node = crate::config::parse_text("t.yaml", action, &mut problems);
            node.and_then(|node| Action::decode(&node, &mut problems));
            assert!(problems.has_errors(), "{action}");
        }
    }
}
