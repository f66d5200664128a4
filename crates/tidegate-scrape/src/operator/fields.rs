// SPDX-License-Identifier: Apache-2.0

//! The fields of an object. Each is taken once, so that those that nobody takes are known.

use serde_json::{Map, Value};

/// The fields of an object or of a part of it.
#[derive(Debug)]
pub(super) struct Fields {
    /// The place in the object, with a dot at its end unless it is empty.
    path: String,
    values: Map<String, Value>,
}

/// The mistakes in an object.
pub(super) type Mistakes = Vec<String>;

impl Fields {
    /// The fields of a value, which must be a map.
    pub(super) fn of(path: &str, value: Value, mistakes: &mut Mistakes) -> Self {
        let values = match value {
            Value::Object(values) => values,
            _ => {
                mistakes.push(format!("{path} is not a map"));
                Map::new()
            }
        };
        let path = if path.is_empty() {
            String::new()
        } else {
            format!("{path}.")
        };
        Self { path, values }
    }

    /// The place of a field in the object.
    pub(super) fn path(&self, key: &str) -> String {
        format!("{}{key}", self.path)
    }

    /// A field. Null and empty texts stand for absent ones, as in the API.
    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        let value = self.values.remove(key)?;
        let is_absent = value.is_null() || value.as_str().is_some_and(str::is_empty);
        Some(value).filter(|_| !is_absent)
    }

    /// A field that may be an empty text.
    pub(super) fn take_given(&mut self, key: &str) -> Option<Value> {
        self.values.remove(key).filter(|value| !value.is_null())
    }

    pub(super) fn text(&mut self, key: &str, mistakes: &mut Mistakes) -> Option<String> {
        match self.take(key)? {
            Value::String(text) => Some(text),
            _ => {
                mistakes.push(format!("{} is not a text", self.path(key)));
                None
            }
        }
    }

    pub(super) fn flag(&mut self, key: &str, mistakes: &mut Mistakes) -> Option<bool> {
        match self.take(key)? {
            Value::Bool(flag) => Some(flag),
            _ => {
                mistakes.push(format!("{} is neither true nor false", self.path(key)));
                None
            }
        }
    }

    pub(super) fn list(&mut self, key: &str, mistakes: &mut Mistakes) -> Vec<Value> {
        match self.take(key) {
            None => Vec::new(),
            Some(Value::Array(values)) => values,
            Some(_) => {
                mistakes.push(format!("{} is not a list", self.path(key)));
                Vec::new()
            }
        }
    }

    pub(super) fn texts(&mut self, key: &str, mistakes: &mut Mistakes) -> Vec<String> {
        let values = self.list(key, mistakes);
        let texts: Vec<_> = values
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        if texts.len() < values.len() {
            mistakes.push(format!("{} has a value that is not a text", self.path(key)));
        }
        texts
    }

    /// The fields of a part.
    pub(super) fn part(&mut self, key: &str, mistakes: &mut Mistakes) -> Option<Self> {
        let value = self.take(key)?;
        Some(Self::of(&self.path(key), value, mistakes))
    }

    /// The fields of each part in a list.
    pub(super) fn parts(&mut self, key: &str, mistakes: &mut Mistakes) -> Vec<Self> {
        let values = self.list(key, mistakes);
        let place = self.path(key);
        let part = |(index, value)| Self::of(&format!("{place}[{index}]"), value, mistakes);
        values.into_iter().enumerate().map(part).collect()
    }

    /// Names and texts in the order of the names.
    pub(super) fn pairs(&mut self, mistakes: &mut Mistakes) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for (name, value) in std::mem::take(&mut self.values) {
            match value {
                Value::String(text) => pairs.push((name, text)),
                _ => mistakes.push(format!("{} is not a text", self.path(&name))),
            }
        }
        pairs.sort();
        pairs
    }

    /// The places of the fields that are left.
    pub(super) fn rest(&self) -> Vec<String> {
        let is_given = |value: &Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(values) => !values.is_empty(),
            _ => true,
        };
        let given = self.values.iter().filter(|(_, value)| is_given(value));
        given.map(|(key, _)| self.path(key)).collect()
    }
}
