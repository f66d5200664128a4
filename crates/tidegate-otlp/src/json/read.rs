// SPDX-License-Identifier: Apache-2.0

//! JSON to protobuf bytes in one pass: no tree stands between. A digit may be a double of eight bytes, so room is asked for
//! as the bytes grow.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::scalar::Scalar;
use super::{JsonError, Unread};
use crate::schema::{Message, SchemaField, Type};
use crate::wire::edit::push_varint;
use crate::wire::proto::WireType;

/// The bytes of a message that `json` describes.
pub(super) fn request(
    schema: &'static Message,
    json: &[u8],
    reserve: &mut dyn FnMut(usize) -> bool,
) -> Result<Vec<u8>, Unread> {
    let mut out = Out {
        wire: Vec::new(),
        reserve,
        trail: Vec::new(),
        problem: None,
        short_of: None,
    };
    // A text with escapes is put together elsewhere, in room that grows by doubling.
    let escaped = memchr::memchr(b'\\', json).map_or(0, |_| json.len().saturating_mul(2));
    if !(out.reserve)(escaped) || !out.grow_to(json.len() / 2) {
        return Err(Unread::NoRoom(escaped.saturating_add(json.len() / 2)));
    }
    let mut text = serde_json::Deserializer::from_slice(json);
    let read = ValueSeed::whole(schema, &mut out)
        .deserialize(&mut text)
        .and_then(|()| text.end());
    match read {
        Ok(()) => Ok(out.wire),
        Err(error) => Err(match out.short_of {
            Some(bytes) => Unread::NoRoom(bytes),
            None => Unread::Wrong(JsonError {
                path: out.path(),
                problem: out.problem.unwrap_or_else(|| error.to_string()),
            }),
        }),
    }
}

/// A tag, a length and a number, at most.
const HEAD_BYTES: usize = 32;

/// The output so far, and the position in the text.
struct Out<'r> {
    wire: Vec<u8>,
    /// Whether there is room for this many more bytes.
    reserve: &'r mut dyn FnMut(usize) -> bool,
    trail: Vec<TrailSegment>,
    /// The description of the mistake; serde only carries that there is one.
    problem: Option<String>,
    /// The bytes for which there was no room.
    short_of: Option<usize>,
}

enum TrailSegment {
    Field(&'static str),
    Index(usize),
}

impl Out<'_> {
    /// Makes room for this many bytes and the head of a field.
    #[inline]
    fn make_room<E: Error>(&mut self, bytes: usize) -> Result<(), E> {
        let wanted = self.wire.len().saturating_add(bytes).saturating_add(HEAD_BYTES);
        if wanted <= self.wire.capacity() || self.grow_to(wanted) {
            Ok(())
        } else {
            Err(E::custom("no room"))
        }
    }

    /// Allocates at least this many bytes in all. The old ones are there until they are copied.
    #[cold]
    fn grow_to(&mut self, wanted: usize) -> bool {
        let bytes = wanted.max(self.wire.capacity().saturating_mul(2));
        let has_room = (self.reserve)(bytes);
        if has_room {
            self.wire.reserve_exact(bytes - self.wire.len());
        } else {
            self.short_of = Some(bytes);
        }
        has_room
    }

    fn fail<E: Error>(&mut self, expected: &str, found: &str) -> E {
        self.problem = Some(format!("expected {expected}, found {found}"));
        E::custom("wrong")
    }

