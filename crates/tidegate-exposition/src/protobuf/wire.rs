// SPDX-License-Identifier: Apache-2.0

//! Fields of protobuf messages.

use tidegate_model::varint::take_varint;

use crate::error::Problem;

/// A value as it stands on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) enum WireField<'a> {
    Varint(u64),
    Fixed64(u64),
    /// Nothing here has this type; it is passed over.
    Fixed32,
    Bytes(&'a [u8]),
}

impl<'a> WireField<'a> {
    /// A number of type `double`; 0 where it is something else.
    pub(super) fn double(self) -> f64 {
        match self {
            Self::Fixed64(bits) => f64::from_bits(bits),
            _ => 0.0,
        }
    }

    /// A whole number; 0 where it is something else.
    pub(super) fn number(self) -> u64 {
        match self {
            Self::Varint(number) => number,
            _ => 0,
        }
    }

    /// A number of type `int64` or `int32`.
    pub(super) fn signed(self) -> i64 {
        self.number() as i64
    }

    /// A message, string or packed list; nothing where it is something else.
    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            _ => &[],
        }
    }

    pub(super) fn text(self) -> Result<&'a str, Problem> {
        std::str::from_utf8(self.bytes()).map_err(|_| Problem::ExpectedUtf8)
    }
}

/// Calls `each` with the number and value of every field.
pub(super) fn fields<'a>(
    message: &'a [u8],
    mut each: impl FnMut(u32, WireField<'a>) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let mut rest = message;
    while !rest.is_empty() {
        let (number, field) = field(&mut rest)?;
        each(number, field)?;
    }
    Ok(())
}

/// Takes the field at the beginning.
#[inline]
pub(super) fn field<'a>(rest: &mut &'a [u8]) -> Result<(u32, WireField<'a>), Problem> {
    let key = varint(rest)?;
    let number = u32::try_from(key >> 3).ok().filter(|number| *number > 0);
    let number = number.ok_or(Problem::ExpectedMessage)?;
    let field = match key & 7 {
        0 => WireField::Varint(varint(rest)?),
        1 => WireField::Fixed64(u64::from_le_bytes(array(rest)?)),
        2 => WireField::Bytes(delimited(rest)?),
        5 => {
            array::<4>(rest)?;
            WireField::Fixed32
        }
        _ => return Err(Problem::ExpectedMessage),
    };
    Ok((number, field))
}

fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Problem> {
    let (bytes, behind) = rest.split_first_chunk().ok_or(Problem::ExpectedMessage)?;
    *rest = behind;
    Ok(*bytes)
}

/// Takes bytes with their length before them.
pub(super) fn delimited<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Problem> {
    let len = usize::try_from(varint(rest)?).ok();
    let split = len.and_then(|len| rest.split_at_checked(len));
    let (bytes, behind) = split.ok_or(Problem::ExpectedMessage)?;
    *rest = behind;
    Ok(bytes)
}

#[inline]
fn varint(rest: &mut &[u8]) -> Result<u64, Problem> {
    take_varint(rest).ok_or(Problem::ExpectedMessage)
}

/// Adds the numbers of a repeated field, packed or not.
pub(super) fn varints(field: WireField<'_>, mut add: impl FnMut(u64)) -> Result<(), Problem> {
    match field {
        WireField::Bytes(mut packed) => {
            while !packed.is_empty() {
                add(varint(&mut packed)?);
            }
        }
        other => add(other.number()),
    }
    Ok(())
}

/// Adds the doubles of a repeated field, packed or not.
pub(super) fn doubles(field: WireField<'_>, into: &mut Vec<f64>) -> Result<(), Problem> {
    match field {
        WireField::Bytes(packed) => {
            let (chunks, rest) = packed.as_chunks::<8>();
            into.extend(chunks.iter().map(|bits| f64::from_le_bytes(*bits)));
            if !rest.is_empty() {
                return Err(Problem::ExpectedMessage);
            }
        }
        other => into.push(other.double()),
    }
    Ok(())
}
