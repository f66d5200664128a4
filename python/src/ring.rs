// SPDX-License-Identifier: Apache-2.0

//! NIXL's rings for Python: `tidegate.ring` builds on this.
//!
//! Columns leave as `bytes` in native byte order, which Python casts to a `memoryview` without a copy.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyOSError, PyPermissionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tidegate_ring::{Batch, Error, Mode, Options, Poll, Reader, inspect};

/// A ring, open for reading. Any thread may use it; one reads at a time.
#[pyclass(frozen, module = "tidegate._tidegate")]
pub(crate) struct RingReader {
    state: Mutex<RingState>,
}

struct RingState {
    reader: Reader,
    batch: Batch,
}

/// The result of one read. Columns are `bytes`: 16 bits a kind, 64 bits a value or time.
#[pyclass(frozen, get_all, module = "tidegate._tidegate")]
pub(crate) struct RingPoll {
    /// `events`, `idle`, `settling`, `reset`, `unreadable` or `gone`.
    status: &'static str,
    /// Of `reset`, `unreadable` and `gone`: why.
    reason: Option<String>,
    /// Events that waited when the read began.
    readable: u64,
    /// Events that a reset lost.
    lost: u64,
    /// No slot was free: the producer may have dropped events.
    full: bool,
    kinds: Py<PyBytes>,
    values: Py<PyBytes>,
    timestamps_us: Py<PyBytes>,
}

/// The description of a file, found without opening it as a ring.
#[pyclass(frozen, get_all, module = "tidegate._tidegate")]
pub(crate) struct RingInspection {
    version: Option<&'static str>,
    capacity: u64,
    readable: u64,
    read_pos: u64,
    write_pos: u64,
    owner_uid: u32,
    /// The reason why it is not a ring.
    reject: Option<String>,
}

#[pymethods]
impl RingReader {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, consume: bool, max_events: usize) -> PyResult<Self> {
        let options = Options { consume, max_events };
        let reader = py.detach(|| Reader::open(&path, options)).map_err(raise)?;
        let batch = Batch::default();
        Ok(Self {
            state: Mutex::new(RingState { reader, batch }),
        })
    }

    fn read(&self, py: Python<'_>) -> PyResult<RingPoll> {
        let (poll, columns) = py.detach(|| {
            let mut state = self.state();
            let RingState { reader, batch } = &mut *state;
            let poll = reader.read(batch);
            (poll, Columns::of(batch))
        });
        let mut found = columns.poll(py);
        match poll.map_err(raise)? {
            Poll::Idle => {}
            Poll::Settling => found.status = "settling",
            Poll::Events(fill) => {
                (found.status, found.readable, found.full) = ("events", fill.readable, fill.full);
            }
            Poll::Reset { reason, lost } => {
                (found.status, found.reason, found.lost) = ("reset", Some(reason.reason().to_owned()), lost);
            }
            Poll::Unreadable(reject) => {
                (found.status, found.reason) = ("unreadable", Some(reject.to_string()));
            }
            Poll::Gone(reset) => (found.status, found.reason) = ("gone", Some(reset.reason().to_owned())),
        }
        Ok(found)
    }

    fn commit(&self, py: Python<'_>) -> bool {
        py.detach(|| self.state().reader.commit())
    }

    fn try_consume(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| self.state().reader.try_consume()).map_err(raise)
    }

    /// `(name, unit, category, status)` of each kind that this ring has given out, by its number.
    fn names(&self, py: Python<'_>) -> Vec<(String, &'static str, &'static str, Option<&'static str>)> {
        py.detach(|| {
            let state = self.state();
            let names = state.reader.names();
            let kinds = 0..u16::try_from(names.len()).unwrap_or(u16::MAX);
            kinds
                .map(|kind| {
                    let name = names.name(kind).to_owned();
                    (
                        name,
                        names.unit(kind),
                        names.category(kind).name(),
                        names.status(kind),
                    )
                })
                .collect()
        })
    }

    /// `(events, suspected_loss, resets, lost, unknown, overflow)` since it was opened.
    fn stats(&self, py: Python<'_>) -> (u64, u64, u64, u64, u64, u64) {
        let stats = py.detach(|| self.state().reader.stats());
        (
            stats.events,
            stats.suspected_loss,
            stats.resets,
            stats.lost,
            stats.unknown,
            stats.overflow,
        )
    }

    /// `(version, capacity, mode)`.
    fn geometry(&self, py: Python<'_>) -> (&'static str, u64, &'static str) {
        py.detach(|| {
            let state = self.state();
            let ring = state.reader.geometry();
            let mode = match state.reader.mode() {
                Mode::Consume => "consume",
                Mode::Peek => "peek",
                Mode::PeekLocked => "peek_locked",
            };
            (ring.layout.label(), ring.capacity, mode)
        })
    }
}

impl RingReader {
    fn state(&self) -> MutexGuard<'_, RingState> {
        // A panic in the reader leaves it as usable as a reset does.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Columns {
    kinds: Vec<u8>,
    values: Vec<u8>,
    timestamps: Vec<u8>,
}

impl Columns {
    fn of(batch: &Batch) -> Self {
        let wide = |column: &[u64]| column.iter().flat_map(|value| value.to_ne_bytes()).collect();
        Self {
            kinds: batch.kinds.iter().flat_map(|kind| kind.to_ne_bytes()).collect(),
            values: wide(&batch.values),
            timestamps: wide(&batch.timestamps_us),
        }
    }

    fn poll(&self, py: Python<'_>) -> RingPoll {
        let bytes = |column: &[u8]| PyBytes::new(py, column).unbind();
        RingPoll {
            status: "idle",
            reason: None,
            readable: 0,
            lost: 0,
            full: false,
            kinds: bytes(&self.kinds),
            values: bytes(&self.values),
            timestamps_us: bytes(&self.timestamps),
        }
    }
}

/// Looks at a file without touching it.
#[pyfunction]
pub(crate) fn inspect_ring(py: Python<'_>, path: PathBuf) -> PyResult<RingInspection> {
    let found = py.detach(|| inspect(&path)).map_err(raise)?;
    let ring = found.verdict.ok();
    Ok(RingInspection {
        version: ring.map(|ring| ring.layout.label()),
        capacity: ring.map_or(0, |ring| ring.capacity),
        readable: found.readable(),
        read_pos: found.header.read_pos,
        write_pos: found.header.write_pos,
        owner_uid: found.owner_uid,
        reject: found.verdict.err().map(|reject| reject.to_string()),
    })
}

pub(crate) fn raise(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Rejected { .. } => PyValueError::new_err(text),
        Error::PermissionDenied { .. } => PyPermissionError::new_err(text),
        Error::Io { source, .. } => match source.raw_os_error() {
            // With the number Python picks the class: FileNotFoundError and so on.
            Some(number) => PyOSError::new_err((number, text)),
            None => PyOSError::new_err(text),
        },
    }
}
