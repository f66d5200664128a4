// SPDX-License-Identifier: Apache-2.0

//! The losses when agents flush as much as NIXL can at once: a whole ring.
//!
//! The next flush drops what does not fit, so every ring must be empty again within a flush interval. Losses
//! while the host of a shared machine has stopped the gateway's core are counted separately.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_ring::Layout;

use super::agents::{self, Loss, RANKS};
use crate::BenchError;
use crate::report::{Budget, Row};
use crate::stalls::Stalls;

/// NIXL's default; one slot always stays free.
const CAPACITY: u64 = 4_096;
const FLUSH: usize = CAPACITY as usize - 1;
const RUN: Duration = Duration::from_secs(10);
const INTERVALS_MS: [u64; 2] = [100, 10];
/// After this time, events that are in the rings at the end have been drained and are served.
const SETTLE: Duration = Duration::from_secs(1);
/// Counts each transfer's request.
const REQUESTS: &str = "agent_tx_requests_num_total";
const EVENTS_A_TRANSFER: f64 = agents::TRANSFER_EVENTS as f64;

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for interval in INTERVALS_MS {
        rows.extend(at(binary, Duration::from_millis(interval))?);
    }
    Ok(rows)
}

fn at(binary: &Path, interval: Duration) -> Result<Vec<Row>, BenchError> {
    let directory = agents::directory()?;
    let rings = agents::rings(directory.path(), "rank_", RANKS, Layout::V4, CAPACITY)?;
    let gateway = agents::gateway(binary, directory.path())?;
    let stalls = Stalls::watch()?;
    let end = Instant::now() + RUN;
    let flushed = agents::flush_at_intervals(rings, FLUSH, interval, || Instant::now() > end);
    let stalls = stalls.finish();
    thread::sleep(SETTLE);
    let served = gateway.scraper()?.sum(REQUESTS)? * EVENTS_A_TRANSFER;
    // The last transfer of a flush may be cut, in each of the rings.
    let unaccounted = (flushed.written as f64 - served).abs() > RANKS as f64 * EVENTS_A_TRANSFER;
    if unaccounted {
        return Err(format!(
            "{} events were in the rings, {served} were served",
            flushed.written
        )
        .into());
    }
    let label = format!(
        "{} agents, {FLUSH} events every {} ms",
        RANKS,
        interval.as_millis()
    );
    let stood_still = |loss: &&Loss| {
        let within = |stall: &(Instant, Instant)| stall.0 < loss.at && loss.since < stall.1;
        stalls.iter().any(within)
    };
    let (stalled, missed): (Vec<_>, Vec<_>) = flushed.losses.iter().partition(stood_still);
    let sum = |losses: &[&Loss]| losses.iter().map(|loss| loss.events).sum::<u64>();
    let (stalled, missed) = (sum(&stalled), sum(&missed));
    let all = flushed.written + stalled + missed;
    Ok(vec![
        Row::value(format!("{label}: flushed"), all as f64, "events"),
        Row::value(format!("{label}: found the ring full"), missed as f64, "events")
            .budget(Budget::AtMost(0.0)),
        Row::value(
            format!("{label}: the same, while the gateway's core stood still"),
            stalled as f64,
            "events",
        ),
    ])
}
