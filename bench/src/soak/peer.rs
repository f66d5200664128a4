// SPDX-License-Identifier: Apache-2.0

//! An OTLP/HTTP peer that is down now and then, and counts the points that it took.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::load::MARK;
use crate::BenchError;

/// It takes requests for two of these, and turns them away for one.
const PHASE: Duration = Duration::from_secs(2);

#[derive(Default)]
struct PeerState {
    points: AtomicU64,
    taken: AtomicU64,
    refused: AtomicU64,
    stays_up: AtomicBool,
}

/// The running peer; it ends with the process.
pub(super) struct Peer {
    port: u16,
    state: Arc<PeerState>,
}

impl Peer {
    pub(super) fn start() -> Result<Self, BenchError> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let state = Arc::<PeerState>::default();
        let (shared, started) = (state.clone(), Instant::now());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                // A connection that breaks is the gateway's to open again.
                thread::spawn(move || state.serve(stream, started));
            }
        });
        Ok(Self { port, state })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn points(&self) -> u64 {
        self.state.points.load(Relaxed)
    }

    pub(super) fn taken(&self) -> u64 {
        self.state.taken.load(Relaxed)
    }

    pub(super) fn refused(&self) -> u64 {
        self.state.refused.load(Relaxed)
    }

    pub(super) fn stay_up(&self) {
        self.state.stays_up.store(true, Relaxed);
    }
}

impl PeerState {
    fn serve(&self, stream: TcpStream, started: Instant) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let mut length = 0;
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                if let Some((name, value)) = line.split_once(':')
                    && name.eq_ignore_ascii_case("content-length")
                {
                    length = value.trim().parse().unwrap_or(0);
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let answer = self.answer(&body, started);
            reader.get_mut().write_all(answer.as_bytes())?;
        }
    }

    fn answer(&self, body: &[u8], started: Instant) -> &'static str {
        let down = started.elapsed().as_secs() / PHASE.as_secs() % 3 == 2;
        if down && !self.stays_up.load(Relaxed) {
            self.refused.fetch_add(1, Relaxed);
            return "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
        }
        self.taken.fetch_add(1, Relaxed);
        // Each point carries the mark once; protobuf keeps strings as they are.
        let marks = body
            .windows(MARK.len())
            .filter(|window| window == &MARK.as_bytes());
        self.points.fetch_add(marks.count() as u64, Relaxed);
        "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n"
    }
}
