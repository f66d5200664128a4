//! Logs to standard error, and a brake for messages that repeat.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tracing_subscriber::EnvFilter;

use super::config::{Encoding, Logs};

/// Starts logging. `TIDEGATE_LOG` (directives as of tracing's `EnvFilter`) wins over the configured level.
/// A second call in a process changes nothing.
pub fn start_logs(config: &Logs) {
    let level = config.level.as_str();
    // Libraries below speak up only when something is wrong, unless everything is asked for.
    let default = format!("warn,tidegate={level},tidegate_engine={level},tidegate_ring={level}");
    let filter = EnvFilter::try_from_env("TIDEGATE_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // Fails only when logging has been started before.
    let _ = match config.encoding {
        Encoding::Console => logs.with_target(false).try_init(),
        Encoding::Json => logs.json().flatten_event(true).try_init(),
    };
}

/// Lets one of many equal messages through every so often and counts the rest.
#[derive(Debug)]
pub struct Every {
    start: Instant,
    interval_ms: u64,
    next_ms: AtomicU64,
    held_back: AtomicU64,
}

impl Every {
    /// At most one message per `interval`.
    pub fn new(interval: Duration) -> Self {
        Self {
            start: Instant::now(),
            interval_ms: u64::try_from(interval.as_millis()).unwrap_or(u64::MAX),
            next_ms: AtomicU64::new(0),
            held_back: AtomicU64::new(0),
        }
    }

    /// Whether to speak now; how many messages were held back since the last time.
    pub fn ready(&self) -> Option<u64> {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let next = self.next_ms.load(Relaxed);
        let due = now >= next
            && self
                .next_ms
                .compare_exchange(
                    next,
                    now.saturating_add(self.interval_ms).max(1),
                    Relaxed,
                    Relaxed,
                )
                .is_ok();
        if !due {
            self.held_back.fetch_add(1, Relaxed);
            return None;
        }
        Some(self.held_back.swap(0, Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_messages_are_held_back_and_counted() {
        let every = Every::new(Duration::from_secs(3600));
        assert_eq!(every.ready(), Some(0));
        assert_eq!(every.ready(), None);
        assert_eq!(every.ready(), None);
        every.next_ms.store(0, Relaxed);
        assert_eq!(every.ready(), Some(2));
    }
}
