// SPDX-License-Identifier: Apache-2.0

//! How old an event is when a scrape first shows it.
//!
//! A probe writes single events at random times, whatever the gateway does meanwhile; a scraper asks again and again
//! and gives every event that an answer shows for the first time its age at the end of that answer. So a gateway
//! that stalls pays for every event of the stall.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidegate_ring::{Event, Layout, Writer};

use super::agents::{self, RANKS};
use crate::BenchError;
use crate::report::{Budget, Row};
use crate::stats::Samples;

const EVENTS: usize = 2_000;
/// Mean time between two events of the probe; the times are exponentially distributed.
const MEAN_GAP: Duration = Duration::from_millis(7);
/// Between two scrapes.
const SCRAPE_GAP: Duration = Duration::from_micros(200);
/// An event that no scrape has shown for so long is lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// The kind of event that only the probe counts: `agent_memory_deregistered`, in bytes.
pub(super) const PROBE_KIND: u16 = 5;
pub(super) const PROBE_METRIC: &str = "agent_memory_deregistered_total";
const CAPACITY: u64 = 4_096;
const BUDGET_MS: f64 = 20.0;

/// Load beside the probe: its name, and the events that each of eight agents flushes every 10 ms.
const LOADS: [(&str, usize); 2] = [("idle node", 0), ("node with 1.6 M events/s", 2_000)];

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for (name, flush) in LOADS {
        let ages = beside(binary, flush)?;
        rows.extend([
            Row::value(format!("{name}: p50"), ages.median(), "ms"),
            Row::value(
                format!("{name}: p99 of {}", ages.count()),
                ages.quantile(0.99),
                "ms",
            )
            .budget(Budget::AtMost(BUDGET_MS)),
            Row::value(format!("{name}: oldest"), ages.max(), "ms"),
        ]);
    }
    Ok(rows)
}

/// Ages in milliseconds beside a load.
fn beside(binary: &Path, flush: usize) -> Result<Samples, BenchError> {
    let directory = agents::directory()?;
    let gateway = agents::gateway(binary, directory.path())?;
    let mut scraper = gateway.scraper()?;
    of_probe(directory.path(), flush, EVENTS, move || scraper.sum(PROBE_METRIC))
}

/// Ages in milliseconds of `events` single events in a ring of `directory`, when `look` first counts them, beside
/// eight agents that flush `flush` events every 10 ms.
pub(super) fn of_probe(
    directory: &Path,
    flush: usize,
    events: usize,
    mut look: impl FnMut() -> Result<f64, BenchError>,
) -> Result<Samples, BenchError> {
    let mut probe = agents::rings(directory, "probe_", 1, Layout::V4, CAPACITY)?;
    let load = agents::rings(directory, "rank_", RANKS, Layout::V4, CAPACITY)?;
    let over = AtomicBool::new(false);
    let (sender, written) = sync_channel(events);
    thread::scope(|scope| {
        scope.spawn(|| {
            agents::flush_at_intervals(load, flush, Duration::from_millis(10), || {
                over.load(Ordering::Relaxed)
            })
        });
        let ages = first_event(&mut probe[0], &mut look).and_then(|()| {
            scope.spawn(move || emit(probe, events, &sender));
            watch(events, look, &written)
        });
        over.store(true, Ordering::Relaxed);
        ages
    })
}

/// Waits until the probe's ring is drained, so that finding it isn't part of any age.
fn first_event(
    probe: &mut Writer,
    look: &mut impl FnMut() -> Result<f64, BenchError>,
) -> Result<(), BenchError> {
    probe.push_all(&[probe_event()]);
    let written = Instant::now();
    while look()? < 1.0 {
        if written.elapsed() > PATIENCE {
            return Err(format!("{PROBE_METRIC} never appeared").into());
        }
    }
    Ok(())
}

/// Writes events at random times and tells when each was published.
fn emit(mut probe: Vec<Writer>, events: usize, sender: &SyncSender<Instant>) {
    let mut rng = SmallRng::seed_from_u64(7);
    for _ in 0..events {
        let uniform: f64 = rng.random_range(f64::EPSILON..1.0);
        thread::sleep(MEAN_GAP.mul_f64(-uniform.ln()));
        let now = Instant::now();
        probe[0].push_all(&[probe_event()]);
        // A receiver that is gone has given up with an error of its own.
        let _ = sender.send(now);
    }
}

fn probe_event() -> Event {
    Event {
        kind: PROBE_KIND,
        value: 1,
        timestamp_us: 0,
    }
}

/// Scrapes until every event was seen; their ages in milliseconds.
fn watch(
    events: usize,
    mut look: impl FnMut() -> Result<f64, BenchError>,
    written: &Receiver<Instant>,
) -> Result<Samples, BenchError> {
    let mut ages = Vec::with_capacity(events);
    let mut progress = Instant::now();
    while ages.len() < events {
        thread::sleep(SCRAPE_GAP);
        // The first event was there before.
        let shown = look()? as usize - 1;
        let now = Instant::now();
        if shown > ages.len() {
            progress = now;
        } else if progress.elapsed() > PATIENCE {
            return Err(format!("{} of {events} events were never shown", events - ages.len()).into());
        }
        while ages.len() < shown {
            ages.push(now.duration_since(written.recv()?).as_secs_f64() * 1e3);
        }
    }
    Ok(Samples::new(ages))
}
