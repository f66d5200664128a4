//! The room of a queue: set aside before anybody commits, given back when the last piece of what it was for is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use smallvec::SmallVec;

use crate::batch::{Batch, Sizer};
use crate::component::Shared;

/// How much a queue may hold, and how much it holds. Taking room needs no lock.
pub struct Room {
    sizer: Sizer,
    size: Gauge,
    bytes: Gauge,
    shared: Arc<Shared>,
}

/// Something of which there is a limited amount.
struct Gauge {
    limit: usize,
    used: AtomicUsize,
}

impl Gauge {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            used: AtomicUsize::new(0),
        }
    }

    fn take(&self, amount: usize) -> Result<(), NoRoom> {
        let sum = |used: usize| used.checked_add(amount).filter(|sum| *sum <= self.limit);
        match self.used.fetch_update(Relaxed, Relaxed, sum) {
            Ok(_) => Ok(()),
            Err(_) if amount > self.limit => Err(NoRoom::NeverFits),
            Err(_) => Err(NoRoom::Full),
        }
    }

    fn give_back(&self, amount: usize) {
        self.used.fetch_sub(amount, Relaxed);
    }
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// Others have it now.
    Full,
    /// It would not fit into the empty queue.
    NeverFits,
}

impl Room {
    /// Room for `limit` of what `sizer` counts, and for `max_bytes` whatever the sizer.
    pub fn new(sizer: Sizer, limit: usize, max_bytes: usize, shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            sizer,
            size: Gauge::new(limit),
            bytes: Gauge::new(max_bytes),
            shared,
        })
    }

    /// Sets room aside for a batch.
    pub fn reserve(self: &Arc<Self>, batch: &Batch) -> Result<Reservation, NoRoom> {
        let (size, bytes) = (size_of(self.sizer, batch), batch.bytes());
        self.size.take(size)?;
        self.bytes
            .take(bytes)
            .inspect_err(|_| self.size.give_back(size))?;
        self.shared.memory.hold(bytes);
        Ok(Reservation {
            room: self.clone(),
            size,
            bytes,
        })
    }

    /// What is set aside or held now, in units of the sizer.
    pub fn used(&self) -> usize {
        self.size.used.load(Relaxed)
    }

    /// The most that may be.
    pub fn limit(&self) -> usize {
        self.size.limit
    }
}

/// The size of a batch as `sizer` counts it.
pub(super) fn size_of(sizer: Sizer, batch: &Batch) -> usize {
    match sizer {
        Sizer::Requests => 1,
        Sizer::Items => batch.items(),
        Sizer::Bytes => batch.bytes(),
    }
}

/// Room and memory that one batch takes; both are given back on drop.
pub struct Reservation {
    room: Arc<Room>,
    size: usize,
    bytes: usize,
}

impl Reservation {
    /// Fits the reservation to the batch that came in the end: processors on the way may have changed it.
    /// Growth is always granted, since a commitment can't be taken back.
    pub fn fit(&mut self, batch: &Batch) {
        let (size, bytes) = (size_of(self.room.sizer, batch), batch.bytes());
        self.room.size.used.fetch_add(size, Relaxed);
        self.room.bytes.used.fetch_add(bytes, Relaxed);
        self.room.shared.memory.hold(bytes);
        self.give_back();
        (self.size, self.bytes) = (size, bytes);
    }

    fn give_back(&self) {
        self.room.size.give_back(self.size);
        self.room.bytes.give_back(self.bytes);
        self.room.shared.memory.release(self.bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// What a request keeps alive: the reservations of all batches that have a piece in it. The pieces of a batch
/// that was cut share its reservation, as they share its bytes.
pub type Charge = SmallVec<[Arc<Reservation>; 1]>;
