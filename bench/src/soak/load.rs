// SPDX-License-Identifier: Apache-2.0

//! The load: agents that come, restart and go, OTLP requests by HTTP and gRPC, StatsD lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use opentelemetry_proto::tonic::metrics::v1::NumberDataPoint;
use prost::Message;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidegate_requests::{attribute, gauge, int};
use tidegate_ring::{Layout, Writer};

use super::answers::Period;
use crate::BenchError;
use crate::groups::agents::{TRANSFER_EVENTS, transfers};
use crate::otlp::client::{Client, SendOutcome};
use crate::otlp::{Compression, Protocol};

/// An attribute value that every pushed point has, and nothing else.
pub(super) const MARK: &str = "soak-7f3a";
/// Points a request.
const POINTS: usize = 200;
/// The time of the points, in nanoseconds since 1970.
const POINT_TIME: u64 = 1_700_000_000_000_000_000;
/// Between two requests of a protocol.
const PUSH_GAP: Duration = Duration::from_millis(40);
/// Between two datagrams of StatsD lines.
const DATAGRAM_GAP: Duration = Duration::from_millis(20);
/// A refused request is sent again after this.
const AGAIN: Duration = Duration::from_millis(100);
const TICK: Duration = Duration::from_millis(10);
const AGENTS: usize = 8;
/// Names of agents. Each new name adds series to the gateway's own metrics, up to its limit of 1,000 names. Their growth
/// would hide other growth.
const NAMES: usize = 2 * AGENTS;
const CAPACITY: u64 = 4_096;
/// Transfers that an agent flushes at most at a tick.
const MAX_FLUSH: usize = 200;
/// An agent restarts, or goes and another comes, once in this number of ticks.
const CHURN: u32 = 50;
/// Before a ring is reset or removed its agent rests, as one that ends does: its flushed events are drained by then.
const REST: Duration = Duration::from_millis(500);

/// The work that the agents did.
#[derive(Default)]
pub(super) struct Written {
    pub(super) events: u64,
    pub(super) requests: u64,
    pub(super) lost: u64,
    pub(super) restarts: u64,
    pub(super) gone: u64,
}

/// The agents of a node.
pub(super) struct Agents<'a> {
    directory: &'a Path,
    rings: Vec<Writer>,
    named: usize,
    rng: SmallRng,
    written: Written,
}

impl<'a> Agents<'a> {
    pub(super) fn new(directory: &'a Path) -> Result<Self, BenchError> {
        let mut agents = Self {
            directory,
            rings: Vec::new(),
            named: 0,
            rng: SmallRng::seed_from_u64(1),
            written: Written::default(),
        };
        for _ in 0..AGENTS {
            let ring = agents.ring()?;
            agents.rings.push(ring);
        }
        Ok(agents)
    }

    fn layout(&mut self) -> Layout {
        Layout::ALL[self.rng.random_range(0..Layout::ALL.len())]
    }

    /// The ring of an agent that comes, with the name that was not used for the longest time.
    fn ring(&mut self) -> Result<Writer, BenchError> {
        loop {
            let path = self.directory.join(format!("rank_{}", self.named % NAMES));
            self.named += 1;
            if !path.exists() {
                return Ok(Writer::create(path, self.layout(), CAPACITY)?);
            }
        }
    }

    pub(super) fn run(mut self, over: impl Fn() -> bool) -> Result<Written, BenchError> {
        while !over() {
            thread::sleep(TICK);
            for agent in 0..self.rings.len() {
                self.flush(agent);
            }
            if self.rng.random_range(0..CHURN) == 0 {
                self.churn()?;
            }
        }
        Ok(self.written)
    }

    /// Whole transfers only: one that does not fit is lost as a whole, so that requests can be counted.
    fn flush(&mut self, agent: usize) {
        let ring = &mut self.rings[agent];
        let wanted = self.rng.random_range(0..MAX_FLUSH);
        let room = (CAPACITY - 1 - ring.unread()) as usize / TRANSFER_EVENTS;
        let fits = wanted.min(room);
        let events: Vec<_> = transfers().take(fits * TRANSFER_EVENTS).collect();
        self.written.events += ring.push_all(&events) as u64;
        self.written.requests += fits as u64;
        self.written.lost += ((wanted - fits) * TRANSFER_EVENTS) as u64;
    }

    fn churn(&mut self) -> Result<(), BenchError> {
        thread::sleep(REST);
        let agent = self.rng.random_range(0..self.rings.len());
        if self.rng.random_bool(0.5) {
            let layout = self.layout();
            self.rings[agent].restart(layout, CAPACITY)?;
            self.written.restarts += 1;
        } else {
            std::fs::remove_file(self.rings[agent].path())?;
            self.rings[agent] = self.ring()?;
            self.written.gone += 1;
        }
        Ok(())
    }
}

/// Sends datagrams of two StatsD lines to a socket. Returns their number.
pub(super) fn send_lines(socket: &Path, over: impl Fn() -> bool) -> Result<u64, BenchError> {
    let statsd = UnixDatagram::unbound()?;
    // Exporters serve before receivers listen.
    while let Err(error) = statsd.connect(socket) {
        if over() {
            return Err(format!("{}: {error}", socket.display()).into());
        }
        thread::sleep(AGAIN);
    }
    let (mut datagrams, mut due) = (0, Instant::now());
    while !over() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        due += DATAGRAM_GAP;
        statsd.send(b"soak.lines:1|c\nsoak.time:3.5|ms|#rank:0")?;
        datagrams += 1;
    }
    Ok(datagrams)
}