    /// `resourceMetrics[0].scopeMetrics`.
    fn path(&self) -> String {
        let mut path = String::new();
        for step in &self.trail {
            match step {
                TrailSegment::Field(name) if path.is_empty() => path.push_str(name),
                TrailSegment::Field(name) => path.extend([".", name]),
                TrailSegment::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        if path.is_empty() { "$".to_owned() } else { path }
    }

    /// Puts the length of all that was written since `start` before it.
    fn close(&mut self, start: usize) {
        let end = self.wire.len();
        push_varint(&mut self.wire, (end - start) as u64);
        let used = self.wire.len() - end;
        if let Some(written) = self.wire.get_mut(start..) {
            written.rotate_right(used);
        }
    }

    fn tag(&mut self, number: u32, wire: WireType) {
        push_varint(&mut self.wire, u64::from(number) << 3 | wire as u64);
    }
}

/// A value that is about to be read.
struct ValueSeed<'a, 'r> {
    kind: Type,
    /// Its field number; `None` where the value stands without a tag (the whole request, packed numbers).
    number: Option<u32>,
    /// A list of such values.
    is_list: bool,
    /// `null` is as good as absent: for fields, not for what is in a list.
    may_be_null: bool,
    out: &'a mut Out<'r>,
}

impl<'a, 'r> ValueSeed<'a, 'r> {
    fn whole(schema: &'static Message, out: &'a mut Out<'r>) -> Self {
        Self {
            kind: Type::Message(schema),
            number: None,
            is_list: false,
            may_be_null: false,
            out,
        }
    }

    fn of(field: &'static SchemaField, out: &'a mut Out<'r>) -> Self {
        Self {
            kind: field.kind,
            number: Some(field.number),
            is_list: field.repeated,
            may_be_null: true,
            out,
        }
    }

    fn scalar<E: Error>(self, scalar: Scalar<'_>) -> Result<(), E> {
        if self.is_list {
            return Err(self.out.fail("an array", scalar.what()));
        }
        self.out.make_room(scalar.bytes(self.kind))?;
        let wire = self.kind.wire();
        if let Some(number) = self.number {
            self.out.tag(number, wire);
        }
        let start = self.out.wire.len();
        scalar
            .push(self.kind, &mut self.out.wire)
            .map_err(|expected| self.out.fail(&expected, scalar.what()))?;
        if wire == WireType::Bytes {
            self.out.close(start);
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OTLP")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        match (self.may_be_null, self.is_list, self.kind) {
            (true, ..) => Ok(()),
            (_, true, _) => Err(self.out.fail("an array", "null")),
            (_, _, Type::Message(_)) => Err(self.out.fail("an object", "null")),
            _ => Err(self.out.fail("a value", "null")),
        }
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.scalar(Scalar::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.scalar(Scalar::Whole(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.scalar(Scalar::Whole(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.scalar(Scalar::Double(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.scalar(Scalar::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if !self.is_list {
            let expected = match self.kind {
                Type::Message(_) => "an object",
                _ => "a single value",
            };
            return Err(self.out.fail(expected, "an array"));
        }
        self.out.make_room(0)?;
        let is_packed = self.kind.wire() != WireType::Bytes;
        let before = self.out.wire.len();
        if let (true, Some(number)) = (is_packed, self.number) {
            self.out.tag(number, WireType::Bytes);
        }
        let start = self.out.wire.len();
        for index in 0.. {
            self.out.trail.push(TrailSegment::Index(index));
            let element = ValueSeed {
                kind: self.kind,
                number: self.number.filter(|_| !is_packed),
                is_list: false,
                may_be_null: false,
                out: &mut *self.out,
            };
            let more = list.next_element_seed(element)?.is_some();
            self.out.trail.pop();
            if !more {
                break;
            }
        }
        if is_packed {
            self.out.make_room(0)?;
            if self.out.wire.len() == start {
                self.out.wire.truncate(before);
            } else {
                self.out.close(start);
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let schema = match self.kind {
            _ if self.is_list => return Err(self.out.fail("an array", "an object")),
            Type::Message(schema) => schema,
            _ => return Err(self.out.fail("a single value", "an object")),
        };
        self.out.make_room(0)?;
        if let Some(number) = self.number {
            self.out.tag(number, WireType::Bytes);
        }
        let start = self.out.wire.len();
        while let Some(field) = map.next_key_seed(Name(schema))? {
            // Unknown fields are ignored (OTLP: MUST).
            let Some(field) = field else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            self.out.trail.push(TrailSegment::Field(field.name));
            map.next_value_seed(ValueSeed::of(field, &mut *self.out))?;
            self.out.trail.pop();
        }
        if self.number.is_some() {
            self.out.make_room(0)?;
            self.out.close(start);
        }
        Ok(())
    }
}

/// The field that a key names.
struct Name(&'static Message);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Option<&'static SchemaField>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<&'static SchemaField>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.fields.iter().find(|field| field.name == key))
    }
}
