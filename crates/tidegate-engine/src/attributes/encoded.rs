// SPDX-License-Identifier: Apache-2.0

//! Attributes as bytes: OTLP's own messages, always written in the same one way, so that equal sets are equal bytes.
//!
//! | message | its fields |
//! | --- | --- |
//! | a set (`KeyValueList`) | 1: an entry, for every key, in key order |
//! | an entry (`KeyValue`) | 1: the key, 2: the value; both are always there |
//! | a list (`ArrayValue`) | 1: a value, for every value |
//! | a value (`AnyValue`) | the one of 1 to 7 that it is; none when it is empty |
//!
//! Only this module writes such bytes. It checks them anyway, and stops reading at the first error.

use std::ops::Range;

use tidegate_model::varint::{push_varint, take_varint, varint_size};

use super::view::{AttributeRef, ListRef, MapRef};
use crate::bytes::take;

/// Tags: field number and wire type. A repeated field (entries of a set, values of a list) has number 1.
const REPEATED: u8 = 0x0a;
const KEY: u8 = 0x0a;
const VALUE: u8 = 0x12;
const STR: u8 = 0x0a;
const BOOL: u8 = 0x10;
const INT: u8 = 0x18;
const DOUBLE: u8 = 0x21;
const ARRAY: u8 = 0x2a;
const MAP: u8 = 0x32;
const BYTES: u8 = 0x3a;

/// Appends an entry of a set. Gives where its key stands.
pub(super) fn put_entry(to: &mut Vec<u8>, key: &str, value: AttributeRef<'_>) -> Range<usize> {
    put_entry_as(to, REPEATED.into(), key, value)
}

/// The same as a field of another tag.
pub(super) fn put_entry_as(to: &mut Vec<u8>, tag: u64, key: &str, value: AttributeRef<'_>) -> Range<usize> {
    let size = field_size(key.len()) + field_size(value_size(value));
    to.reserve(field_size(size));
    push_varint(to, tag);
    push_varint(to, size as u64);
    put_field(to, KEY, key.as_bytes());
    let end = to.len();
    to.push(VALUE);
    put_value(to, value);
    end - key.len()..end
}

/// Appends a value of a list.
pub(super) fn put_item(to: &mut Vec<u8>, value: AttributeRef<'_>) {
    to.push(REPEATED);
    put_value(to, value);
}

/// A value, after its length.
fn put_value(to: &mut Vec<u8>, value: AttributeRef<'_>) {
    push_varint(to, value_size(value) as u64);
    match value {
        AttributeRef::Empty => {}
        AttributeRef::Str(text) => put_field(to, STR, text.as_bytes()),
        AttributeRef::Bool(truth) => to.extend([BOOL, u8::from(truth)]),
        AttributeRef::Int(number) => {
            to.push(INT);
            push_varint(to, number.cast_unsigned());
        }
        AttributeRef::Double(number) => {
            to.push(DOUBLE);
            to.extend(number.to_le_bytes());
        }
        AttributeRef::Array(list) => put_field(to, ARRAY, list.0),
        AttributeRef::Map(map) => put_field(to, MAP, map.0),
        AttributeRef::Bytes(bytes) => put_field(to, BYTES, bytes),
    }
}

fn value_size(value: AttributeRef<'_>) -> usize {
    match value {
        AttributeRef::Empty => 0,
        AttributeRef::Str(text) => field_size(text.len()),
        AttributeRef::Bool(_) => 2,
        AttributeRef::Int(number) => 1 + varint_size(number.cast_unsigned()),
        AttributeRef::Double(_) => 9,
        AttributeRef::Array(ListRef(bytes))
        | AttributeRef::Map(MapRef(bytes))
        | AttributeRef::Bytes(bytes) => field_size(bytes.len()),
    }
}

fn put_field(to: &mut Vec<u8>, tag: u8, payload: &[u8]) {
    to.push(tag);
    push_varint(to, payload.len() as u64);
    to.extend_from_slice(payload);
}

fn field_size(payload: usize) -> usize {
    1 + varint_size(payload as u64) + payload
}

/// The payload after its length.
fn take_payload<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_varint(from)?).ok()?;
    let (payload, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(payload)
}

/// The payload of the next field, if it has this tag.
fn take_field<'a>(from: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    if *take(from)? == [tag] {
        take_payload(from)
    } else {
        None
    }
}

/// An entry whose content is not checked yet.
#[derive(Clone, Copy)]
pub(super) struct EncodedEntry<'a> {
    /// With its tag and length.
    pub(super) whole: &'a [u8],
    pub(super) key: &'a [u8],
    value: &'a [u8],
}

impl<'a> EncodedEntry<'a> {
    pub(super) fn key(&self) -> Option<&'a str> {
        std::str::from_utf8(self.key).ok()
    }

    pub(super) fn value(&self) -> Option<AttributeRef<'a>> {
        value(self.value)
    }
}

/// The entries of a set, in key order.
#[derive(Clone)]
pub(super) struct Entries<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Entries<'a> {
    type Item = EncodedEntry<'a>;

    fn next(&mut self) -> Option<EncodedEntry<'a>> {
        let (all, mut rest) = (self.0, self.0);
        // Left empty where the bytes are wrong.
        self.0 = &[];
        let mut entry = take_field(&mut rest, REPEATED)?;
        let key = take_field(&mut entry, KEY)?;
        let value = take_field(&mut entry, VALUE)?;
        self.0 = rest;
        let whole = all.get(..all.len() - rest.len())?;
        Some(EncodedEntry { whole, key, value })
    }
}

/// The next value of a list.
pub(super) fn take_item<'a>(from: &mut &'a [u8]) -> Option<AttributeRef<'a>> {
    value(take_field(from, REPEATED)?)
}

fn value(bytes: &[u8]) -> Option<AttributeRef<'_>> {
    let Some((tag, mut rest)) = bytes.split_first() else {
        return Some(AttributeRef::Empty);
    };
    let rest = &mut rest;
    Some(match *tag {
        STR => AttributeRef::Str(std::str::from_utf8(take_payload(rest)?).ok()?),
        BOOL => AttributeRef::Bool(take_varint(rest)? != 0),
        INT => AttributeRef::Int(take_varint(rest)?.cast_signed()),
        DOUBLE => AttributeRef::Double(f64::from_le_bytes(*take(rest)?)),
        ARRAY => AttributeRef::Array(ListRef(take_payload(rest)?)),
        MAP => AttributeRef::Map(MapRef(take_payload(rest)?)),
        BYTES => AttributeRef::Bytes(take_payload(rest)?),
        _ => return None,
    })
}
