//! Requests of one point, each due at its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::Error;
use crate::http::Scraper;
use crate::machine::on_all_cores;
use crate::otlp::load::now_ns;
use crate::series::Request;
use crate::stalls::come_first;

/// Between two probes.
const GAP: Duration = Duration::from_millis(1);
/// One in so many is of a series that was never seen.
const NEW: u64 = 8;
/// Names of probes: one of their own, so that they are no part of what is looked at.
const METRIC: usize = 1 << 20;

/// What a probe waited.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    pub(super) due: Instant,
    pub(super) acknowledged: Instant,
}

/// A thread that sends them.
pub(super) struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Wait>, Error>>,
}

impl Probe {
    /// Sends to this port, on whichever core is free.
    pub(super) fn start(port: u16) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let probe = move || {
            come_first();
            let mut to = Scraper::connect(port, "/")?;
            // Agents that no probe before this one had.
            let first = now_ns() as usize;
            let mut known = Request::single(METRIC, first);
            // Nobody has to wait for a connection, or for the first series.
            send(&mut to, &mut known, 0)?;
            let mut waits = Vec::new();
            let mut due = Instant::now();
            for number in 1u64.. {
                if stopped.load(Relaxed) {
                    break;
                }
                due += GAP;
                let mut new = number
                    .is_multiple_of(NEW)
                    .then(|| Request::single(METRIC, first + number as usize));
                thread::sleep(due.saturating_duration_since(Instant::now()));
                send(&mut to, new.as_mut().unwrap_or(&mut known), number)?;
                let acknowledged = Instant::now();
                waits.push(Wait { due, acknowledged });
            }
            Ok(waits)
        };
        let thread = on_all_cores(|| thread::Builder::new().spawn(probe))?;
        Ok(Self {
            stop,
            thread: thread?,
        })
    }

    /// What they waited.
    pub(super) fn finish(self) -> Result<Vec<Wait>, Error> {
        self.stop.store(true, Relaxed);
        self.thread.join().map_err(|_| "the probe panicked")?
    }
}

fn send(to: &mut Scraper, request: &mut Request, value: u64) -> Result<(), Error> {
    to.post("/v1/metrics", "application/x-protobuf", request.at(value))?;
    Ok(())
}
