// SPDX-License-Identifier: Apache-2.0

//! The guard of mappings: they survive the truncation of their file.
//!
//! Touching a page beyond the end of a mapped file raises SIGBUS, and any process that may write the
//! file can truncate it between our check of its size and our access. So each mapping is entered in
//! a table that a SIGBUS handler reads: a fault inside a listed mapping replaces that mapping by
//! anonymous zero pages and sets a flag; the faulting instruction is then repeated and reads zeros.
//! Any other fault goes to the handler that was there before ours, as if ours did not exist.
//!
//! The handler is put (back) in front whenever a mapping is made, so a library that installs its own
//! later (a fault handler of Python, a crash reporter) displaces it only until then.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};

use super::region::Backing;
use super::{READ_WRITE, map};

/// Most mappings at a time: ten times the rings of a large node. The handler scans the table, so it is
/// an array; 64 KiB of zero pages that only cost memory once used.
const MAX_MAPPINGS: usize = 4096;

/// The smallest page there is. Mappings begin on a multiple of it.
const PAGE_BYTES: u64 = 4096;

/// Bits of [`Range`] that count pages: mappings of up to 1 TiB, at addresses of up to 48 bits, which is all that Linux
/// gives without being asked for more.
const LENGTH_BITS: u32 = 28;

/// Where a mapping lies, in one number, so that the handler never reads the start of one mapping and the length of
/// another. Page number of the start, then the number of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range(u64);

impl Range {
    const FREE: u64 = 0;
    /// An entry is taken but maps nothing yet. No mapping begins at address 0.
    const RESERVED: u64 = 1;

    fn new(start: usize, len: usize) -> io::Result<Self> {
        let (page, pages) = (start as u64 / PAGE_BYTES, (len as u64).div_ceil(PAGE_BYTES));
        let fits = page < 1 << (u64::BITS - LENGTH_BITS) && pages < 1 << LENGTH_BITS;
        let too_long = || io::Error::other(format!("can't guard a mapping of {len} bytes at {start:#x}"));
        fits.then_some(Self(page << LENGTH_BITS | pages))
            .ok_or_else(too_long)
    }

    /// The addresses; none where nothing is mapped.
    fn addresses(self) -> std::ops::Range<usize> {
        let (page, pages) = (self.0 >> LENGTH_BITS, self.0 & ((1 << LENGTH_BITS) - 1));
        let start = (page * PAGE_BYTES) as usize;
        match page {
            0 => 0..0,
            _ => start..start.saturating_add((pages * PAGE_BYTES) as usize),
        }
    }
}

struct MappingEntry {
    /// A [`Range`], [`Range::FREE`] or [`Range::RESERVED`].
    range: AtomicU64,
    faulted: AtomicBool,
    /// Whether the mapping takes writes. The zero pages of one that takes none cost no promised memory, so the system
    /// gives them even where it promises no more than it has.
    writable: AtomicBool,
}

static TABLE: [MappingEntry; MAX_MAPPINGS] = [const {
    MappingEntry {
        range: AtomicU64::new(Range::FREE),
        faulted: AtomicBool::new(false),
        writable: AtomicBool::new(false),
    }
}; MAX_MAPPINGS];

/// An entry of the table, for one mapping. A drop gives it back, which must happen before the range is unmapped.
pub(super) struct Guard(&'static MappingEntry);

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("faulted", &self.faulted()).finish()
    }
}

