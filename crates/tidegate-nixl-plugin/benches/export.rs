// SPDX-License-Identifier: Apache-2.0

//! The cost of an event in NIXL's export thread: called as C++ calls it.

#![allow(
    clippy::cast_ptr_alignment,
    reason = "structures of C++ lie in aligned memory"
)]

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::ptr;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

type Create = unsafe extern "C" fn(*mut *mut c_void, *const [usize; 5]) -> *mut *mut c_void;
type Export = unsafe extern "C" fn(*mut c_void, *const [u64; 2]) -> c_int;

/// Events of a transfer in NIXL's order: its times, its bytes, itself.
const TRANSFER: [[u64; 2]; 4] = [[7, 11], [6, 140], [0, 4096], [2, 1]];

/// An exporter and its `exportEvent`.
fn exporter(agent: &str) -> (*mut c_void, Export) {
    let plugin = telemetry_exporter_tidegate::nixl_telemetry_plugin_init().cast::<u8>();
    let params = [agent.as_ptr() as usize, agent.len(), 0, 0, 4096];
    let mut exporter = ptr::null_mut();
    // SAFETY: the layouts of the plugin interface.
    unsafe {
        plugin.add(8).cast::<Create>().read()(&raw mut exporter, &raw const params);
        let functions = exporter.cast::<*const Export>().read();
        (exporter, functions.add(2).read())
    }
}

fn export(c: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // SAFETY: no other thread is there yet.
    unsafe { std::env::set_var("TIDEGATE_CELLS_DIR", directory.path()) };
    let (exporter, export) = exporter("agent");
    let mut group = c.benchmark_group("export");
    group.throughput(Throughput::Elements(TRANSFER.len() as u64));
    group.bench_function("the four events of a transfer", |b| {
        b.iter(|| {
            for event in &TRANSFER {
                // SAFETY: an exporter that lives, and an event.
                unsafe { export(black_box(exporter), event) };
            }
        });
    });
    group.finish();
}

criterion_group!(benches, export);
criterion_main!(benches);
