// SPDX-License-Identifier: Apache-2.0

//! A destination that accepts data at a pace of its own: faster senders wait for the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::codegen::BoxFuture;
use tonic::server::UnaryService;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::BenchError;
use crate::otlp::codec::Answering;
use crate::otlp::walk;

/// A server on the runtime that it was started on.
pub(in crate::groups) struct SlowSink {
    pub(in crate::groups) port: u16,
    turns: Arc<Turns>,
    stop: CancellationToken,
}

/// Whose turn is when, and how many points had theirs.
struct Turns {
    schedule: Mutex<Schedule>,
    points: AtomicU64,
}

/// Turns one after another.
struct Schedule {
    /// The time that a point takes, in seconds.
    gap: f64,
    next: Instant,
}

impl Schedule {
    /// The time at which a request with `points` points that comes now gets its answer.
    fn turn(&mut self, now: Instant, points: u64) -> Instant {
        let turn = self.next.max(now);
        self.next = turn + Duration::from_secs_f64(self.gap * points as f64);
        turn
    }
}

impl SlowSink {
    /// One that takes everything, for now.
    pub(in crate::groups) async fn start() -> Result<Self, BenchError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let schedule = Schedule {
            gap: 0.0,
            next: Instant::now(),
        };
        let turns = Arc::new(Turns {
            schedule: Mutex::new(schedule),
            points: AtomicU64::new(0),
        });
        let stop = CancellationToken::new();
        let serving = tonic::transport::Server::builder()
            .initial_connection_window_size(64 << 20)
            .initial_stream_window_size(16 << 20)
            .add_service(Answering(SlowServer(turns.clone())))
            .serve_with_incoming_shutdown(TcpIncoming::from(listener), stop.clone().cancelled_owned());
        tokio::spawn(serving);
        Ok(Self { port, turns, stop })
    }

    /// Takes points at this rate from now on; `None`: as they come.
    pub(in crate::groups) fn set_rate(&self, a_second: Option<f64>) {
        let gap = a_second.map_or(0.0, |rate| 1.0 / rate);
        let next = Instant::now();
        *self.turns.schedule() = Schedule { gap, next };
    }

    /// Points of the requests that were answered; a gateway may join several requests of its senders into one.
    pub(in crate::groups) fn points(&self) -> u64 {
        self.turns.points.load(Relaxed)
    }
}

impl Turns {
    fn schedule(&self) -> parking_lot::MutexGuard<'_, Schedule> {
        self.schedule.lock()
    }
}

impl Drop for SlowSink {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[derive(Clone)]
struct SlowServer(Arc<Turns>);

impl UnaryService<Bytes> for SlowServer {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let turns = self.0.clone();
        let points = walk::points(request.get_ref());
        Box::pin(async move {
            let points = points.ok_or_else(|| Status::invalid_argument("it can't be read"))?;
            let turn = turns.schedule().turn(Instant::now(), points);
            tokio::time::sleep_until(turn).await;
            turns.points.fetch_add(points, Relaxed);
            Ok(Response::new(Bytes::new()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_a_gap_apart_and_not_saved_up() {
        let (now, gap) = (Instant::now(), Duration::from_millis(20));
        let mut schedule = Schedule { gap: 0.01, next: now };
        assert_eq!(schedule.turn(now, 2), now);
        assert_eq!(schedule.turn(now, 1), now + gap);
        let later = now + Duration::from_secs(1);
        assert_eq!(schedule.turn(later, 2), later);
        assert_eq!(schedule.turn(later, 2), later + gap);
    }
}
