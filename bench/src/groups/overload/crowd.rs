// SPDX-License-Identifier: Apache-2.0

//! Many concurrent senders that obey the answers: a refused sender waits for the delay of the answer. The answers are
//! counted by kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::uri::PathAndQuery;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use crate::BenchError;
use crate::otlp::codec::{METHOD, Raw};
use crate::otlp::request::request;

/// A sender that gets no delay in its answer comes back after this time.
const UNTOLD: Duration = Duration::from_millis(100);
/// Between two portions of a paced load.
const TICK: Duration = Duration::from_millis(5);
/// An answer may take so long once nothing new is sent.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many send, and what.
#[derive(Clone, Copy)]
pub(in crate::groups) struct CrowdShape {
    pub(in crate::groups) connections: usize,
    /// Requests under way on each connection.
    pub(in crate::groups) in_flight: usize,
    /// Points of a request.
    pub(in crate::groups) points: usize,
}

/// The answers that the crowd got.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::groups) struct Answers {
    /// Requests that were taken.
    pub(in crate::groups) accepted: u64,
    /// Refusals that said when to come back.
    pub(in crate::groups) told: u64,
    /// Refusals that did not.
    pub(in crate::groups) untold: u64,
    /// Requests that failed in another way.
    pub(in crate::groups) failed: u64,
    /// Requests whose answer did not come.
    pub(in crate::groups) unanswered: u64,
}

impl Answers {
    /// Both together.
    pub(in crate::groups) fn and(self, other: Self) -> Self {
        Self {
            accepted: self.accepted + other.accepted,
            told: self.told + other.told,
            untold: self.untold + other.untold,
            failed: self.failed + other.failed,
            unanswered: self.unanswered + other.unanswered,
        }
    }
}

#[derive(Default)]
struct Tally {
    accepted: AtomicU64,
    told: AtomicU64,
    untold: AtomicU64,
    failed: AtomicU64,
    under_way: AtomicU64,
}

/// Senders on the runtime that they were started on.
pub(in crate::groups) struct Crowd {
    senders: JoinSet<()>,
    tally: Arc<Tally>,
    stop: CancellationToken,
}

impl Crowd {
    /// Sends to this port, as fast as it is taken or at this rate in requests a second.
    pub(in crate::groups) async fn start(
        port: u16,
        shape: CrowdShape,
        a_second: Option<f64>,
    ) -> Result<Self, BenchError> {
        let message = request(shape.points, 0);
        let (tally, stop) = (Arc::<Tally>::default(), CancellationToken::new());
        let mut senders = JoinSet::new();
        let tickets = a_second.map(|rate| {
            let tickets = Arc::new(Semaphore::new(0));
            let room = shape.connections * shape.in_flight;
            senders.spawn(hand_out(tickets.clone(), rate, room, stop.clone()));
            tickets
        });
        for _ in 0..shape.connections {
            let client = connect(port).await?;
            for _ in 0..shape.in_flight {
                let sender = CrowdSender {
                    client: client.clone(),
                    message: message.clone(),
                    tally: tally.clone(),
                };
                let (tickets, stop) = (tickets.clone(), stop.clone());
                senders.spawn(async move { sender.run(tickets, stop).await });
            }
        }
        Ok(Self { senders, tally, stop })
    }

    /// The answers so far.
    pub(in crate::groups) fn answers(&self) -> Answers {
        Answers {
            accepted: self.tally.accepted.load(Relaxed),
            told: self.tally.told.load(Relaxed),
            untold: self.tally.untold.load(Relaxed),
            failed: self.tally.failed.load(Relaxed),
            unanswered: self.tally.under_way.load(Relaxed),
        }
    }

    /// Sends nothing more, waits for the answers that are due, and says what was answered in all.
    pub(in crate::groups) async fn finish(mut self) -> Answers {
        self.stop.cancel();
        let answered = async { while self.senders.join_next().await.is_some() {} };
        // A sender without an answer by then gets none, and is counted so.
        let _ = tokio::time::timeout(PATIENCE, answered).await;
        self.answers()
    }
}

