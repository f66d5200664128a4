// SPDX-License-Identifier: Apache-2.0

//! Floods of local processes.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::BenchError;
use crate::abuse::field::{AttackedGateway, SMALL_DEADLINE, Setup};
use crate::abuse::proto::{field as part, number, varint};
use crate::abuse::result::{CheckLine, counted_by, settled};
use crate::abuse::wire::Harm;

pub(super) const SETUP: Setup = Setup {
    receivers: (
        "  uds: {stream: {path: 'DIR/events.sock'}, datagram: {path: 'DIR/statsd.sock'}}",
        ", uds",
    ),
    processors: (
        "  aggregate: {expiry: 10s, rules: [{match: {name: '*'}, without: []}]}",
        ", aggregate",
    ),
    ..Setup::PLAIN
};

const PAUSE: Duration = Duration::from_millis(5);

/// The result of an attempt, which is repeated until it succeeds or the time is up.
pub(super) fn at_last<T>(mut attempt: impl FnMut() -> std::io::Result<T>) -> Result<T, BenchError> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(error) if begun.elapsed() > SMALL_DEADLINE => return Err(error.into()),
            Err(_) => std::thread::sleep(PAUSE),
            Ok(done) => return Ok(done),
        }
    }
}

/// A batch of events, each of a new kind.
fn batch(rng: &mut SmallRng, kinds: usize) -> Vec<u8> {
    let counter = number(4, 1);
    let declared: Vec<u8> = (0..kinds)
        .flat_map(|_| {
            let name = format!("abuse_{:016x}", rng.random::<u64>());
            part(4, [part(1, name), counter.clone()].concat())
        })
        .collect();
    let events: Vec<u8> = (0..kinds as u64).flat_map(varint).collect();
    let values = vec![1; kinds];
    let batch = [declared, part(5, events), part(7, values)].concat();
    [varint(batch.len() as u64), batch].concat()
}

/// Instruments of events.
const COUNTER: u64 = 1;
pub(super) const GAUGE: u64 = 3;

/// A message with one event of a kind: its instrument, its value, and its time where it has one.
pub(super) fn event(name: &str, instrument: u64, value: u64, time: Option<u64>) -> Vec<u8> {
    let kind = part(4, [part(1, name), number(4, instrument)].concat());
    let time = time.map_or_else(Vec::new, |time| part(8, time.to_le_bytes()));
    let batch = [kind, part(5, varint(0)), part(7, varint(value)), time].concat();
    [varint(batch.len() as u64), batch].concat()
}

/// As many silent connections as the gateway takes, after which an honest sender comes.
pub(super) fn idle(field: &AttackedGateway) -> Result<Harm, BenchError> {
    const CONNECTIONS: usize = 512;
    let path = field.directory.join("events.sock");
    at_last(|| UnixStream::connect(&path))?;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        held.push(UnixStream::connect(&path)?);
    }
    std::thread::sleep(field.time());
    let begun = Instant::now();
    let mut honest = UnixStream::connect(&path)?;
    honest.set_write_timeout(Some(field.deadline()))?;
    honest.write_all(&event("honest.events", COUNTER, 1, None))?;
    let is_shown = || field.shown("honest_events_total").is_ok_and(|shown| shown >= 1.0);
    let mut is_taken = is_shown();
    while !is_taken && begun.elapsed() < field.deadline() {
        std::thread::sleep(PAUSE);
        is_taken = is_shown();
    }
    let took = begun.elapsed().as_secs_f64();
    drop(held);
    Ok(Harm {
        lines: vec![CheckLine::new(
            "an event beside them is taken",
            format!("{is_taken} after {took:.1} of {} s", field.deadline().as_secs()),
            is_taken,
        )],
        ..Harm::default()
    })
}

