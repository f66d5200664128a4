// SPDX-License-Identifier: Apache-2.0

//! Partition ids: 64-bit hashes of identities. Every process and every program computes the same ones.
//!
//! A partition id is XXH3, 64 bits, with seed 0 and the default secret, of the canonical identity. The canonical identity
//! is these parts, one after another:
//!
//! | part | form |
//! | --- | --- |
//! | attributes of the resource | set |
//! | schema URL of the resource | text |
//! | name of the scope | text |
//! | version of the scope | text |
//! | attributes of the scope | set |
//! | schema URL of the scope | text |
//! | name of the metric | text |
//! | unit of the metric | text |
//! | kind of data | 3 bytes |
//! | attributes of the point | set |
//!
//! A resource or a scope that is not there has empty parts. Description and metadata of the metric, counts of dropped
//! attributes, references to entities and unknown fields are not part of the identity.
//!
//! - A text or a set is its length in bytes, as 8 bytes with the lowest first, and then the bytes themselves.
//! - The bytes of a text are UTF-8. U+FFFD replaces each maximal subpart that is not UTF-8, as Unicode recommends.
//! - The kind of data is the number of its field in OTLP's `Metric` (5 gauge, 7 sum, 9 histogram, 10 exponential histogram,
//!   11 summary), then its `AggregationTemporality` (0 unspecified or unknown, 1 delta, 2 cumulative), then 1 if it is a
//!   monotonic sum. Gauges and summaries have 0 in the last two bytes.
//! - The bytes of a set are OTLP's `KeyValueList` in protobuf, with rules that leave one way to write it.
//!
//! The rules for a set:
//!
//! - It has one entry per key, by the bytes of the keys in ascending order. Of entries with the same key the last one counts.
//! - An entry has field 1, the key, and then field 2, the value. Both are there, even if they are empty: `{"": null}` is
//!   `0a 04 0a 00 12 00`.
//! - A value has the one field of `AnyValue` that it is, even for a default: false is `10 00`, 0 is `18 00`, "" is `0a 00`, an
//!   empty list is `2a 00`, an empty map is `32 00`. A value without a field, or with one that is not in 1 to 7, has no bytes.
//! - A list has its values in their order. A map within a value follows the rules of a set.
//! - Tags, lengths and integers are varints without unnecessary bytes; a negative integer has 10 bytes.
//! - A double is its 8 bytes, the lowest first, as they are: -0 differs from 0, NaNs differ by their bits. The integer 1 and
//!   the double 1.0 differ.

#[cfg(test)]
mod tests;

use std::hash::Hasher;

use twox_hash::xxhash3_64::{DEFAULT_SECRET_LENGTH, RawHasher, SecretBuffer};

use crate::{Data, MapRef, Series, Temporality};

/// The partition id of a series. It covers the same parts of the series as [`Key::of`](crate::Key::of).
pub fn partition_id(series: &Series) -> u64 {
    let Series {
        resource,
        scope,
        metric,
        attributes,
    } = series;
    PartitionHasher::of_resource(resource.attributes.view(), &resource.schema_url)
        .scope(
            &scope.name,
            &scope.version,
            scope.attributes.view(),
            &scope.schema_url,
        )
        .metric(&metric.name, &metric.unit)
        .data(metric.data)
        .id(attributes.view())
}

/// Computes partition ids of series that share parts. A caller clones it after the shared parts, and calls the methods in
/// the order in which they stand here.
#[derive(Clone)]
pub struct PartitionHasher(RawHasher<&'static [u8; DEFAULT_SECRET_LENGTH]>);

impl PartitionHasher {
    /// Begins with the resource.
    pub fn of_resource(attributes: MapRef<'_>, schema_url: &str) -> Self {
        Self(RawHasher::new(SecretBuffer::default()))
            .part(attributes.encoded())
            .part(schema_url.as_bytes())
    }

    /// Adds the scope.
    pub fn scope(self, name: &str, version: &str, attributes: MapRef<'_>, schema_url: &str) -> Self {
        self.part(name.as_bytes())
            .part(version.as_bytes())
            .part(attributes.encoded())
            .part(schema_url.as_bytes())
    }

    /// Adds the name and the unit of the metric.
    pub fn metric(self, name: &str, unit: &str) -> Self {
        self.part(name.as_bytes()).part(unit.as_bytes())
    }

    /// Adds the kind of data.
    pub fn data(mut self, data: Data) -> Self {
        self.0.write(&data_bytes(data));
        self
    }

    /// The id of the series with these attributes.
    pub fn id(self, attributes: MapRef<'_>) -> u64 {
        self.part(attributes.encoded()).0.finish()
    }

    fn part(mut self, bytes: &[u8]) -> Self {
        self.0.write(&(bytes.len() as u64).to_le_bytes());
        self.0.write(bytes);
        self
    }
}

fn data_bytes(data: Data) -> [u8; 3] {
    match data {
        Data::Gauge => [5, 0, 0],
        Data::Sum {
            monotonic,
            temporality,
        } => [7, temporality_byte(temporality), u8::from(monotonic)],
        Data::Histogram { temporality } => [9, temporality_byte(temporality), 0],
        Data::ExponentialHistogram { temporality } => [10, temporality_byte(temporality), 0],
        Data::Summary => [11, 0, 0],
    }
}

fn temporality_byte(temporality: Temporality) -> u8 {
    match temporality {
        Temporality::Unspecified => 0,
        Temporality::Delta => 1,
        Temporality::Cumulative => 2,
    }
}
