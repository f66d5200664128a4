//! Connections that take a place and do nothing.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::Error;
use crate::abuse::field::{Field, Setup};
use crate::abuse::h2;
use crate::abuse::wire::{ATTACKER, Harm, connected, head};

/// Where no more files can be opened than usual.
pub(super) const FEW: Setup = Setup {
    few_descriptors: true,
    ..Setup::PLAIN
};

/// One that finds no room waits so long.
const PATIENCE: Duration = Duration::from_millis(200);
/// Addresses of attackers that come from everywhere.
const ADDRESSES: usize = 249;

/// Opens so many connections that send this first, those that the gateway lets in.
fn opened(port: u16, count: usize, from: impl Fn(usize) -> u8, first: &[u8]) -> Vec<TcpStream> {
    let open = |number| -> Option<TcpStream> {
        let mut stream = connected(from(number), port, PATIENCE).ok()?;
        stream.write_all(first).ok()?;
        Some(stream)
    };
    let begun = Instant::now();
    let mut held = Vec::new();
    for number in 0..count {
        held.extend(open(number));
        // Where there is no room for more, one after the other waits for nothing.
        if begun.elapsed() > 20 * PATIENCE {
            break;
        }
    }
    held
}

fn idle(field: &Field, from: impl Fn(usize) -> u8) -> Result<Harm, Error> {
    let ports = field.ports;
    let mut held = Vec::new();
    for (port, count) in [(ports.health, 530), (ports.admin, 530), (ports.page, 70)] {
        held.extend(opened(port, count, &from, &h2::get()));
    }
    std::thread::sleep(field.time());
    Ok(Harm::default())
}

pub(super) fn idle_from_one(field: &Field) -> Result<Harm, Error> {
    idle(field, |_| ATTACKER)
}

pub(super) fn idle_from_many(field: &Field) -> Result<Harm, Error> {
    idle(field, |number| 2 + (number % ADDRESSES) as u8)
}

pub(super) fn half_forms(field: &Field) -> Result<Harm, Error> {
    let mut form = head(
        "/api/v1/query",
        "content-type: application/x-www-form-urlencoded\r\n",
        100,
    );
    form.push(b'q');
    let ports = field.ports;
    let mut held = Vec::new();
    for (port, count) in [(ports.admin, 520), (ports.health, 520)] {
        held.extend(opened(port, count, |_| ATTACKER, &form));
    }
    std::thread::sleep(field.time());
    Ok(Harm::default())
}

pub(super) fn descriptors(field: &Field) -> Result<Harm, Error> {
    let half = b"POST /v1/metrics HTTP/1.1\r\nhost: x\r\n";
    let held = opened(field.ports.otlp, 1_100, |_| ATTACKER, half);
    std::thread::sleep(field.time());
    drop(held);
    Ok(Harm::default())
}

pub(super) fn headers(field: &Field) -> Result<Harm, Error> {
    let endless = format!(
        "POST /v1/metrics HTTP/1.1\r\nhost: x\r\nx-long: {}",
        "x".repeat(380 << 10)
    );
    let (threads, each) = (20, field.pick(100, 10));
    let end = Instant::now() + field.time();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut held = Vec::new();
                for _ in 0..each {
                    held.extend(stuffed(field.ports.otlp, endless.as_bytes()));
                }
                std::thread::sleep(end.saturating_duration_since(Instant::now()));
            });
        }
    });
    Ok(Harm::default())
}

/// A connection over which went as much of this as the gateway takes.
fn stuffed(port: u16, bytes: &[u8]) -> Option<TcpStream> {
    let mut stream = connected(ATTACKER, port, PATIENCE).ok()?;
    // One that is closed in between is no connection any more; one that is not read any further is.
    match stream.write_all(bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => None,
        _ => Some(stream),
    }
}
