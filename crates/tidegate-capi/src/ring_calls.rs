// SPDX-License-Identifier: Apache-2.0

//! NIXL's telemetry rings: finding, opening and reading them.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_void};
use std::path::Path;

use tidegate_ring::{DEFAULT_MAX_EVENTS, Mode, Options, inspect};

use crate::arguments::{borrow, give, output, release, retain, text};
use crate::ring::{
    NO_INFO, NOTHING, tg_ring, tg_ring_batch, tg_ring_found_fn, tg_ring_info, tg_ring_kind, tg_ring_mode,
    tg_ring_stats,
};
use crate::status::{Failure, guard, terminated, tg_status};

/// Opens a ring. With `consume` it takes the place of the ring's consumer, of which there is one; a ring that has one
/// is only peeked into until tg_ring_try_consume() succeeds. A read takes at most `max_events`; 0: 65536. TG_INVALID:
/// the file is not a ring; it is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_ring_open(
    path: *const c_char,
    consume: bool,
    max_events: usize,
    ring: *mut *mut tg_ring,
) -> tg_status {
    let open = || {
        // SAFETY: the contract of the header.
        let path = unsafe { text(path, "path") }?;
        let max_events = match max_events {
            0 => DEFAULT_MAX_EVENTS,
            max_events => max_events,
        };
        tg_ring::open(path, Options { consume, max_events })
    };
    // SAFETY: the contract of the header.
    guard(|| unsafe { give(ring, open) })
}

/// Tells `found` every ring in a directory, by name (agents name their files); it skips other files. Nothing is locked
/// or moved.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_ring_find(
    directory: *const c_char,
    found: tg_ring_found_fn,
    context: *mut c_void,
) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header.
        let directory = unsafe { text(directory, "directory") }?;
        let found = found.ok_or_else(|| Failure::null("found"))?;
        let entries = Path::new(directory).read_dir()?;
        let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        for path in paths {
            // A file that ended meanwhile, or is none of ours, is none of a caller's concern.
            let Ok(inspection) = inspect(&path) else { continue };
            let (Ok(ring), Some(path)) = (inspection.verdict, path.to_str()) else {
                continue;
            };
            let info = tg_ring_info {
                readable: inspection.readable(),
                owner_uid: inspection.owner_uid,
                ..tg_ring_info::of(ring)
            };
            // SAFETY: the function takes this, and all of it lives until it returns.
            unsafe { found(terminated(path).as_ptr(), &raw const info, context) };
        }
        Ok(())
    })
}

/// Copies out the events that wait. Without tg_ring_commit() the next read begins with the same events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_ring_read(ring: *const tg_ring, batch: *mut tg_ring_batch) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let batch = unsafe { output(batch, NOTHING, "batch") }?;
        *batch = unsafe { borrow(ring, "ring") }?.lock().read()?;
        Ok(())
    })
}

/// Moves past the events of the last read, and hands their slots back to the producer. TG_NONE: the ring was restarted
/// meanwhile, so that there is nothing to hand back; the events count as accepted either way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_ring_commit(ring: *const tg_ring) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header.
        let is_committed = unsafe { borrow(ring, "ring") }?.lock().reader.commit();
        if is_committed {
            Ok(())
        } else {
            Err(Failure::none("the ring was restarted meanwhile"))
        }
    })
}

/// Tries again to become the consumer; TG_NONE: another one still is, or it was opened to peek.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_ring_try_consume(ring: *const tg_ring) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header.
        let is_consumer = unsafe { borrow(ring, "ring") }?.lock().reader.try_consume()?;
        if is_consumer {
            Ok(())
        } else {
            Err(Failure::none("it is not the consumer"))
        }
    })
}

/// Gives the meaning of a number in `kinds`, which stays the same as long as the ring. TG_NONE: the ring did not give
/// out this number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_ring_kind_of(
    ring: *const tg_ring,
    number: u16,
    kind: *mut tg_ring_kind,
) -> tg_status {
    guard(|| {
        let nothing = std::ptr::null();
        let none = tg_ring_kind {
            name: nothing,
            unit: nothing,
            category: nothing,
            status: nothing,
        };
        // SAFETY: the contract of the header, here and below.
        let kind = unsafe { output(kind, none, "kind") }?;
        *kind = unsafe { borrow(ring, "ring") }?.lock().kind(number)?;
        Ok(())
    })
}

/// Totals since it was opened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_ring_get_stats(ring: *const tg_ring, stats: *mut tg_ring_stats) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let to = unsafe { output(stats, tg_ring_stats::default(), "stats") }?;
        let stats = unsafe { borrow(ring, "ring") }?.lock().reader.stats();
        *to = tg_ring_stats {
            events: stats.events,
            suspected_loss: stats.suspected_loss,
            resets: stats.resets,
            lost: stats.lost,
            unknown: stats.unknown,
            overflow: stats.overflow,
        };
        Ok(())
    })
}

/// Gives the description of the ring. (Reads report `readable`.)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_ring_get_info(ring: *const tg_ring, info: *mut tg_ring_info) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let to = unsafe { output(info, NO_INFO, "info") }?;
        let state = unsafe { borrow(ring, "ring") }?.lock();
        let mode = match state.reader.mode() {
            Mode::Consume => tg_ring_mode::TG_RING_CONSUME,
            Mode::Peek => tg_ring_mode::TG_RING_PEEK,
            Mode::PeekLocked => tg_ring_mode::TG_RING_PEEK_LOCKED,
        };
        *to = tg_ring_info {
            mode: mode as u32,
            owner_uid: state.reader.owner_uid(),
            ..tg_ring_info::of(state.reader.geometry())
        };
        Ok(())
    })
}

/// One owner more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_ring_retain(ring: *const tg_ring) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { retain(ring) }
}

/// One owner less. With the last one its place as the consumer is free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_ring_release(ring: *const tg_ring) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { release(ring) }
}
