// SPDX-License-Identifier: Apache-2.0

//! Partition ids of points on the wire: the fixed ones, and those of the decoded points.

use proptest::prelude::*;
use serde_json::Value;
use tidegate_engine::partition_id;

use super::{Encoded, Signal, convert, json, wire};

/// Written by another program, in another language, by the rules in `tidegate_engine::partition`.
const FIXED: &str = include_str!("../../../tidegate-engine/tests/data/partition_ids.json");

fn checked(bytes: Vec<u8>) -> Encoded {
    wire::check(Signal::Metrics, bytes.into()).unwrap()
}

fn ids_on_wire(encoded: &Encoded) -> Vec<u64> {
    let mut ids = Vec::new();
    wire::partition_ids(encoded, &mut |id| ids.push(id)).unwrap();
    ids
}

fn ids_of_points(encoded: &Encoded) -> Vec<u64> {
    let points = convert::points(encoded).unwrap();
    points.iter().map(|point| partition_id(&point.series)).collect()
}

#[test]
fn fixed_identities_have_fixed_ids_on_the_wire_and_decoded() {
    let Value::Array(cases) = serde_json::from_str(FIXED).unwrap() else {
        panic!("a list of cases");
    };
    assert_eq!(cases.len(), 42);
    for case in cases {
        let id = u64::from_str_radix(case["id"].as_str().unwrap(), 16).unwrap();
        let request = case["request"].to_string();
        let bytes = json::to_protobuf(Signal::Metrics, request.as_bytes()).unwrap();
        let encoded = checked(bytes.into());
        assert_eq!(ids_on_wire(&encoded), [id], "{}", case["case"]);
        assert_eq!(ids_of_points(&encoded), [id], "{}", case["case"]);
    }
}

/// One of the ways to write the same message in protobuf.
#[derive(Clone, Copy, Debug)]
struct Spelling {
    /// Fields stand in the reverse order of their numbers. Repeated ones keep theirs.
    is_reversed: bool,
    /// Varints have a byte more than necessary.
    is_padded: bool,
    /// Messages have a field that OTLP does not have.
    has_unknown: bool,
}

/// A field of a message: its number and its payload.
type TestField = (u64, Payload);

#[derive(Clone, Debug)]
enum Payload {
    Varint(u64),
    Fixed64(u64),
    Bytes(Vec<u8>),
    Message(Vec<TestField>),
}

impl Spelling {
    const PLAIN: Self = Self {
        is_reversed: false,
        is_padded: false,
        has_unknown: false,
    };

    fn message(self, mut fields: Vec<TestField>) -> Vec<u8> {
        if self.has_unknown {
            fields.insert(0, (99, Payload::Bytes(vec![1, 2, 3])));
        }
        if self.is_reversed {
            fields.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        }
        let mut bytes = Vec::new();
        for (number, payload) in fields {
            self.field(&mut bytes, number, payload);
        }
        bytes
    }

    fn field(self, to: &mut Vec<u8>, number: u64, payload: Payload) {
        match payload {
            Payload::Varint(value) => {
                self.varint(to, number << 3);
                self.varint(to, value);
            }
            Payload::Fixed64(bits) => {
                self.varint(to, number << 3 | 1);
                to.extend(bits.to_le_bytes());
            }
            Payload::Bytes(bytes) => {
                self.varint(to, number << 3 | 2);
                self.varint(to, bytes.len() as u64);
                to.extend(bytes);
            }
            Payload::Message(fields) => self.field(to, number, Payload::Bytes(self.message(fields))),
        }
    }

    fn varint(self, to: &mut Vec<u8>, number: u64) {
        wire::edit::push_varint(to, number);
        // There is no eleventh byte.
        if let Some(last) = to.last_mut().filter(|_| self.is_padded && number < 1 << 56) {
            *last |= 0x80;
            to.push(0);
        }
    }
}

fn spelling() -> impl Strategy<Value = Spelling> {
    any::<[bool; 3]>().prop_map(|[is_reversed, is_padded, has_unknown]| Spelling {
        is_reversed,
        is_padded,
        has_unknown,
    })
}

/// Text that need not be UTF-8.
fn text() -> impl Strategy<Value = Payload> {
    let some = prop_oneof![
        "[ab]{0,2}".prop_map(String::into_bytes),
        ".{0,3}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..4),
        Just(vec![b'a'; 130]),
    ];
    some.prop_map(Payload::Bytes)
}

/// The fields of an `AnyValue`; field 8 refers to a dictionary that requests do not have.
fn value() -> impl Strategy<Value = Vec<TestField>> {
    let leaf = prop_oneof![
        Just(Vec::new()),
        text().prop_map(|text| vec![(1, text)]),
        (0u64..3).prop_map(|truth| vec![(2, Payload::Varint(truth))]),
        any::<u64>().prop_map(|number| vec![(3, Payload::Varint(number))]),
        any::<u64>().prop_map(|bits| vec![(4, Payload::Fixed64(bits))]),
        prop::collection::vec(any::<u8>(), 0..4).prop_map(|bytes| vec![(7, Payload::Bytes(bytes))]),
        Just(vec![(8, Payload::Varint(1))]),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let values =
            prop::collection::vec(inner.clone().prop_map(|value| (1, Payload::Message(value))), 0..4);
        prop_oneof![
            values.prop_map(|values| vec![(5, Payload::Message(values))]),
            pairs(1, inner).prop_map(|pairs| vec![(6, Payload::Message(pairs))]),
        ]
    })
}

