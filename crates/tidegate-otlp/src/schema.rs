// SPDX-License-Identifier: Apache-2.0

//! OTLP's messages as tables: field number, JSON name, type (opentelemetry-proto 1.10). One implementation each checks
//! requests, repairs text and transcodes JSON, by these tables.

use super::Signal;
use super::wire::proto::WireType;

/// A message type.
pub(crate) struct Message {
    pub(crate) fields: &'static [SchemaField],
    /// Place of a field in `fields` plus one, by its number; 0 where there is none.
    by_number: [u8; MAX_NUMBER + 1],
    /// The step after each tag of one byte.
    steps: [TagStep; ONE_BYTE_TAGS],
    /// The types of its fields that are messages, by the field's number.
    inner: [Option<&'static Message>; MAX_NUMBER + 1],
    /// One element, and one item where it is one; see [`Tally`].
    pub(crate) tally: Tally,
}

/// How many items and elements there are, in one number: counting both costs one addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally(u64);

impl Tally {
    const ITEM: u64 = 1 << 32;

    /// A tally of this many elements, which are not items. A request has less than 2^32 bytes, and an element at least two.
    #[inline]
    pub(crate) const fn elements_of(elements: usize) -> Self {
        Self(elements as u64)
    }

    /// Messages, and values that take as much memory as one when they are decoded.
    pub(crate) const fn elements(self) -> usize {
        (self.0 & (Self::ITEM - 1)) as usize
    }

    /// Points, spans or log records.
    pub(crate) const fn items(self) -> usize {
        (self.0 >> 32) as usize
    }

    /// Counts these too.
    #[inline]
    pub(crate) fn add(&mut self, other: Self) {
        self.0 += other.0;
    }
}

/// A field of a message.
pub(crate) struct SchemaField {
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    pub(crate) kind: Type,
    pub(crate) repeated: bool,
    /// Member of the message's `oneof` (none has two).
    pub(crate) oneof: bool,
    /// Its type is `KeyValue`, the most frequent one in requests.
    pub(crate) is_attribute: bool,
}

/// The largest field number (`Span.flags`).
const MAX_NUMBER: usize = 16;

/// Tags of one byte: those of fields 1 to 15.
const ONE_BYTE_TAGS: usize = 0x80;

/// The step after a tag of one byte, if the tag has the wire type of the field.
#[derive(Clone, Copy)]
pub(crate) struct TagStep {
    pub(crate) value: ValueLength,
    /// [`SchemaField::once`], or 0.
    pub(crate) once: u32,
}

/// How long a value is, as far as its type tells.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueLength {
    /// No field of ours, or not as its type is written.
    Other,
    Fixed64,
    Fixed32,
    Varint,
    /// A length, and bytes that are not read.
    Bytes,
    /// A length, and values of eight bytes each.
    Fixed64s,
    /// A length, and a message.
    Message,
    /// A length, and a `KeyValue`.
    Attribute,
}

/// How a field is written in protobuf and in JSON.
#[derive(Clone, Copy)]
pub(crate) enum Type {
    String,
    Bool,
    /// Base64 in JSON.
    Bytes,
    /// Hexadecimal in JSON; this number of bytes, or none.
    Id(usize),
    Double,
    /// Varint, a decimal string in JSON.
    Int64,
    /// Varint, a decimal string in JSON.
    Uint64,
    /// A decimal string in JSON.
    Fixed64,
    /// A decimal string in JSON.
    Sfixed64,
    /// Varint; also enums.
    Int32,
    /// Varint.
    Uint32,
    /// Zigzag varint.
    Sint32,
    Fixed32,
    Message(&'static Message),
}

impl Message {
    /// The field of a number.
    #[inline]
    pub(crate) fn field(&self, number: u32) -> Option<&'static SchemaField> {
        let place = *self.by_number.get(number as usize)?;
        self.fields.get(usize::from(place).checked_sub(1)?)
    }

    /// The type of the field of a number, where that is a message.
    #[inline]
    pub(crate) fn inner(&self, number: u32) -> Option<&'static Message> {
        *self.inner.get(number as usize)?
    }

    /// The step after a tag that begins with this byte.
    #[inline]
    pub(crate) fn step(&self, tag: u8) -> TagStep {
        const OTHER: TagStep = TagStep {
            value: ValueLength::Other,
            once: 0,
        };
        self.steps.get(usize::from(tag)).copied().unwrap_or(OTHER)
    }
}

