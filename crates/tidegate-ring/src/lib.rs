// SPDX-License-Identifier: Apache-2.0

//! NIXL telemetry in shared memory: ring files (versions 1, 2a, 2b, 3, 4 and the proposed 5) and
//! multi-process stores (`nixl.*.mmap`), read and written byte for byte. No async, no gateway types.
//!
//! Everything in these files is outside data: another process owns it, may die half-way, restart
//! in place, or truncate the file under us. So slots are copied out with `pread` and checked in our
//! own memory, only headers and stores are mapped, and a guard turns a fault in such a mapping
//! into zeros plus a flag (`tidegate_shm::Mapping`), which the reader counts as a reset.
//!
//! - [`Reader`] drains or peeks a ring into a reusable [`Batch`] of columns; reading and advancing
//!   are separate steps, so events that the caller cannot take stay in the ring.
//! - [`Writer`] is a producer of any version, for simulation, tests and benches.
//! - [`MpStore`] and [`MpStoreWriter`] are the same pair for multi-process stores.
//! - [`kind`] names the event kinds, [`layout`] the bytes.

#![forbid(unsafe_code)]

#[cfg(not(all(target_endian = "little", target_os = "linux")))]
compile_error!("NIXL's files are little-endian, and reading them safely needs Linux");

mod decode;
mod error;
pub mod kind;
pub mod layout;
mod mp;
mod open;
mod reader;
mod writer;

pub use decode::Batch;
pub use error::Error;
pub use kind::{Category, KINDS, KNOWN_KINDS, Metric, Names, NixlKind};
pub use layout::{Geometry, Layout, RawHeader, Reject};
pub use mp::writer::{DEFAULT_BOUNDS_US, MpStoreWriter};
pub use mp::{Histogram, MpStore, Snapshot, StoreIdentity};
pub use open::{Inspection, inspect};
pub use reader::{DEFAULT_MAX_EVENTS, Fill, Mode, Options, Poll, Reader, Reset, Stats};
pub use tidegate_shm::FileId;
pub use writer::{Event, Writer};
