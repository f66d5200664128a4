// SPDX-License-Identifier: Apache-2.0

//! Files in shared memory: open, check, lock, reserve and map them.
//!
//! - [`open`] refuses all but regular files. [`FileId`], [`try_lock`] and [`is_locked`] say whose file it is. A
//!   [`LockHolder`] releases its lock for all copies of its descriptor.
//! - [`PinnedDirectory`] stays the same directory, although its path may lead elsewhere meanwhile.
//! - [`Mapping`] maps a file of another process. It is guarded: it survives the truncation of its file.
//! - [`reserve`] gives a new file its memory, and [`Region`] maps it. A region has no guard, for its file is this
//!   process' own. It can get other memory at the same addresses, so cells stay valid after a fork.
//!
//! All `unsafe` code is in the module `map`. Every access to shared memory is atomic, or a copy into memory that no
//! reader looks at yet.

#![deny(missing_docs, unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("the reservation of memory and the guard of mappings need Linux");

mod file;
mod map;

pub use file::{
    FileId, LockHolder, OpenError, PinnedDirectory, is_locked, is_too_many_open, open, read_at, reserve,
    try_lock,
};
pub use map::fork::at_fork;
pub use map::mapping::{Loads, Mapping};
pub use map::region::{Backing, Pinned, Region, Slot};
pub use map::system::{memory_file, open_files_limit, user_id};
