// SPDX-License-Identifier: Apache-2.0

//! The clock of the gateway, see [`tidegate_engine::clock`]. State uses `unix_now`; output uses `wall_now`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_engine::{UnixNanos, clock};

/// Steps of the wall clock that have been logged.
static TOLD: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds since the Unix epoch, by the clock that never jumps: for windows, leases, expiry.
pub fn unix_now() -> UnixNanos {
    let now = clock::now();
    if clock::steps() != TOLD.load(Relaxed) {
        report_step();
    }
    now
}

/// Nanoseconds since the Unix epoch by the wall clock: for times that are shown, sent or stored.
pub fn wall_now() -> UnixNanos {
    clock::wall(unix_now())
}

#[cold]
fn report_step() {
    let steps = clock::steps();
    if TOLD.swap(steps, Relaxed) != steps {
        metrics::counter!("tidegate_clock_steps_total").absolute(steps);
        tracing::warn!(
            "the wall clock was set; windows and leases continue, and written times follow the new clock"
        );
    }
}
