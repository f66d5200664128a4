// SPDX-License-Identifier: Apache-2.0

//! NIXL's telemetry rings, of every version: the types that C sees. The functions are in `ring_calls`.

use std::ffi::{CString, c_char, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_ring::{Batch, Geometry, Names, Options, Poll, Reader};

use crate::status::{Failure, terminated};

/// A ring, open for reading. Any thread may use it; one reads at a time.
pub struct tg_ring(Mutex<RingState>);

pub(crate) struct RingState {
    pub(crate) reader: Reader,
    batch: Batch,
    /// The texts of kinds for C, by kind: they stay as long as the ring.
    kinds: Vec<Option<KindTexts>>,
    /// The reason of the last poll's result.
    reason: CString,
}

struct KindTexts {
    name: CString,
    unit: CString,
    category: CString,
    status: Option<CString>,
}

/// The status of a read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum tg_ring_status {
    /// Nothing new.
    TG_RING_IDLE = 0,
    /// Events.
    TG_RING_EVENTS = 1,
    /// The ring is just being made; read again later.
    TG_RING_SETTLING = 2,
    /// It is not what it was: see `reason` and `lost`. Reading goes on with what is there now.
    TG_RING_RESET = 3,
    /// After a reset: still no ring that can be read.
    TG_RING_UNREADABLE = 4,
    /// The file was replaced or removed, and everything in this one was read: release the ring.
    TG_RING_GONE = 5,
}

/// The result of a read. Columns and texts are valid until the next read of the ring or its release.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tg_ring_batch {
    /// A tg_ring_status.
    pub status: u32,
    /// Why, in a word; empty where there is nothing to say.
    pub reason: *const c_char,
    /// How many events there are in the columns.
    pub count: usize,
    /// The kind of each event: see tg_ring_kind_of().
    pub kinds: *const u16,
    /// The value of each event, in the unit of its kind.
    pub values: *const u64,
    /// Microseconds since the epoch of each event; NULL but for version 1.
    pub timestamps_us: *const u64,
    /// Events that waited when the read began.
    pub readable: u64,
    /// Events that were seen but not committed, and that a reset lost.
    pub lost: u64,
    /// No slot was free: the producer may have dropped events, which the ring does not count.
    pub full: bool,
}

/// The description of a kind of events; valid until the release of the ring.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tg_ring_kind {
    /// NIXL's name.
    pub name: *const c_char,
    /// Unit in UCUM: "By", "us", "1".
    pub unit: *const c_char,
    /// "MEMORY", "TRANSFER", "ERROR" and so on.
    pub category: *const c_char,
    /// Of errors: which; else NULL.
    pub status: *const c_char,
}

/// Totals since the ring was opened.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct tg_ring_stats {
    /// Events committed.
    pub events: u64,
    /// Reads that found the ring full: each may stand for events that the producer dropped.
    pub suspected_loss: u64,
    /// Resets.
    pub resets: u64,
    /// Events that were seen but gone before they were committed.
    pub lost: u64,
    /// Committed events of a type that is not known.
    pub unknown: u64,
    /// Committed events whose name came after the table of names was full.
    pub overflow: u64,
}

/// How a ring is read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum tg_ring_mode {
    /// As its one consumer: commits free slots.
    TG_RING_CONSUME = 0,
    /// Beside others: nothing is handed back.
    TG_RING_PEEK = 1,
    /// It asked to consume, but another consumer holds the ring: nothing is handed back.
    TG_RING_PEEK_LOCKED = 2,
}

/// The description of a file that is a ring.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tg_ring_info {
    /// The layout: "1", "2a", "2b", "3", "4" or "5".
    pub version: [c_char; 4],
    /// Slots; one event less fits.
    pub capacity: u64,
    /// Events that wait.
    pub readable: u64,
    /// A tg_ring_mode; of a file that is not open TG_RING_PEEK.
    pub mode: u32,
    /// The user that the producer runs as.
    pub owner_uid: u32,
}

/// Called for a ring of a directory, with its path and what it is, valid during the call.
pub type tg_ring_found_fn =
    Option<unsafe extern "C" fn(path: *const c_char, info: *const tg_ring_info, context: *mut c_void)>;

