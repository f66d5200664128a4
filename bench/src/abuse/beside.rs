// SPDX-License-Identifier: Apache-2.0

//! Other clients of a gateway under attack: an honest sender, probes, and an observer of its memory.

use std::io::{BufReader, ErrorKind};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::uri::PathAndQuery;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::NumberDataPoint;
use parking_lot::Mutex;
use prost::Message;
use rustix::process::{Pid, Signal, kill_process};
use tidegate_requests::{attribute, counter, gauge, int, request};
use tonic::Status;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};

use super::field::{AttackedGateway, AttackedProgram, Size};
use super::proto::field;
use super::wire::{self, HONEST};
use crate::BenchError;
use crate::otlp::codec::Raw;
use crate::otlp::load::now_ns;

/// The honest sender's counter, as it is on the page.
pub(super) const SHOWN: &str = "honest_pushes_total";
/// Between two honest pushes.
const PUSH: Duration = Duration::from_millis(100);
/// Between two probes of the health check, of a query, of a scaler.
const HEALTH: Duration = Duration::from_millis(50);
const QUERY: Duration = Duration::from_millis(200);
const SCALER: Duration = Duration::from_millis(500);
/// Between two looks at memory.
const LOOK: Duration = Duration::from_millis(20);
/// An honest push that takes longer counts as not accepted.
const LATE: Duration = Duration::from_secs(1);
/// A gateway that takes more is ended, so that the machine is not, in MiB.
const CEILING_MIB: [u64; 2] = [2048, 1024];

/// A try: its time, its duration, and whether it succeeded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Try {
    pub(super) at: Instant,
    pub(super) took: Duration,
    pub(super) went_well: bool,
}

/// The observations of the honest clients during an attack.
#[derive(Debug, Default)]
pub(super) struct Observations {
    pub(super) pushes: Vec<Try>,
    pub(super) health: Vec<Try>,
    pub(super) queries: Vec<Try>,
    /// The first failures of probes, of health and of queries.
    pub(super) why: Vec<String>,
    /// The final value of the honest counter: pushes that were accepted.
    pub(super) total: u64,
    /// Honest pushes that were refused, or of which the answer is not known.
    pub(super) refused: u64,
    pub(super) unanswered: u64,
    /// The most resident memory, in MiB, and whether the gateway was ended for it.
    pub(super) peak_mib: f64,
    pub(super) was_ended: bool,
}

/// The current state of the gateway.
pub(super) struct Now {
    since: Instant,
    /// Milliseconds since then of the last honest push that was accepted.
    accepted: AtomicU64,
    resident: AtomicU64,
    over: AtomicBool,
}

impl Now {
    /// Whether a push that began after `then` was accepted.
    pub(super) fn accepts_since(&self, then: Instant) -> bool {
        let then = then.saturating_duration_since(self.since).as_millis() as u64;
        self.accepted.load(Relaxed) > then
    }

    pub(super) fn resident_mib(&self) -> f64 {
        self.resident.load(Relaxed) as f64 / MIB
    }

    fn goes_on(&self) -> bool {
        !self.over.load(Relaxed)
    }
}

const MIB: f64 = 1_048_576.0;

