// SPDX-License-Identifier: Apache-2.0

//! One pass over a request: its items and elements, and whether it is sound.

use opentelemetry_proto::tonic::common::v1 as common;
use opentelemetry_proto::tonic::logs::v1 as logs;
use opentelemetry_proto::tonic::metrics::v1 as metrics;
use opentelemetry_proto::tonic::trace::v1 as trace;

use super::MAX_NAME_BYTES;
use super::plain::after_plain_attributes;
use crate::Signal;
use crate::schema::{self, Message, Tally, Type, ValueLength};
use crate::wire::proto::{self, Fields, WireType, delimited, varint};
use crate::wire::{MAX_DEPTH, WireError};

/// The most memory of one element of a message in pieces while it is decoded: the largest of prost's types, in a list
/// that grows by doubling, while the old list and the new one exist.
const PIECE_BYTES: usize = 3 * largest(&[
    size_of::<metrics::Metric>(),
    size_of::<metrics::NumberDataPoint>(),
    size_of::<metrics::HistogramDataPoint>(),
    size_of::<metrics::ExponentialHistogramDataPoint>(),
    size_of::<metrics::SummaryDataPoint>(),
    size_of::<metrics::Exemplar>(),
    size_of::<metrics::ResourceMetrics>(),
    size_of::<metrics::ScopeMetrics>(),
    size_of::<trace::Span>(),
    size_of::<trace::span::Event>(),
    size_of::<trace::span::Link>(),
    size_of::<trace::ResourceSpans>(),
    size_of::<trace::ScopeSpans>(),
    size_of::<logs::LogRecord>(),
    size_of::<logs::ResourceLogs>(),
    size_of::<logs::ScopeLogs>(),
    size_of::<common::KeyValue>(),
    size_of::<common::EntityRef>(),
]);

const fn largest(sizes: &[usize]) -> usize {
    let (mut largest, mut at) = (0, 0);
    while at < sizes.len() {
        if sizes[at] > largest {
            largest = sizes[at];
        }
        at += 1;
    }
    largest
}

/// The findings of a pass so far.
pub(super) struct CheckFindings {
    pub(super) tally: Tally,
    pub(super) in_pieces: bool,
    /// Something has too many elements, or a metric too long a name.
    pub(super) is_heavy: bool,
    max_elements: usize,
    /// A message that is no longer has neither: an element has two bytes at least.
    small_bytes: usize,
}

/// The result of a look at a message. The error is boxed: nearly every message has none, and an answer of one word
/// costs less.
pub(super) type CheckResult<T = ()> = Result<T, Box<WireError>>;

impl CheckFindings {
    /// No findings yet. `max_elements` is the most elements of a message.
    pub(super) fn within(max_elements: usize) -> Self {
        Self {
            tally: Tally::default(),
            in_pieces: false,
            is_heavy: false,
            max_elements,
            small_bytes: max_elements.saturating_mul(2).min(MAX_NAME_BYTES),
        }
    }

    pub(super) fn of(signal: Signal, request: &[u8], max_elements: usize) -> Result<Self, WireError> {
        let mut found = Self::within(max_elements);
        found
            .check(schema::request(signal), request, 0)
            .map_err(|error| *error)?;
        Ok(found)
    }

    /// The memory of a request of this size while it is decoded and written again: twice its text, and more if the
    /// text is not UTF-8.
    pub(super) fn weight_in_pieces(&self, bytes: usize) -> usize {
        const BYTE_BYTES: usize = 4;
        let of_elements = self.tally.elements().saturating_mul(PIECE_BYTES);
        of_elements.saturating_add(bytes.saturating_mul(BYTE_BYTES))
    }

    /// The approximate memory of a decoded request of this size: an attribute with its key and value, a point with
    /// the place that tables keep for it.
    pub(super) fn weight(&self, bytes: usize) -> usize {
        const ELEMENT_BYTES: usize = 128;
        const BYTE_BYTES: usize = 3;
        let of_elements = self.tally.elements().saturating_mul(ELEMENT_BYTES);
        of_elements.saturating_add(bytes.saturating_mul(BYTE_BYTES))
    }

    #[inline]
    pub(super) fn check(&mut self, message: &'static Message, bytes: &[u8], depth: usize) -> CheckResult {
        if bytes.len() <= self.small_bytes {
            self.check_fields(message, bytes, depth)
        } else {
            self.check_and_count(message, bytes, depth)
        }
    }

    /// A message that may have too many elements.
    #[cold]
    fn check_and_count(&mut self, message: &'static Message, bytes: &[u8], depth: usize) -> CheckResult {
        let before = self.tally.elements();
        self.check_fields(message, bytes, depth)?;
        let is_one = message.tally.items() > 0
            || std::ptr::eq(message, &raw const schema::RESOURCE)
            || std::ptr::eq(message, &raw const schema::SCOPE);
        let has_many = self.tally.elements() - before > self.max_elements;
        self.is_heavy |= is_one && has_many;
        self.is_heavy |= std::ptr::eq(message, &raw const schema::METRIC) && self.describes_too_much(bytes);
        Ok(())
    }

    /// Whether a metric has too long a name, description or unit, or too much metadata.
    pub(super) fn describes_too_much(&self, metric: &[u8]) -> bool {
        const TEXTS: std::ops::RangeInclusive<u32> = 1..=3;
        const METADATA: u32 = 12;
        const TAG: u8 = (METADATA as u8) << 3 | WireType::Bytes as u8;
        let mut metadata = Self::within(usize::MAX);
        let mut fields = Fields::new(metric);
        loop {
            if let Some(next) = after_plain_attributes(TAG, fields.rest(), &mut metadata.tally) {
                fields = Fields::new(next);
            }
            let Some(Ok(field)) = fields.next() else {
                return metadata.tally.elements() > self.max_elements;
            };
            if field.number == METADATA {
                // It was looked at before.
                let _ = metadata.check(&schema::KEY_VALUE, field.payload, 0);
            }
            if TEXTS.contains(&field.number) && field.payload.len() > MAX_NAME_BYTES {
                return true;
            }
        }
    }

