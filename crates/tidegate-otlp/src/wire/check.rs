//! Whether bytes are an export request, and how many items it holds: one pass over tags and lengths.
//!
//! What is taken here can be decoded later by anyone who needs to, so a wrong request costs its sender an answer and
//! nobody else a batch. Two things are not looked at: whether strings are UTF-8 (they are read lossily, see
//! [`super::text`]) and what unknown fields hold. Stricter than protobuf in two points: groups, which no OTLP message
//! has ever had, are refused, and messages nest one level less than prost's limit (it counts unknown fields as a
//! level of their own).
//!
//! Protobuf lets a message be written in several pieces, which are merged, and of a `oneof` the last member counts.
//! No SDK does so; a request that does is written anew, so that nobody below has to think of it.

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1 as common;
use opentelemetry_proto::tonic::logs::v1 as logs;
use opentelemetry_proto::tonic::metrics::v1 as metrics;
use opentelemetry_proto::tonic::trace::v1 as trace;

use super::edit::Editor;
use super::proto::{self, Fields, WireType, delimited, varint};
use super::walk::{HEADER, Header, Item, ItemKind, Visitor, edit};
use super::{MAX_DEPTH, WireError, text};
use crate::schema::{self, Message, Tally, Type, Value};
use crate::{Encoded, Signal};

/// A point, span, log record, resource or scope has at most so many elements, where nobody says otherwise: attributes, and
/// what takes as much memory as one. SDKs stop at 128 attributes. So many has the metadata of a metric.
pub const MAX_ELEMENTS: usize = 64 << 10;

/// Name, description and unit of a metric have at most so many bytes each.
pub const MAX_NAME_BYTES: usize = 64 << 10;

/// What a message in pieces takes for each of its elements when it is decoded, at most: the largest of prost's, in a list
/// that grows by doubling, while the old one and the new one are there.
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

/// A request that is one.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The request, without what was cut out of it.
    pub encoded: Encoded,
    /// What its decoded form takes, about.
    pub weight: usize,
    /// Items that were cut out of it: they, their resource, scope or metric had too many elements or too long a name.
    /// `None`: nothing was.
    pub cut: Option<usize>,
}

/// Why a request is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// It is none.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// It has to be decoded or copied to be checked, which has no room: so many bytes.
    #[error("the decoded request has no room")]
    NoRoom(usize),
}

/// Checks the bytes of an `Export*ServiceRequest` and counts its points, spans or log records.
///
/// # Errors
/// What is wrong and in which message.
pub fn check(signal: Signal, bytes: Bytes) -> Result<Encoded, WireError> {
    match weigh(signal, bytes, MAX_ELEMENTS, |_| true) {
        Ok(Checked {
            cut: None, encoded, ..
        }) => Ok(encoded),
        Err(CheckError::Wire(error)) => Err(error),
        _ => Err(WireError::here(TOO_MANY)),
    }
}

/// What the decoded form of a checked request takes, about.
pub fn weight(signal: Signal, bytes: &[u8]) -> usize {
    // What a processor made of it may have gone wrong: then nobody can decode it.
    Found::of(signal, bytes, usize::MAX).map_or(bytes.len(), |found| found.weight(bytes.len()))
}

/// As [`check`]; what has more than `max_elements` is cut out of it. `has_room` says whether so many bytes may be taken: where
/// a request has to be decoded or copied, which takes its time too.
///
/// # Errors
/// What is wrong and in which message, or how much room it needs.
pub fn weigh(
    signal: Signal,
    mut bytes: Bytes,
    max_elements: usize,
    mut has_room: impl FnMut(usize) -> bool,
) -> Result<Checked, CheckError> {
    let mut reserve = |weight| match has_room(weight) {
        true => Ok(()),
        false => Err(CheckError::NoRoom(weight)),
    };
    let mut found = Found::of(signal, &bytes, max_elements)?;
    if found.in_pieces {
        reserve(found.weight_in_pieces(bytes.len()))?;
        bytes = written_anew(signal, &bytes)?;
        found = Found::of(signal, &bytes, max_elements)?;
    }
    let mut cut = None;
    if found.is_heavy {
        reserve(bytes.len())?;
        let items = found.tally.items();
        bytes = without_heavy(signal, bytes, items, max_elements)?;
        found = Found::of(signal, &bytes, max_elements)?;
        if found.is_heavy {
            return Err(WireError::here(TOO_MANY).into());
        }
        cut = Some(items - found.tally.items());
    }
    let weight = found.weight(bytes.len());
    Ok(Checked {
        encoded: Encoded::one(signal, bytes, found.tally.items()),
        weight,
        cut,
    })
}

const TOO_MANY: &str = "too many attributes or other elements";

