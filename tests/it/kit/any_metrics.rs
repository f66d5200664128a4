// SPDX-License-Identifier: Apache-2.0

//! Arbitrary OTLP metrics: every kind, from names and numbers that make trouble.
//!
//! Names come from small pools most of the time, so that they collide: with each other once they are translated, with
//! the suffixes of other types, and with labels that Prometheus keeps for itself.

mod points;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Becomes bytes that are not UTF-8 in [`bytes_of`].
const BROKEN: &str = "\u{e000}\u{e001}";

const NAMES: &[&str] = &[
    "a",
    "a",
    "a.b",
    "a_b",
    "a:b",
    "a/b",
    "a__b",
    "_a",
    "a_",
    "A",
    "a_total",
    "a.total",
    "total",
    "a_sum",
    "a_count",
    "a_bucket",
    "a_created",
    "a_info",
    "a_gcount",
    "a_gsum",
    "a_ratio",
    "a_seconds",
    "a_seconds_total",
    "a_bytes",
    "target_info",
    "target",
    "up",
    "le",
    "0a",
    "0",
    "_",
    "__",
    "..",
    ":",
    "é",
    "日本",
    "a\nb",
    "a\"b",
    "a\\b",
    "a{b}",
    "a b",
    " a",
    "a ",
    "#a",
    "# TYPE a",
    "a\u{0}",
    "\u{7f}",
    "\u{feff}a",
    "\u{202e}a",
    "a\r",
    "a\t",
    "🦀",
    "U__a",
    "",
    "a\u{e000}\u{e001}",
    "\u{e000}\u{e001}",
];

const KEYS: &[&str] = &[
    "a",
    "a",
    "b",
    "a.b",
    "a_b",
    "a-b",
    "a__b",
    "A",
    "le",
    "quantile",
    "__name__",
    "__a__",
    "name",
    "job",
    "instance",
    "service.name",
    "otel_scope_name",
    "otel.scope.name",
    "otel_scope_version",
    "otel_scope_schema_url",
    "otel_scope_a",
    "otel.metric.overflow",
    "trace_id",
    "exported_job",
    "key_0",
    "0",
    "0a",
    "_",
    "__",
    "..",
    ":",
    "a:b",
    "é",
    "日本",
    "a\nb",
    "a\"b",
    "a\\b",
    "a=b",
    "a,b",
    "{",
    "}",
    " ",
    "a ",
    "\u{0}",
    "🦀",
    "",
    "a\u{e000}\u{e001}",
];

pub(crate) const UNITS: &[&str] = &[
    "",
    "",
    "1",
    "s",
    "ms",
    "By",
    "KiBy",
    "%",
    "Cel",
    "By/s",
    "m/s",
    "{packet}",
    "{packet}/s",
    "s{a}",
    "/s",
    "s/",
    "/",
    "1/s",
    "//",
    "total",
    "ratio",
    "seconds",
    "bytes",
    "info",
    "_",
    "é",
    "\n",
    "\"",
    "\\",
    "a b",
    "🦀",
    "\u{e000}\u{e001}",
];

const TEXTS: &[&str] = &[
    "",
    "a",
    "b",
    "a;b",
    ";",
    "é",
    "日本",
    "\n",
    "a\nb",
    "\r\n",
    "\"",
    "\\",
    "\\n",
    "a\\",
    "\\\"",
    "}",
    "{",
    ",",
    "=",
    " ",
    "#",
    "# EOF",
    "\n# EOF\n",
    "\u{0}",
    "\u{1}",
    "\u{7f}",
    "\u{85}",
    "\u{2028}",
    "\u{feff}",
    "🦀",
    "a\u{301}",
    "NaN",
    "\u{e000}\u{e001}",
    "a\u{e000}\u{e001}b",
];

/// A request with up to three resources.
pub(crate) fn any_request() -> impl Strategy<Value = ExportMetricsServiceRequest> {
    vec(any_resource_metrics(), 0..4)
        .prop_map(|resource_metrics| ExportMetricsServiceRequest { resource_metrics })
}

/// The request as it comes over a socket. Strings that say so are not UTF-8 there.
pub(crate) fn bytes_of(request: &ExportMetricsServiceRequest) -> Vec<u8> {
    let mut bytes = prost::Message::encode_to_vec(request);
    let broken = BROKEN.as_bytes();
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(broken.len()).position(|part| part == broken) {
        at += found;
        bytes[at..at + broken.len()].copy_from_slice(&[0xff, 0xc3, 0x28, 0xe2, 0x82, 0x80]);
        at += broken.len();
    }
    bytes
}

fn any_resource_metrics() -> impl Strategy<Value = ResourceMetrics> {
    (any_resource(), vec(any_scope_metrics(), 0..3), any_text()).prop_map(
        |(resource, scope_metrics, schema_url)| ResourceMetrics {
            resource,
            scope_metrics,
            schema_url,
        },
    )
}

