// SPDX-License-Identifier: Apache-2.0

//! NIXL's plugin interface (API version 2) as it lies in memory: C++ objects that a C++ host calls through.
//!
//! All of it is what the Itanium C++ ABI and libstdc++ make of NIXL's classes on 64-bit machines:
//!
//! | object | layout |
//! | --- | --- |
//! | `std::string`, 32 bytes | characters @0, length @8, 16 bytes of its own @16 (short text, or the capacity) |
//! | `nixlTelemetryPlugin`, 80 bytes | u32 API version @0, `create_exporter` @8, name @16, version @48 |
//! | `InitParams`, 40 bytes | agent's name @0, size of the agent's queue @32 |
//! | exporter | vtable @0, size of the queue @8; whatever follows is ours |
//! | vtable | destructor, deleting destructor, `exportEvent`, `onBatchBegin`, `onBatchEnd` |
//!
//! The last two slots came with NIXL 1.5 under the same API version: a newer host always calls them, and an older one
//! never does. `create_exporter` returns a `std::unique_ptr`: the caller passes the place for it.
//!
//! Nothing unwinds into the host, and no memory crosses: the host reads our strings and objects and we read its own, and
//! what we allocate we free (in the deleting destructor, as C++ has it). An event is read as bytes of the size that
//! this host's events have ([`host`](crate::host)), because parts of it are never initialised.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_ring::Layout;

use crate::host;

#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
compile_error!("every architecture passes the address of a returned unique_ptr in another register");

/// The version of the interface that NIXL 1.1 to 1.5 ask for; others refuse the plugin.
const API_VERSION: u32 = 2;

/// The most bytes of an agent's name that are kept.
const MAX_NAME: usize = 1024;

/// The longest event that a host hands over.
const MAX_EVENT: usize = 48;

/// A receiver of the events of one agent.
pub(crate) trait Exporter: Sized {
    /// The exporter of an agent.
    fn new(agent: String) -> Self;

    /// An event of a kind of [`KINDS`](tidegate_ring::KINDS). The host calls from one thread at a time.
    fn export(&self, kind: u16, value: u64);

    /// The agent has ended; `failed` events were lost in calls that panicked.
    fn end(self, failed: u64);
}

/// libstdc++'s string. Only read: the host's by us, ours by the host.
#[repr(C)]
struct StdString {
    data: *const u8,
    len: usize,
    local: [u8; 16],
}

impl StdString {
    /// A text of at most 15 bytes, stored in the string itself at `local`, as libstdc++ stores short ones: destroying
    /// it would free nothing.
    const fn short(text: &str, local: *const u8) -> Self {
        let mut bytes = [0; 16];
        let (head, _) = bytes.split_at_mut(text.len());
        head.copy_from_slice(text.as_bytes());
        Self {
            data: local,
            len: text.len(),
            local: bytes,
        }
    }

    /// Its text; bytes that are not UTF-8 are replaced, and bytes beyond [`MAX_NAME`] cut.
    ///
    /// # Safety
    /// `data` is null or points to `len` bytes.
    unsafe fn text(&self) -> String {
        if self.data.is_null() {
            return String::new();
        }
        // SAFETY: of `len` bytes that are there at most as many.
        let bytes = unsafe { std::slice::from_raw_parts(self.data, self.len.min(MAX_NAME)) };
        String::from_utf8_lossy(bytes).into_owned()
    }
}

/// `InitParams`.
#[repr(C)]
struct InitParams {
    agent_name: StdString,
    max_events: usize,
}

type Create = unsafe extern "C" fn(*mut *mut c_void, *const InitParams) -> *mut *mut c_void;

/// `nixlTelemetryPlugin`.
#[repr(C)]
pub struct Plugin {
    api_version: u32,
    create: Create,
    name: StdString,
    version: StdString,
}

const _: () = assert!(size_of::<Plugin>() == 80 && size_of::<InitParams>() == 40);

/// The plugin, in memory that may be written: the host has a pointer that isn't const.
pub(crate) struct Shared(UnsafeCell<Plugin>);

// SAFETY: we never touch it once it is made, and the pointers in it point to what lives forever.
unsafe impl Sync for Shared {}

impl Shared {
    /// The plugin whose exporters are `E`, at the place `this`.
    pub(crate) const fn new<E: Exporter>(this: &'static Shared) -> Self {
        let plugin = this.0.get();
        // SAFETY: addresses only, of fields of a static; nothing is read.
        let (name, version) = unsafe {
            (
                &raw const (*plugin).name.local,
                &raw const (*plugin).version.local,
            )
        };
        Self(UnsafeCell::new(Plugin {
            api_version: API_VERSION,
            create: entry::<E>,
            name: StdString::short("tidegate", name.cast()),
            version: StdString::short(env!("CARGO_PKG_VERSION"), version.cast()),
        }))
    }

    pub(crate) fn plugin(&self) -> *mut Plugin {
        self.0.get()
    }
}

/// The image of a vtable; an object points to its first function.
#[repr(C)]
struct Vtable {
    offset_to_top: isize,
    /// None: no code asks for the type of an exporter.
    type_info: usize,
    functions: Functions,
}