    fn check_fields(&mut self, message: &'static Message, bytes: &[u8], depth: usize) -> CheckResult {
        if depth > MAX_DEPTH {
            return Err(refused("messages nested too deeply"));
        }
        self.tally.add(message.tally);
        let may_be_plain = depth < MAX_DEPTH - 2;
        let (mut rest, mut seen) = (bytes, 0_u32);
        while let &[tag, ref behind @ ..] = rest {
            let step = message.step(tag);
            let next = match step.value {
                ValueLength::Fixed64 => behind.get(8..),
                ValueLength::Fixed32 => behind.get(4..),
                ValueLength::Varint => behind
                    .split_first()
                    .and_then(|(byte, next)| (*byte < 0x80).then_some(next)),
                ValueLength::Bytes => delimited(behind).map(|(_, next)| next),
                ValueLength::Fixed64s => delimited(behind).and_then(|(values, next)| {
                    // Bounds and counts of buckets take as much memory as bytes: they are limited, but weigh nothing more.
                    self.is_heavy |= values.len() / 8 > self.max_elements;
                    values.len().is_multiple_of(8).then_some(next)
                }),
                ValueLength::Attribute if may_be_plain => after_plain_attributes(tag, rest, &mut self.tally),
                ValueLength::Attribute => None,
                ValueLength::Message => match delimited(behind) {
                    Some((inner, next)) => {
                        self.check_inner(message, u32::from(tag >> 3), inner, depth)?;
                        Some(next)
                    }
                    None => None,
                },
                ValueLength::Other => None,
            };
            let Some(next) = next else {
                rest = self.check_field(message, rest, &mut seen, depth)?;
                continue;
            };
            if step.once != 0 {
                if seen & step.once != 0 {
                    self.in_pieces = true;
                }
                seen |= step.once;
            }
            rest = next;
        }
        Ok(())
    }

    /// Checks the field that the bytes begin with, whatever it is. It returns the bytes behind the field.
    #[cold]
    fn check_field<'a>(
        &mut self,
        message: &'static Message,
        bytes: &'a [u8],
        seen: &mut u32,
        depth: usize,
    ) -> CheckResult<&'a [u8]> {
        let mut fields = Fields::new(bytes);
        let Some(field) = fields.next().transpose().map_err(refused)? else {
            return Ok(&[]);
        };
        let Some(known) = message.field(field.number) else {
            return Ok(fields.rest());
        };
        let once = known.once().unwrap_or(0);
        self.in_pieces |= *seen & once != 0;
        *seen |= once;
        match known.kind {
            Type::Message(_) if field.wire == WireType::Bytes => {
                self.check_inner(message, field.number, field.payload, depth)?;
            }
            kind => {
                let sound = value(kind, known.repeated, &field);
                sound.map_err(|problem| within(WireError::here(problem), message, field.number))?;
                self.tally
                    .add(Tally::elements_of(elements(kind, known.repeated, &field)));
            }
        }
        Ok(fields.rest())
    }

    /// A field that is a message.
    #[inline]
    fn check_inner(
        &mut self,
        message: &'static Message,
        number: u32,
        bytes: &[u8],
        depth: usize,
    ) -> CheckResult {
        let Some(inner) = message.inner(number) else {
            return Err(refused("not a message"));
        };
        self.check(inner, bytes, depth + 1)
            .map_err(|error| within(*error, message, number))
    }
}

#[cold]
fn refused(problem: &'static str) -> Box<WireError> {
    Box::new(WireError::here(problem))
}

/// An error in a field, as the message around it tells it.
#[cold]
fn within(error: WireError, message: &'static Message, number: u32) -> Box<WireError> {
    let name = message.field(number).map_or("", |field| field.name);
    Box::new(error.inside(name))
}

#[inline]
fn value(kind: Type, repeated: bool, field: &proto::Field<'_>) -> Result<(), &'static str> {
    let wire = kind.wire();
    match kind {
        Type::Message(_) => Err("not a message"),
        _ if field.wire == wire => Ok(()),
        _ if repeated && field.wire == WireType::Bytes && is_packed(wire, field.payload) => Ok(()),
        _ => Err("a value of another type"),
    }
}

/// The elements that a valid value counts for, if it is not a message. A text among others is one element, and so is a
/// bound of a bucket that stands alone. Eight numbers of one byte each take as much when they are decoded.
fn elements(kind: Type, repeated: bool, field: &proto::Field<'_>) -> usize {
    match (kind, field.wire) {
        _ if !repeated => 0,
        (Type::String, _) | (_, WireType::Fixed64) => 1,
        (_, WireType::Bytes) if kind.wire() == WireType::Varint => field.payload.len() / 8,
        _ => 0,
    }
}

/// Whether bytes are values of a wire type, one behind the other.
fn is_packed(wire: WireType, mut bytes: &[u8]) -> bool {
    match wire {
        WireType::Fixed64 => bytes.len().is_multiple_of(8),
        WireType::Fixed32 => bytes.len().is_multiple_of(4),
        WireType::Bytes => false,
        WireType::Varint => {
            while let Some((_, used)) = varint(bytes) {
                bytes = bytes.get(used..).unwrap_or_default();
            }
            bytes.is_empty()
        }
    }
}
