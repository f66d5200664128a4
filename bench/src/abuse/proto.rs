// SPDX-License-Identifier: Apache-2.0

//! Protobuf by its bytes: requests that no encoder would write.

use tidegate_model::varint::{MAX_BYTES, push_varint};

/// A varint.
pub(super) fn varint(value: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MAX_BYTES);
    push_varint(&mut bytes, value);
    bytes
}

/// A field whose content has a length: text, bytes, a message.
pub(super) fn field(number: u64, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let mut bytes = varint(number << 3 | 2);
    bytes.extend(varint(content.len() as u64));
    bytes.extend_from_slice(content);
    bytes
}

/// A field of eight bytes.
pub(super) fn fixed(number: u64, content: u64) -> Vec<u8> {
    let mut bytes = varint(number << 3 | 1);
    bytes.extend(content.to_le_bytes());
    bytes
}

/// A field that is a varint.
pub(super) fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

/// A request of OTLP with one metric: its name, and its data as a field of the metric.
pub(super) fn request(name: &str, data: &[u8]) -> Vec<u8> {
    let metric = [field(1, name), data.to_vec()].concat();
    field(1, field(2, field(2, metric)))
}

/// The data of a gauge, from its points one after the other.
pub(super) fn gauge(points: &[u8]) -> Vec<u8> {
    field(5, points)
}

/// The data of a cumulative counter, from its points one after the other.
pub(super) fn counter(points: &[u8]) -> Vec<u8> {
    /// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
    const CUMULATIVE: u64 = 2;
    field(7, [points, &number(2, CUMULATIVE), &number(3, 1)].concat())
}

/// A point with a time, a value and an attribute.
pub(super) fn point(time: u64, key: &str, value: &str) -> Vec<u8> {
    let attribute = [field(1, key), field(2, field(1, value))].concat();
    field(1, [fixed(3, time), fixed(6, 1), field(7, attribute)].concat())
}

/// A series of a remote write, version 1: labels as fields, and what else it has.
pub(super) fn written(labels: &[(&str, &str)], rest: &[u8]) -> Vec<u8> {
    let labels = labels.iter();
    let labels = labels.flat_map(|(name, value)| field(1, [field(1, name), field(2, value)].concat()));
    let series: Vec<u8> = labels.chain(rest.iter().copied()).collect();
    field(1, series)
}

/// A sample of a remote write, its time in milliseconds.
pub(super) fn sample(millis: u64) -> Vec<u8> {
    field(2, [fixed(1, 1f64.to_bits()), number(2, millis)].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::walk;

    #[test]
    fn a_request_has_the_points_that_it_was_given() {
        let points = [point(1, "host", "a"), point(2, "host", &"b".repeat(300))].concat();
        let request = request("abuse", &gauge(&points));
        assert_eq!(walk::points(&request), Some(2));
        let numbers = walk::numbers(&request).unwrap();
        assert_eq!((numbers.times.len(), numbers.integers.len()), (2, 2));
        let request = super::request("abuse", &counter(&points));
        assert_eq!(walk::points(&request), Some(2));
    }
}
