// SPDX-License-Identifier: Apache-2.0

//! The client that drives a gateway. It sends requests that were made once, as fast as they are accepted or at the
//! times when they are due.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::client::{Client, Protocol, SendOutcome};
use super::load::now_ns;
use super::packed::Compression;
use super::request::{PointKind, RequestShape, stamped};
use super::timer;
use super::walk::{self, Numbers};
use crate::BenchError;

/// The requests to send, and the protocol for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) protocol: Protocol,
    pub(crate) compression: Compression,
    pub(crate) kind: PointKind,
    /// Points a request.
    pub(crate) points: usize,
    pub(crate) connections: usize,
    /// Requests under way at once on each connection; as many connections with HTTP, which has one on each.
    pub(crate) in_flight: usize,
    /// How many different requests there are.
    pub(crate) distinct: usize,
    /// Points are those of counters of one source that go on: each later than the last, and one more. Otherwise requests
    /// come again as they are, each from a source of its own.
    pub(crate) counts_on: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            protocol: Protocol::Grpc,
            compression: Compression::None,
            kind: PointKind::Mixed,
            points: 1_000,
            connections: 4,
            in_flight: 4,
            distinct: 32,
            counts_on: false,
        }
    }
}

/// A refused request is sent again after this time.
const AGAIN: Duration = Duration::from_millis(5);

/// The outcomes of requests so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) acknowledged: u64,
    /// Answers that asked for a retry; each such request was sent again.
    pub(crate) refused: u64,
    pub(crate) failed: u64,
}

#[derive(Default)]
struct SendCounts {
    acknowledged: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    /// The last error of a failed request.
    why: Mutex<Option<String>>,
}

/// Connections and requests; copies share both.
#[derive(Clone)]
pub(crate) struct Driver(Arc<SharedDriver>);

struct SharedDriver {
    plan: Plan,
    client: Client,
    /// As they are, and as they travel.
    plain: Vec<Bytes>,
    packed: Vec<Bytes>,
    /// Where their numbers are, and how often each was sent, if they count on.
    numbers: Vec<(Numbers, AtomicU64)>,
    next: AtomicUsize,
    counts: SendCounts,
}

impl Driver {
    /// Waits for the gateway to listen.
    pub(crate) async fn connect(port: u16, plan: Plan) -> Result<Self, BenchError> {
        let client = Client::connect(
            port,
            plan.protocol,
            plan.compression,
            plan.connections,
            plan.in_flight,
        )
        .await?;
        let shapes = (0..plan.distinct).map(|seed| RequestShape {
            kind: plan.kind,
            points: plan.points,
            source: if plan.counts_on { 0 } else { seed },
            seed,
        });
        let plain: Vec<Bytes> = shapes.map(|shape| shape.encode()).collect();
        let counting = plain.iter().filter(|_| plan.counts_on);
        let numbers = counting.map(|request| Some((walk::numbers(request)?, AtomicU64::new(0))));
        let packed = plain.iter().map(|request| client.pack(request.clone()));
        Ok(Self(Arc::new(SharedDriver {
            plan,
            packed: packed.collect::<Result<_, _>>()?,
            numbers: numbers.collect::<Option<_>>().ok_or("requests of no numbers")?,
            plain,
            client,
            next: AtomicUsize::new(0),
            counts: SendCounts::default(),
        })))
    }

    /// Sends as fast as requests are taken, and returns when all have been answered that were begun in that time.
    pub(crate) async fn saturate(&self, time: Duration) {
        let end = Instant::now() + time;
        let mut lanes = JoinSet::new();
        for lane in 0..self.0.plan.connections * self.0.plan.in_flight {
            let shared = self.0.clone();
            lanes.spawn(async move {
                while Instant::now() < end {
                    let next = shared.next.fetch_add(1, Relaxed) % shared.packed.len();
                    match shared.request(next) {
                        Ok(packed) => shared.send(lane, packed, end).await,
                        Err(error) => shared.fail(error.to_string()),
                    }
                }
            });
        }
        while lanes.join_next().await.is_some() {}
    }

    /// Sends requests at this rate, each when it is due, however many are unanswered; they are stamped with the
    /// time at which they were due. Returns when all have been answered, with how late each was sent, in ms.
    pub(crate) async fn send_at_rate(&self, a_second: f64, time: Duration) -> Result<Vec<f64>, BenchError> {
        let shared = &self.0;
        let (begun, begun_ns) = (Instant::now(), now_ns());
        let (mut under_way, mut late) = (JoinSet::new(), Vec::new());
        for number in 0.. {
            let after = due(number, a_second);
            if after >= time {
                break;
            }
            let stamp = begun_ns + u64::try_from(after.as_nanos())?;
            let request = &shared.plain[number as usize % shared.plain.len()];
            let packed = shared.client.pack(stamped(request, stamp))?;
            timer::until(begun + after).await;
            late.push(begun.elapsed().saturating_sub(after).as_secs_f64() * 1e3);
            let shared = shared.clone();
            under_way.spawn(async move { shared.send(number as usize, packed, begun + time).await });
            while under_way.try_join_next().is_some() {}
        }
        while under_way.join_next().await.is_some() {}
        Ok(late)
    }

