// SPDX-License-Identifier: Apache-2.0

//! Ends the process when the async runtime itself fails, for example because a plugin closed its file descriptors.
//!
//! A panic in a task ends the task. A panic in the runtime's driver ends a worker thread: no socket is served any more,
//! while the process stays. A supervisor restarts a process that has ended; it does not see one that only hangs.

use std::panic::{self, PanicHookInfo};
use std::process;

/// Parts of the runtime that nothing works without.
const DRIVERS: [&str; 5] = [
    "/src/runtime/driver",
    "/src/runtime/io/",
    "/src/runtime/process",
    "/src/runtime/signal/",
    "/src/runtime/time/",
];

/// From now on a panic in the runtime's driver aborts the process, after the usual message.
pub(super) fn end_the_process() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        usual(info);
        if file(info).is_some_and(is_driver) {
            eprintln!("tidegate: the runtime is broken, so the process ends; restart it");
            process::abort();
        }
    }));
}

fn file<'a>(info: &'a PanicHookInfo<'_>) -> Option<&'a str> {
    info.location().map(panic::Location::file)
}

/// Whether a source file belongs to a driver of the runtime.
fn is_driver(file: &str) -> bool {
    let within = file.rsplit_once("/tokio-").map(|(_, within)| within);
    within.is_some_and(|within| DRIVERS.iter().any(|driver| within.contains(driver)))
}

#[cfg(test)]
mod tests {
    use super::is_driver;

    #[test]
    fn only_the_runtimes_drivers_end_the_process() {
        for (file, ends) in [
            ("/registry/src/index/tokio-1.54.1/src/runtime/io/driver.rs", true),
            ("/registry/src/index/tokio-1.54.1/src/runtime/time/mod.rs", true),
            ("/registry/src/index/tokio-1.54.1/src/task/local.rs", false),
            ("/registry/src/index/h2-0.4.20/src/runtime/io/driver.rs", false),
            ("src/runtime/io/driver.rs", false),
        ] {
            assert_eq!(is_driver(file), ends, "{file}");
        }
    }
}
