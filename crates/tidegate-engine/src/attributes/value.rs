// SPDX-License-Identifier: Apache-2.0

//! Owned values: of configurations, of edits, of exemplars.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::Attributes;
use super::encoded::put_item;
use super::view::{AttributeRef, ListRef};

/// A value of an attribute: OTLP's `AnyValue`.
#[derive(Clone, Default)]
pub enum AttributeValue {
    /// No value at all.
    #[default]
    Empty,
    /// Text.
    Str(Arc<str>),
    /// Truth value.
    Bool(bool),
    /// Signed integer.
    Int(i64),
    /// Floating point number; compared by bits, so that it can be part of an identity.
    Double(f64),
    /// Raw bytes.
    Bytes(Arc<[u8]>),
    /// A list.
    Array(AttributeList),
    /// A nested map.
    Map(Attributes),
}

impl AttributeValue {
    /// The value to look at.
    pub fn view(&self) -> AttributeRef<'_> {
        match self {
            Self::Empty => AttributeRef::Empty,
            Self::Str(text) => AttributeRef::Str(text),
            Self::Bool(truth) => AttributeRef::Bool(*truth),
            Self::Int(number) => AttributeRef::Int(*number),
            Self::Double(number) => AttributeRef::Double(*number),
            Self::Bytes(bytes) => AttributeRef::Bytes(bytes),
            Self::Array(list) => AttributeRef::Array(list.view()),
            Self::Map(map) => AttributeRef::Map(map.view()),
        }
    }
}

impl fmt::Debug for AttributeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

impl PartialEq for AttributeValue {
    fn eq(&self, other: &Self) -> bool {
        self.view() == other.view()
    }
}

impl Eq for AttributeValue {}

impl PartialOrd for AttributeValue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for AttributeValue {
    fn cmp(&self, other: &Self) -> Ordering {
        self.view().cmp(&other.view())
    }
}

impl Hash for AttributeValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.view().hash(state);
    }
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::Str(text.into())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Str(text.into())
    }
}

impl From<i64> for AttributeValue {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<bool> for AttributeValue {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<f64> for AttributeValue {
    fn from(number: f64) -> Self {
        Self::Double(number)
    }
}

/// A list of values, encoded as they are within a set.
#[derive(Clone, Default)]
pub struct AttributeList(pub(super) Vec<u8>);

impl AttributeList {
    /// Appends a value.
    pub fn push(&mut self, value: AttributeRef<'_>) {
        put_item(&mut self.0, value);
    }

    /// The list to look at.
    pub fn view(&self) -> ListRef<'_> {
        ListRef(&self.0)
    }
}

impl fmt::Debug for AttributeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

impl<V: Into<AttributeValue>> FromIterator<V> for AttributeList {
    fn from_iter<I: IntoIterator<Item = V>>(values: I) -> Self {
        let mut list = Self::default();
        values
            .into_iter()
            .for_each(|value| list.push(value.into().view()));
        list
    }
}
