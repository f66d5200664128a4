//! What the scrapes of a receiver share: places, room for pages, slots for the work on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::Semaphore;

use super::client::FetchError;
use super::config::Config;
use crate::component::Shared;
use crate::net::Held;

/// Bounds on what scrapes use at a time.
pub(super) struct Gate {
    /// A permit a scrape that is under way.
    pub(super) scrapes: Semaphore,
    /// A permit a page that is being read: more than there are processors would only hold memory.
    pub(super) reading: Semaphore,
    max_buffered_bytes: usize,
    buffered_bytes: AtomicUsize,
    pub(super) shared: Arc<Shared>,
}

impl Gate {
    pub(super) fn new(config: &Config, shared: Arc<Shared>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            scrapes: Semaphore::new(config.max_concurrent_scrapes.get().min(Semaphore::MAX_PERMITS)),
            reading: Semaphore::new(processors),
            max_buffered_bytes: config.max_buffered_size.as_usize(),
            buffered_bytes: AtomicUsize::new(0),
            shared,
        }
    }
}

/// Room for a page; given back when dropped.
pub(super) struct Room {
    gate: Arc<Gate>,
    bytes: usize,
    held: Held,
}

impl Room {
    /// None yet.
    pub(super) fn new(gate: Arc<Gate>) -> Self {
        let held = Held::new(gate.shared.clone());
        Self { gate, bytes: 0, held }
    }

    /// So many more bytes, where there is room for them.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), FetchError> {
        let grown = |used: usize| {
            used.checked_add(bytes)
                .filter(|used| *used <= self.gate.max_buffered_bytes)
        };
        let buffered = &self.gate.buffered_bytes;
        if buffered.fetch_update(Relaxed, Relaxed, grown).is_err() {
            return Err(FetchError::NoRoom);
        }
        self.bytes += bytes;
        self.held.grow(bytes);
        Ok(())
    }

    /// How much more there is room for now.
    pub(super) fn left(&self) -> usize {
        let used = self.gate.buffered_bytes.load(Relaxed);
        self.gate.max_buffered_bytes.saturating_sub(used)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.gate.buffered_bytes.fetch_sub(self.bytes, Relaxed);
    }
}