#[repr(C)]
struct Functions {
    destroy: unsafe extern "C" fn(*mut c_void),
    delete: unsafe extern "C" fn(*mut c_void),
    export: unsafe extern "C" fn(*mut c_void, *const u8) -> c_int,
    batch_begin: unsafe extern "C" fn(*mut c_void),
    batch_end: unsafe extern "C" fn(*mut c_void),
}

/// An exporter as the host sees it, and ours behind it.
#[repr(C)]
struct Object<E> {
    functions: &'static Functions,
    max_events: usize,
    /// None where making it has panicked, and once it is destroyed.
    exporter: Option<E>,
    layout: Layout,
    /// Events lost because `exporter` is none or has panicked.
    failed: AtomicU64,
}

impl<E: Exporter> Object<E> {
    const VTABLE: &'static Vtable = &Vtable {
        offset_to_top: 0,
        type_info: 0,
        functions: Functions {
            destroy: destroy::<E>,
            delete: delete::<E>,
            export: export::<E>,
            batch_begin: nothing,
            batch_end: nothing,
        },
    };

    fn new(agent: String, max_events: usize) -> Box<Self> {
        Box::new(Self {
            functions: &Self::VTABLE.functions,
            max_events,
            exporter: caught(|| E::new(agent)),
            layout: caught(host::layout).unwrap_or(Layout::V4),
            failed: AtomicU64::new(0),
        })
    }

    fn export(&self, event: &[u8]) {
        let exported = caught(|| {
            let (kind, value) = self.layout.event(event)?;
            self.exporter.as_ref()?.export(kind, value);
            Some(())
        });
        if exported.flatten().is_none() {
            self.failed.fetch_add(1, Relaxed);
        }
    }

    fn end(&mut self) {
        let failed = *self.failed.get_mut();
        if let Some(exporter) = self.exporter.take() {
            caught(|| exporter.end(failed));
        }
    }
}

/// `create_exporter` for callers that hand over the place of the result as if it were a first argument.
#[cfg(target_arch = "x86_64")]
use create as entry;

/// `create_exporter` for callers that hand over the place of the result in a register of its own.
///
/// # Safety
/// That of [`create`], where `x8` is `place`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn entry<E: Exporter>(_: *mut *mut c_void, _: *const InitParams) -> *mut *mut c_void {
    std::arch::naked_asm!("mov x1, x0", "mov x0, x8", "b {create}", create = sym create::<E>)
}

/// `nixlTelemetryPlugin::create_exporter`: never null, as that would fail the agent.
///
/// # Safety
/// Called by NIXL: `place` is where a pointer goes, `params` are valid for the call.
unsafe extern "C" fn create<E: Exporter>(
    place: *mut *mut c_void,
    params: *const InitParams,
) -> *mut *mut c_void {
    // SAFETY: of the caller; its string is a valid one.
    let (agent, max_events) = unsafe { (caught(|| (*params).agent_name.text()), (*params).max_events) };
    let object = Box::into_raw(Object::<E>::new(agent.unwrap_or_default(), max_events));
    // SAFETY: of the caller.
    unsafe { place.write(object.cast()) };
    place
}

/// `exportEvent`.
///
/// # Safety
/// Called by NIXL: `object` is of [`create`] and not deleted yet, `event` is one of the host's.
unsafe extern "C" fn export<E: Exporter>(object: *mut c_void, event: *const u8) -> c_int {
    // SAFETY: of the caller. It has no other reference: nothing but `destroy` and `delete` makes an exclusive one.
    let object = unsafe { &*object.cast::<Object<E>>() };
    let mut bytes = [0; MAX_EVENT];
    let size = if event.is_null() {
        0
    } else {
        object.layout.event_size().min(MAX_EVENT)
    };
    // SAFETY: the host's events have this size, and `bytes` has room for it.
    unsafe { ptr::copy_nonoverlapping(event, bytes.as_mut_ptr(), size) };
    object.export(&bytes[..size]);
    0
}

/// The destructor, for an object whose memory another function frees.
///
/// # Safety
/// Called by NIXL: `object` is of [`create`] and not in use, and only `delete` follows.
unsafe extern "C" fn destroy<E: Exporter>(object: *mut c_void) {
    // SAFETY: of the caller.
    unsafe { (*object.cast::<Object<E>>()).end() };
}

/// The deleting destructor.
///
/// # Safety
/// Called by NIXL, once: `object` is of [`create`] and no longer in use.
unsafe extern "C" fn delete<E: Exporter>(object: *mut c_void) {
    // SAFETY: of the caller; `create` made it from a box.
    let mut object = unsafe { Box::from_raw(object.cast::<Object<E>>()) };
    object.end();
}

/// `onBatchBegin` and `onBatchEnd`: every event is in its cells when `exportEvent` returns.
unsafe extern "C" fn nothing(_object: *mut c_void) {}

/// The result of `body`, or `None` if it panics; the panic hook has printed the reason.
fn caught<T>(body: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => Some(result),
        Err(payload) => {
            // Its destructor may panic as well.
            std::mem::forget(payload);
            None
        }
    }
}

#[cfg(test)]
mod tests;