/// A request without what has too many elements or too long a name.
fn without_heavy(
    signal: Signal,
    bytes: Bytes,
    items: usize,
    max_elements: usize,
) -> Result<Bytes, WireError> {
    struct Sieve(usize);
    impl Sieve {
        fn lets_through(&self, message: &'static Message, bytes: &[u8]) -> bool {
            let mut found = Found::within(self.0);
            found.look(message, bytes, 0).is_ok() && !found.is_heavy
        }
    }
    impl Visitor for Sieve {
        fn resource(&mut self, resource: &Header<'_>, _: &mut Editor<'_>) -> bool {
            self.lets_through(&schema::RESOURCE, resource.message)
        }

        fn scope(&mut self, around: &[u8]) -> bool {
            let fields = Fields::new(around).map_while(Result::ok);
            let mut scopes = fields.filter(|field| field.number == HEADER);
            scopes.all(|field| self.lets_through(&schema::SCOPE, field.payload))
        }

        fn whole_metric(&mut self, metric: &[u8]) -> bool {
            !Found::within(self.0).describes_too_much(metric)
        }

        fn item(&mut self, item: &Item<'_>, _: &mut Editor<'_>) -> bool {
            self.lets_through(message_of(item.kind), item.message)
        }
    }
    let edited = edit(&Encoded::one(signal, bytes, items), &mut Sieve(max_elements))?;
    Ok(edited.joined())
}

fn message_of(kind: ItemKind) -> &'static Message {
    match kind {
        ItemKind::Number => &schema::NUMBER_POINT,
        ItemKind::Histogram => &schema::HISTOGRAM_POINT,
        ItemKind::ExponentialHistogram => &schema::EXPONENTIAL_POINT,
        ItemKind::Summary => &schema::SUMMARY_POINT,
        ItemKind::Span => &schema::SPAN_MESSAGE,
        ItemKind::LogRecord => &schema::LOG_RECORD,
    }
}

/// The same request as prost writes it.
fn written_anew(signal: Signal, bytes: &[u8]) -> Result<Bytes, WireError> {
    use opentelemetry_proto::tonic::collector::{
        logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
        trace::v1::ExportTraceServiceRequest,
    };
    fn again<M: prost::Message + Default>(signal: Signal, bytes: &[u8]) -> Result<Bytes, prost::DecodeError> {
        let message = text::decode::<M>(schema::request(signal), bytes)?;
        Ok(message.encode_to_vec().into())
    }
    let again = match signal {
        Signal::Metrics => again::<ExportMetricsServiceRequest>(signal, bytes),
        Signal::Traces => again::<ExportTraceServiceRequest>(signal, bytes),
        Signal::Logs => again::<ExportLogsServiceRequest>(signal, bytes),
    };
    again.map_err(|_| WireError::here("a message in pieces that can't be decoded"))
}

/// What a pass has found so far.
struct Found {
    tally: Tally,
    in_pieces: bool,
    /// Something has too many elements, or a metric too long a name.
    is_heavy: bool,
    max_elements: usize,
    /// A message that is no longer has neither: an element has two bytes at least.
    small_bytes: usize,
}

/// What a message comes to. The error is boxed: nearly every message has none, and an answer of one word costs less.
type Looked<T = ()> = Result<T, Box<WireError>>;

impl Found {
    /// Nothing yet; a message may have so many elements.
    fn within(max_elements: usize) -> Self {
        Self {
            tally: Tally::default(),
            in_pieces: false,
            is_heavy: false,
            max_elements,
            small_bytes: max_elements.saturating_mul(2).min(MAX_NAME_BYTES),
        }
    }

    fn of(signal: Signal, request: &[u8], max_elements: usize) -> Result<Self, WireError> {
        let mut found = Self::within(max_elements);
        found
            .look(schema::request(signal), request, 0)
            .map_err(|error| *error)?;
        Ok(found)
    }

    /// What a request of so many bytes takes while it is decoded and written again: its text twice, and more where that is
    /// no UTF-8.
    fn weight_in_pieces(&self, bytes: usize) -> usize {
        const BYTE_BYTES: usize = 4;
        let of_elements = self.tally.elements().saturating_mul(PIECE_BYTES);
        of_elements.saturating_add(bytes.saturating_mul(BYTE_BYTES))
    }

    /// What a request of so many bytes takes when it is decoded, about: an attribute with its key and value, a point with
    /// its place among what is kept of it.
    fn weight(&self, bytes: usize) -> usize {
        const ELEMENT_BYTES: usize = 128;
        const BYTE_BYTES: usize = 3;
        let of_elements = self.tally.elements().saturating_mul(ELEMENT_BYTES);
        of_elements.saturating_add(bytes.saturating_mul(BYTE_BYTES))
    }

    #[inline]
    fn look(&mut self, message: &'static Message, bytes: &[u8], depth: usize) -> Looked {
        match bytes.len() <= self.small_bytes {
            true => self.look_at_fields(message, bytes, depth),
            false => self.look_and_count(message, bytes, depth),
        }
    }

    /// A message that may have too many elements.
    #[cold]
    fn look_and_count(&mut self, message: &'static Message, bytes: &[u8], depth: usize) -> Looked {
        let before = self.tally.elements();
        self.look_at_fields(message, bytes, depth)?;
        let is_one = message.tally.items() > 0
            || std::ptr::eq(message, &schema::RESOURCE)
            || std::ptr::eq(message, &schema::SCOPE);
        let has_many = self.tally.elements() - before > self.max_elements;
        self.is_heavy |= is_one && has_many;
        self.is_heavy |= std::ptr::eq(message, &schema::METRIC) && self.describes_too_much(bytes);
        Ok(())
    }

