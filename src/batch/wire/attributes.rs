//! The attributes of one message on the wire: looked at and edited in place.

use std::borrow::Cow;
use std::ops::Range;

use opentelemetry_proto::tonic::common::v1::AnyValue;
use smallvec::SmallVec;
use tidegate_engine::{AttributeValue, Attributes};

use super::edit::{Editor, push_message};
use super::proto::{Fields, WireType};
use super::text;
use super::walk::Header;
use crate::batch::convert::value_from_proto;
use crate::batch::schema;

/// Attributes that can be looked at and changed, wherever they are kept.
pub(crate) trait AttributeSet {
    /// The value under a key.
    fn get(&self, key: &str) -> Option<AttributeValue>;
    /// Adds or replaces a value.
    fn set(&mut self, key: &str, value: AttributeValue);
    /// Removes a key.
    fn remove(&mut self, key: &str);
    /// All keys.
    fn keys(&self) -> Vec<String>;
}

/// The attributes of a message.
pub(crate) struct WireAttributes<'a> {
    /// Field number of the attributes in their message.
    number: u32,
    /// Where new ones are put.
    end: usize,
    entries: SmallVec<[Entry<'a>; 8]>,
}

struct Entry<'a> {
    /// The whole field; empty for a new one.
    range: Range<usize>,
    key: Cow<'a, str>,
    /// The encoded `AnyValue`.
    raw: Cow<'a, [u8]>,
    change: Change,
}

enum Change {
    None,
    Value(AttributeValue),
    Removed,
}

impl<'a> WireAttributes<'a> {
    /// Reads keys and where values stand; what is no attribute is passed over.
    pub(crate) fn read(message: &'a [u8], number: u32, editor: &Editor<'_>) -> Self {
        let whole = editor.range_of(message);
        let mut entries = SmallVec::new();
        let mut start = whole.start;
        for field in Fields::new(message).map_while(Result::ok) {
            let end = editor.range_of(field.payload).end;
            if field.number == number && field.wire == WireType::Bytes {
                entries.push(Entry::read(field.payload, start..end));
            }
            start = end;
        }
        Self {
            number,
            end: whole.end,
            entries,
        }
    }

    /// The attributes of a header, none where it is not there.
    pub(crate) fn read_or_none(header: &Header<'a>, number: u32, editor: &Editor<'_>) -> Self {
        match header.missing_at {
            None => Self::read(header.message, number, editor),
            Some(at) => Self {
                number,
                end: at,
                entries: SmallVec::new(),
            },
        }
    }

    /// Notes what was changed.
    pub(crate) fn write(self, editor: &mut Editor<'_>) {
        for entry in self.entries {
            let range = if entry.range.is_empty() {
                self.end..self.end
            } else {
                entry.range
            };
            match entry.change {
                Change::None => {}
                Change::Removed if range.is_empty() => {}
                Change::Removed => editor.replace(range, Vec::new()),
                Change::Value(value) => editor.replace(range, encode(self.number, &entry.key, value)),
            }
        }
    }

    fn find(&self, key: &str) -> Option<&Entry<'a>> {
        self.entries
            .iter()
            .find(|entry| entry.key == key && !matches!(entry.change, Change::Removed))
    }
}

impl AttributeSet for WireAttributes<'_> {
    fn get(&self, key: &str) -> Option<AttributeValue> {
        self.find(key).map(|entry| match &entry.change {
            Change::Value(value) => value.clone(),
            // A value that can't be decoded reads as empty, as a value of a kind that is not known yet does.
            Change::None | Change::Removed => {
                value_from_proto(text::decode::<AnyValue>(&schema::ANY_VALUE, &entry.raw).ok())
            }
        })
    }

    fn set(&mut self, key: &str, value: AttributeValue) {
        let live = |entry: &&mut Entry<'_>| entry.key == key && !matches!(entry.change, Change::Removed);
        match self.entries.iter_mut().find(live) {
            Some(entry) => entry.change = Change::Value(value),
            None => self.entries.push(Entry {
                range: 0..0,
                key: Cow::Owned(key.to_owned()),
                raw: Cow::Borrowed(&[]),
                change: Change::Value(value),
            }),
        }
    }

    fn remove(&mut self, key: &str) {
        for entry in self.entries.iter_mut().filter(|entry| entry.key == key) {
            entry.change = Change::Removed;
        }
    }

    fn keys(&self) -> Vec<String> {
        let live = self
            .entries
            .iter()
            .filter(|entry| !matches!(entry.change, Change::Removed));
        live.map(|entry| entry.key.clone().into_owned()).collect()
    }
}

impl<'a> Entry<'a> {
    /// `KeyValue { key = 1, value = 2 }`.
    fn read(pair: &'a [u8], range: Range<usize>) -> Self {
        let (mut key, mut raw) = (&[][..], Cow::Borrowed(&[][..]));
        for field in Fields::new(pair).map_while(Result::ok) {
            match field.number {
                1 => key = field.payload,
                2 if raw.is_empty() => raw = Cow::Borrowed(field.payload),
                // Protobuf merges the pieces of a message, which is what concatenation does.
                2 => raw.to_mut().extend_from_slice(field.payload),
                _ => {}
            }
        }
        Self {
            range,
            key: String::from_utf8_lossy(key),
            raw,
            change: Change::None,
        }
    }
}

fn encode(number: u32, key: &str, value: AttributeValue) -> Vec<u8> {
    let one: Attributes = [(key, value)].into_iter().collect();
    let mut field = Vec::new();
    for pair in Fields::new(one.encoded()).map_while(Result::ok) {
        push_message(&mut field, number, pair.payload);
    }
    field
}
