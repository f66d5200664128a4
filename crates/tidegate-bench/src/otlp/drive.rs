//! What drives a gateway: requests that were made once, as fast as they are taken or at the times when they are due.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;

use super::client::{Answer, Client, Protocol};
use super::load::now_ns;
use super::packed::Compression;
use super::request::{Kind, Shape, stamped};
use super::timer;
use crate::Error;

/// What is sent, and over what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) protocol: Protocol,
    pub(crate) compression: Compression,
    pub(crate) kind: Kind,
    /// Points a request.
    pub(crate) points: usize,
    pub(crate) connections: usize,
    /// Requests under way at once on each connection; as many connections with HTTP, which has one on each.
    pub(crate) in_flight: usize,
    /// How many different requests there are.
    pub(crate) distinct: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            protocol: Protocol::Grpc,
            compression: Compression::None,
            kind: Kind::Mixed,
            points: 1_000,
            connections: 4,
            in_flight: 4,
            distinct: 32,
        }
    }
}

/// A refused request is sent again after this time.
const AGAIN: Duration = Duration::from_millis(5);

/// What became of requests so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) acknowledged: u64,
    /// Answers that told us to come back; each such request was sent again.
    pub(crate) refused: u64,
    pub(crate) failed: u64,
}

#[derive(Default)]
struct Counts {
    acknowledged: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    /// What was said last to one that failed.
    why: Mutex<Option<String>>,
}

/// Connections and requests; copies share both.
#[derive(Clone)]
pub(crate) struct Driver(Arc<Shared>);

struct Shared {
    plan: Plan,
    client: Client,
    /// As they are, and as they travel.
    plain: Vec<Bytes>,
    packed: Vec<Bytes>,
    next: AtomicUsize,
    counts: Counts,
}

impl Driver {
    /// Waits for the gateway to listen.
    pub(crate) async fn connect(port: u16, plan: Plan) -> Result<Self, Error> {
        let client = Client::connect(
            port,
            plan.protocol,
            plan.compression,
            plan.connections,
            plan.in_flight,
        )
        .await?;
        let shapes = (0..plan.distinct).map(|seed| Shape {
            kind: plan.kind,
            points: plan.points,
            seed,
        });
        let plain: Vec<Bytes> = shapes.map(|shape| shape.encode()).collect();
        let packed = plain.iter().map(|request| client.pack(request.clone()));
        Ok(Self(Arc::new(Shared {
            plan,
            packed: packed.collect::<Result<_, _>>()?,
            plain,
            client,
            next: AtomicUsize::new(0),
            counts: Counts::default(),
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
                    shared.send(lane, shared.packed[next].clone(), end).await;
                }
            });
        }
        while lanes.join_next().await.is_some() {}
    }

    /// Sends so many requests a second, each when it is due, however many are unanswered; they are stamped with the
    /// time at which they were due. Returns when all have been answered.
    pub(crate) async fn pace(&self, a_second: f64, time: Duration) -> Result<(), Error> {
        let shared = &self.0;
        let (begun, begun_ns) = (Instant::now(), now_ns());
        let mut under_way = JoinSet::new();
        for number in 0.. {
            let after = due(number, a_second);
            if after >= time {
                break;
            }
            let stamp = begun_ns + u64::try_from(after.as_nanos())?;
            let request = &shared.plain[number as usize % shared.plain.len()];
            let packed = shared.client.pack(stamped(request, stamp))?;
            timer::until(begun + after).await;
            let shared = shared.clone();
            under_way.spawn(async move { shared.send(number as usize, packed, begun + time).await });
            while under_way.try_join_next().is_some() {}
        }
        while under_way.join_next().await.is_some() {}
        Ok(())
    }

    /// What became of all requests so far.
    pub(crate) fn totals(&self) -> Totals {
        let counts = &self.0.counts;
        Totals {
            acknowledged: counts.acknowledged.load(Relaxed),
            refused: counts.refused.load(Relaxed),
            failed: counts.failed.load(Relaxed),
        }
    }

    /// What was said last to a request that failed.
    pub(crate) fn failure(&self) -> Option<String> {
        self.0
            .counts
            .why
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Shared {
    /// Until it is taken, it fails, or there is no time left to come back.
    async fn send(&self, lane: usize, packed: Bytes, end: Instant) {
        loop {
            match self.client.send(lane, packed.clone()).await {
                Answer::Taken => {
                    self.counts.acknowledged.fetch_add(1, Relaxed);
                    return;
                }
                Answer::Refused => {
                    self.counts.refused.fetch_add(1, Relaxed);
                    if Instant::now() + AGAIN >= end {
                        return;
                    }
                    tokio::time::sleep(AGAIN).await;
                }
                Answer::Failed(why) => {
                    self.counts.failed.fetch_add(1, Relaxed);
                    *self.counts.why.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                    return tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }
}

/// When the request with this number is due, after the first.
fn due(number: u32, a_second: f64) -> Duration {
    Duration::from_secs_f64(f64::from(number) / a_second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::Sink;

    #[test]
    fn requests_are_due_at_even_distances_that_do_not_add_up_errors() {
        assert_eq!(due(0, 3.0), Duration::ZERO);
        assert_eq!(due(3, 3.0), Duration::from_secs(1));
        assert_eq!(due(7_200_000, 2_000.0), Duration::from_secs(3600));
    }

    /// A gateway that hands nothing on: the sink itself.
    #[tokio::test]
    async fn a_schedule_is_kept_over_both_protocols() {
        for protocol in [Protocol::Grpc, Protocol::Http] {
            for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
                let sink = Sink::serve(protocol, super::super::FRAME).await.unwrap();
                let plan = Plan {
                    protocol,
                    compression,
                    points: 25,
                    ..Plan::default()
                };
                let driver = Driver::connect(sink.port, plan).await.unwrap();
                driver.pace(500.0, Duration::from_millis(100)).await.unwrap();
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
    async fn what_is_due_while_nobody_answers_is_old_when_it_arrives() {
        let sink = Sink::start().await.unwrap();
        let driver = Driver::connect(
            sink.port,
            Plan {
                points: 1,
                ..Plan::default()
            },
        );
        let driver = driver.await.unwrap();
        let pacing = driver.pace(1_000.0, Duration::from_millis(60));
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
