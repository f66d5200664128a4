//! Attributes: from OTLP's types to canonical sets.

use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::any_value::Value as ProtoValue;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList};
use tidegate_engine::{AttributeValue, Attributes};

/// A canonical set.
pub fn attributes_from_proto(attributes: Vec<KeyValue>) -> Attributes {
    Attributes::new(
        attributes
            .into_iter()
            .map(|pair| (Arc::from(pair.key), value_from_proto(pair.value)))
            .collect(),
    )
}

/// A value. Prost bounds how deeply values may nest.
pub fn value_from_proto(value: Option<AnyValue>) -> AttributeValue {
    let Some(value) = value.and_then(|value| value.value) else {
        return AttributeValue::Empty;
    };
    match value {
        ProtoValue::StringValue(text) => AttributeValue::Str(text.into()),
        ProtoValue::BoolValue(truth) => AttributeValue::Bool(truth),
        ProtoValue::IntValue(number) => AttributeValue::Int(number),
        ProtoValue::DoubleValue(number) => AttributeValue::Double(number),
        ProtoValue::BytesValue(bytes) => AttributeValue::Bytes(bytes.into()),
        ProtoValue::ArrayValue(list) => AttributeValue::Array(
            list.values
                .into_iter()
                .map(|value| value_from_proto(Some(value)))
                .collect(),
        ),
        ProtoValue::KvlistValue(list) => AttributeValue::Map(attributes_from_proto(list.values)),
        // References into a dictionary that export requests of these signals don't have.
        _ => AttributeValue::Empty,
    }
}

/// A set as OTLP has it.
pub fn attributes_to_proto(attributes: &Attributes) -> Vec<KeyValue> {
    let pair = |(key, value): (&Arc<str>, &AttributeValue)| KeyValue {
        key: key.to_string(),
        value: Some(value_to_proto(value)),
        ..Default::default()
    };
    attributes.iter().map(pair).collect()
}

/// A value as OTLP has it.
pub fn value_to_proto(value: &AttributeValue) -> AnyValue {
    let value = match value {
        AttributeValue::Empty => None,
        AttributeValue::Str(text) => Some(ProtoValue::StringValue(text.to_string())),
        AttributeValue::Bool(truth) => Some(ProtoValue::BoolValue(*truth)),
        AttributeValue::Int(number) => Some(ProtoValue::IntValue(*number)),
        AttributeValue::Double(number) => Some(ProtoValue::DoubleValue(*number)),
        AttributeValue::Bytes(bytes) => Some(ProtoValue::BytesValue(bytes.to_vec())),
        AttributeValue::Array(values) => Some(ProtoValue::ArrayValue(ArrayValue {
            values: values.iter().map(value_to_proto).collect(),
        })),
        AttributeValue::Map(map) => Some(ProtoValue::KvlistValue(KeyValueList {
            values: attributes_to_proto(map),
        })),
    };
    AnyValue { value }
}
