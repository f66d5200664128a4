// SPDX-License-Identifier: Apache-2.0

//! The memory of a decoded event stream message, estimated from its bytes before the decoding.

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};

use super::proto;
use super::session::{ELEMENT_BYTES, FIXED_BYTES};
use crate::batch::wire::proto::{Fields, WireType};

/// Fields of [`proto::EventBatch`] that declare something, and that of its events.
const SOURCE: u32 = 3;
const KINDS: u32 = 4;
const EVENTS: u32 = 5;

/// The decoder refuses messages that lie deeper in each other.
const MAX_DEPTH: usize = 100;

/// The growth factor of lists. A list doubles its length, and has at least four elements.
const GROWTH: usize = 2;

/// A text beside its bytes: what the allocator rounds up.
const TEXT_BYTES: usize = 16;

/// The ratio of a one-byte number: 8 bytes in a doubled list, and 8 in the list of valid ones.
const NUMBERS_RATIO: usize = 24;

/// The result of an estimate.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Weighed {
    /// Kinds that it declares.
    pub(super) kinds: usize,
    /// Bytes of kinds and of its source.
    pub(super) declared: usize,
    /// The most bytes of the decoded declarations.
    pub(super) decoded_declared: usize,
    /// The most bytes of the whole decoded message.
    pub(super) decoded: usize,
    /// The most bytes of the kinds and source, which are kept until the connection closes.
    pub(super) kept: usize,
}

/// Weighs a message.
///
/// # Errors
/// It is none.
pub(super) fn weigh(message: &[u8]) -> Result<Weighed, &'static str> {
    let mut weighed = Weighed::default();
    for field in Fields::new(message) {
        let field = field?;
        // A source is kept twice.
        let (part, copies) = match (field.number, field.wire) {
            (SOURCE, WireType::Bytes) => (Part::Source, 2),
            (KINDS, WireType::Bytes) => (Part::Kind, 1),
            _ => continue,
        };
        let mut tally = Tally::default();
        tally.add(part, field.payload, MAX_DEPTH)?;
        let length = field.payload.len();
        weighed.declared += length;
        weighed.kinds += usize::from(field.number == KINDS);
        weighed.decoded_declared += tally.bytes;
        weighed.kept += copies * (FIXED_BYTES + 2 * length + ELEMENT_BYTES * tally.elements);
    }
    if weighed.kinds > 0 {
        weighed.decoded_declared += GROWTH * (weighed.kinds + 1) * size_of::<proto::Kind>();
    }
    let numbers = message.len() - weighed.declared;
    weighed.decoded = weighed.decoded_declared + numbers * NUMBERS_RATIO;
    Ok(weighed)
}

/// The number of events of a message, without decoding it. It counts the events before an error.
pub(super) fn count_events(message: &[u8]) -> usize {
    let fields = Fields::new(message).map_while(Result::ok);
    let columns = fields.filter(|field| field.number == EVENTS);
    let events = columns.map(|field| match field.wire {
        // The last byte of each number is below 0x80.
        WireType::Bytes => field.payload.iter().filter(|byte| byte.is_ascii()).count(),
        WireType::Varint => 1,
        WireType::Fixed64 | WireType::Fixed32 => 0,
    });
    events.sum()
}

/// The bytes of the columns of a decoded message, with copies of the valid events.
pub(super) fn columns(batch: &proto::EventBatch) -> usize {
    let of_words = [
        batch.doubles.capacity(),
        batch.integers.capacity(),
        batch.times_unix_nano.capacity(),
        batch.weights.capacity(),
    ];
    let words: usize = of_words.iter().sum();
    // A copy has a place and a short number for each event.
    let of_events = 4 * batch.events.capacity() + (8 + 2) * batch.events.len();
    2 * 8 * words + of_events
}

/// Messages within a declaration.
#[derive(Clone, Copy)]
enum Part {
    Source,
    Scope,
    Kind,
    Attribute,
    Value,
    List,
    Map,
}

/// The content of a field of such a message.
enum Holds {
    Text,
    /// A message that takes nothing beside the one that it is in.
    One(Part),
    /// An element of a list, with its size in bytes.
    Element(Part, usize),
}