/// A connection, as soon as a server listens.
async fn connect(port: u16) -> Result<Grpc<Channel>, BenchError> {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?
        .initial_stream_window_size(16 << 20)
        .initial_connection_window_size(64 << 20);
    let connecting = async {
        loop {
            match endpoint.connect().await {
                Ok(channel) => return Grpc::new(channel),
                Err(_) => tokio::time::sleep(TICK).await,
            }
        }
    };
    let connected = tokio::time::timeout(PATIENCE, connecting).await;
    connected.map_err(|_| "no server listened in time".into())
}

/// Permits to send at a rate.
async fn hand_out(tickets: Arc<Semaphore>, a_second: f64, room: usize, stop: CancellationToken) {
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(TICK);
    let mut pace = PermitRate { a_second, handed: 0 };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let free = room.saturating_sub(tickets.available_permits());
        tickets.add_permits(pace.portion(begun.elapsed(), free));
    }
}

/// How many permits are due.
struct PermitRate {
    a_second: f64,
    handed: usize,
}

impl PermitRate {
    /// The pushes due after a time, at most `free`: pushes that no sender was free for are not made up for later.
    fn portion(&mut self, elapsed: Duration, free: usize) -> usize {
        let due = (elapsed.as_secs_f64() * self.a_second) as usize;
        let portion = due.saturating_sub(self.handed).min(free);
        self.handed = due;
        portion
    }
}

/// One that has one request under way.
struct CrowdSender {
    client: Grpc<Channel>,
    message: Bytes,
    tally: Arc<Tally>,
}

impl CrowdSender {
    async fn run(self, tickets: Option<Arc<Semaphore>>, stop: CancellationToken) {
        while !stop.is_cancelled() {
            if let Some(tickets) = &tickets {
                let ticket = tokio::select! {
                    () = stop.cancelled() => return,
                    ticket = tickets.acquire() => ticket,
                };
                if let Ok(ticket) = ticket {
                    ticket.forget();
                }
            }
            // The same request again, until it is taken.
            while let Some(delay) = self.send().await {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(delay) => {}
                }
            }
        }
    }

    /// Sends it, and gives the time after which it is worth while to do so again.
    async fn send(&self) -> Option<Duration> {
        let mut client = self.client.clone();
        if client.ready().await.is_err() {
            self.tally.failed.fetch_add(1, Relaxed);
            return Some(UNTOLD);
        }
        self.tally.under_way.fetch_add(1, Relaxed);
        let method = PathAndQuery::from_static(METHOD);
        let answer = client
            .unary(Request::new(self.message.clone()), method, Raw)
            .await;
        self.tally.under_way.fetch_sub(1, Relaxed);
        let (count, delay) = match answer {
            Ok(_) => (&self.tally.accepted, None),
            Err(status) => match (refusal(&status), is_retryable(&status)) {
                (Some(delay), true) => (&self.tally.told, Some(delay)),
                (None, true) => (&self.tally.untold, Some(UNTOLD)),
                (_, false) => (&self.tally.failed, Some(UNTOLD)),
            },
        };
        count.fetch_add(1, Relaxed);
        delay
    }
}

/// As OTLP has it: of these codes, `RESOURCE_EXHAUSTED` only with a delay.
fn is_retryable(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::ResourceExhausted)
}

/// When to come back, where a refusal says so.
fn refusal(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn a_refusal_says_when_to_come_back_or_does_not() {
        let delay = Duration::from_millis(1250);
        let told = Status::with_error_details(
            Code::Unavailable,
            "full",
            ErrorDetails::with_retry_info(Some(delay)),
        );
        assert_eq!(refusal(&told), Some(delay));
        assert_eq!(refusal(&Status::unavailable("full")), None);
        assert!(is_retryable(&told) && !is_retryable(&Status::internal("broken")));
    }

    #[test]
    fn what_is_due_comes_at_the_rate_and_is_not_saved_up() {
        let mut pace = PermitRate {
            a_second: 100.0,
            handed: 0,
        };
        let mut after = |ms, free| pace.portion(Duration::from_millis(ms), free);
        assert_eq!(after(55, 8), 5);
        assert_eq!(after(65, 3), 1);
        assert_eq!(after(5_065, 3), 3, "no sender was free for more");
        assert_eq!(after(5_075, 8), 1);
    }
}
