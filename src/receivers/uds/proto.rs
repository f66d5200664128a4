// SPDX-License-Identifier: Apache-2.0

//! The messages of `proto/tidegate/v1/events.proto`, written by hand so that the build needs no protobuf compiler.
//! A test compares them with the .proto file.

use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};

/// The source of measurements.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Source {
    /// Attributes of the resource.
    #[prost(message, repeated, tag = "1")]
    pub resource: Vec<KeyValue>,
    /// The library that measures.
    #[prost(message, optional, tag = "2")]
    pub scope: Option<InstrumentationScope>,
    /// Attributes that every point of this source has.
    #[prost(message, repeated, tag = "3")]
    pub attributes: Vec<KeyValue>,
}

/// The combination of a kind's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Instrument {
    /// Unspecified: the kind is refused.
    Unspecified = 0,
    /// Adds a non-negative amount.
    Counter = 1,
    /// Adds an amount of either sign.
    UpDownCounter = 2,
    /// Replaces the value.
    Gauge = 3,
    /// One observation of a distribution.
    Histogram = 4,
}

/// The kind of an event.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Kind {
    /// Metric name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// UCUM unit.
    #[prost(string, tag = "2")]
    pub unit: String,
    /// Free text.
    #[prost(string, tag = "3")]
    pub description: String,
    /// The [`Instrument`] that combines the values.
    #[prost(enumeration = "Instrument", tag = "4")]
    pub instrument: i32,
    /// Attributes that every point of this kind has.
    #[prost(message, repeated, tag = "5")]
    pub attributes: Vec<KeyValue>,
}

/// Events of one source, in columns.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EventBatch {
    /// Chosen by the sender; the acknowledgement repeats it.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    /// Whether to answer.
    #[prost(bool, tag = "2")]
    pub acknowledge: bool,
    /// The source; if it is missing, that of the previous batch.
    #[prost(message, optional, tag = "3")]
    pub source: Option<Source>,
    /// The connection's list of kinds from `first_kind` on.
    #[prost(message, repeated, tag = "4")]
    pub kinds: Vec<Kind>,
    /// For each event the index of its kind.
    #[prost(uint32, repeated, tag = "5")]
    pub events: Vec<u32>,
    /// The value of each event, if values are doubles.
    #[prost(double, repeated, tag = "6")]
    pub doubles: Vec<f64>,
    /// The value of each event, if values are integers.
    #[prost(uint64, repeated, tag = "7")]
    pub integers: Vec<u64>,
    /// For each event when it happened.
    #[prost(fixed64, repeated, tag = "8")]
    pub times_unix_nano: Vec<u64>,
    /// The number of measurements of each event.
    #[prost(double, repeated, tag = "9")]
    pub weights: Vec<f64>,
    /// Index of the first of `kinds`.
    #[prost(uint32, tag = "10")]
    pub first_kind: u32,
}

/// The result of a batch.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct EventAck {
    /// The batch's.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    /// Events taken.
    #[prost(uint64, tag = "2")]
    pub accepted: u64,
    /// Events refused permanently; do not send them again.
    #[prost(uint64, tag = "3")]
    pub rejected: u64,
    /// The reason, as text.
    #[prost(string, tag = "4")]
    pub message: String,
    /// Above 0: nothing was taken; send the same batch again after this time.
    #[prost(uint64, tag = "5")]
    pub retry_after_ms: u64,
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_proto_file_and_the_rust_types_declare_the_same() {
        let proto = include_str!("../../../proto/tidegate/v1/events.proto");
        let declared = crate::protofile::compare(&[proto], include_str!("proto.rs"));
        assert_eq!(declared, 28, "fields and values were found at all");
    }
}