impl Part {
    fn field(self, number: u32) -> Option<Holds> {
        let held = match (self, number) {
            (Self::Source, 1 | 3) | (Self::Scope, 3) | (Self::Kind, 5) | (Self::Map, 1) => {
                Holds::Element(Self::Attribute, size_of::<KeyValue>())
            }
            (Self::List, 1) => Holds::Element(Self::Value, size_of::<AnyValue>()),
            (Self::Source, 2) => Holds::One(Self::Scope),
            (Self::Attribute, 2) => Holds::One(Self::Value),
            (Self::Value, 5) => Holds::One(Self::List),
            (Self::Value, 6) => Holds::One(Self::Map),
            (Self::Scope, 1 | 2) | (Self::Kind, 1..=3) | (Self::Attribute, 1) | (Self::Value, 1 | 7) => {
                Holds::Text
            }
            _ => return None,
        };
        Some(held)
    }
}

/// The totals of a declaration.
#[derive(Default)]
struct Tally {
    /// In lists and texts.
    bytes: usize,
    /// Attributes, and elements of their values.
    elements: usize,
}

impl Tally {
    fn add(&mut self, part: Part, message: &[u8], depth: usize) -> Result<(), &'static str> {
        let depth = depth
            .checked_sub(1)
            .ok_or("messages lie too deep in each other")?;
        let mut lists = 0_u32;
        for field in Fields::new(message) {
            let field = field?;
            if field.wire != WireType::Bytes {
                continue;
            }
            match part.field(field.number) {
                None => {}
                Some(Holds::Text) => self.bytes += TEXT_BYTES + field.payload.len(),
                Some(Holds::One(inner)) => self.add(inner, field.payload, depth)?,
                Some(Holds::Element(inner, size)) => {
                    // Fields that hold elements have numbers up to 5.
                    let list = 1 << field.number;
                    let is_first = lists & list == 0;
                    lists |= list;
                    self.bytes += GROWTH * size * (1 + usize::from(is_first));
                    self.elements += 1;
                    self.add(inner, field.payload, depth)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::common::v1::{ArrayValue, InstrumentationScope, KeyValueList};
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::receivers::uds::session::weight;

    #[test]
    fn kinds_are_counted_and_no_decoded_form_is_larger_than_it_weighs() {
        let kind = proto::Kind {
            name: "a".to_owned(),
            attributes: vec![KeyValue::default(); 1000],
            ..Default::default()
        };
        let batch = proto::EventBatch {
            kinds: vec![kind; 5],
            events: vec![1; 1000],
            integers: vec![1; 1000],
            ..Default::default()
        };
        let weighed = weigh(&batch.encode_to_vec()).unwrap();
        assert_eq!(weighed.kinds, 5);
        assert!(weighed.declared > 5 * 2000 && weighed.declared < 5 * 2010);
        let takes = 5 * (size_of::<proto::Kind>() + 1000 * size_of::<KeyValue>()) + 1000 * (4 + 8);
        assert!(weighed.decoded >= takes, "{} < {takes}", weighed.decoded);
    }

    #[test]
    fn no_message_is_an_error_and_an_empty_one_is_none() {
        assert_eq!(weigh(&[]), Ok(Weighed::default()));
        assert!(weigh(&[3, 0xff]).is_err());
    }

    #[test]
    fn values_that_lie_too_deep_are_refused_by_weight_as_by_the_decoder() {
        let nested = |levels: usize| {
            let mut value = AnyValue::default();
            for _ in 0..levels {
                let values = vec![value];
                value = AnyValue {
                    value: Some(Value::ArrayValue(ArrayValue { values })),
                };
            }
            let attribute = KeyValue {
                value: Some(value),
                ..Default::default()
            };
            let batch = proto::EventBatch {
                kinds: vec![proto::Kind {
                    attributes: vec![attribute],
                    ..Default::default()
                }],
                ..Default::default()
            };
            batch.encode_to_vec()
        };
        for levels in 40..60 {
            let message = nested(levels);
            let is_decoded = proto::EventBatch::decode(&*message).is_ok();
            assert_eq!(weigh(&message).is_ok(), is_decoded, "{levels} levels");
        }
    }

    #[test]
    fn events_are_counted_as_they_are_decoded() {
        let mut message = proto::EventBatch {
            kinds: vec![proto::Kind::default()],
            events: vec![0, 127, 128, 70_000],
            integers: vec![1; 4],
            ..Default::default()
        }
        .encode_to_vec();
        // One that is not packed.
        message.extend([5 << 3, 7]);
        let batch = proto::EventBatch::decode(&*message).unwrap();
        assert_eq!((batch.events.len(), count_events(&message)), (5, 5));
        message.push(0xff);
        assert_eq!(count_events(&message), 5);
    }

    /// The allocations of lists and texts.
    fn of_attributes(attributes: &Vec<KeyValue>) -> usize {
        let inside = attributes
            .iter()
            .map(|attribute| attribute.key.capacity() + attribute.value.as_ref().map_or(0, of_value));
        attributes.capacity() * size_of::<KeyValue>() + inside.sum::<usize>()
    }

    fn of_value(value: &AnyValue) -> usize {
        match &value.value {
            Some(Value::StringValue(text)) => text.capacity(),
            Some(Value::BytesValue(bytes)) => bytes.capacity(),
            Some(Value::ArrayValue(list)) => {
                let inside: usize = list.values.iter().map(of_value).sum();
                list.values.capacity() * size_of::<AnyValue>() + inside
            }
            Some(Value::KvlistValue(map)) => of_attributes(&map.values),
            _ => 0,
        }
    }

    fn of_declared(batch: &proto::EventBatch) -> usize {
        let kinds = batch.kinds.iter().map(|kind| {
            let texts = kind.name.capacity() + kind.unit.capacity() + kind.description.capacity();
            texts + of_attributes(&kind.attributes)
        });
        let source = batch.source.iter().map(|source| {
            let scope = source.scope.iter().map(|scope| {
                scope.name.capacity() + scope.version.capacity() + of_attributes(&scope.attributes)
            });
            of_attributes(&source.resource) + of_attributes(&source.attributes) + scope.sum::<usize>()
        });
        let inside = kinds.sum::<usize>() + source.sum::<usize>();
        batch.kinds.capacity() * size_of::<proto::Kind>() + inside
    }

    fn attributes() -> impl Strategy<Value = Vec<KeyValue>> {
        let value = prop_oneof![
            "[a-c]{0,12}".prop_map(Value::StringValue),
            any::<i64>().prop_map(Value::IntValue),
            proptest::collection::vec(any::<u8>(), 0..9).prop_map(Value::BytesValue),
        ];
        let value = proptest::option::of(value).prop_map(|value| AnyValue { value });
        let value = value.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(|values| AnyValue {
                    value: Some(Value::ArrayValue(ArrayValue { values })),
                }),
                proptest::collection::vec(inner, 0..5).prop_map(|values| {
                    let named = |value| KeyValue {
                        value: Some(value),
                        ..Default::default()
                    };
                    let values = values.into_iter().map(named).collect();
                    AnyValue {
                        value: Some(Value::KvlistValue(KeyValueList { values })),
                    }
                }),
            ]
        });
        let attribute = ("[a-c]{0,9}", proptest::option::of(value)).prop_map(|(key, value)| KeyValue {
            key,
            value,
            ..Default::default()
        });
        proptest::collection::vec(attribute, 0..6)
    }

