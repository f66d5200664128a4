// SPDX-License-Identifier: Apache-2.0

//! One agent: its events into its cells, or counted as lost while there are none.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::abi::Exporter;
use crate::families::{Cells, Loss};
use crate::process::{self, NoCells, print_line};

/// How long an agent without cells waits before it tries again to get some.
pub(crate) const RETRY: Duration = Duration::from_secs(5);

/// Values from here on are negative differences that NIXL has cast.
const INVALID: u64 = 1 << 63;

/// The exporter of an agent.
pub(crate) struct Agent {
    name: String,
    made: Instant,
    cells: OnceLock<Cells>,
    /// Events that came while there were no cells.
    lost: AtomicU64,
    /// When to try again, in milliseconds after `made`.
    retry_ms: AtomicU64,
}

impl Exporter for Agent {
    fn new(name: String) -> Self {
        let agent = Self::without_cells(name);
        agent.open();
        agent
    }

    fn export(&self, kind: u16, value: u64) {
        match self.cells.get().or_else(|| self.reopen()) {
            Some(cells) if value < INVALID => cells.record(kind, value),
            Some(cells) => cells.lost(Loss::InvalidValue, 1),
            None => _ = self.lost.fetch_add(1, Relaxed),
        }
    }

    fn end(self, failed: u64) {
        match self.cells.get() {
            Some(cells) => cells.lost(Loss::Panic, failed),
            None => {
                let lost = self.lost.load(Relaxed) + failed;
                print_line(format_args!(
                    "agent {:?} has ended; its {lost} events were lost",
                    self.name
                ));
            }
        }
    }
}

impl Agent {
    fn without_cells(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            made: Instant::now(),
            cells: OnceLock::new(),
            lost: AtomicU64::new(0),
            retry_ms: AtomicU64::new(0),
        }
    }

    fn reopen(&self) -> Option<&Cells> {
        let due = Duration::from_millis(self.retry_ms.load(Relaxed));
        if self.made.elapsed() < due {
            None
        } else {
            self.open()
        }
    }

    fn open(&self) -> Option<&Cells> {
        let cells = process::store().and_then(|store| Ok(Cells::of(&store, &self.name)?));
        match cells {
            Ok(cells) => {
                cells.lost(Loss::NoCells, self.lost.swap(0, Relaxed));
                Some(self.cells.get_or_init(|| cells))
            }
            Err(why) => {
                let due = self.made.elapsed() + RETRY;
                self.retry_ms.store(due.as_millis() as u64, Relaxed);
                complain(&why);
                None
            }
        }
    }
}

/// Once a process: its agents share the file.
fn complain(why: &NoCells) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        print_line(format_args!("{why}; events are lost until that is mended"));
    }
}

#[cfg(test)]
mod tests;
