// SPDX-License-Identifier: Apache-2.0

//! Attackers around the honest sender: those who guess its password, its destination, and two attacks at once.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::elements::{bomb, count};
use super::many::seed;
use super::now;
use super::queries::endless;
use crate::BenchError;
use crate::abuse::field::{AttackedGateway, Setup};
use crate::abuse::proto::{gauge, point, request};
use crate::abuse::wire::{Harm, Tally, protobuf};

/// The password of the honest sender is its name.
pub(super) const PASSWORDS: Setup = Setup {
    http: ", auth: {authenticator: basicauth/server}",
    extensions: (
        "  basicauth/server: {htpasswd: {inline: 'honest:$$2b$$10$$abcdefghijklmnopqrstuuUIVEGk.YVR60MLuRRGE7Ag5sfTN44RK'}}",
        ", basicauth/server",
    ),
    honest: "authorization: Basic aG9uZXN0OmhvbmVzdA==\r\n",
    ..Setup::PLAIN
};

/// A destination that others do not wait for.
pub(super) const DESTINATION: Setup = Setup {
    exporters: (
        "  otlphttp: {endpoint: 'http://127.0.0.1:SINK', timeout: 5s, sending_queue: {on_full: drop}}",
        ", otlphttp",
    ),
    ..Setup::PLAIN
};

const PAUSE: Duration = Duration::from_millis(20);

pub(super) fn passwords(field: &AttackedGateway) -> Result<Harm, BenchError> {
    // `honest:` and `nobody:`, and letters for a password.
    let users = ["aG9uZXN0O", "bm9ib2R5O"];
    let tally = Tally::default();
    field.crowd(field.pick(50, 10), |thread, turn| {
        let user = users[turn % users.len()];
        let headers = format!(
            "{}authorization: Basic {user}{thread:03}{turn:08}\r\n",
            protobuf("")
        );
        field.push(&headers, &request("abuse", &[]), 0, &tally);
        std::thread::sleep(PAUSE);
    });
    Ok(tally.finish())
}

pub(super) fn slow_answers(field: &AttackedGateway) -> Result<Harm, BenchError> {
    to_a_destination(field, babble)
}

/// Bodies of 1 MiB in chunks of a byte.
pub(super) fn byte_answers(field: &AttackedGateway) -> Result<Harm, BenchError> {
    to_a_destination(field, crumble)
}

/// Pushes that the gateway delivers to a destination, which takes requests and answers each in this way.
fn to_a_destination(
    field: &AttackedGateway,
    answer: impl Fn(&mut TcpStream, &AtomicBool) -> std::io::Result<()> + Sync,
) -> Result<Harm, BenchError> {
    let listener = TcpListener::bind(("127.0.0.1", field.ports.sink))?;
    listener.set_nonblocking(true)?;
    let over = AtomicBool::new(false);
    let tally = Tally::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                let Ok((stream, _)) = listener.accept() else {
                    std::thread::sleep(PAUSE);
                    continue;
                };
                let (answer, over) = (&answer, &over);
                scope.spawn(move || serve(stream, over, answer));
            }
        });
        let points: Vec<u8> = (0..1_000)
            .flat_map(|number: u32| point(now(), "number", &number.to_string()))
            .collect();
        let body = request("abuse.delivered", &gauge(&points));
        field.crowd(2, |_, _| {
            field.push(&protobuf(""), &body, 1_000, &tally);
            std::thread::sleep(PAUSE);
        });
        over.store(true, Relaxed);
    });
    Ok(tally.finish())
}

/// Takes requests, and answers each.
fn serve(
    stream: TcpStream,
    over: &AtomicBool,
    answer: &dyn Fn(&mut TcpStream, &AtomicBool) -> std::io::Result<()>,
) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    let mut stream = BufReader::new(stream);
    while !over.load(Relaxed) {
        let (mut length, mut line) = (0, String::new());
        while line != "\r\n" {
            line.clear();
            if stream.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        std::io::copy(&mut (&mut stream).take(length), &mut std::io::sink())?;
        answer(stream.get_mut(), over)?;
    }
    Ok(())
}

/// An answer of 1 GB at leisure.
fn babble(stream: &mut TcpStream, over: &AtomicBool) -> std::io::Result<()> {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 1000000000\r\n\r\n";
    stream.write_all(head.as_bytes())?;
    while !over.load(Relaxed) {
        stream.write_all(&[0x0a; 1 << 20])?;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// An answer of 1 MiB, each byte of which is a chunk.
fn crumble(stream: &mut TcpStream, over: &AtomicBool) -> std::io::Result<()> {
    const BYTES: usize = 1 << 20;
    /// Chunks that are written at once.
    const PORTION: usize = 1 << 12;
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes())?;
    let portion = b"1\r\n\x0a\r\n".repeat(PORTION);
    for _ in 0..BYTES / PORTION {
        if over.load(Relaxed) {
            break;
        }
        stream.write_all(&portion)?;
    }
    stream.write_all(b"0\r\n\r\n")
}

pub(super) fn both(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let mut harm = seed(field, "abuse", 1_000)?;
    let (body, tally) = (bomb(count(field))?, Tally::default());
    field.crowd(4, |thread, turn| match thread % 2 {
        0 => field.push(&protobuf("zstd"), &body, 1, &tally),
        _ => {
            let _ = field.ask(endless(turn), field.time());
        }
    });
    let bombs = tally.finish();
    harm.accepted += bombs.accepted;
    harm.uncertain += bombs.uncertain;
    harm.refused += bombs.refused;
    harm.malformed += bombs.malformed;
    harm.unanswered += bombs.unanswered;
    Ok(harm)
}
