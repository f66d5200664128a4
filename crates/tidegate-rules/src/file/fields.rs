// SPDX-License-Identifier: Apache-2.0

//! Fields of a map in YAML, each of a known type.

use std::collections::BTreeMap;

use tidegate_config::{Entry, Node, NodeValue, Problems, ScalarKind, nearest};
use tidegate_promql::{Millis, NAME, parse_duration};

/// Reads fields, and reports those that are wrong.
pub(crate) struct FieldReader<'p> {
    pub(crate) problems: &'p mut Problems,
}

impl FieldReader<'_> {
    /// Reports a value that is not a map, and the keys that are not known.
    pub(crate) fn known(&mut self, node: &Node, kind: &str, known: &[&str]) {
        if node.is_null() {
            return;
        }
        let Some(entries) = node.as_map() else {
            let why = format!("{kind} is a map, not {}", node.describe());
            return self.problems.at(node).error(why);
        };
        for entry in entries.iter().filter(|entry| !known.contains(&&*entry.key)) {
            let near = nearest(&entry.key, known.iter().copied());
            let help = near.map_or_else(
                || format!("the fields are {}", known.join(", ")),
                |near| format!("did you mean {near}?"),
            );
            let why = format!("field {} not found in {kind}", entry.key);
            self.problems.at_key(&entry.value).help(help).error(why);
        }
    }

    /// A text; `None`: the field is absent, null or wrong.
    pub(crate) fn text(&mut self, node: &Node, key: &str) -> Option<String> {
        let value = value(node, key)?;
        let text = value.as_text();
        if text.is_none() {
            self.wrong(value, "a string");
        }
        text.map(str::to_owned)
    }

    /// A duration in milliseconds.
    pub(crate) fn duration(&mut self, node: &Node, key: &str) -> Option<Millis> {
        let value = value(node, key)?;
        let Some(text) = value.as_text() else {
            self.wrong(value, "a duration such as 30s");
            return None;
        };
        let duration = parse_duration(text);
        duration.map_err(|why| self.problems.at(value).error(why)).ok()
    }

    /// A whole number, not below zero; 0: the field is absent or wrong.
    pub(crate) fn count(&mut self, node: &Node, key: &str) -> usize {
        let Some(value) = value(node, key) else {
            return 0;
        };
        let count = match value.scalar().map(|scalar| scalar.kind) {
            Some(ScalarKind::Int(count)) => usize::try_from(count).ok(),
            _ => None,
        };
        if count.is_none() {
            self.wrong(value, "a whole number, not below zero");
        }
        count.unwrap_or_default()
    }

    /// A truth; false: the field is absent or wrong.
    pub(crate) fn truth(&mut self, node: &Node, key: &str) -> bool {
        let Some(value) = value(node, key) else {
            return false;
        };
        match value.scalar().map(|scalar| scalar.kind) {
            Some(ScalarKind::Bool(truth)) => truth,
            _ => {
                self.wrong(value, "true or false");
                false
            }
        }
    }

    /// The items of a list.
    pub(crate) fn items<'n>(&mut self, node: &'n Node, key: &str) -> &'n [Node] {
        let Some(value) = value(node, key) else {
            return &[];
        };
        value.as_list().unwrap_or_else(|| {
            self.wrong(value, "a list");
            &[]
        })
    }

    /// The texts of a list.
    pub(crate) fn texts(&mut self, node: &Node, key: &str) -> Vec<String> {
        let mut texts = Vec::new();
        for item in self.items(node, key) {
            match item.as_text() {
                Some(text) => texts.push(text.to_owned()),
                None => self.wrong(item, "a string"),
            }
        }
        texts
    }

    /// A map of texts. `refusal` says why a key is refused.
    pub(crate) fn map(
        &mut self,
        node: &Node,
        key: &str,
        refusal: fn(&str) -> Option<String>,
    ) -> BTreeMap<String, String> {
        let mut map = BTreeMap::new();
        for entry in self.entries(node, key) {
            if let Some(why) = refusal(&entry.key) {
                self.problems.at_key(&entry.value).error(why);
            }
            match entry.value.as_text() {
                Some(text) => drop(map.insert(entry.key.clone(), text.to_owned())),
                None if entry.value.is_null() => drop(map.insert(entry.key.clone(), String::new())),
                None => self.wrong(&entry.value, "a string"),
            }
        }
        map
    }

    /// A map of labels that a rule may set.
    pub(crate) fn labels(&mut self, node: &Node, key: &str) -> BTreeMap<String, String> {
        self.map(node, key, |name| {
            let is_refused = name.is_empty() || name == NAME;
            is_refused.then(|| format!("invalid label name: {name}"))
        })
    }

    /// The entries of a map.
    pub(crate) fn entries<'n>(&mut self, node: &'n Node, key: &str) -> &'n [Entry] {
        match value(node, key).map(|value| (value, value.value())) {
            None => &[],
            Some((_, NodeValue::Map(entries))) => entries,
            Some((value, _)) => {
                self.wrong(value, "a map");
                &[]
            }
        }
    }

    fn wrong(&mut self, value: &Node, expected: &str) {
        let why = format!("expected {expected}, not {}", value.describe());
        self.problems.at(value).error(why);
    }
}

/// The value of a field that is there and is not null.
fn value<'n>(node: &'n Node, key: &str) -> Option<&'n Node> {
    node.get(key).filter(|value| !value.is_null())
}
