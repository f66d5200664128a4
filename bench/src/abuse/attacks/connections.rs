// SPDX-License-Identifier: Apache-2.0

//! Connections that take a place and do nothing.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::many::seed;
use super::now;
use crate::BenchError;
use crate::abuse::field::{AttackedGateway, SMALL_DEADLINE, Setup};
use crate::abuse::h2;
use crate::abuse::proto::{sample, written};
use crate::abuse::refusals::{STALLED, counted_of};
use crate::abuse::result::{CheckLine, counted_by, settled};
use crate::abuse::wire::{ATTACKER, HONEST, Harm, Tally, WRITE, connected, head, once, post};

/// Where no more files can be opened than usual.
pub(super) const FEW: Setup = Setup {
    few_descriptors: true,
    ..Setup::PLAIN
};

/// A configuration that closes a connection soon if its client reads no answers over HTTP; over gRPC after half a
/// minute.
pub(super) const SHORT_STALL: Setup = Setup {
    http: ", write_timeout: 2s",
    ..Setup::PLAIN
};

/// One that finds no room waits so long.
const PATIENCE: Duration = Duration::from_millis(200);
/// Addresses of attackers that come from everywhere.
const ADDRESSES: usize = 249;

/// The address of this connection of attackers that come from everywhere.
pub(super) fn address(number: usize) -> u8 {
    2 + (number % ADDRESSES) as u8
}

/// Opens `count` connections that send this first. Returns those that the gateway accepts.
pub(super) fn opened(port: u16, count: usize, from: impl Fn(usize) -> u8, first: &[u8]) -> Vec<TcpStream> {
    let open = |number| -> Option<TcpStream> {
        let mut stream = connected(from(number), port, PATIENCE).ok()?;
        stream.write_all(first).ok()?;
        Some(stream)
    };
    let begun = Instant::now();
    let mut held = Vec::new();
    for number in 0..count {
        held.extend(open(number));
        // Where there is no space for more, one after the other waits for nothing.
        if begun.elapsed() > 20 * PATIENCE {
            break;
        }
    }
    held
}

fn idle(field: &AttackedGateway, from: impl Fn(usize) -> u8) -> Result<Harm, BenchError> {
    let ports = field.ports;
    let mut held = Vec::new();
    for (port, count) in [(ports.health, 530), (ports.admin, 530), (ports.page, 70)] {
        held.extend(opened(port, count, &from, &h2::first_get()));
    }
    std::thread::sleep(field.time());
    Ok(Harm::default())
}

pub(super) fn idle_from_one(field: &AttackedGateway) -> Result<Harm, BenchError> {
    idle(field, |_| ATTACKER)
}

pub(super) fn idle_from_many(field: &AttackedGateway) -> Result<Harm, BenchError> {
    idle(field, address)
}

/// Connections to remote write, beside which an honest write is taken.
pub(super) fn idle_writes(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let port = field.ports.write;
    let count = field.pick(1_000, 100);
    let mut held = opened(port, count, address, &h2::preface());
    // They say nothing at all.
    held.extend(opened(port, count, address, &[]));
    std::thread::sleep(field.time());
    let series = written(&[("__name__", "honest_write")], &sample(now() / 1_000_000));
    let packed = snap::raw::Encoder::new().compress_vec(&series)?;
    let answer = once(
        HONEST,
        port,
        field.deadline(),
        &post("/api/v1/write", WRITE, &packed),
    );
    let said = match &answer {
        Ok(answer) => answer.status.to_string(),
        Err(error) => error.to_string(),
    };
    let is_taken = answer.as_ref().is_ok_and(|answer| answer.status / 100 == 2);
    drop(held);
    let tally = Tally::default();
    tally.note(answer, 1);
    Ok(Harm {
        lines: vec![CheckLine::new("a write beside them is taken", said, is_taken)],
        ..tally.finish()
    })
}

