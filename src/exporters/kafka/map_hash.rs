// SPDX-License-Identifier: Apache-2.0

//! The hash of resource attributes that the Collector uses as a key (`xhash.MapHash`): 16 bytes, equal for equal attributes in
//! any order.
//!
//! The attributes are written as text with marks between them, sorted by their names. Names, texts and bytes have their length
//! before them, since Collector 0.163. Two values of XXH64 make the hash: that of the text, and that of the text with one more
//! byte.

use crate::batch::wire::edit::push_varint;
use crate::batch::wire::proto::{Fields, WireType, varint};

/// The hash of a resource without attributes.
const EMPTY: [u8; 16] = [0; 16];

/// Deeper values count as empty. Requests are checked for their depth before.
const MAX_DEPTH: usize = 64;

/// The byte that makes the second half differ.
const EXTRA: u8 = 0xf3;
const KEY: u8 = 0xf4;
const VALUE_EMPTY: u8 = 0xf5;
const VALUE_BYTES: u8 = 0xf6;
const VALUE_TEXT: u8 = 0xf7;
const VALUE_TRUE: u8 = 0xf8;
const VALUE_FALSE: u8 = 0xf9;
const VALUE_INT: u8 = 0xfa;
const VALUE_DOUBLE: u8 = 0xfb;
const MAP_BEGIN: u8 = 0xfc;
const MAP_END: u8 = 0xfd;
const LIST_BEGIN: u8 = 0xfe;
const LIST_END: u8 = 0xff;

/// The hash of the attributes of an encoded `Resource`.
pub(super) fn of_resource(resource: &[u8]) -> [u8; 16] {
    let mut text = Vec::with_capacity(resource.len() + 1);
    write_map(resource, 0, &mut text);
    if text.is_empty() {
        return EMPTY;
    }
    let first = xxh64(&text);
    text.push(EXTRA);
    let mut hash = EMPTY;
    hash[..8].copy_from_slice(&first.to_le_bytes());
    hash[8..].copy_from_slice(&xxh64(&text).to_le_bytes());
    hash
}

/// Writes the pairs that a message has as field 1: a `Resource`, and the list of a map.
fn write_map(message: &[u8], depth: usize, text: &mut Vec<u8>) {
    let mut pairs: Vec<_> = payloads(message)
        .map(|pair| (last(pair, 1), last(pair, 2)))
        .collect();
    pairs.sort_by_key(|(key, _)| *key);
    for (key, value) in pairs {
        text.push(KEY);
        write_bytes(key, text);
        write_value(value, depth, text);
    }
}

/// Writes bytes after their length.
fn write_bytes(bytes: &[u8], text: &mut Vec<u8>) {
    push_varint(text, bytes.len() as u64);
    text.extend_from_slice(bytes);
}

/// Writes an `AnyValue`.
fn write_value(message: &[u8], depth: usize, text: &mut Vec<u8>) {
    let fields = Fields::new(message).map_while(Result::ok);
    let field = fields.filter(|field| (1..=7).contains(&field.number)).last();
    let Some(field) = field.filter(|_| depth < MAX_DEPTH) else {
        return text.push(VALUE_EMPTY);
    };
    let number = || varint(field.payload).map_or(0, |(number, _)| number);
    let mut marked = |mark: u8, bytes: &[u8]| {
        text.push(mark);
        text.extend_from_slice(bytes);
    };
    match (field.number, field.wire) {
        (1, WireType::Bytes) => {
            text.push(VALUE_TEXT);
            write_bytes(field.payload, text);
        }
        (2, WireType::Varint) if number() == 0 => text.push(VALUE_FALSE),
        (2, WireType::Varint) => text.push(VALUE_TRUE),
        (3, WireType::Varint) => marked(VALUE_INT, &number().to_le_bytes()),
        (4, WireType::Fixed64) => marked(VALUE_DOUBLE, field.payload),
        (5, WireType::Bytes) => {
            text.push(LIST_BEGIN);
            payloads(field.payload).for_each(|value| write_value(value, depth + 1, text));
            text.push(LIST_END);
        }
        (6, WireType::Bytes) => {
            text.push(MAP_BEGIN);
            write_map(field.payload, depth + 1, text);
            text.push(MAP_END);
        }
        (7, WireType::Bytes) => {
            text.push(VALUE_BYTES);
            write_bytes(field.payload, text);
        }
        _ => text.push(VALUE_EMPTY),
    }
}

/// The messages under field number 1.
fn payloads(message: &[u8]) -> impl Iterator<Item = &[u8]> {
    let fields = Fields::new(message).map_while(Result::ok);
    let wanted = fields.filter(|field| field.number == 1 && field.wire == WireType::Bytes);
    wanted.map(|field| field.payload)
}

/// The last message under a field number; empty if there is none.
fn last(message: &[u8], number: u32) -> &[u8] {
    let fields = Fields::new(message).map_while(Result::ok);
    let wanted = fields.filter(|field| field.number == number && field.wire == WireType::Bytes);
    wanted.last().map_or(&[], |field| field.payload)
}

const PRIMES: [u64; 5] = [
    0x9e37_79b1_85eb_ca87,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x27d4_eb2f_1656_67c5,
];