    proptest! {
        #[test]
        fn no_declaration_takes_more_than_it_weighs(
            kinds in proptest::collection::vec(("[a-z]{0,20}", attributes()), 0..6),
            source in proptest::option::of((attributes(), attributes(), attributes())),
            events in proptest::collection::vec(any::<u32>(), 0..50),
            doubles in proptest::collection::vec(any::<f64>(), 0..50),
        ) {
            let kinds = kinds.into_iter().map(|(name, attributes)| proto::Kind {
                name,
                attributes,
                ..Default::default()
            });
            let source = source.map(|(resource, attributes, of_scope)| proto::Source {
                resource,
                attributes,
                scope: Some(InstrumentationScope {
                    attributes: of_scope,
                    ..Default::default()
                }),
            });
            let batch = proto::EventBatch {
                kinds: kinds.collect(),
                source,
                events,
                doubles,
                ..Default::default()
            };
            let message = batch.encode_to_vec();
            let weighed = weigh(&message).unwrap();
            let decoded = proto::EventBatch::decode(&*message).unwrap();
            prop_assert!(of_declared(&decoded) <= weighed.decoded_declared);
            prop_assert!(weight(&decoded) <= weighed.kept);
            prop_assert_eq!(count_events(&message), decoded.events.len());
        }
    }
}
