// SPDX-License-Identifier: Apache-2.0

//! Frames and heads of which the last byte does not come, and those that keep buffers in use.

use std::io::{Read, Write};
use std::time::Instant;

use super::connections::{address, opened};
use crate::BenchError;
use crate::abuse::field::AttackedGateway;
use crate::abuse::h2;
use crate::abuse::result::CheckLine;
use crate::abuse::wire::{ATTACKER, Harm, connected};
use crate::otlp::codec::METHOD;

/// The largest frame that HTTP/2 allows without a setting.
const FRAME: usize = 16 << 10;
/// The largest frame that receivers allow.
const LARGE_FRAME: u32 = 1 << 20;
/// The error of HTTP/2 for one that is larger than allowed.
const FRAME_SIZE_ERROR: u32 = 6;

/// A frame of the largest length allowed, of an unknown type: the receiver reads and ignores it.
fn unknown_frame() -> Vec<u8> {
    h2::frame(0xfe, 0, 0, &[0; FRAME])
}

/// Frames of which all but a byte came, on many connections.
pub(super) fn half_frames(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let body = h2::post_head_frame(1, "/v1/metrics", "application/x-protobuf");
    let data = h2::frame(0x0, 0, 1, &[0; FRAME]);
    let unknown = unknown_frame();
    let all_but_one = |frame: &[u8]| frame[..frame.len() - 1].to_vec();
    let halves = [
        [h2::preface(), body, all_but_one(&data)].concat(),
        [h2::preface(), all_but_one(&unknown)].concat(),
        // The head of a frame alone.
        [h2::preface(), unknown[..h2::HEAD].to_vec()].concat(),
        [
            h2::preface(),
            h2::head(LARGE_FRAME, 0xfe, 0, 0),
            vec![0; LARGE_FRAME as usize - 1],
        ]
        .concat(),
    ];
    let large = [h2::preface(), h2::head(LARGE_FRAME + 1, 0xfe, 0, 0)].concat();
    let error = goaway(field, &large)?;
    let mut held = Vec::new();
    for half in &halves {
        held.extend(opened(field.ports.otlp, field.pick(300, 15), address, half));
    }
    std::thread::sleep(field.time());
    drop(held);
    Ok(Harm {
        lines: vec![CheckLine::new(
            "a frame of more than 1 MiB is refused",
            error.map_or_else(|| "no error".to_owned(), |code| format!("error {code}")),
            error == Some(FRAME_SIZE_ERROR),
        )],
        ..Harm::default()
    })
}

/// The error with which the other side ends a connection of HTTP/2 that sends this.
fn goaway(field: &AttackedGateway, first: &[u8]) -> Result<Option<u32>, BenchError> {
    let deadline = field.deadline();
    let mut stream = connected(ATTACKER, field.ports.otlp, deadline)?;
    stream.write_all(first)?;
    let (begun, mut read, mut piece) = (Instant::now(), Vec::new(), [0; 4096]);
    while begun.elapsed() < deadline {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(bytes) => read.extend_from_slice(&piece[..bytes]),
        }
        if let Some(code) = h2::goaway(&read) {
            return Ok(Some(code));
        }
    }
    Ok(h2::goaway(&read))
}

/// Heads of HTTP/1.1 just below the largest allowed, which do not end.
pub(super) fn half_heads(field: &AttackedGateway) -> Result<Harm, BenchError> {
    const HEAD: usize = 63 << 10;
    let mut half = b"POST /v1/metrics HTTP/1.1\r\nhost: x\r\nx-long: ".to_vec();
    half.resize(HEAD, b'x');
    let held = opened(field.ports.otlp, field.pick(1_200, 60), address, &half);
    std::thread::sleep(field.time());
    drop(held);
    Ok(Harm::default())
}

/// Paths that stay in the table of HPACK, each in a read buffer of its own.
pub(super) fn paths(field: &AttackedGateway) -> Result<Harm, BenchError> {
    /// So many entries of a short path fill the usual table of 4,096 bytes.
    const ENTRIES: u32 = 107;
    let unknown = unknown_frame();
    let mut flood = h2::preface();
    for number in 0..ENTRIES {
        flood.extend_from_slice(&unknown);
        flood.extend(h2::get_kept(2 * number + 1, "/"));
    }
    let ports = field.ports;
    let mut held = Vec::new();
    for (port, count) in [
        (ports.otlp, field.pick(300, 10)),
        (ports.admin, field.pick(100, 10)),
    ] {
        held.extend(opened(port, count, address, &flood));
    }
    std::thread::sleep(field.time());
    drop(held);
    Ok(Harm::default())
}

/// Calls whose messages come a byte at a time, each in a read buffer of its own, and do not end.
pub(super) fn byte_frames(field: &AttackedGateway) -> Result<Harm, BenchError> {
    /// Of a message that is admitted.
    const MESSAGE: u32 = 1 << 20;
    let unknown = unknown_frame();
    let mut call = h2::preface();
    call.extend(h2::post_head_frame(1, METHOD, "application/grpc"));
    let prefix = [&[0][..], &MESSAGE.to_be_bytes()].concat();
    // Less than the window of a stream: the sender does not have to wait.
    let bytes = field.pick(2_000, 200);
    for byte in prefix.into_iter().chain(std::iter::repeat(0)).take(bytes) {
        call.extend_from_slice(&unknown);
        call.extend(h2::frame(0x0, 0, 1, &[byte]));
    }
    let held = opened(field.ports.grpc, field.pick(40, 10), address, &call);
    std::thread::sleep(field.time());
    drop(held);
    Ok(Harm::default())
}
