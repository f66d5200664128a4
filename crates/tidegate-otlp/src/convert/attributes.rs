// SPDX-License-Identifier: Apache-2.0

//! Attributes: from OTLP's types to canonical sets.

use opentelemetry_proto::tonic::common::v1::any_value::Value as ProtoValue;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList};
use tidegate_engine::{AttributeList, AttributeRef, AttributeValue, Attributes, AttributesBuilder, MapRef};

/// A canonical set.
pub fn attributes_from_proto(attributes: &[KeyValue]) -> Attributes {
    build_attributes(attributes, &mut AttributesBuilder::default())
}

/// A canonical set, with a builder that has nothing in it: code that makes many uses one for all.
pub(super) fn build_attributes(attributes: &[KeyValue], builder: &mut AttributesBuilder) -> Attributes {
    for pair in attributes {
        with_value(pair.value.as_ref(), &mut |value| builder.push(&pair.key, value));
    }
    builder.finish()
}

/// A value. Prost bounds how deeply values may nest.
pub fn value_from_proto(value: Option<AnyValue>) -> AttributeValue {
    let mut kept = AttributeValue::Empty;
    with_value(value.as_ref(), &mut |value| kept = value.to_value());
    kept
}

/// Lends the value to a function: most values need no allocation of their own.
fn with_value(value: Option<&AnyValue>, give: &mut dyn FnMut(AttributeRef<'_>)) {
    match value.and_then(|value| value.value.as_ref()) {
        Some(ProtoValue::StringValue(text)) => give(AttributeRef::Str(text)),
        Some(ProtoValue::BoolValue(truth)) => give(AttributeRef::Bool(*truth)),
        Some(ProtoValue::IntValue(number)) => give(AttributeRef::Int(*number)),
        Some(ProtoValue::DoubleValue(number)) => give(AttributeRef::Double(*number)),
        Some(ProtoValue::BytesValue(bytes)) => give(AttributeRef::Bytes(bytes)),
        Some(ProtoValue::ArrayValue(array)) => {
            let mut list = AttributeList::default();
            for value in &array.values {
                with_value(Some(value), &mut |value| list.push(value));
            }
            give(AttributeRef::Array(list.view()));
        }
        Some(ProtoValue::KvlistValue(map)) => {
            give(AttributeRef::Map(attributes_from_proto(&map.values).view()));
        }
        // Nothing, or references into a dictionary that export requests of these signals don't have.
        _ => give(AttributeRef::Empty),
    }
}

/// A set as OTLP has it.
pub fn attributes_to_proto(attributes: &Attributes) -> Vec<KeyValue> {
    map_to_proto(attributes.view())
}

fn map_to_proto(map: MapRef<'_>) -> Vec<KeyValue> {
    let pair = |(key, value): (&str, AttributeRef<'_>)| KeyValue {
        key: key.to_owned(),
        value: Some(value_to_proto(value)),
        ..Default::default()
    };
    map.iter().map(pair).collect()
}

fn value_to_proto(value: AttributeRef<'_>) -> AnyValue {
    let value = match value {
        AttributeRef::Empty => None,
        AttributeRef::Str(text) => Some(ProtoValue::StringValue(text.to_owned())),
        AttributeRef::Bool(truth) => Some(ProtoValue::BoolValue(truth)),
        AttributeRef::Int(number) => Some(ProtoValue::IntValue(number)),
        AttributeRef::Double(number) => Some(ProtoValue::DoubleValue(number)),
        AttributeRef::Bytes(bytes) => Some(ProtoValue::BytesValue(bytes.to_vec())),
        AttributeRef::Array(list) => Some(ProtoValue::ArrayValue(ArrayValue {
            values: list.iter().map(value_to_proto).collect(),
        })),
        AttributeRef::Map(map) => Some(ProtoValue::KvlistValue(KeyValueList {
            values: map_to_proto(map),
        })),
    };
    AnyValue { value }
}