/// Runs `attack` with all of them beside it, and gives what it gave with what they have seen.
pub(super) fn beside<T: Send>(
    field: &AttackedGateway,
    role: AttackedProgram,
    headers: &str,
    attack: impl FnOnce(&Now) -> T + Send,
) -> (T, Observations) {
    let now = Now {
        since: Instant::now(),
        accepted: AtomicU64::new(0),
        resident: AtomicU64::new(0),
        over: AtomicBool::new(false),
    };
    let seen = Mutex::new(Observations::default());
    let (now, seen_by, deadline) = (&now, &seen, field.deadline());
    let of = |update: &dyn Fn(&mut Observations)| update(&mut seen_by.lock());
    let of = &of;
    let given = thread::scope(|scope| {
        scope.spawn(move || {
            let honest = Honest::new(field, headers).run(now);
            of(&|seen| {
                seen.pushes.clone_from(&honest.pushes);
                (seen.total, seen.refused, seen.unanswered) =
                    (honest.total, honest.refused, honest.unanswered);
            });
        });
        scope.spawn(move || {
            let (health, why) = probes(now, HEALTH, || answers(field.ports.health, deadline, "/"));
            of(&|seen| {
                seen.health.clone_from(&health);
                seen.why.extend(why.clone());
            });
        });
        if role == AttackedProgram::Tidegate {
            scope.spawn(move || {
                let (queries, why) = probes(now, QUERY, || {
                    answers(field.ports.admin, deadline, "/api/v1/query?query=1")
                });
                of(&|seen| {
                    seen.queries.extend(&queries);
                    seen.why.extend(why.clone());
                });
            });
            scope.spawn(move || {
                let mut scaler = Scaler::new(field.ports.admin);
                let (queries, why) = probes(now, SCALER, || match &mut scaler {
                    Ok(scaler) => scaler.answers(deadline),
                    Err(error) => Err(error.to_string().into()),
                });
                of(&|seen| {
                    seen.queries.extend(&queries);
                    seen.why.extend(why.clone());
                });
            });
        }
        scope.spawn(move || {
            let (peak, was_ended) = watch(field, now);
            of(&|seen| (seen.peak_mib, seen.was_ended) = (peak, was_ended));
        });
        // Attackers leave the processor to those whose times are measured.
        let attacker = scope.spawn(move || {
            let _ = rustix::process::nice(5);
            attack(now)
        });
        let given = attacker.join();
        now.over.store(true, Relaxed);
        match given {
            Ok(given) => given,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    (given, seen.into_inner())
}

/// Tries something again and again; also why it failed the first time.
fn probes(
    now: &Now,
    every: Duration,
    mut answers: impl FnMut() -> Result<(), BenchError>,
) -> (Vec<Try>, Option<String>) {
    let (mut tries, mut why) = (Vec::new(), None);
    while now.goes_on() {
        let at = Instant::now();
        let answer = answers();
        tries.push(Try {
            at,
            took: at.elapsed(),
            went_well: answer.is_ok(),
        });
        why = why.or(answer.err().map(|error| error.to_string()));
        thread::sleep(every.saturating_sub(at.elapsed()));
    }
    (tries, why)
}

/// Demands that a path is answered with 200, on a connection of its own as those of kubelets are.
fn answers(port: u16, deadline: Duration, path: &str) -> Result<(), BenchError> {
    match wire::once(HONEST, port, deadline, &wire::get(path))?.status {
        200 => Ok(()),
        status => Err(format!("{path} is answered with {status}").into()),
    }
}

/// A sender of gauges and of a counter that counts its own pushes; it obeys the answers.
struct Honest<'a> {
    field: &'a AttackedGateway,
    headers: &'a str,
    began: u64,
    stream: Option<BufReader<TcpStream>>,
    pushes: Vec<Try>,
    total: u64,
    refused: u64,
    unanswered: u64,
}

/// Points of an honest push: the counter, and gauges that make it as large as usual ones are.
pub(super) const POINTS: u64 = 501;

/// The honest sender's request: what its counter came to at a time, and its gauges.
fn usual(began: u64, time: u64, total: u64) -> Vec<u8> {
    let gauges = (1..POINTS).map(|number| NumberDataPoint {
        attributes: vec![
            attribute("number", number.to_string()),
            attribute(
                "text",
                "as long as labels of a pod and its node are together, with an address or two".repeat(2),
            ),
        ],
        time_unix_nano: time,
        ..int(number as i64)
    });
    let metrics = [
        counter("honest.pushes", [counted(began, time, total)]),
        gauge("honest.gauge", gauges),
    ];
    request(resource(), "", metrics).encode_to_vec()
}

/// A request with the point of the honest counter alone.
pub(super) fn honest(time: u64, total: u64) -> Vec<u8> {
    request(
        resource(),
        "",
        [counter("honest.pushes", [counted(0, time, total)])],
    )
    .encode_to_vec()
}

fn resource() -> Vec<KeyValue> {
    vec![attribute("service.name", "honest"), attribute("host", "honest")]
}

fn counted(began: u64, time: u64, total: u64) -> NumberDataPoint {
    NumberDataPoint {
        start_time_unix_nano: began,
        time_unix_nano: time,
        ..int(total as i64)
    }
}

impl<'a> Honest<'a> {
    fn new(field: &'a AttackedGateway, headers: &'a str) -> Self {
        Self {
            field,
            headers,
            began: now_ns(),
            stream: None,
            pushes: Vec::new(),
            total: 0,
            refused: 0,
            unanswered: 0,
        }
    }

    fn run(mut self, now: &Now) -> Self {
        while now.goes_on() {
            let at = Instant::now();
            let answer = self.push();
            let took = at.elapsed();
            let is_accepted = answer.as_ref().is_ok_and(|answer| answer.status == 200);
            self.pushes.push(Try {
                at,
                took,
                went_well: is_accepted && took <= LATE,
            });
            let mut pause = PUSH.saturating_sub(took);
            match answer {
                Ok(_) if is_accepted => {
                    self.total += 1;
                    let began = at.saturating_duration_since(now.since).as_millis() as u64;
                    now.accepted.store(began, Relaxed);
                }
                Ok(answer) => {
                    self.refused += 1;
                    pause = answer.retry_after.unwrap_or(pause);
                }
                Err(_) => {
                    self.unanswered += 1;
                    self.stream = None;
                }
            }
            let until = Instant::now() + pause;
            while now.goes_on() && Instant::now() < until {
                thread::sleep(PUSH.min(until.saturating_duration_since(Instant::now())));
            }
        }
        self
    }

    fn push(&mut self) -> Result<wire::HttpAnswer, BenchError> {
        let body = usual(self.began, now_ns(), self.total + 1);
        let headers = wire::protobuf("") + self.headers;
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let (port, deadline) = (self.field.ports.otlp, self.field.deadline());
                none.insert(BufReader::new(wire::connected(HONEST, port, deadline)?))
            }
        };
        wire::exchange(stream, &wire::post("/v1/metrics", &headers, &body))
    }
}

