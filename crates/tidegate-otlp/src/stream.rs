// SPDX-License-Identifier: Apache-2.0

//! The names of streams, which mean the same to other processes.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_engine::{Point, Series, StreamId, Value};

use super::convert;

/// The name of a series in storage. It is made of the OTLP bytes of the series, which are the same in every process.
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