/// The work that a client did.
#[derive(Default)]
pub(super) struct Pushed {
    pub(super) requests: u64,
    pub(super) points: u64,
    pub(super) refused: u64,
    /// Each request until its answer, also if the answer refuses it.
    pub(super) exchanges: Vec<Period>,
}

impl Pushed {
    /// The work of two clients.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.requests += other.requests;
        self.points += other.points;
        self.refused += other.refused;
        self.exchanges.extend(other.exchanges);
        self
    }
}

/// Pushes OTLP by gRPC over one connection.
pub(super) fn push_by_grpc(port: u16, over: impl Fn() -> bool) -> Result<Pushed, BenchError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(send_by_grpc(port, over))
}

async fn send_by_grpc(port: u16, over: impl Fn() -> bool) -> Result<Pushed, BenchError> {
    let client = Client::connect(port, Protocol::Grpc, Compression::None, 1, 1).await?;
    let request = client.pack(protobuf())?;
    let mut pushed = Pushed::default();
    let mut due = tokio::time::Instant::now();
    while !over() {
        tokio::time::sleep_until(due).await;
        due += PUSH_GAP;
        loop {
            let sent = Instant::now();
            let outcome = client.send(0, request.clone()).await;
            pushed.exchanges.push(Period::since(sent));
            match outcome {
                SendOutcome::Taken => break,
                SendOutcome::Refused => pushed.refused += 1,
                SendOutcome::Failed(why) => return Err(format!("gRPC: {why}").into()),
            }
            tokio::time::sleep(AGAIN).await;
        }
        pushed.requests += 1;
        pushed.points += POINTS as u64;
    }
    Ok(pushed)
}

/// A request of points with the mark.
fn protobuf() -> Bytes {
    let point = |at: usize| NumberDataPoint {
        attributes: vec![attribute("mark", MARK), attribute("n", at.to_string())],
        time_unix_nano: POINT_TIME,
        ..int(at as i64)
    };
    let points = gauge("soak", (0..POINTS).map(point));
    let request = tidegate_requests::request(Vec::new(), "", [points]);
    request.encode_to_vec().into()
}

/// A client that pushes OTLP by HTTP.
pub(super) struct Pushes {
    port: u16,
    pushed: Pushed,
}

impl Pushes {
    pub(super) fn new(port: u16) -> Self {
        Self {
            port,
            pushed: Pushed::default(),
        }
    }

    pub(super) fn run(mut self, over: impl Fn() -> bool) -> Result<Pushed, BenchError> {
        let connected = loop {
            match TcpStream::connect(("127.0.0.1", self.port)) {
                Err(error) if over() => return Err(error.into()),
                Err(_) => thread::sleep(AGAIN),
                Ok(stream) => break stream,
            }
        };
        let mut stream = BufReader::new(connected);
        let request = self.request();
        let mut due = Instant::now();
        while !over() {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            due += PUSH_GAP;
            while !self.push(&mut stream, &request)? {
                self.pushed.refused += 1;
                thread::sleep(AGAIN);
            }
            self.pushed.requests += 1;
            self.pushed.points += POINTS as u64;
        }
        Ok(self.pushed)
    }

    /// Sends a request and notes its time; whether it was taken.
    fn push(&mut self, stream: &mut BufReader<TcpStream>, request: &[u8]) -> Result<bool, BenchError> {
        let sent = Instant::now();
        let is_taken = exchange(stream, request)?;
        self.pushed.exchanges.push(Period::since(sent));
        Ok(is_taken)
    }

    fn request(&self) -> Vec<u8> {
        let point = |at| {
            format!(
                r#"{{"timeUnixNano":"{POINT_TIME}","asInt":"{at}","attributes":[{{"key":"mark","value":{{"stringValue":"{MARK}"}}}},{{"key":"n","value":{{"intValue":"{at}"}}}}]}}"#
            )
        };
        let points: Vec<String> = (0..POINTS).map(point).collect();
        let body = format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"soak","gauge":{{"dataPoints":[{}]}}}}]}}]}}]}}"#,
            points.join(",")
        );
        format!(
            "POST /v1/metrics HTTP/1.1\r\nhost: 127.0.0.1:{}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        )
        .into_bytes()
    }
}

/// Sends a request; whether it was taken. Anything but 200, 429 and 503 is an error.
fn exchange(stream: &mut BufReader<TcpStream>, request: &[u8]) -> Result<bool, BenchError> {
    stream.get_mut().write_all(request)?;
    let mut status = String::new();
    stream.read_line(&mut status)?;
    let (mut length, mut line) = (0, String::new());
    while line != "\r\n" {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err("the gateway closed the connection".into());
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse()?;
        }
    }
    stream.read_exact(&mut vec![0; length])?;
    match status.split(' ').nth(1) {
        Some("200") => Ok(true),
        Some("429" | "503") => Ok(false),
        _ => Err(status.into()),
    }
}
