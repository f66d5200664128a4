// SPDX-License-Identifier: Apache-2.0

//! When the gateway's core stood still. The host of a shared machine stops its cores for milliseconds at a time, and
//! wakes sleepers late; misses of that time are not the gateway's doing, and are counted separately.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::setpriority_process;

use crate::machine::{on_a_core_of_its_own, on_each_core};

/// The watching thread sleeps for so long at a time.
const TICK: Duration = Duration::from_micros(500);
/// It woke this much too late: the core stood still. The gateway itself never runs for so long at a stretch that
/// another thread would have to wait so long for its turn.
const LATE: Duration = Duration::from_millis(2);

/// When a core stood still, from and to.
pub(crate) type Stall = (Instant, Instant);

/// Threads beside the gateway that only sleep.
pub(crate) struct Stalls {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Stall>>>,
}

impl Stalls {
    /// Watches the core that gateways are started on.
    pub(crate) fn watch() -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = on_a_core_of_its_own(|| watch(stop.clone(), false))??;
        let threads = vec![thread];
        Ok(Self { stop, threads })
    }

    /// Watches every core, with as much priority as we may have: others that want the core do not look like the host.
    pub(crate) fn watch_all() -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = on_each_core(|| watch(stop.clone(), true))?;
        let threads = threads.into_iter().collect::<io::Result<_>>()?;
        Ok(Self { stop, threads })
    }

    /// From when to when a core stood still.
    pub(crate) fn finish(self) -> Vec<Stall> {
        self.stop.store(true, Relaxed);
        let each = self
            .threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_default());
        each.flatten().collect()
    }
}

fn watch(stop: Arc<AtomicBool>, first: bool) -> io::Result<JoinHandle<Vec<Stall>>> {
    let watch = move || {
        if first {
            come_first();
        }
        let mut stalls = Vec::new();
        while !stop.load(Relaxed) {
            let due = Instant::now() + TICK;
            thread::sleep(TICK);
            if due.elapsed() > LATE {
                stalls.push((due, Instant::now()));
            }
        }
        stalls
    };
    thread::Builder::new().spawn(watch)
}

/// Gives this thread as much priority as we may have, if any.
pub(crate) fn come_first() {
    // Of a thread, on Linux. Without the permission, the measurement goes on at normal priority.
    let _ = setpriority_process(None, -20);
}

/// The part of the time from `from` to `to` in which no core was stopped.
pub(crate) fn outside(stalls: &[Stall], from: Instant, to: Instant) -> Duration {
    let mut within: Vec<Stall> = stalls
        .iter()
        .map(|(begin, end)| ((*begin).max(from), (*end).min(to)))
        .filter(|(begin, end)| begin < end)
        .collect();
    within.sort();
    let (mut still, mut until) = (Duration::ZERO, from);
    for (begin, end) in within {
        still += end.saturating_duration_since(begin.max(until));
        until = until.max(end);
    }
    (to - from).saturating_sub(still)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_cores_stood_still_for_at_once_counts_once() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let stalls = [
            (at(0), at(3)),
            (at(2), at(5)),
            (at(2), at(4)),
            (at(8), at(30)),
            (at(40), at(50)),
        ];
        assert_eq!(outside(&stalls, at(1), at(20)), Duration::from_millis(3));
        assert_eq!(outside(&stalls, at(5), at(8)), Duration::from_millis(3));
        assert_eq!(outside(&[], at(5), at(8)), Duration::from_millis(3));
    }
}