impl Guard {
    /// Takes an entry, which guards nothing yet.
    pub(super) fn reserve() -> io::Result<Guard> {
        install_handler()?;
        let free = TABLE.iter().find(|entry| {
            let range = &entry.range;
            range.load(Ordering::Relaxed) == Range::FREE
                && range
                    .compare_exchange(Range::FREE, Range::RESERVED, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        });
        let full = || {
            io::Error::other(format!(
                "more than {MAX_MAPPINGS} rings, stores and pages are open"
            ))
        };
        free.map(Guard).ok_or_else(full)
    }

    /// Guards the range from now on.
    pub(super) fn arm(&self, start: usize, len: usize, writable: bool) -> io::Result<()> {
        let range = Range::new(start, len)?;
        self.0.faulted.store(false, Ordering::Relaxed);
        self.0.writable.store(writable, Ordering::Relaxed);
        self.0.range.store(range.0, Ordering::Release);
        Ok(())
    }

    /// Whether a fault replaced the range.
    pub(super) fn faulted(&self) -> bool {
        self.0.faulted.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.range.store(Range::FREE, Ordering::Release);
    }
}

impl MappingEntry {
    /// In the handler: if `address` lies in this mapping, puts zero pages in its place.
    fn absorb(&self, address: usize) -> bool {
        let addresses = Range(self.range.load(Ordering::Acquire)).addresses();
        if !addresses.contains(&address) {
            return false;
        }
        let is_writable = self.writable.load(Ordering::Relaxed);
        let protection = if is_writable { READ_WRITE } else { libc::PROT_READ };
        // SAFETY: the faulting thread borrows the `Mapping` that holds `address`, which can't be dropped meanwhile. The
        // range is that mapping's: one load gave both ends of it. An entry that held the address before was released
        // before its range was unmapped, so before the system gave the range to this mapping. The kernel maps whole
        // pages, so the last page is this mapping's too. One system call, allowed here.
        let replaced = unsafe {
            let start = ptr::without_provenance_mut(addresses.start);
            map(
                start,
                addresses.len(),
                Backing::Anonymous,
                protection,
                libc::MAP_FIXED,
            )
        };
        if replaced.is_ok() {
            self.faulted.store(true, Ordering::Release);
        }
        replaced.is_ok()
    }
}

/// The handler that ours goes before; null until ours is in place.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// The thread that is inside [`PREVIOUS`] on our behalf: a handler that chains back to us would
/// loop forever.
static CHAINING_THREAD: AtomicI32 = AtomicI32::new(0);

/// Takes no lock: a fork may copy it while it is held, and the child would wait forever. Threads that meet here note the
/// same handler before ours.
fn install_handler() -> io::Result<()> {
    let current = sigaction(None)?;
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_sigbus;
    if current.sa_sigaction == handler as usize {
        return Ok(());
    }
    // Never freed, since a handler may be reading it: one small leak each time another library
    // puts its handler before ours.
    PREVIOUS.store(Box::into_raw(Box::new(current)), Ordering::Release);
    // SAFETY: sigaction is a plain structure of the C library for which zeros are valid.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = handler as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    sigaction(Some(&ours)).map(drop)
}

/// Sets the action of SIGBUS, if given, and returns the one before.
fn sigaction(new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let mut old = MaybeUninit::uninit();
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `new` is null or valid, `old` has room for the answer.
    match unsafe { libc::sigaction(libc::SIGBUS, new, old.as_mut_ptr()) } {
        // SAFETY: filled in by the successful call.
        0 => Ok(unsafe { old.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Async-signal-safe: atomics and system calls only.
extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo to handlers set with SA_SIGINFO.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // Codes above 0 come from the kernel, others from kill(2), without an address.
    let is_fault = code > 0;
    if is_fault && TABLE.iter().any(|entry| entry.absorb(address)) {
        return;
    }
    chain(signal, info, context, is_fault);
}

fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, is_fault: bool) {
    // SAFETY: null, or leaked by `install_handler` and never written again.
    let previous = unsafe { PREVIOUS.load(Ordering::Acquire).as_ref() };
    // SAFETY: no arguments, no memory.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) } as i32; // thread ids are 32 bits
    let (handler, flags) = previous.map_or((libc::SIG_DFL, 0), |p| (p.sa_sigaction, p.sa_flags));
    if handler == libc::SIG_IGN && !is_fault {
        return;
    }
    let no_handler = handler == libc::SIG_DFL || handler == libc::SIG_IGN;
    if no_handler || CHAINING_THREAD.load(Ordering::Relaxed) == thread {
        return die(signal);
    }
    CHAINING_THREAD.store(thread, Ordering::Relaxed);
    if flags & libc::SA_SIGINFO != 0 {
        // SAFETY: an action with SA_SIGINFO holds a function of this type.
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
            unsafe { std::mem::transmute(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: an action without SA_SIGINFO holds a function of this type.
        let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
        handler(signal);
    }
    CHAINING_THREAD.store(0, Ordering::Relaxed);
}

/// Does the default action of the system: the raised signal ends the process when we return.
fn die(signal: c_int) {
    // SAFETY: zeros are the default action with no flags and an empty mask.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    // Neither call can fail for SIGBUS, and no caller could handle an error.
    let _ = sigaction(Some(&default));
    // SAFETY: raise takes a number and no memory.
    unsafe { libc::raise(signal) };
}

#[cfg(test)]
mod tests;