/// XXH64 with the seed 0.
fn xxh64(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut hash = if blocks.is_empty() {
        PRIMES[4]
    } else {
        stripes(blocks)
    };
    hash = hash.wrapping_add(bytes.len() as u64);
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        hash ^= round(0, u64::from_le_bytes(*word));
        hash = hash
            .rotate_left(27)
            .wrapping_mul(PRIMES[0])
            .wrapping_add(PRIMES[3]);
    }
    let (halves, rest) = rest.as_chunks::<4>();
    for half in halves {
        hash ^= u64::from(u32::from_le_bytes(*half)).wrapping_mul(PRIMES[0]);
        hash = hash
            .rotate_left(23)
            .wrapping_mul(PRIMES[1])
            .wrapping_add(PRIMES[2]);
    }
    for byte in rest {
        hash ^= u64::from(*byte).wrapping_mul(PRIMES[4]);
        hash = hash.rotate_left(11).wrapping_mul(PRIMES[0]);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(PRIMES[1]);
    hash = (hash ^ (hash >> 29)).wrapping_mul(PRIMES[2]);
    hash ^ (hash >> 32)
}

fn stripes(blocks: &[[u8; 32]]) -> u64 {
    let mut lanes = [
        PRIMES[0].wrapping_add(PRIMES[1]),
        PRIMES[1],
        0,
        PRIMES[0].wrapping_neg(),
    ];
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = round(*lane, u64::from_le_bytes(*word));
        }
    }
    let [a, b, c, d] = lanes;
    let mixed = a
        .rotate_left(1)
        .wrapping_add(b.rotate_left(7))
        .wrapping_add(c.rotate_left(12))
        .wrapping_add(d.rotate_left(18));
    lanes.iter().fold(mixed, |hash, lane| {
        (hash ^ round(0, *lane))
            .wrapping_mul(PRIMES[0])
            .wrapping_add(PRIMES[3])
    })
}

fn round(lane: u64, word: u64) -> u64 {
    let lane = lane.wrapping_add(word.wrapping_mul(PRIMES[1]));
    lane.rotate_left(31).wrapping_mul(PRIMES[0])
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList};
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use prost::Message;

    use super::*;

    #[test]
    fn xxh64_has_the_published_values() {
        for (bytes, hash) in [
            (&b""[..], 0xef46_db37_51d8_e999),
            (b"a", 0xd24e_c4f1_a98c_6e5b),
            (b"abc", 0x44bc_2cf5_ad77_0999),
            (b"Nobody inspects the spammish repetition", 0xfbce_a83c_8a37_8bf1),
        ] {
            assert_eq!(xxh64(bytes), hash, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    fn any(value: Value) -> Option<AnyValue> {
        Some(AnyValue { value: Some(value) })
    }

    fn pair(key: &str, value: Option<AnyValue>) -> KeyValue {
        KeyValue {
            key: key.to_owned(),
            value,
            ..Default::default()
        }
    }

    fn resource(attributes: Vec<KeyValue>) -> Vec<u8> {
        let resource = Resource {
            attributes,
            ..Default::default()
        };
        resource.encode_to_vec()
    }

    fn text(resource: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        write_map(resource, 0, &mut text);
        text
    }

    #[test]
    fn attributes_are_written_with_the_marks_of_the_collector() {
        let list = ArrayValue {
            values: vec![AnyValue {
                value: Some(Value::BoolValue(true)),
            }],
        };
        let map = KeyValueList {
            values: vec![pair("k", any(Value::BoolValue(false)))],
        };
        let resource = resource(vec![
            pair("g", None),
            pair("f", any(Value::BytesValue(vec![1, 2]))),
            pair("e", any(Value::KvlistValue(map))),
            pair("d", any(Value::ArrayValue(list))),
            pair("c", any(Value::DoubleValue(1.0))),
            pair("b", any(Value::IntValue(-2))),
            pair("a", any(Value::StringValue("x".to_owned()))),
        ]);
        let expected = [
            &b"\xf4\x01a\xf7\x01x\xf4\x01b\xfa\xfe\xff\xff\xff\xff\xff\xff\xff\xf4\x01c\xfb\0\0\0\0\0\0\xf0\x3f"[..],
            b"\xf4\x01d\xfe\xf8\xff\xf4\x01e\xfc\xf4\x01k\xf9\xfd\xf4\x01f\xf6\x02\x01\x02\xf4\x01g\xf5",
        ];
        assert_eq!(text(&resource), expected.concat());
    }

    #[test]
    fn the_order_of_attributes_does_not_matter() {
        let pairs = [
            pair("service.name", any(Value::StringValue("a".to_owned()))),
            pair("host.name", any(Value::StringValue("b".to_owned()))),
        ];
        let hash = of_resource(&resource(pairs.to_vec()));
        assert_eq!(
            hash,
            of_resource(&resource(pairs.iter().rev().cloned().collect()))
        );
        let written = b"\xf4\x09host.name\xf7\x01b\xf4\x0cservice.name\xf7\x01a";
        assert_eq!(hash[..8], xxh64(written).to_le_bytes());
        assert_eq!(hash[8..], xxh64(&[&written[..], b"\xf3"].concat()).to_le_bytes());
        assert_eq!(of_resource(b""), EMPTY);
    }
}
