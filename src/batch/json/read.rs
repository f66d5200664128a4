//! JSON to protobuf bytes.

use base64::Engine;
use serde_json::{Map, Value};

use super::JsonError;
use crate::batch::schema::{Field, Message, Type};
use crate::batch::wire::edit::{push_message, push_varint};

/// Appends the fields of a message.
pub(super) fn message(schema: &'static Message, value: &Value, wire: &mut Vec<u8>) -> Result<(), JsonError> {
    let Value::Object(object) = value else {
        return Err(expected("an object", value));
    };
    fields(schema, object, wire)
}

fn fields(
    schema: &'static Message,
    object: &Map<String, Value>,
    wire: &mut Vec<u8>,
) -> Result<(), JsonError> {
    for (name, value) in object {
        // Unknown fields are ignored (OTLP: MUST); null is as good as absent.
        let Some(field) = schema.fields.iter().find(|field| field.name == name) else {
            continue;
        };
        if !value.is_null() {
            field_value(field, value, wire).map_err(|error| error.inside(name))?;
        }
    }
    Ok(())
}

fn field_value(field: &'static Field, value: &Value, wire: &mut Vec<u8>) -> Result<(), JsonError> {
    if !field.repeated {
        return single(field, value, wire);
    }
    let Value::Array(values) = value else {
        return Err(expected("an array", value));
    };
    let at = |index: usize| move |error: JsonError| error.inside(&format!("[{index}]"));
    if is_packed(field.kind) {
        let mut packed = Vec::new();
        for (index, value) in values.iter().enumerate() {
            scalar(field.kind, value, &mut packed).map_err(at(index))?;
        }
        push_message(wire, field.number, &packed);
        return Ok(());
    }
    for (index, value) in values.iter().enumerate() {
        single(field, value, wire).map_err(at(index))?;
    }
    Ok(())
}

fn is_packed(kind: Type) -> bool {
    !matches!(kind, Type::String | Type::Bytes | Type::Id(_) | Type::Message(_))
}

fn single(field: &'static Field, value: &Value, wire: &mut Vec<u8>) -> Result<(), JsonError> {
    let payload = match field.kind {
        Type::Message(schema) => {
            let mut inner = Vec::new();
            message(schema, value, &mut inner)?;
            inner
        }
        Type::String => text(value)?.as_bytes().to_vec(),
        Type::Bytes => base64_bytes(text(value)?)?,
        Type::Id(length) => id(text(value)?, length)?,
        kind => {
            push_varint(wire, u64::from(field.number) << 3 | wire_type(kind));
            return scalar(kind, value, wire);
        }
    };
    push_message(wire, field.number, &payload);
    Ok(())
}

fn wire_type(kind: Type) -> u64 {
    match kind {
        Type::Double | Type::Fixed64 | Type::Sfixed64 => 1,
        Type::Fixed32 => 5,
        _ => 0,
    }
}

fn scalar(kind: Type, value: &Value, wire: &mut Vec<u8>) -> Result<(), JsonError> {
    match kind {
        Type::Bool => push_varint(
            wire,
            u64::from(value.as_bool().ok_or_else(|| expected("true or false", value))?),
        ),
        Type::Double => wire.extend_from_slice(&double(value)?.to_le_bytes()),
        Type::Int64 => push_varint(wire, whole::<i64>(value)? as u64), // two's complement is the wire form
        Type::Uint64 => push_varint(wire, whole::<u64>(value)?),
        Type::Fixed64 => wire.extend_from_slice(&whole::<u64>(value)?.to_le_bytes()),
        Type::Sfixed64 => wire.extend_from_slice(&whole::<i64>(value)?.to_le_bytes()),
        Type::Int32 => push_varint(wire, i64::from(whole::<i32>(value)?) as u64), // sign-extended on the wire
        Type::Uint32 => push_varint(wire, u64::from(whole::<u32>(value)?)),
        Type::Sint32 => {
            let number = whole::<i32>(value)?;
            push_varint(wire, u64::from((number << 1 ^ number >> 31) as u32)); // zigzag
        }
        Type::Fixed32 => wire.extend_from_slice(&whole::<u32>(value)?.to_le_bytes()),
        Type::String | Type::Bytes | Type::Id(_) | Type::Message(_) => {}
    }
    Ok(())
}

fn text(value: &Value) -> Result<&str, JsonError> {
    value.as_str().ok_or_else(|| expected("a string", value))
}

/// A whole number: a JSON number, also one with a zero fraction, or its decimal digits as a string.
fn whole<T: TryFrom<i128>>(value: &Value) -> Result<T, JsonError> {
    let number = match value {
        Value::String(digits) => digits.parse::<i128>().ok(),
        Value::Number(number) => number
            .as_i64()
            .map(i128::from)
            .or_else(|| number.as_u64().map(i128::from))
            // Exact: whole and below 2^53.
            .or_else(|| {
                number
                    .as_f64()
                    .filter(|n| n.fract() == 0.0 && n.abs() < 9e15)
                    .map(|n| n as i128)
            }),
        _ => None,
    };
    number
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| expected("a whole number in range", value))
}

/// A number, its digits as a string, or one of the three that JSON has no digits for.
fn double(value: &Value) -> Result<f64, JsonError> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            digits => digits.parse().ok().filter(|number: &f64| number.is_finite()),
        },
        _ => None,
    };
    number.ok_or_else(|| expected("a number", value))
}

/// Standard or URL-safe alphabet, padded or not (ProtoJSON accepts all four).
fn base64_bytes(text: &str) -> Result<Vec<u8>, JsonError> {
    let standard = text.trim_end_matches('=').replace('-', "+").replace('_', "/");
    base64::engine::general_purpose::STANDARD_NO_PAD
        .decode(standard)
        .map_err(|_| JsonError::of("expected base64".to_owned()))
}

fn id(text: &str, length: usize) -> Result<Vec<u8>, JsonError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let wrong = || JsonError::of(format!("expected {} hexadecimal digits", length * 2));
    if text.len() != length * 2 || !text.is_ascii() {
        return Err(wrong());
    }
    let byte = |at: usize| {
        text.get(at * 2..at * 2 + 2)
            .and_then(|digits| u8::from_str_radix(digits, 16).ok())
    };
    (0..length)
        .map(|at| byte(at).filter(|_| !text.contains('+')).ok_or_else(wrong))
        .collect()
}

fn expected(what: &str, found: &Value) -> JsonError {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    JsonError::of(format!("expected {what}, found {found}"))
}

impl JsonError {
    fn of(problem: String) -> Self {
        Self {
            problem,
            path: "$".to_owned(),
        }
    }

    fn inside(mut self, name: &str) -> Self {
        self.path = match self.path.as_str() {
            "$" => name.to_owned(),
            inner if inner.starts_with('[') => format!("{name}{inner}"),
            inner => format!("{name}.{inner}"),
        };
        self
    }
}
