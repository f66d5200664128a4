// SPDX-License-Identifier: Apache-2.0

//! Protobuf bytes to JSON.

use base64::Engine;
use tidegate_model::varint::unzigzag;

use crate::schema::{Message, SchemaField, Type};
use crate::wire::proto::{Field as WireField, Fields, WireType, varint};

/// How deep messages may nest: the `AnyValue`s of an attribute are the only ones that nest at will.
const MAX_DEPTH: usize = 100;

type Problem = &'static str;

/// Appends a message as an object.
pub(super) fn message(schema: &'static Message, wire: &[u8], json: &mut String) -> Result<(), Problem> {
    object(schema, wire, json, 0)
}

fn object(schema: &'static Message, wire: &[u8], json: &mut String, depth: usize) -> Result<(), Problem> {
    if depth > MAX_DEPTH {
        return Err("messages nested too deeply");
    }
    let present: Vec<WireField<'_>> = Fields::new(wire).collect::<Result<_, _>>()?;
    json.push('{');
    let mut first = true;
    for field in schema.fields {
        let found: Vec<&WireField<'_>> = present
            .iter()
            .filter(|wire| wire.number == field.number)
            .collect();
        let Some(last) = found.last() else { continue };
        if !std::mem::take(&mut first) {
            json.push(',');
        }
        json.push('"');
        json.push_str(field.name);
        json.push_str("\":");
        match (field.repeated, field.kind) {
            (true, _) => array(field, &found, json, depth)?,
            // Pieces of a singular message are merged, which is what concatenation does.
            (false, Type::Message(inner)) if found.len() > 1 => {
                let merged: Vec<u8> = found
                    .iter()
                    .flat_map(|piece| piece.payload.iter().copied())
                    .collect();
                object(inner, &merged, json, depth + 1)?;
            }
            (false, _) => single(field.kind, last, json, depth)?,
        }
    }
    json.push('}');
    Ok(())
}

fn array(
    field: &SchemaField,
    found: &[&WireField<'_>],
    json: &mut String,
    depth: usize,
) -> Result<(), Problem> {
    json.push('[');
    let mut first = true;
    let mut comma = |json: &mut String| {
        if !std::mem::take(&mut first) {
            json.push(',');
        }
    };
    for wire in found {
        let packable = !matches!(
            field.kind,
            Type::String | Type::Bytes | Type::Id(_) | Type::Message(_)
        );
        if packable && wire.wire == WireType::Bytes {
            let mut rest = wire.payload;
            while !rest.is_empty() {
                comma(json);
                rest = scalar(field.kind, rest, json)?;
            }
        } else {
            comma(json);
            single(field.kind, wire, json, depth)?;
        }
    }
    json.push(']');
    Ok(())
}

fn single(kind: Type, field: &WireField<'_>, json: &mut String, depth: usize) -> Result<(), Problem> {
    let is_bytes = matches!(kind, Type::String | Type::Bytes | Type::Id(_) | Type::Message(_));
    if is_bytes != (field.wire == WireType::Bytes) {
        return Err("a field of another type than it should be");
    }
    match kind {
        Type::Message(schema) => object(schema, field.payload, json, depth + 1)?,
        Type::String => quoted(&String::from_utf8_lossy(field.payload), json),
        Type::Bytes => quoted(
            &base64::engine::general_purpose::STANDARD.encode(field.payload),
            json,
        ),
        Type::Id(_) => {
            json.push('"');
            for byte in field.payload {
                json.push_str(&format!("{byte:02x}"));
            }
            json.push('"');
        }
        kind => {
            scalar(kind, field.payload, json)?;
        }
    }
    Ok(())
}

/// Appends a number and returns what is behind it.
fn scalar<'a>(kind: Type, wire: &'a [u8], json: &mut String) -> Result<&'a [u8], Problem> {
    const SHORT: Problem = "a number that ends beyond its field";
    let fixed64 = || wire.split_first_chunk::<8>().ok_or(SHORT);
    let fixed32 = || wire.split_first_chunk::<4>().ok_or(SHORT);
    let variable = || {
        let (number, used) = varint(wire).ok_or(SHORT)?;
        Ok::<_, Problem>((number, wire.get(used..).unwrap_or_default()))
    };
    let mut digits = itoa::Buffer::new();
    Ok(match kind {
        Type::Double => {
            let (bytes, rest) = fixed64()?;
            double(f64::from_le_bytes(*bytes), json);
            rest
        }
        Type::Fixed64 => {
            let (bytes, rest) = fixed64()?;
            quoted_digits(digits.format(u64::from_le_bytes(*bytes)), json);
            rest
        }
        Type::Sfixed64 => {
            let (bytes, rest) = fixed64()?;
            quoted_digits(digits.format(i64::from_le_bytes(*bytes)), json);
            rest
        }
        Type::Fixed32 => {
            let (bytes, rest) = fixed32()?;
            json.push_str(digits.format(u32::from_le_bytes(*bytes)));
            rest
        }
        _ => {
            let (number, rest) = variable()?;
            match kind {
                Type::Bool => json.push_str(if number == 0 { "false" } else { "true" }),
                Type::Int64 => quoted_digits(digits.format(number as i64), json), // two's complement
                Type::Uint64 => quoted_digits(digits.format(number), json),
                // The low 32 bits, as protobuf reads 32-bit fields.
                Type::Int32 => json.push_str(digits.format(number as i32)),
                Type::Sint32 => json.push_str(digits.format(unzigzag(u64::from(number as u32)))),
                _ => json.push_str(digits.format(number as u32)),
            }
            rest
        }
    })
}

fn double(number: f64, json: &mut String) {
    if number.is_nan() {
        json.push_str("\"NaN\"");
    } else if number.is_infinite() {
        json.push_str(if number > 0.0 {
            "\"Infinity\""
        } else {
            "\"-Infinity\""
        });
    } else {
        json.push_str(zmij::Buffer::new().format_finite(number));
    }
}

fn quoted_digits(digits: &str, json: &mut String) {
    json.push('"');
    json.push_str(digits);
    json.push('"');
}

fn quoted(text: &str, json: &mut String) {
    // A string always has a JSON form.
    json.push_str(&serde_json::to_string(text).unwrap_or_default());
}