/// KEDA, which asks over gRPC what a query comes to.
struct Scaler {
    runtime: tokio::runtime::Runtime,
    grpc: Grpc<Channel>,
    request: Bytes,
}

impl Scaler {
    fn new(port: u16) -> Result<Self, BenchError> {
        // A thread of its own: between two calls it hears, as any client, that the gateway closes the connection.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let grpc = {
            let _inside = runtime.enter();
            Grpc::new(Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?.connect_lazy())
        };
        let pair = |key, value| field(3, [field(1, key), field(2, value)].concat());
        let object = [field(1, "scaled"), pair("query", "1"), pair("target", "10")].concat();
        Ok(Self {
            runtime,
            grpc,
            request: field(1, object).into(),
        })
    }

    /// A call. It goes again on a new connection if the gateway closed the one that it had: any server may close an
    /// idle connection in the moment of a call, and clients of gRPC connect again.
    fn answers(&mut self, deadline: Duration) -> Result<(), BenchError> {
        let grpc = &mut self.grpc;
        let request = &self.request;
        self.runtime.block_on(async {
            let calls = async {
                match called(grpc, request.clone()).await {
                    Err(status) if lost_its_connection(&status) => called(grpc, request.clone()).await,
                    done => done,
                }
            };
            Ok(tokio::time::timeout(deadline, calls).await??)
        })
    }
}

async fn called(grpc: &mut Grpc<Channel>, request: Bytes) -> Result<(), Status> {
    const METHOD: &str = "/externalscaler.ExternalScaler/GetMetrics";
    let unready = |error: tonic::transport::Error| Status::from_error(error.into());
    grpc.ready().await.map_err(unready)?;
    let method = PathAndQuery::from_static(METHOD);
    grpc.unary(tonic::Request::new(request), method, Raw).await?;
    Ok(())
}

/// Whether no answer came because the connection ended.
fn lost_its_connection(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        let reset = |error: &std::io::Error| {
            matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
        };
        if error.downcast_ref::<std::io::Error>().is_some_and(reset) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Looks at memory until all is over: the most that was resident, and whether the gateway had to be ended.
fn watch(field: &AttackedGateway, now: &Now) -> (f64, bool) {
    let id = field.process.id();
    let statm = format!("/proc/{id}/statm");
    let page = rustix::param::page_size() as u64;
    let ceiling = CEILING_MIB[usize::from(field.size == Size::Small)] * MIB as u64;
    let (mut peak, mut was_ended) = (0, false);
    while now.goes_on() {
        let resident = std::fs::read_to_string(&statm).ok();
        let resident = resident.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
        let resident = resident.unwrap_or(0) * page;
        now.resident.store(resident, Relaxed);
        peak = peak.max(resident);
        if resident > ceiling && !was_ended {
            was_ended = true;
            if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
                // It may have ended by itself.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        thread::sleep(LOOK);
    }
    // The peak between two looks.
    let most = field.process.memory_mib().map_or(0.0, |(_, most)| most);
    (most.max(peak as f64 / MIB), was_ended)
}
