//! Attribute sets in canonical form: sorted by key, one value a key, cheap to clone and to compare.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A value of an attribute: OTLP's `AnyValue`.
#[derive(Clone, Debug, Default)]
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
    Array(Arc<[AttributeValue]>),
    /// A nested map.
    Map(Attributes),
}

impl AttributeValue {
    pub(crate) fn rank(&self) -> u8 {
        match self {
            Self::Empty => 0,
            Self::Str(_) => 1,
            Self::Bool(_) => 2,
            Self::Int(_) => 3,
            Self::Double(_) => 4,
            Self::Bytes(_) => 5,
            Self::Array(_) => 6,
            Self::Map(_) => 7,
        }
    }

    /// What it has allocated, estimated.
    fn bytes(&self) -> usize {
        match self {
            Self::Str(text) => 16 + text.len(),
            Self::Bytes(bytes) => 16 + bytes.len(),
            Self::Array(values) => values.iter().map(|value| size_of::<Self>() + value.bytes()).sum(),
            Self::Map(map) => map.bytes(),
            Self::Empty | Self::Bool(_) | Self::Int(_) | Self::Double(_) => 0,
        }
    }

    /// The text, where the value is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }
}

/// For people: text as it is, bytes in hexadecimal digits, lists and maps as in JSON but for the quotes.
impl fmt::Display for AttributeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => Ok(()),
            Self::Str(text) => f.write_str(text),
            Self::Bool(truth) => truth.fmt(f),
            Self::Int(number) => number.fmt(f),
            Self::Double(number) => number.fmt(f),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::Array(values) => {
                f.write_str("[")?;
                for (at, value) in values.iter().enumerate() {
                    f.write_str(if at > 0 { "," } else { "" })?;
                    value.fmt(f)?;
                }
                f.write_str("]")
            }
            Self::Map(map) => write!(f, "{{{map}}}"),
        }
    }
}

/// For people: `key=value,...`.
impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (key, value)) in self.iter().enumerate() {
            write!(f, "{}{key}={value}", if at > 0 { "," } else { "" })?;
        }
        Ok(())
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

impl PartialEq for AttributeValue {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
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
        match (self, other) {
            (Self::Str(a), Self::Str(b)) => a.cmp(b),
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::Double(a), Self::Double(b)) => a.to_bits().cmp(&b.to_bits()),
            (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            (Self::Array(a), Self::Array(b)) => a.cmp(b),
            (Self::Map(a), Self::Map(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl Hash for AttributeValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(self.rank());
        match self {
            Self::Empty => {}
            Self::Str(text) => text.hash(state),
            Self::Bool(truth) => truth.hash(state),
            Self::Int(number) => number.hash(state),
            Self::Double(number) => number.to_bits().hash(state),
            Self::Bytes(bytes) => bytes.hash(state),
            Self::Array(values) => values.hash(state),
            Self::Map(map) => map.hash(state),
        }
    }
}

/// A canonical attribute set. Two sets are equal when they hold the same keys and values, however they were spelt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attributes(Arc<[(Arc<str>, AttributeValue)]>);

impl Default for Attributes {
    fn default() -> Self {
        Self(Arc::from([]))
    }
}

impl Attributes {
    /// Sorts by key; of several values for one key the last one stays, as OTLP receivers commonly do.
    pub fn new(mut entries: Vec<(Arc<str>, AttributeValue)>) -> Self {
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.reverse();
        entries.dedup_by(|next, kept| next.0 == kept.0);
        entries.reverse();
        Self(entries.into())
    }

    /// The value under `key`.
    pub fn get(&self, key: &str) -> Option<&AttributeValue> {
        let at = self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// Keys and values in key order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &AttributeValue)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// What they take, estimated: as if nobody shared any of it.
    pub(crate) fn bytes(&self) -> usize {
        /// The entry, and the counters of its key.
        const ENTRY: usize = size_of::<(Arc<str>, AttributeValue)>() + 16;
        let of_entry = |(key, value): &(Arc<str>, AttributeValue)| ENTRY + key.len() + value.bytes();
        self.0.iter().map(of_entry).sum()
    }

    /// How many attributes there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A set with only the keys that `keep` accepts.
    pub fn filter(&self, mut keep: impl FnMut(&str) -> bool) -> Self {
        Self(self.0.iter().filter(|(key, _)| keep(key)).cloned().collect())
    }

    /// This set with `other`'s entries added; `other` wins where both have a key.
    pub fn merge(&self, other: &Self) -> Self {
        match (self.is_empty(), other.is_empty()) {
            (_, true) => self.clone(),
            (true, false) => other.clone(),
            _ => Self::new(self.0.iter().chain(other.0.iter()).cloned().collect()),
        }
    }
}

impl<K: Into<Arc<str>>, V: Into<AttributeValue>> FromIterator<(K, V)> for Attributes {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self::new(
            entries
                .into_iter()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_entries_does_not_matter_and_the_last_duplicate_wins() {
        let a: Attributes = [("b", "1"), ("a", "2"), ("b", "3")].into_iter().collect();
        let b: Attributes = [("a", "2"), ("b", "3")].into_iter().collect();
        assert_eq!(a, b);
        assert_eq!(a.get("b").and_then(AttributeValue::as_str), Some("3"));
        assert_eq!(a.get("c"), None);
    }

    #[test]
    fn merging_lets_the_right_side_win() {
        let a: Attributes = [("a", "1"), ("b", "1")].into_iter().collect();
        let b: Attributes = [("b", "2")].into_iter().collect();
        assert_eq!(a.merge(&b), [("a", "1"), ("b", "2")].into_iter().collect());
    }
}
