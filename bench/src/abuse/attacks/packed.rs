// SPDX-License-Identifier: Apache-2.0

//! Bodies that are small on the wire and large when they are unpacked.

use std::time::Duration;

use super::bodies::{call, framed};
use crate::BenchError;
use crate::abuse::field::AttackedGateway;
use crate::abuse::wire::{Harm, Tally, WRITE, protobuf};
use crate::otlp::Compression;

/// After a refusal.
const PAUSE: Duration = Duration::from_millis(200);

/// Zeros, which are not a request.
fn zeros(field: &AttackedGateway, full: usize) -> bytes::Bytes {
    vec![0; field.pick(full, full / 4)].into()
}

fn bombs(field: &AttackedGateway, compression: Compression) -> Result<Harm, BenchError> {
    let body = compression.pack(zeros(field, 63 << 20))?;
    let headers = protobuf(compression.name().unwrap_or_default());
    let tally = Tally::default();
    field.crowd(field.pick(100, 12), |_, _| {
        field.push(&headers, &body, 0, &tally);
        std::thread::sleep(PAUSE);
    });
    Ok(tally.finish())
}

pub(super) fn gzip(field: &AttackedGateway) -> Result<Harm, BenchError> {
    bombs(field, Compression::Gzip)
}

pub(super) fn gzip_over_grpc(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let packed = Compression::Gzip.pack(zeros(field, 63 << 20))?;
    let message = framed(1, packed.len() as u32, &packed);
    let tally = Tally::default();
    field.crowd(field.pick(100, 12), |_, _| {
        tally.note(call(field, "gzip", message.clone(), field.patience()), 0);
        std::thread::sleep(PAUSE);
    });
    Ok(tally.finish())
}

pub(super) fn zstd(field: &AttackedGateway) -> Result<Harm, BenchError> {
    bombs(field, Compression::Zstd)
}

pub(super) fn snappy(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let body = snap::raw::Encoder::new().compress_vec(&zeros(field, 31 << 20))?;
    let tally = Tally::default();
    field.crowd(field.pick(40, 12), |_, _| {
        field.write(WRITE, &body, 0, &tally);
        std::thread::sleep(PAUSE);
    });
    Ok(tally.finish())
}
