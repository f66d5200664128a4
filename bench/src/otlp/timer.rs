// SPDX-License-Identifier: Apache-2.0

//! Waiting more exactly than the runtime's timer does, whose milliseconds are longer than many requests take.

use std::time::{Duration, Instant};

/// As exact is the runtime's timer.
const COARSE: Duration = Duration::from_millis(2);

/// Waits until then; others run meanwhile, also where it is late already.
pub(super) async fn until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if let Some(most) = left.checked_sub(COARSE) {
        tokio::time::sleep(most).await;
    }
    loop {
        tokio::task::yield_now().await;
        if Instant::now() >= due {
            return;
        }
    }
}
