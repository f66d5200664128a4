// SPDX-License-Identifier: Apache-2.0

//! Requests of one point, each due at its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::BenchError;
use crate::http::Scraper;
use crate::machine::on_all_cores;
use crate::otlp::load::now_ns;
use crate::series::SeriesRequest;
use crate::stalls::come_first;

/// Between two probes.
const GAP: Duration = Duration::from_millis(1);
/// They come in turns from this number of senders, each with a connection of its own: a sender has one request on its way at a
/// time, so with one of them every probe would wait for all before it, and none would show what a request waits.
const SENDERS: u32 = 64;
/// One in this number is of a series that was never seen.
const NEW: u32 = 8;
/// Names of probes: one of their own, so that they are not part of the measured data.
const METRIC: usize = 1 << 20;

/// The wait of a probe.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    pub(super) due: Instant,
    pub(super) acknowledged: Instant,
}

/// Threads that send them.
pub(super) struct Probe {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Vec<Wait>, BenchError>>>,
}

impl Probe {
    /// Sends to this port, on whichever core is free.
    pub(super) fn start(port: u16) -> Result<Self, BenchError> {
        let stop = Arc::new(AtomicBool::new(false));
        // Agents that no probe before this one had.
        let first = now_ns() as usize;
        // No probe has to wait for a connection, or for the first series.
        let senders = (0..SENDERS).map(|number| ProbeSender::connect(port, number, first));
        let senders: Vec<ProbeSender> = senders.collect::<Result<_, _>>()?;
        let begin = Instant::now();
        let start = |sender: ProbeSender| {
            let stop = stop.clone();
            thread::Builder::new().spawn(move || sender.run(begin, &stop))
        };
        let threads = on_all_cores(|| senders.into_iter().map(start).collect::<Result<_, _>>())??;
        Ok(Self { stop, threads })
    }

    /// The waits of all probes.
    pub(super) fn finish(self) -> Result<Vec<Wait>, BenchError> {
        self.stop.store(true, Relaxed);
        let mut waits = Vec::new();
        for thread in self.threads {
            waits.extend(thread.join().map_err(|_| "a probe panicked")??);
        }
        Ok(waits)
    }
}

/// One of those that send.
struct ProbeSender {
    number: u32,
    /// The agent of the first probe of all.
    first: usize,
    to: Scraper,
    known: SeriesRequest,
}

impl ProbeSender {
    fn connect(port: u16, number: u32, first: usize) -> Result<Self, BenchError> {
        let mut to = Scraper::connect(port, "/")?;
        let mut known = SeriesRequest::single(METRIC, first + number as usize);
        send(&mut to, &mut known, 0)?;
        Ok(Self {
            number,
            first,
            to,
            known,
        })
    }

    fn run(mut self, begin: Instant, stop: &AtomicBool) -> Result<Vec<Wait>, BenchError> {
        come_first();
        let mut waits = Vec::new();
        for round in 1.. {
            let probe = round * SENDERS + self.number;
            let due = begin + GAP * probe;
            // Each sender in its turn, so that new series come evenly.
            let is_new = (round + self.number).is_multiple_of(NEW);
            let mut new = is_new.then(|| SeriesRequest::single(METRIC, self.first + probe as usize));
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if stop.load(Relaxed) {
                break;
            }
            send(
                &mut self.to,
                new.as_mut().unwrap_or(&mut self.known),
                round.into(),
            )?;
            let acknowledged = Instant::now();
            waits.push(Wait { due, acknowledged });
        }
        Ok(waits)
    }
}

fn send(to: &mut Scraper, request: &mut SeriesRequest, value: u64) -> Result<(), BenchError> {
    to.post("/v1/metrics", "application/x-protobuf", request.at(value))?;
    Ok(())
}