fn pairs(
    number: u64,
    value: impl Strategy<Value = Vec<TestField>> + 'static,
) -> impl Strategy<Value = Vec<TestField>> {
    let pair = (prop::option::of(text()), prop::option::of(value)).prop_map(move |(key, value)| {
        let key = key.map(|key| (1, key));
        let value = value.map(|value| (2, Payload::Message(value)));
        (number, Payload::Message(key.into_iter().chain(value).collect()))
    });
    prop::collection::vec(pair, 0..5)
}

fn texts(numbers: &'static [u64]) -> impl Strategy<Value = Vec<TestField>> {
    let field = |number: &u64| {
        let number = *number;
        prop::option::of(text().prop_map(move |text| (number, text)))
    };
    let fields: Vec<_> = numbers.iter().map(field).collect();
    fields.prop_map(|fields| fields.into_iter().flatten().collect())
}

fn joined(
    a: impl Strategy<Value = Vec<TestField>>,
    b: impl Strategy<Value = Vec<TestField>>,
) -> impl Strategy<Value = Vec<TestField>> {
    (a, b).prop_map(|(a, b)| [a, b].concat())
}

/// A metric of any kind with a few points: its fields without name, help and unit, which may be there as well.
fn metric() -> impl Strategy<Value = Vec<TestField>> {
    let kinds = prop_oneof![
        Just((5, 7)),
        Just((7, 7)),
        Just((9, 9)),
        Just((10, 1)),
        Just((11, 7))
    ];
    let data = kinds.prop_flat_map(|(kind, number)| {
        let points = prop::collection::vec(
            pairs(number, value()).prop_map(|pairs| (1, Payload::Message(pairs))),
            1..4,
        );
        let temporality = prop_oneof![0u64..4, Just(1 << 32 | 1), Just(u64::MAX)];
        (points, temporality, 0u64..3).prop_map(move |(mut fields, temporality, monotonic)| {
            if matches!(kind, 7 | 9 | 10) {
                fields.push((2, Payload::Varint(temporality)));
            }
            if kind == 7 {
                fields.push((3, Payload::Varint(monotonic)));
            }
            vec![(kind, Payload::Message(fields))]
        })
    });
    joined(texts(&[1, 2, 3]), joined(data, pairs(12, value())))
}

/// The fields of a request.
fn request() -> impl Strategy<Value = Vec<TestField>> {
    let within = |header: BoxedStrategy<Vec<TestField>>, inner: BoxedStrategy<Vec<TestField>>| {
        let header = prop::option::of(header.prop_map(|fields| (1, Payload::Message(fields))));
        let inner = prop::collection::vec(inner.prop_map(|fields| (2, Payload::Message(fields))), 0..3);
        let header = header.prop_map(|header| header.into_iter().collect());
        joined(header, joined(inner, texts(&[3]))).boxed()
    };
    let scope = within(
        joined(texts(&[1, 2]), pairs(3, value())).boxed(),
        metric().boxed(),
    );
    let resource = within(pairs(1, value()).boxed(), scope);
    prop::collection::vec(resource.prop_map(|fields| (1, Payload::Message(fields))), 0..3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn points_on_the_wire_have_the_ids_of_decoded_points_in_any_spelling(
        request in request(),
        spelling in spelling(),
    ) {
        let plain = checked(Spelling::PLAIN.message(request.clone()));
        let ids = ids_of_points(&plain);
        prop_assert_eq!(&ids_on_wire(&plain), &ids);
        let spelled = checked(spelling.message(request));
        prop_assert_eq!(&ids_on_wire(&spelled), &ids);
        prop_assert_eq!(&ids_of_points(&spelled), &ids);
        let rewritten = convert::encode_points(&convert::points(&plain).unwrap());
        let mut again = ids_on_wire(&rewritten);
        again.sort_unstable();
        let mut ids = ids;
        ids.sort_unstable();
        prop_assert_eq!(again, ids);
    }

    #[test]
    fn invalid_bytes_do_not_stop_the_reader(
        request in request(),
        at in any::<prop::sample::Index>(),
        byte: u8,
    ) {
        let mut bytes = Spelling::PLAIN.message(request);
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let broken = Encoded::one(Signal::Metrics, bytes.into(), 0);
        let _ = wire::partition_ids(&broken, &mut |_| {});
    }
}

#[test]
fn values_nested_beyond_the_limit_of_requests_are_read_as_empty() {
    let mut value = vec![(1, Payload::Bytes(b"x".to_vec()))];
    for _ in 0..1000 {
        value = vec![(5, Payload::Message(vec![(1, Payload::Message(value))]))];
    }
    let mut fields = vec![(1, Payload::Bytes(b"k".to_vec())), (2, Payload::Message(value))];
    for number in [7, 1, 5, 2, 2, 1] {
        fields = vec![(number, Payload::Message(fields))];
    }
    let bytes = Spelling::PLAIN.message(fields);
    assert!(wire::check(Signal::Metrics, bytes.clone().into()).is_err());
    let unchecked = Encoded::one(Signal::Metrics, bytes.into(), 1);
    assert_eq!(ids_on_wire(&unchecked).len(), 1);
}
