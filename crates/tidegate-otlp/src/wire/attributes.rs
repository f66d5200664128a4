// SPDX-License-Identifier: Apache-2.0

//! The attributes of one message on the wire: looked at and edited in place.

use std::ops::Range;

use opentelemetry_proto::tonic::common::v1::AnyValue;
use smallvec::SmallVec;
use tidegate_engine::AttributeValue;

use super::edit::Editor;
use super::proto::{Fields, WireType};
use super::text;
use super::walk::Header;
use crate::convert::value_from_proto;
use crate::schema;

/// Attributes that can be looked at and changed, wherever they are kept.
pub trait AttributeSet {
    /// The value under a key.
    fn get(&self, key: &str) -> Option<AttributeValue>;
    /// Whether there is one.
    fn has(&self, key: &str) -> bool;
    /// Adds or replaces a value.
    fn set(&mut self, key: &str, value: AttributeValue);
    /// Removes a key.
    fn remove(&mut self, key: &str);
    /// All keys.
    fn keys(&self) -> Vec<String>;
}

/// The text of an attribute of a message, without a copy. `None`: the attribute is missing, empty, or no text in UTF-8.
pub fn text_of<'a>(message: &'a [u8], number: u32, key: &str) -> Option<&'a str> {
    /// The field number of `AnyValue.string_value`.
    const STRING_VALUE: u32 = 1;
    let value = entry_of(message, number, key)?.raw;
    let text = Fields::new(value)
        .map_while(Result::ok)
        .filter(|field| field.number == STRING_VALUE && field.wire == WireType::Bytes)
        .last()?;
    std::str::from_utf8(text.payload)
        .ok()
        .filter(|text| !text.is_empty())
}

/// The value of an attribute of a message.
pub fn value_of(message: &[u8], number: u32, key: &str) -> Option<AttributeValue> {
    entry_of(message, number, key).map(|entry| entry.value())
}

/// The first attribute with a key. Its range is not known.
fn entry_of<'a>(message: &'a [u8], number: u32, key: &str) -> Option<AttributeEntry<'a>> {
    Fields::new(message)
        .map_while(Result::ok)
        .filter(|field| field.number == number && field.wire == WireType::Bytes)
        .map(|field| AttributeEntry::read(field.payload, 0..0))
        .find(|entry| entry.is(key))
}

/// The attributes of a message.
pub struct WireAttributes<'a> {
    /// Field number of the attributes in their message.
    number: u32,
    /// Where new ones are put.
    end: usize,
    entries: SmallVec<[AttributeEntry<'a>; 8]>,
    added: SmallVec<[Added; 2]>,
}

/// An attribute that is there.
struct AttributeEntry<'a> {
    /// The whole field.
    range: Range<usize>,
    key: &'a [u8],
    /// The encoded `AnyValue`.
    raw: &'a [u8],
    is_removed: bool,
}

/// A value that was set, and where it goes: a place that an entry had, or the end.
struct Added {
    range: Range<usize>,
    key: SmallVec<[u8; 32]>,
    /// `None`: it was removed again.
    value: Option<AttributeValue>,
}

impl<'a> WireAttributes<'a> {
    /// Reads keys and where values stand; it skips fields that are not attributes.
    pub fn read(message: &'a [u8], number: u32, editor: &Editor<'_>) -> Self {
        let whole = editor.range_of(message);
        let mut entries = SmallVec::new();
        let mut fields = Fields::new(message);
        let mut left = message.len();
        while let Some(Ok(field)) = fields.next() {
            let start = whole.end - left;
            left = fields.rest().len();
            if field.number == number && field.wire == WireType::Bytes {
                entries.push(AttributeEntry::read(field.payload, start..whole.end - left));
            }
        }
        Self {
            number,
            end: whole.end,
            entries,
            added: SmallVec::new(),
        }
    }

    /// The attributes of a header, none where it is not there.
    pub fn read_or_none(header: &Header<'a>, number: u32, editor: &Editor<'_>) -> Self {
        match header.missing_at {
            None => Self::read(header.message, number, editor),
            Some(at) => Self {
                number,
                end: at,
                entries: SmallVec::new(),
                added: SmallVec::new(),
            },
        }
    }

    /// Notes what was changed.
    pub fn write(self, editor: &mut Editor<'_>) {
        // In the order of their places, which spares sorting them; those at the end come last.
        let mut added = self.added;
        for entry in self.entries.iter().filter(|entry| entry.is_removed) {
            let with = added.iter().position(|added| added.range == entry.range);
            match with.map(|at| added.remove(at)) {
                Some(added) => added.write(self.number, editor),
                None => editor.replace(entry.range.clone(), &[]),
            }
        }
        added.iter().for_each(|added| added.write(self.number, editor));
    }

