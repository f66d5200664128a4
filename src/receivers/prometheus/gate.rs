//! What the scrapes of a receiver share: places, and room for pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::Semaphore;

use super::client::{self, FetchError};
use super::config::Config;
use crate::component::{Ceiling, Held, Shared};

/// Bounds on what scrapes use at a time.
pub(super) struct Gate {
    /// A permit a scrape that is under way.
    pub(super) scrapes: Semaphore,
    max_buffered_bytes: usize,
    buffered_bytes: AtomicUsize,
    /// What is kept of targets from scrape to scrape.
    kept_bytes: AtomicUsize,
    pub(super) shared: Arc<Shared>,
    /// How much memory pages may take.
    pub(super) ceiling: Ceiling,
}

impl Gate {
    pub(super) fn new(config: &Config, shared: Arc<Shared>, ceiling: Ceiling) -> Self {
        Self {
            scrapes: Semaphore::new(config.max_concurrent_scrapes.get().min(Semaphore::MAX_PERMITS)),
            max_buffered_bytes: config.max_buffered_size.as_usize(),
            buffered_bytes: AtomicUsize::new(0),
            kept_bytes: AtomicUsize::new(0),
            shared,
            ceiling,
        }
    }
}

/// What is kept of a target from scrape to scrape, on the account of memory until it is dropped.
pub(super) struct Kept {
    gate: Arc<Gate>,
    held: Held,
}

impl Kept {
    /// Nothing yet.
    pub(super) fn new(gate: Arc<Gate>) -> Self {
        let held = Held::new(gate.shared.memory.clone());
        Self { gate, held }
    }

    /// It takes so many bytes now. False: all targets of the receiver take more than half of the memory limit together,
    /// and this one has grown.
    #[must_use]
    pub(super) fn settle(&mut self, bytes: usize) -> bool {
        let before = self.held.bytes();
        self.held.settle(bytes);
        let kept = &self.gate.kept_bytes;
        kept.fetch_add(bytes, Relaxed);
        let all = kept.fetch_sub(before, Relaxed) - before;
        bytes <= before || all <= self.gate.shared.memory.limit() / 2
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.gate.kept_bytes.fetch_sub(self.held.bytes(), Relaxed);
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
        let held = Held::under(gate.ceiling, gate.shared.memory.clone());
        Self { gate, bytes: 0, held }
    }

    /// So many more bytes of a body, where there is room for them.
    pub(super) fn arrived(&mut self, bytes: usize) -> Result<(), FetchError> {
        self.grow(bytes)?;
        Ok(client::reserve_arrived(&mut self.held, self.bytes)?)
    }

    /// All of it is there.
    pub(super) fn has_arrived(&mut self) {
        self.held.settle(self.bytes);
    }

    fn grow(&mut self, bytes: usize) -> Result<(), FetchError> {
        let grown = |used: usize| {
            used.checked_add(bytes)
                .filter(|used| *used <= self.gate.max_buffered_bytes)
        };
        let buffered = &self.gate.buffered_bytes;
        if buffered.fetch_update(Relaxed, Relaxed, grown).is_err() {
            return Err(FetchError::NoRoom);
        }
        self.bytes += bytes;
        Ok(())
    }

    /// The reservation, for what a page unpacks to.
    pub(super) fn held(&mut self) -> &mut Held {
        &mut self.held
    }

    /// A page was unpacked, which is reserved already.
    pub(super) fn unpacked(&mut self, bytes: usize) {
        let buffered = &self.gate.buffered_bytes;
        buffered.fetch_add(bytes, Relaxed);
        buffered.fetch_sub(self.bytes, Relaxed);
        self.bytes = bytes;
    }

    /// The page has become points, for which so much was reserved.
    pub(super) fn into_points(mut self, bytes: usize) -> Held {
        let mut held = self.held.take();
        held.settle(bytes);
        held
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
