// SPDX-License-Identifier: Apache-2.0

//! Converts one JSON value that is neither list nor object to protobuf.

use base64::Engine;

use crate::schema::Type;
use crate::wire::edit::{push_varint, zigzag};

/// A value as it stands in the text.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scalar<'a> {
    Bool(bool),
    /// A number without fraction and exponent, as far as 64 bits hold it.
    Whole(i128),
    Double(f64),
    Text(&'a str),
}

impl Scalar<'_> {
    /// For messages.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Bool(_) => "a boolean",
            Self::Whole(_) | Self::Double(_) => "a number",
            Self::Text(_) => "a string",
        }
    }

    /// How many bytes it takes to append it as this type, at most.
    pub(super) fn bytes(&self, kind: Type) -> usize {
        match (self, kind) {
            // It is in another alphabet meanwhile, and decoded.
            (Self::Text(text), Type::Bytes) => text.len().saturating_mul(3),
            (Self::Text(text), _) => text.len(),
            _ => 0,
        }
    }

    /// Appends the value without tag and length. The error is what was expected instead.
    pub(super) fn push(self, kind: Type, wire: &mut Vec<u8>) -> Result<(), String> {
        match kind {
            Type::String => wire.extend_from_slice(self.text()?.as_bytes()),
            Type::Bytes => wire.extend_from_slice(&base64_bytes(self.text()?)?),
            Type::Id(length) => id(self.text()?, length, wire)?,
            Type::Bool => match self {
                Self::Bool(value) => push_varint(wire, value.into()),
                _ => return Err("true or false".to_owned()),
            },
            Type::Double => wire.extend_from_slice(&self.double()?.to_le_bytes()),
            Type::Int64 => push_varint(wire, self.whole::<i64>()?.cast_unsigned()), // two's complement is the wire form
            Type::Uint64 => push_varint(wire, self.whole()?),
            Type::Fixed64 => wire.extend_from_slice(&self.whole::<u64>()?.to_le_bytes()),
            Type::Sfixed64 => wire.extend_from_slice(&self.whole::<i64>()?.to_le_bytes()),
            // Sign-extended on the wire.
            Type::Int32 => push_varint(wire, i64::from(self.whole::<i32>()?).cast_unsigned()),
            Type::Uint32 => push_varint(wire, self.whole::<u32>()?.into()),
            Type::Sint32 => push_varint(wire, zigzag(self.whole::<i32>()?.into())),
            Type::Fixed32 => wire.extend_from_slice(&self.whole::<u32>()?.to_le_bytes()),
            Type::Message(_) => return Err("an object".to_owned()),
        }
        Ok(())
    }

    fn text(&self) -> Result<&str, String> {
        match self {
            Self::Text(text) => Ok(text),
            _ => Err("a string".to_owned()),
        }
    }

    /// A whole number: a JSON number, also one with a zero fraction, or its decimal digits as a string.
    fn whole<T: TryFrom<i128>>(self) -> Result<T, String> {
        let number = match self {
            Self::Text(digits) => digits.parse().ok(),
            Self::Whole(number) => Some(number),
            // Exact: whole and below 2^53.
            Self::Double(number) if number.fract() == 0.0 && number.abs() < 9e15 => Some(number as i128),
            Self::Double(_) | Self::Bool(_) => None,
        };
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| "a whole number in range".to_owned())
    }

    /// A number, its digits as a string, or one of the three that JSON has no digits for.
    fn double(self) -> Result<f64, String> {
        let number = match self {
            Self::Whole(number) => Some(number as f64),
            Self::Double(number) => Some(number),
            Self::Text("NaN") => Some(f64::NAN),
            Self::Text("Infinity") => Some(f64::INFINITY),
            Self::Text("-Infinity") => Some(f64::NEG_INFINITY),
            Self::Text(digits) => digits.parse().ok().filter(|number: &f64| number.is_finite()),
            Self::Bool(_) => None,
        };
        number.ok_or_else(|| "a number".to_owned())
    }
}

/// Standard or URL-safe alphabet, padded or not (ProtoJSON accepts all four).
fn base64_bytes(text: &str) -> Result<Vec<u8>, String> {
    let standard = text.trim_end_matches('=').replace('-', "+").replace('_', "/");
    base64::engine::general_purpose::STANDARD_NO_PAD
        .decode(standard)
        .map_err(|_| "base64".to_owned())
}

/// None, or exactly `length` bytes.
fn id(text: &str, length: usize, wire: &mut Vec<u8>) -> Result<(), String> {
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let expected = || format!("{} hexadecimal digits", length * 2);
    if text.len() > length * 2 {
        return Err(expected());
    }
    let byte = |pair: &[u8]| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?);
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
    let bytes = bytes.filter(|bytes| bytes.is_empty() || bytes.len() == length);
    wire.extend(bytes.ok_or_else(expected)?);
    Ok(())
}