impl tg_ring {
    pub(crate) fn open(path: &str, options: Options) -> Result<Self, Failure> {
        Ok(Self(Mutex::new(RingState {
            reader: Reader::open(path, options)?,
            batch: Batch::default(),
            kinds: Vec::new(),
            reason: CString::default(),
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, RingState> {
        // A panic in the reader leaves it as usable as a reset does.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KindTexts {
    fn of(names: &Names, kind: u16) -> Self {
        Self {
            name: terminated(names.name(kind)),
            unit: terminated(names.unit(kind)),
            category: terminated(names.category(kind).name()),
            status: names.status(kind).map(terminated),
        }
    }

    fn shown(&self) -> tg_ring_kind {
        tg_ring_kind {
            name: self.name.as_ptr(),
            unit: self.unit.as_ptr(),
            category: self.category.as_ptr(),
            status: self
                .status
                .as_ref()
                .map_or(std::ptr::null(), |status| status.as_ptr()),
        }
    }
}

impl RingState {
    pub(crate) fn read(&mut self) -> Result<tg_ring_batch, Failure> {
        use tg_ring_status::{
            TG_RING_EVENTS, TG_RING_GONE, TG_RING_IDLE, TG_RING_RESET, TG_RING_SETTLING, TG_RING_UNREADABLE,
        };
        let poll = self.reader.read(&mut self.batch)?;
        let (status, reason) = match &poll {
            Poll::Idle => (TG_RING_IDLE, String::new()),
            Poll::Events(_) => (TG_RING_EVENTS, String::new()),
            Poll::Settling => (TG_RING_SETTLING, String::new()),
            Poll::Reset { reason, .. } => (TG_RING_RESET, reason.reason().to_owned()),
            Poll::Unreadable(reject) => (TG_RING_UNREADABLE, reject.to_string()),
            Poll::Gone(reset) => (TG_RING_GONE, reset.reason().to_owned()),
        };
        self.reason = terminated(&reason);
        let batch = &self.batch;
        let has_times = !batch.is_empty() && batch.timestamps_us.len() == batch.len();
        let times = has_times.then_some(batch.timestamps_us.as_ptr());
        let mut found = tg_ring_batch {
            status: status as u32,
            reason: self.reason.as_ptr(),
            count: batch.len(),
            kinds: batch.kinds.as_ptr(),
            values: batch.values.as_ptr(),
            timestamps_us: times.unwrap_or(std::ptr::null()),
            ..NOTHING
        };
        match poll {
            Poll::Events(fill) => (found.readable, found.full) = (fill.readable, fill.full),
            Poll::Reset { lost, .. } => found.lost = lost,
            _ => {}
        }
        Ok(found)
    }

    pub(crate) fn kind(&mut self, kind: u16) -> Result<tg_ring_kind, Failure> {
        let names = self.reader.names();
        let at = usize::from(kind);
        if at >= names.len() {
            return Err(Failure::none("the ring gave out no such kind"));
        }
        if self.kinds.len() <= at {
            self.kinds.resize_with(names.len(), || None);
        }
        // It was made long enough above.
        let texts = self.kinds[at].get_or_insert_with(|| KindTexts::of(names, kind));
        Ok(texts.shown())
    }
}

pub(crate) const NOTHING: tg_ring_batch = tg_ring_batch {
    status: 0,
    reason: c"".as_ptr(),
    count: 0,
    kinds: std::ptr::null(),
    values: std::ptr::null(),
    timestamps_us: std::ptr::null(),
    readable: 0,
    lost: 0,
    full: false,
};

pub(crate) const NO_INFO: tg_ring_info = tg_ring_info {
    version: [0; 4],
    capacity: 0,
    readable: 0,
    mode: tg_ring_mode::TG_RING_PEEK as u32,
    owner_uid: 0,
};

impl tg_ring_info {
    pub(crate) fn of(ring: Geometry) -> Self {
        let mut info = NO_INFO;
        for (to, byte) in info.version.iter_mut().zip(ring.layout.label().bytes()) {
            *to = byte as c_char;
        }
        info.capacity = ring.capacity;
        info
    }
}