fn any_resource() -> impl Strategy<Value = Option<Resource>> {
    let identity = |key: &'static str| {
        let values = prop_oneof![3 => select(&["a", "b"][..]).prop_map(text), 1 => any_value()];
        proptest::option::weighted(0.6, values).prop_map(move |value| value.map(|value| pair(key, value)))
    };
    let attributes = (
        identity("service.namespace"),
        identity("service.name"),
        identity("service.instance.id"),
        any_attributes(),
    )
        .prop_map(|(namespace, name, instance, mut attributes)| {
            attributes.extend([namespace, name, instance].into_iter().flatten());
            Resource {
                attributes,
                ..Resource::default()
            }
        });
    proptest::option::weighted(0.9, attributes)
}

fn any_scope_metrics() -> impl Strategy<Value = ScopeMetrics> {
    let scope = (any_text(), any_text(), any_attributes()).prop_map(|(name, version, attributes)| {
        InstrumentationScope {
            name,
            version,
            attributes,
            dropped_attributes_count: 0,
        }
    });
    (proptest::option::of(scope), vec(any_metric(), 0..5), any_text()).prop_map(
        |(scope, metrics, schema_url)| ScopeMetrics {
            scope,
            metrics,
            schema_url,
        },
    )
}

fn any_metric() -> impl Strategy<Value = Metric> {
    let types = &[
        "unknown",
        "info",
        "stateset",
        "gauge",
        "counter",
        "histogram",
        "?",
    ][..];
    let metadata = prop_oneof![
        6 => Just(Vec::new()),
        1 => select(types).prop_map(|kind| vec![pair("prometheus.type", text(kind))]),
        1 => any_attributes(),
    ];
    (
        any_name(NAMES),
        any_name(UNITS),
        any_text(),
        metadata,
        points::any_data(),
    )
        .prop_map(|(name, unit, description, metadata, data)| Metric {
            name,
            unit,
            description,
            metadata,
            data,
        })
}

/// The most bytes of a name. A metric with a longer name than `MAX_NAME_BYTES` of the wire is cut
/// out of its request.
const LONGEST: usize = 60_000;

/// Mostly one of these, else whatever; sometimes long.
fn any_name(pool: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop_oneof![
        40 => select(pool).prop_map(str::to_owned),
        5 => "[a-z]{1,3}([._:/-][a-z]{1,3}){0,2}",
        4 => "\\PC{0,6}",
        1 => any::<String>(),
        1 => (select(pool), prop_oneof![9 => 50usize..300, 1 => 2_000usize..5_000]).prop_map(|(name, times)| {
            name.repeat(times.min(LONGEST / name.len().max(1)))
        }),
    ]
}

pub(crate) fn any_text() -> impl Strategy<Value = String> {
    any_name(TEXTS)
}

/// A few, seldom many; some of them twice.
fn any_attributes() -> impl Strategy<Value = Vec<KeyValue>> {
    let one = || (any_name(KEYS), any_value()).prop_map(|(key, value)| pair(&key, value));
    let pairs = prop_oneof![100 => vec(one(), 0..4), 1 => vec(one(), 30..60)];
    (pairs, proptest::bool::weighted(0.1)).prop_map(|(mut pairs, twice)| {
        if twice {
            pairs.extend_from_within(..);
        }
        pairs
    })
}

fn any_value() -> impl Strategy<Value = AnyValue> {
    let leaf = prop_oneof![
        8 => any_text().prop_map(Value::StringValue),
        1 => any::<bool>().prop_map(Value::BoolValue),
        1 => any::<i64>().prop_map(Value::IntValue),
        1 => points::any_number().prop_map(Value::DoubleValue),
        1 => vec(any::<u8>(), 0..4).prop_map(Value::BytesValue),
    ];
    let wrap = |value| AnyValue { value };
    let leaf = prop_oneof![15 => leaf.prop_map(Some), 1 => Just(None)]
        .prop_map(wrap)
        .boxed();
    let nested = leaf.clone().prop_recursive(3, 6, 3, move |inner| {
        let pairs = (any_name(KEYS), inner.clone()).prop_map(|(key, value)| pair(&key, value));
        prop_oneof![
            vec(inner, 0..3).prop_map(|values| Value::ArrayValue(ArrayValue { values })),
            vec(pairs, 0..3).prop_map(|values| Value::KvlistValue(KeyValueList { values })),
        ]
        .prop_map(Some)
        .prop_map(wrap)
    });
    prop_oneof![8 => leaf, 1 => nested]
}

pub(crate) fn pair(key: &str, value: AnyValue) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(value),
        ..KeyValue::default()
    }
}

pub(crate) fn text(value: &str) -> AnyValue {
    AnyValue {
        value: Some(Value::StringValue(value.to_owned())),
    }
}
