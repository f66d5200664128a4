// SPDX-License-Identifier: Apache-2.0

//! Samples, times, exemplars.

use tidegate_engine::AttributeRef;
use tidegate_engine::{AttributeValue, AttributesBuilder, Exemplar, UnixNanos, Value};

/// The NaN by which Prometheus says that a series has ended.
pub const STALE_NAN: u64 = 0x7ff0_0000_0000_0002;

/// Nanoseconds a millisecond.
pub const NANOS_PER_MILLI: u64 = 1_000_000;

/// Whether it is the NaN that ends a series.
#[inline]
pub fn is_stale(number: f64) -> bool {
    number.to_bits() == STALE_NAN
}

/// The value of a number sample.
#[inline]
pub fn number(number: f64) -> Value {
    if is_stale(number) {
        Value::NoRecordedValue
    } else {
        Value::Double(number)
    }
}

/// A time of Prometheus; nothing for one before the epoch or at it, which OTLP can't say, and for one beyond its range.
pub fn nanos(millis: i64) -> Option<UnixNanos> {
    let millis = u64::try_from(millis).ok().filter(|millis| *millis > 0)?;
    millis.checked_mul(NANOS_PER_MILLI)
}

/// A count that Prometheus keeps as a double; `None` for other numbers.
pub fn whole(number: f64) -> Option<u64> {
    let is_count = number >= 0.0 && number < u64::MAX as f64;
    is_count.then(|| number.round() as u64)
}

/// An exemplar with these labels. Valid trace and span ids become fields.
pub fn exemplar<'a>(
    labels: impl Iterator<Item = (&'a str, &'a str)>,
    value: f64,
    time: UnixNanos,
    builder: &mut AttributesBuilder,
) -> Exemplar {
    let mut exemplar = Exemplar {
        time,
        value: AttributeValue::Double(value),
        ..Exemplar::default()
    };
    for (name, value) in labels {
        match name {
            "trace_id" if id::<16>(value).is_some() => {
                exemplar.trace_id = id::<16>(value).unwrap_or_default();
            }
            "span_id" if id::<8>(value).is_some() => exemplar.span_id = id::<8>(value).unwrap_or_default(),
            _ => builder.push(name, AttributeRef::Str(value)),
        }
    }
    exemplar.filtered_attributes = builder.finish();
    exemplar
}

/// `N` bytes as hexadecimal digits, not all zero.
fn id<const N: usize>(text: &str) -> Option<Vec<u8>> {
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..N).map(|at| byte(2 * at)).collect();
    bytes.filter(|bytes| bytes.iter().any(|byte| *byte != 0))
}
