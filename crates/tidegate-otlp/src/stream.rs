// SPDX-License-Identifier: Apache-2.0

//! What a stream is called where it must mean the same to another process.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_engine::{Point, Series, StreamId, Value};

use super::convert;

/// What a series is called in storage: of the bytes that OTLP has for it, which are the same in every process.
pub fn stream_id(series: &Series) -> StreamId {
    let point = Point {
        series: Arc::new(series.clone()),
        start: 0,
        time: 0,
        value: Value::NoRecordedValue,
        exemplars: Vec::new(),
    };
    let bytes: Vec<Bytes> = convert::encode_points(&[point])
        .parts
        .into_iter()
        .map(|part| part.bytes)
        .collect();
    let digest = ring::digest::digest(&ring::digest::SHA256, &bytes.concat());
    let mut id = StreamId::default();
    let length = id.len();
    id.copy_from_slice(&digest.as_ref()[..length]);
    id
}