    /// The outcomes of all requests so far.
    pub(crate) fn totals(&self) -> Totals {
        let counts = &self.0.counts;
        Totals {
            acknowledged: counts.acknowledged.load(Relaxed),
            refused: counts.refused.load(Relaxed),
            failed: counts.failed.load(Relaxed),
        }
    }

    /// The last error of a failed request.
    pub(crate) fn failure(&self) -> Option<String> {
        self.0.counts.why.lock().clone()
    }
}

impl SharedDriver {
    /// The request with this number, as it travels.
    fn request(&self, number: usize) -> Result<Bytes, BenchError> {
        let Some((numbers, sent)) = self.numbers.get(number) else {
            return Ok(self.packed[number].clone());
        };
        let count = sent.fetch_add(1, Relaxed) + 1;
        self.client
            .pack(counted(&self.plain[number], numbers, count, now_ns()))
    }

    /// Until it is taken, it fails, or there is no time left to come back.
    async fn send(&self, lane: usize, packed: Bytes, end: Instant) {
        loop {
            match self.client.send(lane, packed.clone()).await {
                SendOutcome::Taken => {
                    self.counts.acknowledged.fetch_add(1, Relaxed);
                    return;
                }
                SendOutcome::Refused => {
                    self.counts.refused.fetch_add(1, Relaxed);
                    if Instant::now() + AGAIN >= end {
                        return;
                    }
                    tokio::time::sleep(AGAIN).await;
                }
                SendOutcome::Failed(why) => {
                    self.fail(why);
                    return tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    fn fail(&self, why: String) {
        self.counts.failed.fetch_add(1, Relaxed);
        *self.counts.why.lock() = Some(why);
    }
}

/// A copy of a request in which all counters say `count` at this time.
fn counted(request: &[u8], numbers: &Numbers, count: u64, now_ns: u64) -> Bytes {
    let mut copy = BytesMut::from(request);
    let mut put = |places: &[usize], value: [u8; 8]| {
        for place in places {
            copy[*place..*place + 8].copy_from_slice(&value);
        }
    };
    put(&numbers.times, now_ns.to_le_bytes());
    put(&numbers.doubles, (count as f64).to_le_bytes());
    put(&numbers.integers, count.to_le_bytes());
    copy.freeze()
}

/// When the request with this number is due, after the first.
fn due(number: u32, a_second: f64) -> Duration {
    Duration::from_secs_f64(f64::from(number) / a_second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::OtlpSink;

    #[test]
    fn requests_are_due_at_even_distances_that_do_not_add_up_errors() {
        assert_eq!(due(0, 3.0), Duration::ZERO);
        assert_eq!(due(3, 3.0), Duration::from_secs(1));
        assert_eq!(due(7_200_000, 2_000.0), Duration::from_secs(3600));
    }

    #[tokio::test]
    async fn counters_that_count_on_say_how_often_they_were_sent() {
        let sink = OtlpSink::start().await.unwrap();
        let plan = Plan {
            kind: PointKind::Sum,
            points: 7,
            distinct: 2,
            counts_on: true,
            connections: 1,
            in_flight: 1,
            ..Plan::default()
        };
        let driver = Driver::connect(sink.port, plan).await.unwrap();
        driver.saturate(Duration::from_millis(20)).await;
        let sent = driver.totals().acknowledged;
        let last = sink.last_request().unwrap();
        let numbers = walk::numbers(&last).unwrap();
        let place = numbers.integers[0];
        let value = i64::from_le_bytes(last[place..place + 8].try_into().unwrap());
        assert_eq!(value, i64::try_from(sent.div_ceil(2)).unwrap());
        assert_eq!(sink.points(), sent * 7);
    }

    /// A gateway that hands nothing on: the sink itself.
    #[tokio::test]
    async fn a_schedule_is_kept_over_both_protocols() {
        for protocol in [Protocol::Grpc, Protocol::Http] {
            for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
                let sink = OtlpSink::serve(protocol, super::super::FRAME).await.unwrap();
                let plan = Plan {
                    protocol,
                    compression,
                    points: 25,
                    ..Plan::default()
                };
                let driver = Driver::connect(sink.port, plan).await.unwrap();
                driver
                    .send_at_rate(500.0, Duration::from_millis(100))
                    .await
                    .unwrap();
                let expected = Totals {
                    acknowledged: 50,
                    ..Totals::default()
                };
                assert_eq!(driver.totals(), expected, "{:?}", driver.failure());
                assert_eq!((sink.requests(), sink.points(), sink.bad()), (50, 1250, 0));
                assert_eq!(sink.take_ages_ms().len(), 50);
            }
        }
    }

    #[tokio::test]
    async fn a_request_due_without_answers_is_old_when_it_arrives() {
        let sink = OtlpSink::start().await.unwrap();
        let driver = Driver::connect(
            sink.port,
            Plan {
                points: 1,
                ..Plan::default()
            },
        );
        let driver = driver.await.unwrap();
        let pacing = driver.send_at_rate(1_000.0, Duration::from_millis(60));
        let stall = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            // Neither sends nor receives meanwhile.
            std::thread::sleep(Duration::from_millis(30));
        };
        let (paced, ()) = tokio::join!(pacing, stall);
        paced.unwrap();
        let ages = sink.take_ages_ms();
        assert_eq!(ages.len(), 60);
        let late = ages.iter().filter(|age| **age > 10.0).count();
        assert!(late >= 15, "{late} of {ages:?}");
    }
}
