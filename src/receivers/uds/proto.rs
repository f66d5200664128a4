//! The messages of `proto/tidegate/v1/events.proto`, by hand so that the build needs no compiler of its own.
//! A test reads the .proto file and holds the two in step.

use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};

/// Who measures.
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

/// How the values of a kind combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Instrument {
    /// Not said: the kind is refused.
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

/// What an event measures.
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
    /// How values combine.
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
    /// Who measures; left out: as in the batch before.
    #[prost(message, optional, tag = "3")]
    pub source: Option<Source>,
    /// The connection's list of kinds from `first_kind` on.
    #[prost(message, repeated, tag = "4")]
    pub kinds: Vec<Kind>,
    /// For each event the index of its kind.
    #[prost(uint32, repeated, tag = "5")]
    pub events: Vec<u32>,
    /// For each event its value, where values are doubles.
    #[prost(double, repeated, tag = "6")]
    pub doubles: Vec<f64>,
    /// For each event its value, where values are whole numbers.
    #[prost(uint64, repeated, tag = "7")]
    pub integers: Vec<u64>,
    /// For each event when it happened.
    #[prost(fixed64, repeated, tag = "8")]
    pub times_unix_nano: Vec<u64>,
    /// For each event how many measurements it stands for.
    #[prost(double, repeated, tag = "9")]
    pub weights: Vec<f64>,
    /// Index of the first of `kinds`.
    #[prost(uint32, tag = "10")]
    pub first_kind: u32,
}

/// What became of a batch.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct EventAck {
    /// The batch's.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    /// Events taken.
    #[prost(uint64, tag = "2")]
    pub accepted: u64,
    /// Events refused for what they are.
    #[prost(uint64, tag = "3")]
    pub rejected: u64,
    /// Why, for people.
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
