//! The wall clock as OTLP counts it.

use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_engine::UnixNanos;

/// Nanoseconds since the Unix epoch.
pub fn unix_now() -> UnixNanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
