// SPDX-License-Identifier: Apache-2.0

//! Limits the concurrent scrapes of a receiver, and the memory of their pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::Semaphore;

use super::client::{self, FetchError};
use super::config::PrometheusReceiverConfig;
use tidegate_pipeline::component::{Ceiling, Held, Shared};

/// Limits concurrent scrapes and the bytes that they buffer. All jobs of a receiver share it.
pub(super) struct ScrapeLimiter {
    /// One permit per scrape in progress.
    pub(super) scrapes: Semaphore,
    max_buffered_bytes: usize,
    buffered_bytes: AtomicUsize,
    /// Bytes that all targets keep between scrapes.
    kept_bytes: AtomicUsize,
    pub(super) shared: Arc<Shared>,
    /// The ceiling of the account for pages.
    pub(super) ceiling: Ceiling,
}

impl ScrapeLimiter {
    pub(super) fn new(config: &PrometheusReceiverConfig, shared: Arc<Shared>, ceiling: Ceiling) -> Self {
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

/// The memory that a target retains between scrapes. It is on the account until this is dropped.
pub(super) struct RetainedMemory {
    limiter: Arc<ScrapeLimiter>,
    held: Held,
}

impl RetainedMemory {
    /// An empty reservation.
    pub(super) fn new(limiter: Arc<ScrapeLimiter>) -> Self {
        let held = Held::new(limiter.shared.memory.clone());
        Self { limiter, held }
    }

    /// Sets the bytes in use. Returns false if this target has grown, and all targets of the receiver together
    /// exceed half of the memory limit.
    #[must_use]
    pub(super) fn set_used(&mut self, bytes: usize) -> bool {
        let before = self.held.bytes();
        self.held.keep(bytes);
        let kept = &self.limiter.kept_bytes;
        kept.fetch_add(bytes, Relaxed);
        let all = kept.fetch_sub(before, Relaxed) - before;
        bytes <= before || all <= self.limiter.shared.memory.limit() / 2
    }
}

impl Drop for RetainedMemory {
    fn drop(&mut self) {
        self.limiter.kept_bytes.fetch_sub(self.held.bytes(), Relaxed);
    }
}

/// A reservation of memory for a page; released on drop.
pub(super) struct PageReservation {
    limiter: Arc<ScrapeLimiter>,
    bytes: usize,
    held: Held,
}

impl PageReservation {
    /// An empty reservation.
    pub(super) fn new(limiter: Arc<ScrapeLimiter>) -> Self {
        let held = Held::under(limiter.ceiling, limiter.shared.memory.clone());
        Self {
            limiter,
            bytes: 0,
            held,
        }
    }

    /// Reserves memory for more bytes of a body.
    pub(super) fn arrived(&mut self, bytes: usize) -> Result<(), FetchError> {
        self.grow(bytes)?;
        Ok(client::reserve_arrived(&mut self.held, self.bytes)?)
    }

    /// Ends the reservation for growth, because the body is complete.
    pub(super) fn has_arrived(&mut self) {
        self.held.keep(self.bytes);
    }

    fn grow(&mut self, bytes: usize) -> Result<(), FetchError> {
        let grown = |used: usize| {
            used.checked_add(bytes)
                .filter(|used| *used <= self.limiter.max_buffered_bytes)
        };
        let buffered = &self.limiter.buffered_bytes;
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
        let buffered = &self.limiter.buffered_bytes;
        buffered.fetch_add(bytes, Relaxed);
        buffered.fetch_sub(self.bytes, Relaxed);
        self.bytes = bytes;
    }

    /// Reduces the reservation to the points of the page.
    pub(super) fn into_points(mut self, bytes: usize) -> Held {
        let mut held = self.held.take();
        held.keep(bytes);
        held
    }

    /// The bytes that can be reserved now.
    pub(super) fn left(&self) -> usize {
        let used = self.limiter.buffered_bytes.load(Relaxed);
        self.limiter.max_buffered_bytes.saturating_sub(used)
    }
}

impl Drop for PageReservation {
    fn drop(&mut self) {
        self.limiter.buffered_bytes.fetch_sub(self.bytes, Relaxed);
    }
}
