// SPDX-License-Identifier: Apache-2.0

//! A page of composites in shared memory: the gateway rewrites it in place, and any number of
//! processes of the same node read it in well under a microsecond, without a system call.
//!
//! - [`Page`] is the only writer. [`Page::publish`] sets all entries, frees the slots of missing ones and
//!   updates the heartbeat; a [`Round`] does the same entry by entry.
//! - [`Reader`] is for Rust, `c/tidegate_page.h` for C. A reader finds a slot once, by name and labels,
//!   and then reads that slot repeatedly.
//! - [`layout`] has every offset; `docs/page.md` has them as a table, with recipes for readers.
//!
//! Each slot is a sequence lock over 64-bit words. Every access to the map is atomic, so there is no
//! data race; the fences are those of Boehm, "Can seqlocks get along with programming language
//! memory models?" (2012). Readers write nothing: they cannot disturb the writer or each other.
//!
//! # The layout
//!
//! Little-endian. The header, 256 bytes:
//!
//! | offset | field | type | meaning |
//! | --- | --- | --- | --- |
//! | 0 | `magic` | 8 bytes | `TIDEPAGE` |
//! | 8 | `version` | u32 | 1; another one when an offset below changes |
//! | 12 | `header_size` | u32 | where the first slot is; 256, may grow |
//! | 16 | `capacity` | u32 | number of slots |
//! | 20 | `slot_size` | u32 | from slot to slot; 704, may grow |
//! | 24 | `boot` | u64 | drawn at random when the file is made, never 0 |
//! | 32 | | 32 bytes | zero |
//! | 64 | `heartbeat_ns` | u64 | when the writer last said that it lives; 0: not yet, or closed |
//! | 72 | | 56 bytes | zero |
//! | 128 | `layout_seq` | u64 | changes when an entry gets or loses a slot |
//! | 136 | `used` | u32 | slots in use |
//! | 140 | `high` | u32 | no slot from here on was ever in use |
//! | 144 | | 112 bytes | zero |
//!
//! A slot, 704 bytes:
//!
//! | offset | field | type | meaning |
//! | --- | --- | --- | --- |
//! | 0 | `lock` | u64 | odd while the slot is being written |
//! | 8 | `generation` | u64 | changes when the slot is given to an entry |
//! | 16 | `state` | u8 | 0 empty, 1 fresh, 2 idle, 3 stale, 4 partial, 5 absent |
//! | 17 | `quantiles` | u8 | how many quantiles there are, at most 4 |
//! | 18 | `flags` | u16 | which numbers there are: 1 value, 2 min, 4 avg, 8 max, 16 sum, 32 count, 64 last, 128 newest |
//! | 20 | `name_len` | u16 | bytes of the name |
//! | 22 | `labels_len` | u16 | bytes of the labels |
//! | 24 | `seq` | u64 | the writer's count of changes of this entry |
//! | 32 | `value` | f64 | |
//! | 40 | `min` | f64 | |
//! | 48 | `avg` | f64 | |
//! | 56 | `max` | f64 | |
//! | 64 | `sum` | f64 | |
//! | 72 | `count` | f64 | |
//! | 80 | `last` | f64 | |
//! | 88 | `window_ns` | u64 | length of the window |
//! | 96 | `as_of_ns` | u64 | when this was computed |
//! | 104 | `newest_ns` | u64 | when the newest value arrived |
//! | 112 | `sources_expected` | u32 | |
//! | 116 | `sources_reporting` | u32 | |
//! | 120 | | u64 | zero |
//! | 128 | `quantile_q` | 4 f64 | which quantile, 0 to 1 |
//! | 160 | `quantile_value` | 4 f64 | its value |
//! | 192 | `text` | 512 bytes | the name, the labels right behind it, zeros |
//!
//! Times are nanoseconds since the epoch. A number whose flag is not set is zero and means nothing.
//! A read takes three cache lines. A slot has an odd number of them, so that the lines that are read
//! spread over all sets of a cache.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

#[cfg(not(all(
    target_endian = "little",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("the page is little-endian, needs Linux, and 64-bit loads that work on read-only memory");

mod create;
mod entry;
mod error;
pub mod layout;
mod reader;
mod seqlock;
mod text;
mod writer;

pub use entry::{Entry, Snapshot, State};
pub use error::{Error, FindError, ReadError, Reject, SetError};
pub use reader::{Handle, Listed, Reader};
pub use text::canonical_labels;
pub use writer::{Page, Published, Round};