impl SchemaField {
    /// The bit of what a message should have once at most: each message that is not repeated, and each `oneof`.
    /// `None` for what may be repeated, or is merely overwritten.
    #[inline]
    pub(crate) const fn once(&self) -> Option<u32> {
        match self.kind {
            _ if self.oneof => Some(1),
            Type::Message(_) if !self.repeated => Some(1 << self.number),
            _ => None,
        }
    }

    /// How the field is written on the wire, and what it is then: numbers that may be repeated are packed.
    const fn step(&self) -> (WireType, TagStep) {
        let (wire, value) = match (self.kind, self.kind.wire()) {
            (Type::Message(_), wire) if self.is_attribute => (wire, ValueLength::Attribute),
            (Type::Message(_), wire) => (wire, ValueLength::Message),
            // Each is an element: `check` looks closely.
            (_, wire @ WireType::Bytes) if self.repeated => (wire, ValueLength::Other),
            (_, wire @ WireType::Bytes) => (wire, ValueLength::Bytes),
            (_, WireType::Fixed64) if self.repeated => (WireType::Bytes, ValueLength::Fixed64s),
            (_, wire @ WireType::Fixed64) => (wire, ValueLength::Fixed64),
            (_, wire @ WireType::Fixed32) => (wire, ValueLength::Fixed32),
            (_, wire @ WireType::Varint) => (wire, ValueLength::Varint),
        };
        let once = match self.once() {
            Some(bit) => bit,
            None => 0,
        };
        (wire, TagStep { value, once })
    }
}

impl Type {
    /// How one value of the type is written.
    pub(crate) const fn wire(self) -> WireType {
        match self {
            Self::String | Self::Bytes | Self::Id(_) | Self::Message(_) => WireType::Bytes,
            Self::Double | Self::Fixed64 | Self::Sfixed64 => WireType::Fixed64,
            Self::Fixed32 => WireType::Fixed32,
            Self::Bool | Self::Int64 | Self::Uint64 | Self::Int32 | Self::Uint32 | Self::Sint32 => {
                WireType::Varint
            }
        }
    }
}

use Type::{
    Bool, Bytes, Double, Fixed32, Fixed64, Id, Int32, Int64, Message as Of, Sfixed64, Sint32, String as Text,
    Uint32, Uint64,
};

/// Bytes of a trace id and of a span id.
const TRACE: Type = Id(16);
const SPAN: Type = Id(8);

const fn one(number: u32, name: &'static str, kind: Type) -> SchemaField {
    SchemaField {
        number,
        name,
        kind,
        repeated: false,
        oneof: false,
        is_attribute: false,
    }
}

const fn many(number: u32, name: &'static str, kind: Type) -> SchemaField {
    SchemaField {
        repeated: true,
        ..one(number, name, kind)
    }
}

const fn attributes(number: u32, name: &'static str) -> SchemaField {
    SchemaField {
        is_attribute: true,
        ..many(number, name, Of(&KEY_VALUE))
    }
}

const fn either(number: u32, name: &'static str, kind: Type) -> SchemaField {
    SchemaField {
        oneof: true,
        ..one(number, name, kind)
    }
}

const fn by_number(fields: &[SchemaField]) -> [u8; MAX_NUMBER + 1] {
    let mut places = [0; MAX_NUMBER + 1];
    let mut at = 0;
    while at < fields.len() {
        places[fields[at].number as usize] = at as u8 + 1;
        at += 1;
    }
    places
}

const fn inner(fields: &[SchemaField]) -> [Option<&'static Message>; MAX_NUMBER + 1] {
    let mut all = [None; MAX_NUMBER + 1];
    let mut at = 0;
    while at < fields.len() {
        if let Type::Message(inner) = fields[at].kind {
            all[fields[at].number as usize] = Some(inner);
        }
        at += 1;
    }
    all
}

const fn steps(fields: &[SchemaField]) -> [TagStep; ONE_BYTE_TAGS] {
    let mut steps = [TagStep {
        value: ValueLength::Other,
        once: 0,
    }; ONE_BYTE_TAGS];
    let mut at = 0;
    while at < fields.len() {
        let (wire, step) = fields[at].step();
        let tag = (fields[at].number as usize) << 3 | wire as usize;
        if tag < ONE_BYTE_TAGS {
            steps[tag] = step;
        }
        at += 1;
    }
    steps
}

