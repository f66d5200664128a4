// SPDX-License-Identifier: Apache-2.0

//! Which NIXL has loaded us: its version decides how an event lies in memory, and the plugin interface doesn't say.
//!
//! NIXL 1.1 and 1.2 accept a plugin as 1.3 and later do, but hand over other events (the layouts 2a and 2b of rings). A
//! function that every release exports tells them apart: its C++ name spells out the parts of an event.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int, c_void};

use tidegate_ring::Layout;

/// `nixlTelemetry::updateData` as it was, and what events were then. Since 1.3 it has a type and a value.
const OLD: [(&CStr, Layout); 2] = [
    (
        c"_ZN13nixlTelemetry10updateDataERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE25nixl_telemetry_category_tm",
        Layout::V2a,
    ),
    (
        c"_ZN13nixlTelemetry10updateDataE27nixl_telemetry_event_type_t25nixl_telemetry_category_tm",
        Layout::V2b,
    ),
];

const LIBRARY: &[u8] = b"libnixl.so";

/// The layout of this process's events.
pub(crate) fn layout() -> Layout {
    let mut libraries: Vec<CString> = Vec::new();
    // SAFETY: the callback takes what it is given as what it is: `libraries`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut libraries).cast()) };
    // Only now, as the walk holds a lock of the linker's that comes after the one that this takes.
    let old = libraries.iter().find_map(|library| old_layout(library));
    old.unwrap_or(Layout::V4)
}

/// Notes one loaded library if it is NIXL's; 0 goes on with the walk.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, libraries: *mut c_void) -> c_int {
    // SAFETY: the linker's description of a library, valid for the call; its name is null or a C string. The vector
    // is that of `layout()`, and has no other user now.
    let (name, libraries) = unsafe {
        match (*info).dlpi_name {
            name if name.is_null() => return 0,
            name => (CStr::from_ptr(name), &mut *libraries.cast::<Vec<CString>>()),
        }
    };
    let file = name.to_bytes().rsplit(|byte| *byte == b'/').next();
    if file.is_some_and(|file| file.starts_with(LIBRARY)) {
        libraries.push(name.to_owned());
    }
    0
}

fn old_layout(library: &CStr) -> Option<Layout> {
    // SAFETY: plain calls of the linker. With RTLD_NOLOAD nothing is loaded and no code of the library runs; the
    // handle is closed below, and the library is loaded by others before and after.
    unsafe {
        let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() {
            return None;
        }
        let has = |symbol: &CStr| !libc::dlsym(handle, symbol.as_ptr()).is_null();
        let found = OLD.iter().find(|(symbol, _)| has(symbol));
        libc::dlclose(handle);
        found.map(|(_, layout)| *layout)
    }
}
