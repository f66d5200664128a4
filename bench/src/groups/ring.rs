// SPDX-License-Identifier: Apache-2.0

//! Events a second and a core out of rings, through the whole gateway.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_ring::{Layout, Writer};

use super::agents::{self, RANKS};
use crate::BenchError;
use crate::gateway::Gateway;
use crate::report::{Budget, Row};
use crate::stats::Samples;

/// Slots of a ring, as busy agents have them.
const CAPACITY: u64 = 65_536;
/// Events written to a ring before the next one has its turn.
const TURN: usize = 4_096;
const WARM_UP: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(2);
const WINDOWS: usize = 5;

/// A layout and what an event of it may cost.
const LAYOUTS: [(Layout, f64); 2] = [(Layout::V4, 20.0), (Layout::V1, 40.0)];

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for (layout, budget_ns) in LAYOUTS {
        rows.extend(saturated(binary, layout, budget_ns)?);
    }
    Ok(rows)
}

/// Writes as fast as the gateway takes.
fn saturated(binary: &Path, layout: Layout, budget_ns: f64) -> Result<Vec<Row>, BenchError> {
    let directory = agents::directory()?;
    let rings = agents::rings(directory.path(), "rank_", RANKS, layout, CAPACITY)?;
    let gateway = agents::gateway(binary, directory.path())?;
    let windows = saturate(&gateway, rings, CAPACITY, TURN)?;
    let label = layout.label();
    let column = |of: fn(&RingWindow) -> f64| Samples::new(windows.iter().map(of));
    let per_core = column(|window| 1e9 / window.ns_per_event());
    Ok(vec![
        Row::median(
            format!("version {label}: processor time an event"),
            column(RingWindow::ns_per_event),
            "ns",
        )
        .budget(Budget::AtMost(budget_ns)),
        Row::median(
            format!("version {label}: events a second and a core"),
            per_core,
            "/s",
        )
        .budget(Budget::AtLeast(1e9 / budget_ns)),
        Row::median(
            format!("version {label}: events a second, as driven"),
            column(RingWindow::rate),
            "/s",
        ),
        Row::value(
            format!("version {label}: resident memory"),
            gateway.process().memory_mib()?.0,
            "MiB",
        ),
    ])
}

/// Keeps rings of this capacity full, `turn` events at a time, for a few windows.
pub(super) fn saturate(
    gateway: &Gateway,
    rings: Vec<Writer>,
    capacity: u64,
    turn: usize,
) -> Result<Vec<RingWindow>, BenchError> {
    let (over, taken) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| write(rings, capacity, turn, &over, &taken));
        let windows = measure(gateway, &taken);
        over.store(true, Ordering::Relaxed);
        windows
    })
}

/// The events that passed in a stretch of time, and their cost.
pub(super) struct RingWindow {
    events: f64,
    cpu: Duration,
    wall: Duration,
}

impl RingWindow {
    pub(super) fn ns_per_event(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.events
    }

    fn rate(&self) -> f64 {
        self.events / self.wall.as_secs_f64()
    }
}

fn measure(gateway: &Gateway, taken: &AtomicU64) -> Result<Vec<RingWindow>, BenchError> {
    let look = || {
        Ok::<_, BenchError>((
            taken.load(Ordering::Relaxed),
            gateway.process().cpu()?,
            Instant::now(),
        ))
    };
    thread::sleep(WARM_UP);
    let mut last = look()?;
    let mut windows = Vec::new();
    for _ in 0..WINDOWS {
        thread::sleep(WINDOW);
        let now = look()?;
        windows.push(RingWindow {
            events: (now.0 - last.0) as f64,
            cpu: now.1 - last.1,
            wall: now.2 - last.2,
        });
        last = now;
    }
    Ok(windows)
}

/// Fills the rings in turn until it is over; `taken` is what has left them.
fn write(mut rings: Vec<Writer>, capacity: u64, turn: usize, over: &AtomicBool, taken: &AtomicU64) {
    let events: Vec<_> = agents::transfers().take(turn).collect();
    let mut written = 0;
    while !over.load(Ordering::Relaxed) {
        let mut unread = 0;
        for ring in &mut rings {
            let room = (capacity - 1 - ring.unread()) as usize;
            written += ring.push_all(&events[..room.min(turn)]) as u64;
            unread += ring.unread();
        }
        taken.store(written - unread, Ordering::Relaxed);
    }
}