pub(super) fn half_forms(field: &AttackedGateway) -> Result<Harm, BenchError> {
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

pub(super) fn descriptors(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let half = b"POST /v1/metrics HTTP/1.1\r\nhost: x\r\n";
    let held = opened(field.ports.otlp, 1_100, |_| ATTACKER, half);
    std::thread::sleep(field.time());
    drop(held);
    Ok(Harm::default())
}

pub(super) fn headers(field: &AttackedGateway) -> Result<Harm, BenchError> {
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

/// Heads without bodies over HTTP/2, as large as the gateway takes them.
pub(super) fn heads(field: &AttackedGateway) -> Result<Harm, BenchError> {
    /// The largest head that pages take, and the largest that receivers take.
    const MOST: [usize; 2] = [16 << 10, 64 << 10];
    /// The rest of a head.
    const REST: usize = 1 << 10;
    /// HTTP/2 counts as much for a short field.
    const SHORT: usize = 36;
    let [of_pages, of_receivers] = MOST.map(|most| most - REST);
    let streams = field.pick(200, 50);
    let many = |path: &str, content_type: &str, fields: Vec<u8>| -> Vec<u8> {
        let posts = (0..streams).map(|number| h2::silent_post(2 * number + 1, path, content_type, &fields));
        [h2::preface(), posts.collect::<Vec<_>>().concat()].concat()
    };
    let form = |fields| many("/api/v1/query", "application/x-www-form-urlencoded", fields);
    let admin = field.ports.admin;
    let write = many(
        "/v1/metrics",
        "application/x-protobuf",
        h2::long_field(of_receivers),
    );
    let floods = [
        (admin, form(h2::long_field(of_pages))),
        (field.ports.otlp, write),
        (admin, form(h2::short_fields(of_pages / SHORT))),
    ];
    let status = |fill: usize| -> Result<u16, BenchError> {
        let fill = "x".repeat(fill);
        let get = format!("GET /api/v1/query?query=1 HTTP/1.1\r\nhost: 127.0.0.1\r\nx-long: {fill}\r\n\r\n");
        Ok(once(ATTACKER, admin, field.deadline(), get.as_bytes())?.status)
    };
    let (allowed, too_long) = (status(of_pages)?, status(2 * MOST[0])?);
    let (connections, rest) = field.pick((8, Duration::from_secs(3)), (2, Duration::from_millis(200)));
    field.crowd(field.pick(10, 3), |thread, _| {
        let (port, flood) = &floods[thread % floods.len()];
        let held: Vec<_> = (0..connections).filter_map(|_| stuffed(*port, flood)).collect();
        std::thread::sleep(rest);
        drop(held);
    });
    let is_one = |name: &str, labels: &str| {
        name == "tidegate_memory_refusals_total" && labels.contains("reason=\"head\"")
    };
    let refused = counted_by(field, is_one)?;
    Ok(Harm {
        lines: vec![
            CheckLine::new(
                "a head as large as allowed is answered, a larger one is not",
                format!("{allowed}, {too_long}"),
                (allowed, too_long) == (200, 431),
            ),
            CheckLine::new(
                "heads without room are refused",
                refused.to_string(),
                // A small attack leaves room.
                refused > 0.0 || field.pick(false, true),
            ),
        ],
        ..Harm::default()
    })
}

/// A connection over which went as much of this as the gateway takes.
fn stuffed(port: u16, bytes: &[u8]) -> Option<TcpStream> {
    let mut stream = connected(ATTACKER, port, PATIENCE).ok()?;
    // A connection that was closed in between does not count. One that the gateway reads no further does.
    match stream.write_all(bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => None,
        _ => Some(stream),
    }
}

/// Requests whose answers can't be sent: the window for them is 0.
pub(super) fn zero_window(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let of = |path: &str, content_type: &str, body: &[u8]| {
        [h2::without_window(), h2::post(1, path, content_type, body, true)].concat()
    };
    let http = of("/v1/metrics", "application/json", b"{\"resourceMetrics\": []}");
    let grpc = of(
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        "application/grpc",
        &[0; 5],
    );
    let mut held = opened(field.ports.otlp, field.pick(200, 20), |_| ATTACKER, &http);
    let mut time = field.pick(2 * SHORT_STALL_TIME, SMALL_DEADLINE);
    // It takes too long for a small attack.
    if field.pick(true, false) {
        held.extend(opened(field.ports.grpc, 200, |_| ATTACKER, &grpc));
        time = 2 * STALL_TIME;
    }
    let (count, until) = (held.len(), Instant::now() + time);
    let cut = held.into_iter().filter(|stream| is_closed(stream, until)).count();
    let mut lines = settled(|| {
        let counted = counted_of(field, STALLED)?;
        Ok(vec![CheckLine::new(
            "connections that are cut off are counted",
            format!("{counted} counted, {cut} cut"),
            counted >= cut as f64,
        )])
    });
    lines.push(CheckLine::new(
        "connections whose peers take nothing are cut off",
        format!("{cut} of {count}"),
        cut == count,
    ));
    Ok(Harm {
        lines,
        ..Harm::default()
    })
}

/// Scrapes of which no byte is taken, many on each of many connections.
pub(super) fn unread_pages(field: &AttackedGateway) -> Result<Harm, BenchError> {
    const STREAMS: u32 = 50;
    let harm = seed(field, "abuse", field.pick(100_000, 1_000))?;
    let mut scrapes = h2::without_window();
    for number in 0..STREAMS {
        scrapes.extend(h2::get(2 * number + 1, "/metrics"));
    }
    let held = opened(field.ports.page, field.pick(60, 5), |_| ATTACKER, &scrapes);
    std::thread::sleep(field.time());
    drop(held);
    Ok(harm)
}

const SHORT_STALL_TIME: Duration = Duration::from_secs(2);
const STALL_TIME: Duration = Duration::from_secs(30);

/// Whether the other side closes a connection by then.
fn is_closed(mut stream: &TcpStream, until: Instant) -> bool {
    let mut read = [0; 4096];
    while Instant::now() < until {
        match stream.read(&mut read) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return true,
        }
    }
    false
}

/// Forms that do not end: many on a connection over HTTP/2, and one on each of many over HTTP/1.1.
pub(super) fn forms(field: &AttackedGateway) -> Result<Harm, BenchError> {
    const FORM: usize = 255 << 10;
    const TYPE: &str = "application/x-www-form-urlencoded";
    let form = [&b"query=1&rest="[..], &vec![b'x'; FORM]].concat();
    // Settings, and an acknowledgement of the other side's.
    let mut many = h2::without_window();
    for number in 0..7 {
        many.extend(h2::post(2 * number + 1, "/api/v1/query", TYPE, &form, false));
    }
    let headers = format!("content-type: {TYPE}\r\n");
    let mut one = head("/api/v1/query", &headers, form.len() + 1);
    one.extend(&form);
    let admin = field.ports.admin;
    let mut held = opened(admin, field.pick(200, 10), |_| ATTACKER, &many);
    held.extend(opened(admin, field.pick(300, 20), |_| ATTACKER, &one));
    std::thread::sleep(field.time());
    Ok(Harm::default())
}