macro_rules! messages {
    ($is_item:literal; $($name:ident: [$($field:expr),* $(,)?];)*) => {
        $(pub(crate) static $name: Message = Message {
            fields: &[$($field),*],
            by_number: by_number(&[$($field),*]),
            steps: steps(&[$($field),*]),
            inner: inner(&[$($field),*]),
            tally: Tally(if $is_item { Tally::ITEM | 1 } else { 1 }),
        };)*
    };
}

messages! { false;
    METRICS: [many(1, "resourceMetrics", Of(&RESOURCE_METRICS))];
    TRACES: [many(1, "resourceSpans", Of(&RESOURCE_SPANS))];
    LOGS: [many(1, "resourceLogs", Of(&RESOURCE_LOGS))];

    RESOURCE: [
        attributes(1, "attributes"), one(2, "droppedAttributesCount", Uint32),
        many(3, "entityRefs", Of(&ENTITY_REF)),
    ];
    ENTITY_REF: [
        one(1, "schemaUrl", Text), one(2, "type", Text), many(3, "idKeys", Text), many(4, "descriptionKeys", Text),
    ];
    SCOPE: [
        one(1, "name", Text), one(2, "version", Text), attributes(3, "attributes"),
        one(4, "droppedAttributesCount", Uint32),
    ];
    KEY_VALUE: [one(1, "key", Text), one(2, "value", Of(&ANY_VALUE)), one(3, "keyStrindex", Int32)];
    ANY_VALUE: [
        either(1, "stringValue", Text), either(2, "boolValue", Bool), either(3, "intValue", Int64),
        either(4, "doubleValue", Double), either(5, "arrayValue", Of(&ARRAY_VALUE)),
        either(6, "kvlistValue", Of(&KEY_VALUE_LIST)), either(7, "bytesValue", Bytes),
        either(8, "stringValueStrindex", Int32),
    ];
    ARRAY_VALUE: [many(1, "values", Of(&ANY_VALUE))];
    KEY_VALUE_LIST: [attributes(1, "values")];

    RESOURCE_METRICS: [
        one(1, "resource", Of(&RESOURCE)), many(2, "scopeMetrics", Of(&SCOPE_METRICS)), one(3, "schemaUrl", Text),
    ];
    SCOPE_METRICS: [
        one(1, "scope", Of(&SCOPE)), many(2, "metrics", Of(&METRIC)), one(3, "schemaUrl", Text),
    ];
    METRIC: [
        one(1, "name", Text), one(2, "description", Text), one(3, "unit", Text), either(5, "gauge", Of(&GAUGE)),
        either(7, "sum", Of(&SUM)), either(9, "histogram", Of(&HISTOGRAM)),
        either(10, "exponentialHistogram", Of(&EXPONENTIAL_HISTOGRAM)), either(11, "summary", Of(&SUMMARY)),
        attributes(12, "metadata"),
    ];
    GAUGE: [many(1, "dataPoints", Of(&NUMBER_POINT))];
    SUM: [
        many(1, "dataPoints", Of(&NUMBER_POINT)), one(2, "aggregationTemporality", Int32),
        one(3, "isMonotonic", Bool),
    ];
    HISTOGRAM: [many(1, "dataPoints", Of(&HISTOGRAM_POINT)), one(2, "aggregationTemporality", Int32)];
    EXPONENTIAL_HISTOGRAM: [many(1, "dataPoints", Of(&EXPONENTIAL_POINT)), one(2, "aggregationTemporality", Int32)];
    SUMMARY: [many(1, "dataPoints", Of(&SUMMARY_POINT))];
    BUCKETS: [one(1, "offset", Sint32), many(2, "bucketCounts", Uint64)];
    QUANTILE: [one(1, "quantile", Double), one(2, "value", Double)];
    EXEMPLAR: [
        attributes(7, "filteredAttributes"), one(2, "timeUnixNano", Fixed64), either(3, "asDouble", Double),
        either(6, "asInt", Sfixed64), one(4, "spanId", SPAN), one(5, "traceId", TRACE),
    ];

    RESOURCE_SPANS: [
        one(1, "resource", Of(&RESOURCE)), many(2, "scopeSpans", Of(&SCOPE_SPANS)), one(3, "schemaUrl", Text),
    ];
    SCOPE_SPANS: [one(1, "scope", Of(&SCOPE)), many(2, "spans", Of(&SPAN_MESSAGE)), one(3, "schemaUrl", Text)];
    EVENT: [
        one(1, "timeUnixNano", Fixed64), one(2, "name", Text), attributes(3, "attributes"),
        one(4, "droppedAttributesCount", Uint32),
    ];
    LINK: [
        one(1, "traceId", TRACE), one(2, "spanId", SPAN), one(3, "traceState", Text),
        attributes(4, "attributes"), one(5, "droppedAttributesCount", Uint32), one(6, "flags", Fixed32),
    ];
    STATUS: [one(2, "message", Text), one(3, "code", Int32)];

    RESOURCE_LOGS: [
        one(1, "resource", Of(&RESOURCE)), many(2, "scopeLogs", Of(&SCOPE_LOGS)), one(3, "schemaUrl", Text),
    ];
    SCOPE_LOGS: [one(1, "scope", Of(&SCOPE)), many(2, "logRecords", Of(&LOG_RECORD)), one(3, "schemaUrl", Text)];
}

