// SPDX-License-Identifier: Apache-2.0

//! A number point read off the wire.

use tidegate_engine::{KeyHasher, PointSample, Value};

use super::Spans;

use crate::wire::proto::{Field, Fields, WireType, varint};

/// A `NumberDataPoint` without attributes.
pub(super) struct Number {
    start: u64,
    time: u64,
    value: Value,
}

/// Its field number.
const ATTRIBUTES: u32 = 7;

impl Number {
    /// Reads it, and shows its attributes to a hasher. `None`: it has exemplars, or fields of unexpected types.
    pub(super) fn read(message: &[u8], hasher: &mut KeyHasher) -> Option<Self> {
        /// `DataPointFlags::NO_RECORDED_VALUE_MASK`.
        const NO_RECORDED_VALUE: u64 = 1;
        let mut number = Self {
            start: 0,
            time: 0,
            value: Value::NoRecordedValue,
        };
        let mut flags = 0;
        let mut spans = Spans::of(message, ATTRIBUTES);
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next() {
            let field = field.ok()?;
            spans.pass(&field, &fields, hasher);
            match (field.number, field.wire) {
                (2, WireType::Fixed64) => number.start = fixed64(&field)?,
                (3, WireType::Fixed64) => number.time = fixed64(&field)?,
                (4, WireType::Fixed64) => number.value = Value::Double(f64::from_bits(fixed64(&field)?)),
                (6, WireType::Fixed64) => number.value = Value::Int(fixed64(&field)?.cast_signed()),
                (8, WireType::Varint) => flags = varint(field.payload)?.0,
                (ATTRIBUTES, WireType::Bytes) => {}
                (2..=8, _) => return None,
                _ => {}
            }
        }
        spans.end(hasher);
        if flags & NO_RECORDED_VALUE != 0 {
            number.value = Value::NoRecordedValue;
        }
        Some(number)
    }

    pub(super) fn sample(&self) -> PointSample<'_> {
        PointSample {
            start: self.start,
            time: self.time,
            value: &self.value,
            exemplars: &[],
        }
    }
}

fn fixed64(field: &Field<'_>) -> Option<u64> {
    field.payload.try_into().ok().map(u64::from_le_bytes)
}
