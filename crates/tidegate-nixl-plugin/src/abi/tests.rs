// SPDX-License-Identifier: Apache-2.0

//! A host in Rust that knows of the plugin what NIXL does: addresses and offsets.

#![allow(
    clippy::cast_ptr_alignment,
    reason = "structures of C++ lie in aligned memory"
)]

use std::sync::Mutex;

use super::*;

/// Notes what it is called with, and panics on request.
struct Probe {
    agent: String,
}

static CALLS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static PROBE: Shared = Shared::new::<Probe>(&PROBE);

impl Drop for Probe {
    fn drop(&mut self) {
        note(format!("{} freed", self.agent));
        assert!(self.agent != "bad drop", "in drop");
    }
}

fn note(call: String) {
    CALLS.lock().unwrap().push(call);
}

impl Exporter for Probe {
    fn new(agent: String) -> Self {
        assert!(agent != "bad new", "in new");
        Self { agent }
    }

    fn export(&self, kind: u16, value: u64) {
        if value == 13 {
            // A payload whose own destructor panics.
            std::panic::panic_any(Probe {
                agent: "bad drop".to_owned(),
            });
        }
        note(format!("{} {kind} {value}", self.agent));
    }

    fn end(self, failed: u64) {
        note(format!("{} ends, {failed} failed", self.agent));
        assert!(self.agent != "bad end", "in end");
    }
}

/// An agent's exporter, reached as C++ does: by offsets.
struct Host(*mut c_void);

impl Host {
    fn new(name: &[u8]) -> Self {
        let plugin = PROBE.plugin().cast::<u8>();
        let params = [name.as_ptr() as usize, name.len(), 0, 0, 4096];
        let mut place = ptr::null_mut();
        // SAFETY: the layout of `nixlTelemetryPlugin` and `InitParams`.
        unsafe {
            assert_eq!(plugin.cast::<u32>().read(), 2);
            let create = plugin.add(8).cast::<Create>().read();
            let returned = create(&raw mut place, params.as_ptr().cast());
            assert!(ptr::eq(returned, &raw const place), "the place is returned");
        }
        Self(place)
    }

    fn slot<F: Copy>(&self, index: usize) -> F {
        // SAFETY: an object starts with the address of its functions; `F` is what the slot holds.
        unsafe {
            let functions = self.0.cast::<*const *const c_void>().read();
            functions.add(index).cast::<F>().read()
        }
    }

    fn call(&self, index: usize) {
        let function: unsafe extern "C" fn(*mut c_void) = self.slot(index);
        // SAFETY: such is the function of every slot but 2.
        unsafe { function(self.0) };
    }

    fn export(&self, kind: u32, value: u64) {
        let event = [u64::from(kind) | 0xdead_beef << 32, value];
        let export: unsafe extern "C" fn(*mut c_void, *const u8) -> c_int = self.slot(2);
        // SAFETY: an event of NIXL 1.3 and later.
        assert_eq!(unsafe { export(self.0, event.as_ptr().cast()) }, 0);
    }
}

fn calls_of(agent: &str) -> Vec<String> {
    let calls = CALLS.lock().unwrap();
    let of_agent = |call: &&String| call.strip_prefix(agent).is_some_and(|rest| rest.starts_with(' '));
    let of_agent = calls.iter().filter(of_agent);
    of_agent.map(|call| call[agent.len() + 1..].to_owned()).collect()
}

#[test]
fn the_plugin_gives_its_identity_in_owned_strings() {
    let plugin = PROBE.plugin().cast::<u8>();
    for (offset, text) in [(16, "tidegate"), (48, env!("CARGO_PKG_VERSION"))] {
        // SAFETY: both strings are within the plugin's 80 bytes.
        let string = unsafe { &*plugin.add(offset).cast::<StdString>() };
        assert_eq!(string.data, (&raw const string.local).cast());
        // SAFETY: it points to its own bytes.
        assert_eq!(unsafe { string.text() }, text);
        assert_eq!(string.local[text.len()], 0, "C strings end");
    }
}

#[test]
fn an_agent_is_made_fed_through_the_vtable_and_deleted() {
    let host = Host::new("a/\u{e4} b".as_bytes());
    // SAFETY: the second word of an exporter.
    assert_eq!(unsafe { host.0.cast::<usize>().add(1).read() }, 4096);
    host.call(3);
    host.export(6, u64::MAX);
    host.export(20, 7);
    host.export(21, 1);
    host.export(u32::MAX, 2);
    host.call(4);
    host.call(1);
    let expected = [
        &format!("6 {}", u64::MAX),
        "20 7",
        "21 1",
        "21 2",
        "ends, 0 failed",
        "freed",
    ];
    assert_eq!(calls_of("a/\u{e4} b"), expected);
}

#[test]
fn names_may_be_anything() {
    Host::new(b"").call(1);
    let not_utf8 = Host::new(b"\xff\xfe");
    not_utf8.export(0, 1);
    not_utf8.call(1);
    assert_eq!(calls_of("\u{fffd}\u{fffd}"), ["0 1", "ends, 0 failed", "freed"]);
    let long = Host::new(&[b'l'; 100_000]);
    long.call(1);
    assert_eq!(calls_of(&"l".repeat(MAX_NAME)), ["ends, 0 failed", "freed"]);
    // SAFETY: null is allowed.
    let null = unsafe {
        StdString {
            data: ptr::null(),
            len: 5,
            local: [0; 16],
        }
        .text()
    };
    assert_eq!(null, "");
}

#[test]
fn destroyed_and_then_deleted_it_ends_once() {
    let host = Host::new(b"twice");
    host.call(0);
    host.export(0, 1);
    host.call(1);
    assert_eq!(calls_of("twice"), ["ends, 0 failed", "freed"]);
}

#[test]
fn no_panic_gets_out_and_each_is_counted() {
    let host = Host::new(b"bad");
    for value in [1, 13, 2, 13, 13] {
        host.export(4, value);
    }
    host.call(1);
    assert_eq!(calls_of("bad"), ["4 1", "4 2", "ends, 3 failed", "freed"]);

    let host = Host::new(b"bad new");
    host.export(0, 1);
    host.call(1);
    assert_eq!(calls_of("bad new"), [""; 0]);

    let host = Host::new(b"bad end");
    host.call(1);
    assert_eq!(calls_of("bad end"), ["ends, 0 failed", "freed"]);
}

#[test]
fn an_event_that_is_none_is_counted() {
    let host = Host::new(b"null");
    let export: unsafe extern "C" fn(*mut c_void, *const u8) -> c_int = host.slot(2);
    // SAFETY: null is allowed.
    assert_eq!(unsafe { export(host.0, ptr::null()) }, 0);
    host.call(1);
    assert_eq!(calls_of("null"), ["ends, 1 failed", "freed"]);
}
