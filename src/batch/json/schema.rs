//! OTLP's messages as tables: field number, JSON name, type (opentelemetry-proto 1.10).

use crate::batch::Signal;

/// A message type.
pub(super) struct Message {
    pub(super) fields: &'static [Field],
}

/// A field of a message.
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) name: &'static str,
    pub(super) kind: Type,
    pub(super) repeated: bool,
}

/// How a field is written in protobuf and in JSON.
#[derive(Clone, Copy)]
pub(super) enum Type {
    String,
    Bool,
    /// Base64 in JSON.
    Bytes,
    /// Hexadecimal in JSON; so many bytes, or none.
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

use Type::{
    Bool, Bytes, Double, Fixed32, Fixed64, Id, Int32, Int64, Message as Of, Sfixed64, Sint32, String as Text,
    Uint32, Uint64,
};

/// Bytes of a trace id and of a span id.
const TRACE: Type = Id(16);
const SPAN: Type = Id(8);

const fn one(number: u32, name: &'static str, kind: Type) -> Field {
    Field {
        number,
        name,
        kind,
        repeated: false,
    }
}

const fn many(number: u32, name: &'static str, kind: Type) -> Field {
    Field {
        number,
        name,
        kind,
        repeated: true,
    }
}

macro_rules! messages {
    ($($name:ident: [$($field:expr),* $(,)?];)*) => {
        $(static $name: Message = Message { fields: &[$($field),*] };)*
    };
}

messages! {
    METRICS: [many(1, "resourceMetrics", Of(&RESOURCE_METRICS))];
    TRACES: [many(1, "resourceSpans", Of(&RESOURCE_SPANS))];
    LOGS: [many(1, "resourceLogs", Of(&RESOURCE_LOGS))];

    RESOURCE: [many(1, "attributes", Of(&KEY_VALUE)), one(2, "droppedAttributesCount", Uint32)];
    SCOPE: [
        one(1, "name", Text), one(2, "version", Text), many(3, "attributes", Of(&KEY_VALUE)),
        one(4, "droppedAttributesCount", Uint32),
    ];
    KEY_VALUE: [one(1, "key", Text), one(2, "value", Of(&ANY_VALUE))];
    ANY_VALUE: [
        one(1, "stringValue", Text), one(2, "boolValue", Bool), one(3, "intValue", Int64),
        one(4, "doubleValue", Double), one(5, "arrayValue", Of(&ARRAY_VALUE)),
        one(6, "kvlistValue", Of(&KEY_VALUE_LIST)), one(7, "bytesValue", Bytes),
    ];
    ARRAY_VALUE: [many(1, "values", Of(&ANY_VALUE))];
    KEY_VALUE_LIST: [many(1, "values", Of(&KEY_VALUE))];

    RESOURCE_METRICS: [
        one(1, "resource", Of(&RESOURCE)), many(2, "scopeMetrics", Of(&SCOPE_METRICS)), one(3, "schemaUrl", Text),
    ];
    SCOPE_METRICS: [
        one(1, "scope", Of(&SCOPE)), many(2, "metrics", Of(&METRIC)), one(3, "schemaUrl", Text),
    ];
    METRIC: [
        one(1, "name", Text), one(2, "description", Text), one(3, "unit", Text), one(5, "gauge", Of(&GAUGE)),
        one(7, "sum", Of(&SUM)), one(9, "histogram", Of(&HISTOGRAM)),
        one(10, "exponentialHistogram", Of(&EXPONENTIAL_HISTOGRAM)), one(11, "summary", Of(&SUMMARY)),
        many(12, "metadata", Of(&KEY_VALUE)),
    ];
    GAUGE: [many(1, "dataPoints", Of(&NUMBER_POINT))];
    SUM: [
        many(1, "dataPoints", Of(&NUMBER_POINT)), one(2, "aggregationTemporality", Int32),
        one(3, "isMonotonic", Bool),
    ];
    HISTOGRAM: [many(1, "dataPoints", Of(&HISTOGRAM_POINT)), one(2, "aggregationTemporality", Int32)];
    EXPONENTIAL_HISTOGRAM: [many(1, "dataPoints", Of(&EXPONENTIAL_POINT)), one(2, "aggregationTemporality", Int32)];
    SUMMARY: [many(1, "dataPoints", Of(&SUMMARY_POINT))];
    NUMBER_POINT: [
        many(7, "attributes", Of(&KEY_VALUE)), one(2, "startTimeUnixNano", Fixed64), one(3, "timeUnixNano", Fixed64),
        one(4, "asDouble", Double), one(6, "asInt", Sfixed64), many(5, "exemplars", Of(&EXEMPLAR)),
        one(8, "flags", Uint32),
    ];
    HISTOGRAM_POINT: [
        many(9, "attributes", Of(&KEY_VALUE)), one(2, "startTimeUnixNano", Fixed64), one(3, "timeUnixNano", Fixed64),
        one(4, "count", Fixed64), one(5, "sum", Double), many(6, "bucketCounts", Fixed64),
        many(7, "explicitBounds", Double), many(8, "exemplars", Of(&EXEMPLAR)), one(10, "flags", Uint32),
        one(11, "min", Double), one(12, "max", Double),
    ];
    EXPONENTIAL_POINT: [
        many(1, "attributes", Of(&KEY_VALUE)), one(2, "startTimeUnixNano", Fixed64), one(3, "timeUnixNano", Fixed64),
        one(4, "count", Fixed64), one(5, "sum", Double), one(6, "scale", Sint32), one(7, "zeroCount", Fixed64),
        one(8, "positive", Of(&BUCKETS)), one(9, "negative", Of(&BUCKETS)), one(10, "flags", Uint32),
        many(11, "exemplars", Of(&EXEMPLAR)), one(12, "min", Double), one(13, "max", Double),
        one(14, "zeroThreshold", Double),
    ];
    BUCKETS: [one(1, "offset", Sint32), many(2, "bucketCounts", Uint64)];
    SUMMARY_POINT: [
        many(7, "attributes", Of(&KEY_VALUE)), one(2, "startTimeUnixNano", Fixed64), one(3, "timeUnixNano", Fixed64),
        one(4, "count", Fixed64), one(5, "sum", Double), many(6, "quantileValues", Of(&QUANTILE)),
        one(8, "flags", Uint32),
    ];
    QUANTILE: [one(1, "quantile", Double), one(2, "value", Double)];
    EXEMPLAR: [
        many(7, "filteredAttributes", Of(&KEY_VALUE)), one(2, "timeUnixNano", Fixed64), one(3, "asDouble", Double),
        one(6, "asInt", Sfixed64), one(4, "spanId", SPAN), one(5, "traceId", TRACE),
    ];

    RESOURCE_SPANS: [
        one(1, "resource", Of(&RESOURCE)), many(2, "scopeSpans", Of(&SCOPE_SPANS)), one(3, "schemaUrl", Text),
    ];
    SCOPE_SPANS: [one(1, "scope", Of(&SCOPE)), many(2, "spans", Of(&SPAN_MESSAGE)), one(3, "schemaUrl", Text)];
    SPAN_MESSAGE: [
        one(1, "traceId", TRACE), one(2, "spanId", SPAN), one(3, "traceState", Text), one(4, "parentSpanId", SPAN),
        one(16, "flags", Fixed32), one(5, "name", Text), one(6, "kind", Int32), one(7, "startTimeUnixNano", Fixed64),
        one(8, "endTimeUnixNano", Fixed64), many(9, "attributes", Of(&KEY_VALUE)),
        one(10, "droppedAttributesCount", Uint32), many(11, "events", Of(&EVENT)),
        one(12, "droppedEventsCount", Uint32), many(13, "links", Of(&LINK)), one(14, "droppedLinksCount", Uint32),
        one(15, "status", Of(&STATUS)),
    ];
    EVENT: [
        one(1, "timeUnixNano", Fixed64), one(2, "name", Text), many(3, "attributes", Of(&KEY_VALUE)),
        one(4, "droppedAttributesCount", Uint32),
    ];
    LINK: [
        one(1, "traceId", TRACE), one(2, "spanId", SPAN), one(3, "traceState", Text),
        many(4, "attributes", Of(&KEY_VALUE)), one(5, "droppedAttributesCount", Uint32), one(6, "flags", Fixed32),
    ];
    STATUS: [one(2, "message", Text), one(3, "code", Int32)];

    RESOURCE_LOGS: [
        one(1, "resource", Of(&RESOURCE)), many(2, "scopeLogs", Of(&SCOPE_LOGS)), one(3, "schemaUrl", Text),
    ];
    SCOPE_LOGS: [one(1, "scope", Of(&SCOPE)), many(2, "logRecords", Of(&LOG_RECORD)), one(3, "schemaUrl", Text)];
    LOG_RECORD: [
        one(1, "timeUnixNano", Fixed64), one(11, "observedTimeUnixNano", Fixed64), one(2, "severityNumber", Int32),
        one(3, "severityText", Text), one(5, "body", Of(&ANY_VALUE)), many(6, "attributes", Of(&KEY_VALUE)),
        one(7, "droppedAttributesCount", Uint32), one(8, "flags", Fixed32), one(9, "traceId", TRACE),
        one(10, "spanId", SPAN), one(12, "eventName", Text),
    ];
}

/// The request type of a signal.
pub(super) fn request(signal: Signal) -> &'static Message {
    match signal {
        Signal::Metrics => &METRICS,
        Signal::Traces => &TRACES,
        Signal::Logs => &LOGS,
    }
}
