//! When the gateway's core stood still. The host of a shared machine stops its cores for milliseconds at a time, and
//! wakes sleepers late; what is missed then is not the gateway's doing, and must be told apart from what is.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::machine::on_a_core_of_its_own;

/// The watching thread sleeps for so long at a time.
const TICK: Duration = Duration::from_micros(500);
/// It woke this much too late: the core stood still. The gateway itself never runs for so long at a stretch that
/// another thread would have to wait so long for its turn.
const LATE: Duration = Duration::from_millis(2);

/// A thread beside the gateway that only sleeps.
pub(crate) struct Stalls {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(Instant, Instant)>>,
}

impl Stalls {
    /// Watches the core that gateways are started on.
    pub(crate) fn watch() -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let watch = move || {
            let mut stalls = Vec::new();
            while !stopped.load(Relaxed) {
                let due = Instant::now() + TICK;
                thread::sleep(TICK);
                if due.elapsed() > LATE {
                    stalls.push((due, Instant::now()));
                }
            }
            stalls
        };
        let thread = on_a_core_of_its_own(|| thread::Builder::new().spawn(watch))??;
        Ok(Self { stop, thread })
    }

    /// From when to when the core stood still.
    pub(crate) fn finish(self) -> Vec<(Instant, Instant)> {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap_or_default()
    }
}