pub(super) fn events(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let path = field.directory.join("events.sock");
    at_last(|| UnixStream::connect(&path))?;
    let kinds = field.pick(4_000, 100);
    field.crowd(field.pick(16, 6), |thread, turn| {
        let mut rng = SmallRng::seed_from_u64((thread << 32 | turn) as u64);
        let first = match (thread + turn) % 4 {
            // A whole batch, one that does not end, a promise of 4 MiB, and rubbish.
            0 => batch(&mut rng, kinds),
            1 => batch(&mut rng, kinds)[..kinds].to_vec(),
            2 => [varint(4 << 20), vec![0; 60_000]].concat(),
            _ => vec![0xff; 60_000],
        };
        // The gateway hangs up if the bytes are invalid, so an error is expected.
        let _ = flood(&path, &first);
        std::thread::sleep(PAUSE);
    });
    Ok(Harm::default())
}

/// Streams that stop within a message of megabytes, and stay.
pub(super) fn halves(field: &AttackedGateway) -> Result<Harm, BenchError> {
    const PROMISED: usize = 4 << 20;
    let path = field.directory.join("events.sock");
    at_last(|| UnixStream::connect(&path))?;
    let half = [varint(PROMISED as u64), vec![0; PROMISED - 1]].concat();
    let mut held = Vec::new();
    for _ in 0..field.pick(200, 20) {
        let mut stream = UnixStream::connect(&path)?;
        stream.set_write_timeout(Some(Duration::from_millis(50)))?;
        // If there is no space, the gateway does not read the rest.
        let _ = stream.write_all(&half);
        held.push(stream);
    }
    std::thread::sleep(field.time());
    let lines = settled(|| {
        let cut = held.iter().filter(|stream| is_cut(stream)).count();
        let counted = counted_by(field, |name, labels| {
            name == "tidegate_uds_rejected_events_total" && labels.contains("reason=\"memory\"")
        })?;
        Ok(vec![CheckLine::new(
            "messages that lose their room are counted",
            format!("{counted} counted, {cut} cut"),
            // In the small form memory is not short.
            counted == cut as f64 && cut >= field.pick(1, 0),
        )])
    });
    Ok(Harm {
        lines,
        ..Harm::default()
    })
}

/// Whether the other side has closed the connection.
fn is_cut(mut stream: &UnixStream) -> bool {
    let read = stream
        .set_nonblocking(true)
        .and_then(|()| stream.read(&mut [0; 64]));
    match read {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

fn flood(path: &Path, first: &[u8]) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(first)
}

pub(super) fn statsd(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let path = field.directory.join("statsd.sock");
    let socket = UnixDatagram::unbound()?;
    at_last(|| socket.connect(&path))?;
    socket.set_write_timeout(Some(Duration::from_secs(1)))?;
    field.crowd(4, |thread, turn| {
        let mut rng = SmallRng::seed_from_u64((thread << 32 | turn) as u64);
        for _ in 0..field.pick(100, 10) {
            let lines = (0..100).map(|_| {
                let id = rng.random::<u64>();
                format!("abuse_{id:016x}:1|c|#id:{id}\nabuse_time:{id}|ms|@0.0001\nrubbish {id}\n")
            });
            // One that is gone, or does not read for a second, takes no more.
            if socket.send(lines.collect::<String>().as_bytes()).is_err() {
                break;
            }
        }
    });
    Ok(Harm::default())
}

/// One kind, spelt in thousands of ways of 56 KB: empty tags mean nothing.
pub(super) fn spellings(field: &AttackedGateway) -> Result<Harm, BenchError> {
    const LONGEST: usize = 64_000;
    let path = field.directory.join("statsd.sock");
    let socket = UnixDatagram::unbound()?;
    at_last(|| socket.connect(&path))?;
    socket.set_write_timeout(Some(Duration::from_secs(1)))?;
    let (threads, each) = (4, field.pick(500, 10));
    field.crowd(threads, |thread, turn| {
        for number in 0..each {
            let spelling = (turn * each + number) * threads + thread;
            let commas = LONGEST - spelling % (LONGEST / 4);
            let line = format!("abuse_spelt:1|c|#a:1{}", ",".repeat(commas));
            if socket.send(line.as_bytes()).is_err() {
                break;
            }
        }
    });
    Ok(Harm::default())
}
