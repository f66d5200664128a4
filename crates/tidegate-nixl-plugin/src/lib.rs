// SPDX-License-Identifier: Apache-2.0

//! A telemetry exporter for NIXL (`NIXL_TELEMETRY_EXPORTER=tidegate`): each event becomes additions to cells in shared
//! memory, which outlive the agent and which tidegate reads.
//!
//! Unlike NIXL's ring it can't overflow and needs no reader in time: the memory holds totals. NIXL reports events that
//! it drops before it calls us as an event of its own (type 20, from NIXL 1.4 on). That is a counter too.
//!
//! - `abi` is what NIXL's C++ sees: the plugin, exporters, events. Nothing unwinds out of it.
//! - `host` tells which NIXL that is, as events differ.
//! - `agent` forwards the events of one agent, and counts them where that can't be.
//! - `families` are the metrics, by the table that the gateway's receivers share.
//! - `process` is the file that all agents of a process have in common.
//!
//! An event costs a few atomic additions in the agent's export thread, no system call and no allocation. A file that
//! can't be made does not make an agent fail: the plugin counts events, prints the reason once, and tries again every
//! five seconds.

#![deny(missing_docs, unsafe_code)]

mod abi;
mod agent;
mod families;
mod host;
mod process;

use std::panic;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use abi::{Plugin, Shared};
use agent::Agent;
use process::print_line;

static PLUGIN: Shared = Shared::new::<Agent>(&PLUGIN);

// SAFETY (of both names): they are NIXL's for its exporters, and it looks for them in one library at a time.

/// NIXL calls this when it has loaded the library.
#[allow(unsafe_code, reason = "an exported name")]
#[unsafe(no_mangle)]
pub extern "C" fn nixl_telemetry_plugin_init() -> *mut Plugin {
    // Ours alone: the library has a standard library of its own. The default hook would print a line an event.
    panic::set_hook(Box::new(|panic| {
        static SAID: AtomicBool = AtomicBool::new(false);
        if !SAID.swap(true, Relaxed) {
            print_line(format_args!(
                "a bug, please report it: {panic}; such events are counted as lost"
            ));
        }
    }));
    PLUGIN.plugin()
}

/// NIXL calls this when it no longer needs the library (which stays loaded).
#[allow(unsafe_code, reason = "an exported name")]
#[unsafe(no_mangle)]
pub extern "C" fn nixl_telemetry_plugin_fini() {}
