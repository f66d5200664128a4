// SPDX-License-Identifier: Apache-2.0

//! Attribute sets in canonical form: sorted by key, one value per key, encoded once. A set is one small allocation that
//! is cheap to clone and to compare.

mod builder;
mod encoded;
#[cfg(test)]
pub(crate) mod tests;
mod value;
mod view;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use triomphe::ThinArc;

pub use builder::AttributesBuilder;
pub use value::{AttributeList, AttributeValue};
pub use view::{AttributeRef, ListRef, MapRef};

/// A canonical attribute set. Two sets are equal if they hold the same keys and values, in any encoding.
#[derive(Clone, Default)]
pub struct Attributes(Option<ThinArc<(), u8>>);

/// Every series has a set: its pointer is one word.
const _: () = assert!(size_of::<Attributes>() == size_of::<usize>());

impl Attributes {
    /// Sorts by key; of several values for one key the last one stays, as OTLP receivers commonly do.
    pub fn new(entries: Vec<(Arc<str>, AttributeValue)>) -> Self {
        entries.into_iter().collect()
    }

    /// A set of encoded entries.
    fn of(bytes: &[u8]) -> Self {
        Self((!bytes.is_empty()).then(|| ThinArc::from_header_and_slice((), bytes)))
    }

    /// The set to look at.
    pub fn view(&self) -> MapRef<'_> {
        MapRef(self.encoded())
    }

    /// The set in OTLP: a `KeyValueList`, and also a `Resource` with these attributes.
    pub fn encoded(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |set| &set.slice)
    }

    /// The value under `key`.
    pub fn get(&self, key: &str) -> Option<AttributeRef<'_>> {
        self.view().get(key)
    }

    /// Keys and values in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, AttributeRef<'_>)> {
        self.view().iter()
    }

    /// The bytes that it has allocated, as if nothing shared it.
    pub(crate) fn bytes(&self) -> usize {
        /// The reference count and the length.
        const HEAD: usize = 16;
        self.0.as_ref().map_or(0, |set| HEAD + set.slice.len())
    }

    /// Whether others have the same allocation.
    pub(crate) fn is_shared(&self) -> bool {
        self.0.as_ref().is_some_and(|set| ThinArc::strong_count(set) > 1)
    }

    /// The number of attributes. It counts them on each call.
    pub fn len(&self) -> usize {
        self.view().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// A set with only the keys that `keep` accepts.
    pub fn filter(&self, mut keep: impl FnMut(&str) -> bool) -> Self {
        let mut kept = Vec::with_capacity(self.encoded().len());
        for entry in self.view().entries() {
            if entry.key().is_some_and(&mut keep) {
                kept.extend_from_slice(entry.whole);
            }
        }
        if kept.len() == self.encoded().len() {
            self.clone()
        } else {
            Self::of(&kept)
        }
    }

    /// This set with `other`'s entries added; `other` wins where both have a key.
    pub fn merge(&self, other: &Self) -> Self {
        match (self.is_empty(), other.is_empty()) {
            (_, true) => return self.clone(),
            (true, false) => return other.clone(),
            _ => {}
        }
        let mut both = Vec::with_capacity(self.encoded().len() + other.encoded().len());
        let mut own = self.view().entries().peekable();
        for entry in other.view().entries() {
            while let Some(before) = own.next_if(|own| own.key < entry.key) {
                both.extend_from_slice(before.whole);
            }
            own.next_if(|own| own.key == entry.key);
            both.extend_from_slice(entry.whole);
        }
        own.for_each(|entry| both.extend_from_slice(entry.whole));
        Self::of(&both)
    }
}

impl PartialEq for Attributes {
    fn eq(&self, other: &Self) -> bool {
        self.encoded() == other.encoded()
    }
}

impl Eq for Attributes {}

impl Hash for Attributes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.encoded().hash(state);
    }
}

impl PartialOrd for Attributes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By entries, not by bytes: those begin with lengths.
impl Ord for Attributes {
    fn cmp(&self, other: &Self) -> Ordering {
        self.iter().cmp(other.iter())
    }
}

/// For people: `key=value,...`.
impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.view(), f)
    }
}

impl<K: AsRef<str>, V: Into<AttributeValue>> FromIterator<(K, V)> for Attributes {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut builder = AttributesBuilder::default();
        for (key, value) in entries {
            builder.push(key.as_ref(), value.into().view());
        }
        builder.finish()
    }
}
