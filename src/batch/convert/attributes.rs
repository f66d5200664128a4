//! Attributes: from OTLP's types to canonical sets.

use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::any_value::Value as ProtoValue;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
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
