// SPDX-License-Identifier: Apache-2.0

//! Simulated NIXL agents, and the gateway that drains them.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate_ring::{Event, Layout, Writer};

use crate::BenchError;
use crate::gateway::Gateway;

/// The events that NIXL reports of a transfer, in its order: post time, transfer time, bytes, request.
const TRANSFER: [(u16, u64); 4] = [(7, 20), (6, 450), (0, 65_536), (2, 1)];

/// Events of a transfer, one of which is its request.
pub(crate) const TRANSFER_EVENTS: usize = TRANSFER.len();

/// Ranks of a node.
pub(super) const RANKS: usize = 8;

/// A directory for rings, in memory where the system has such.
pub(crate) fn directory() -> Result<TempDir, BenchError> {
    let memory = Path::new("/dev/shm");
    Ok(if memory.is_dir() {
        TempDir::new_in(memory)?
    } else {
        TempDir::new()?
    })
}

/// Rings of `count` agents named `prefix` and a number.
pub(super) fn rings(
    directory: &Path,
    prefix: &str,
    count: usize,
    layout: Layout,
    capacity: u64,
) -> Result<Vec<Writer>, BenchError> {
    let ring = |rank| Writer::create(directory.join(format!("{prefix}{rank}")), layout, capacity);
    Ok((0..count).map(ring).collect::<Result<_, _>>()?)
}

/// Events of transfers, one after the other, without end.
pub(crate) fn transfers() -> impl Iterator<Item = Event> {
    let event = |(kind, value)| Event {
        kind,
        value,
        timestamp_us: 1_700_000_000_000_000,
    };
    TRANSFER.into_iter().cycle().map(event)
}

/// The configuration of the example for a node: the rings of `directory` into the built-in rules, served.
pub(super) fn config(directory: &Path) -> String {
    format!(
        r#"
receivers:
  nixl: {{directories: ["{}"]}}
processors:
  aggregate: {{rules: nixl}}
exporters:
  prometheus: {{endpoint: "127.0.0.1:PORT"}}
service:
  telemetry: {{metrics: {{address: "127.0.0.1:0"}}}}
  pipelines:
    metrics: {{receivers: [nixl], processors: [aggregate], exporters: [prometheus]}}
"#,
        directory.display()
    )
}

/// A gateway so configured, that has answered a scrape.
pub(super) fn gateway(binary: &Path, directory: &Path) -> Result<Gateway, BenchError> {
    let mut gateway = Gateway::start(binary, &config(directory))?;
    gateway.first_scrape()?;
    Ok(gateway)
}

/// The outcome of the events of some agents.
#[derive(Default)]
pub(super) struct Flushed {
    pub(super) written: u64,
    pub(super) losses: Vec<Loss>,
}

/// A flush that found its ring full.
pub(super) struct Loss {
    pub(super) events: u64,
    /// When the flush before it was.
    pub(super) since: Instant,
    pub(super) at: Instant,
}

/// Every agent flushes `events` each `interval`, at an offset of its own, until it is over. As in NIXL, whose timer is
/// set again after each flush, a flush that comes late delays the next one: two are never closer than `interval`.
pub(super) fn flush_at_intervals(
    mut rings: Vec<Writer>,
    events: usize,
    interval: Duration,
    over: impl Fn() -> bool,
) -> Flushed {
    let mut source = transfers();
    let start = Instant::now();
    let mut due: Vec<_> = (0..rings.len() as u32)
        .map(|agent| start + interval * agent / RANKS as u32)
        .collect();
    let mut flushed = Flushed::default();
    while !over() {
        let Some((agent, due)) = due.iter_mut().enumerate().min_by_key(|(_, due)| **due) else {
            break;
        };
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let flush: Vec<Event> = source.by_ref().take(events).collect();
        let (since, at) = (*due - interval, Instant::now());
        *due = at + interval;
        let fitted = rings[agent].push_all(&flush);
        flushed.written += fitted as u64;
        if fitted < events {
            let events = (events - fitted) as u64;
            flushed.losses.push(Loss { events, since, at });
        }
    }
    flushed
}