messages! { true;
    NUMBER_POINT: [
        attributes(7, "attributes"), one(2, "startTimeUnixNano", Fixed64), one(3, "timeUnixNano", Fixed64),
        either(4, "asDouble", Double), either(6, "asInt", Sfixed64), many(5, "exemplars", Of(&EXEMPLAR)),
        one(8, "flags", Uint32),
    ];
    HISTOGRAM_POINT: [
        attributes(9, "attributes"), one(2, "startTimeUnixNano", Fixed64), one(3, "timeUnixNano", Fixed64),
        one(4, "count", Fixed64), one(5, "sum", Double), many(6, "bucketCounts", Fixed64),
        many(7, "explicitBounds", Double), many(8, "exemplars", Of(&EXEMPLAR)), one(10, "flags", Uint32),
        one(11, "min", Double), one(12, "max", Double),
    ];
    EXPONENTIAL_POINT: [
        attributes(1, "attributes"), one(2, "startTimeUnixNano", Fixed64), one(3, "timeUnixNano", Fixed64),
        one(4, "count", Fixed64), one(5, "sum", Double), one(6, "scale", Sint32), one(7, "zeroCount", Fixed64),
        one(8, "positive", Of(&BUCKETS)), one(9, "negative", Of(&BUCKETS)), one(10, "flags", Uint32),
        many(11, "exemplars", Of(&EXEMPLAR)), one(12, "min", Double), one(13, "max", Double),
        one(14, "zeroThreshold", Double),
    ];
    SUMMARY_POINT: [
        attributes(7, "attributes"), one(2, "startTimeUnixNano", Fixed64), one(3, "timeUnixNano", Fixed64),
        one(4, "count", Fixed64), one(5, "sum", Double), many(6, "quantileValues", Of(&QUANTILE)),
        one(8, "flags", Uint32),
    ];
    SPAN_MESSAGE: [
        one(1, "traceId", TRACE), one(2, "spanId", SPAN), one(3, "traceState", Text), one(4, "parentSpanId", SPAN),
        one(16, "flags", Fixed32), one(5, "name", Text), one(6, "kind", Int32), one(7, "startTimeUnixNano", Fixed64),
        one(8, "endTimeUnixNano", Fixed64), attributes(9, "attributes"),
        one(10, "droppedAttributesCount", Uint32), many(11, "events", Of(&EVENT)),
        one(12, "droppedEventsCount", Uint32), many(13, "links", Of(&LINK)), one(14, "droppedLinksCount", Uint32),
        one(15, "status", Of(&STATUS)),
    ];
    LOG_RECORD: [
        one(1, "timeUnixNano", Fixed64), one(11, "observedTimeUnixNano", Fixed64), one(2, "severityNumber", Int32),
        one(3, "severityText", Text), one(5, "body", Of(&ANY_VALUE)), attributes(6, "attributes"),
        one(7, "droppedAttributesCount", Uint32), one(8, "flags", Fixed32), one(9, "traceId", TRACE),
        one(10, "spanId", SPAN), one(12, "eventName", Text),
    ];
}

/// The request type of a signal.
pub(crate) fn request(signal: Signal) -> &'static Message {
    match signal {
        Signal::Metrics => &METRICS,
        Signal::Traces => &TRACES,
        Signal::Logs => &LOGS,
    }
}