    fn find(&self, key: &str) -> Option<&AttributeEntry<'a>> {
        self.entries
            .iter()
            .find(|entry| entry.is(key) && !entry.is_removed)
    }

    fn find_added(&self, key: &str) -> Option<&AttributeValue> {
        let found = self
            .added
            .iter()
            .find(|added| *added.key == *key.as_bytes() && added.value.is_some());
        found?.value.as_ref()
    }
}

impl AttributeSet for WireAttributes<'_> {
    fn get(&self, key: &str) -> Option<AttributeValue> {
        match self.find_added(key) {
            Some(value) => Some(value.clone()),
            None => self.find(key).map(AttributeEntry::value),
        }
    }

    fn has(&self, key: &str) -> bool {
        self.find_added(key).is_some() || self.find(key).is_some()
    }

    fn set(&mut self, key: &str, value: AttributeValue) {
        if let Some(added) = self.added.iter_mut().find(|added| *added.key == *key.as_bytes()) {
            added.value = Some(value);
            return;
        }
        let replaced = self
            .entries
            .iter_mut()
            .find(|entry| entry.is(key) && !entry.is_removed);
        let range = replaced.map_or(self.end..self.end, |entry| {
            entry.is_removed = true;
            entry.range.clone()
        });
        self.added.push(Added {
            range,
            key: SmallVec::from_slice(key.as_bytes()),
            value: Some(value),
        });
    }

    fn remove(&mut self, key: &str) {
        for entry in self.entries.iter_mut().filter(|entry| entry.is(key)) {
            entry.is_removed = true;
        }
        for added in self
            .added
            .iter_mut()
            .filter(|added| *added.key == *key.as_bytes())
        {
            added.value = None;
        }
    }

    fn keys(&self) -> Vec<String> {
        let there = self.entries.iter().filter(|entry| !entry.is_removed);
        let added = self.added.iter().filter(|added| added.value.is_some());
        there
            .map(|entry| entry.key)
            .chain(added.map(|added| &*added.key))
            .map(|key| String::from_utf8_lossy(key).into_owned())
            .collect()
    }
}

impl<'a> AttributeEntry<'a> {
    /// `KeyValue { key = 1, value = 2 }`, each once: see `check`.
    #[inline]
    fn read(pair: &'a [u8], range: Range<usize>) -> Self {
        let (mut key, mut raw) = (&[][..], &[][..]);
        for field in Fields::new(pair).map_while(Result::ok) {
            match field.number {
                1 => key = field.payload,
                2 => raw = field.payload,
                _ => {}
            }
        }
        Self {
            range,
            key,
            raw,
            is_removed: false,
        }
    }

    /// Whether its key reads like this one.
    #[inline]
    fn is(&self, key: &str) -> bool {
        self.key == key.as_bytes() || (!self.key.is_ascii() && String::from_utf8_lossy(self.key) == key)
    }

    /// A value that can't be decoded reads as empty, as a value of a kind that is not known yet does.
    fn value(&self) -> AttributeValue {
        value_from_proto(text::decode::<AnyValue>(&schema::ANY_VALUE, self.raw).ok())
    }
}

impl Added {
    fn write(&self, number: u32, editor: &mut Editor<'_>) {
        match &self.value {
            // It stood nowhere before.
            None if self.range.is_empty() => {}
            None => editor.replace(self.range.clone(), &[]),
            Some(value) => {
                // It came as text.
                let key = String::from_utf8_lossy(&self.key);
                editor.replace_by(self.range.clone(), |new| {
                    value.view().put_attribute(new, number, &key);
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use prost::Message;

    use super::*;

    #[test]
    fn one_attribute_is_read_without_the_others() {
        let attribute = |key: &str, value: Value| KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(value) }),
            ..KeyValue::default()
        };
        let text = |text: &str| Value::StringValue(text.to_owned());
        let attributes = vec![
            attribute("a", text("1")),
            attribute("b", text("")),
            attribute("c", Value::IntValue(7)),
            attribute("a", text("2")),
        ];
        let resource = Resource {
            attributes,
            ..Resource::default()
        };
        let message = resource.encode_to_vec();
        let found = ["a", "b", "c", "d"].map(|key| text_of(&message, 1, key));
        assert_eq!(found, [Some("1"), None, None, None]);
        assert_eq!(value_of(&message, 1, "c"), Some(AttributeValue::Int(7)));
        assert_eq!(value_of(&message, 1, "d"), None);
        // The text is a part of the message.
        let part = text_of(&message, 1, "a").unwrap().as_bytes().as_ptr_range();
        assert!(message.as_ptr_range().contains(&part.start));
    }
}
