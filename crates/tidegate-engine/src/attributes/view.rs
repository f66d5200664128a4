// SPDX-License-Identifier: Apache-2.0

//! Borrowed values, from encoded sets and from owned values alike. This module alone defines their order and their
//! text.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use super::encoded::{self, Entries, take_item};
use super::{AttributeList, AttributeValue, Attributes};

/// A value of an attribute, borrowed.
#[derive(Clone, Copy, Debug, Default)]
pub enum AttributeRef<'a> {
    /// No value at all.
    #[default]
    Empty,
    /// Text.
    Str(&'a str),
    /// Truth value.
    Bool(bool),
    /// Signed integer.
    Int(i64),
    /// Floating point number; compared by bits, so that it can be part of an identity.
    Double(f64),
    /// Raw bytes.
    Bytes(&'a [u8]),
    /// A list.
    Array(ListRef<'a>),
    /// A nested map.
    Map(MapRef<'a>),
}

impl<'a> AttributeRef<'a> {
    /// Appends a `KeyValue` of this value to an OTLP message that has its attributes under a field number.
    pub fn put_attribute(self, to: &mut Vec<u8>, number: u32, key: &str) {
        /// The wire type of a field with a length.
        const DELIMITED: u64 = 2;
        super::encoded::put_entry_as(to, u64::from(number) << 3 | DELIMITED, key, self);
    }

    pub(crate) fn rank(self) -> u8 {
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

    /// The text, where the value is text.
    pub fn as_str(self) -> Option<&'a str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Copies the value into an owned one.
    pub fn to_value(self) -> AttributeValue {
        match self {
            Self::Empty => AttributeValue::Empty,
            Self::Str(text) => text.into(),
            Self::Bool(truth) => truth.into(),
            Self::Int(number) => number.into(),
            Self::Double(number) => number.into(),
            Self::Bytes(bytes) => AttributeValue::Bytes(bytes.into()),
            Self::Array(list) => AttributeValue::Array(AttributeList(list.0.to_vec())),
            Self::Map(map) => AttributeValue::Map(Attributes::of(map.0)),
        }
    }
}

/// For people: text as it is, bytes in hexadecimal digits, lists and maps as in JSON but for the quotes.
impl fmt::Display for AttributeRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => Ok(()),
            Self::Str(text) => f.write_str(text),
            Self::Bool(truth) => truth.fmt(f),
            Self::Int(number) => number.fmt(f),
            Self::Double(number) => number.fmt(f),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::Array(list) => {
                f.write_str("[")?;
                for (at, value) in list.iter().enumerate() {
                    write!(f, "{}{value}", if at > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
            Self::Map(map) => write!(f, "{{{map}}}"),
        }
    }
}

impl PartialEq for AttributeRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for AttributeRef<'_> {}

impl PartialOrd for AttributeRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for AttributeRef<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Str(a), Self::Str(b)) => a.cmp(b),
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::Double(a), Self::Double(b)) => a.to_bits().cmp(&b.to_bits()),
            (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            (Self::Array(a), Self::Array(b)) => a.iter().cmp(b.iter()),
            (Self::Map(a), Self::Map(b)) => a.iter().cmp(b.iter()),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl Hash for AttributeRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(self.rank());
        match self {
            Self::Empty => {}
            Self::Str(text) => text.hash(state),
            Self::Bool(truth) => truth.hash(state),
            Self::Int(number) => number.hash(state),
            Self::Double(number) => number.to_bits().hash(state),
            Self::Bytes(bytes) | Self::Array(ListRef(bytes)) | Self::Map(MapRef(bytes)) => bytes.hash(state),
        }
    }
}

/// A list of values, borrowed.
#[derive(Clone, Copy, Default)]
pub struct ListRef<'a>(pub(super) &'a [u8]);

impl<'a> ListRef<'a> {
    /// The values.
    pub fn iter(self) -> impl Iterator<Item = AttributeRef<'a>> {
        let mut rest = self.0;
        std::iter::from_fn(move || take_item(&mut rest))
    }

    /// The number of values. It counts them on each call.
    pub fn len(self) -> usize {
        self.iter().count()
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for ListRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A canonical attribute set, borrowed.
#[derive(Clone, Copy, Default)]
pub struct MapRef<'a>(pub(super) &'a [u8]);

impl<'a> MapRef<'a> {
    /// The value under `key`.
    pub fn get(self, key: &str) -> Option<AttributeRef<'a>> {
        self.entries()
            .find(|entry| entry.key >= key.as_bytes())
            .filter(|entry| entry.key == key.as_bytes())?
            .value()
    }

    /// Keys and values in key order.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, AttributeRef<'a>)> {
        self.entries()
            .map_while(|entry| Some((entry.key()?, entry.value()?)))
    }

    /// The number of attributes. It counts them on each call.
    pub fn len(self) -> usize {
        self.entries().count()
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The set as [`Attributes::encoded`] gives it.
    pub(crate) fn encoded(self) -> &'a [u8] {
        self.0
    }

    pub(super) fn entries(self) -> Entries<'a> {
        encoded::Entries(self.0)
    }
}

/// For people: `key=value,...`.
impl fmt::Display for MapRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (key, value)) in self.iter().enumerate() {
            write!(f, "{}{key}={value}", if at > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for MapRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