    /// Whether a metric has too long a name, description or unit, or too much metadata.
    fn describes_too_much(&self, metric: &[u8]) -> bool {
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
                let _ = metadata.look(&schema::KEY_VALUE, field.payload, 0);
            }
            if TEXTS.contains(&field.number) && field.payload.len() > MAX_NAME_BYTES {
                return true;
            }
        }
    }

    fn look_at_fields(&mut self, message: &'static Message, bytes: &[u8], depth: usize) -> Looked {
        if depth > MAX_DEPTH {
            return Err(refused("messages nested too deeply"));
        }
        self.tally.add(message.tally);
        let may_be_plain = depth < MAX_DEPTH - 2;
        let (mut rest, mut seen) = (bytes, 0_u32);
        while let &[tag, ref behind @ ..] = rest {
            let step = message.step(tag);
            let next = match step.value {
                Value::Fixed64 => behind.get(8..),
                Value::Fixed32 => behind.get(4..),
                Value::Varint => behind
                    .split_first()
                    .and_then(|(byte, next)| (*byte < 0x80).then_some(next)),
                Value::Bytes => delimited(behind).map(|(_, next)| next),
                Value::Fixed64s => delimited(behind).and_then(|(values, next)| {
                    // Bounds and counts of buckets take as much memory as bytes: they are limited, but weigh nothing more.
                    self.is_heavy |= values.len() / 8 > self.max_elements;
                    values.len().is_multiple_of(8).then_some(next)
                }),
                Value::Attribute if may_be_plain => after_plain_attributes(tag, rest, &mut self.tally),
                Value::Attribute => None,
                Value::Message => match delimited(behind) {
                    Some((inner, next)) => {
                        self.look_inside(message, u32::from(tag >> 3), inner, depth)?;
                        Some(next)
                    }
                    None => None,
                },
                Value::Other => None,
            };
            let Some(next) = next else {
                rest = self.look_closely(message, rest, &mut seen, depth)?;
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

    /// The field that bytes begin with, whatever it is. What is behind it.
    #[cold]
    fn look_closely<'a>(
        &mut self,
        message: &'static Message,
        bytes: &'a [u8],
        seen: &mut u32,
        depth: usize,
    ) -> Looked<&'a [u8]> {
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
                self.look_inside(message, field.number, field.payload, depth)?;
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
    fn look_inside(&mut self, message: &'static Message, number: u32, bytes: &[u8], depth: usize) -> Looked {
        let Some(inner) = message.inner(number) else {
            return Err(refused("not a message"));
        };
        self.look(inner, bytes, depth + 1)
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

/// What is behind a plain attribute, and behind those that follow it under the same tag. `None`: the first is none.
#[inline]
fn after_plain_attributes<'a>(tag: u8, bytes: &'a [u8], tally: &mut Tally) -> Option<&'a [u8]> {
    let (mut next, mut attributes) = (after_plain_attribute(tag, bytes)?, 1);
    while let Some(after) = after_plain_attribute(tag, next) {
        next = after;
        attributes += 1;
    }
    tally.add(Tally::elements_of(attributes));
    Some(next)
}

/// What is behind a field that is a `KeyValue` as nearly all are: a key and a string, each once, all shorter than 128 bytes,
/// in either order (the Collector writes backwards). Most of a request is of these, and to see it by what stands in three
/// places costs a tenth of looking at them field by field.
#[inline]
fn after_plain_attribute(tag: u8, bytes: &[u8]) -> Option<&[u8]> {
    /// Tags of `KeyValue.key`, `KeyValue.value` and `AnyValue.string_value`.
    const KEY: u8 = 0x0a;
    const VALUE: u8 = 0x12;
    const STRING: u8 = 0x0a;
    // Of both orders, six bytes are tags and lengths: those of the first member, and four more.
    let [under, length @ 0..0x80, first_tag, first @ 0..0x80] = *bytes.first_chunk()? else {
        return None;
    };
    if under != tag || first + 6 > length {
        return None;
    }
    let next = bytes.get(2 + usize::from(length)..)?;
    let second: &[u8; 4] = bytes.get(4 + usize::from(first)..)?.first_chunk()?;
    let rest = u32::from(length) - u32::from(first) - 4;
    let is_plain = match first_tag {
        // One number against another: to compare four bytes takes twice as many steps.
        KEY => {
            let expected = u32::from(VALUE) | rest << 8 | u32::from(STRING) << 16 | (rest - 2) << 24;
            u32::from_le_bytes(*second) == expected
        }
        VALUE => {
            let is_string = first >= 2 && bytes[4..6] == [STRING, first - 2];
            is_string && second[0] == KEY && u32::from(second[1]) == rest
        }
        _ => false,
    };
    is_plain.then_some(next)
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

/// What a sound value that is no message counts for: a text among others is one element, and so is a bound of a bucket
/// that stands alone; eight numbers of one byte each take as much when they are decoded.
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

#[cfg(test)]
mod tests;
