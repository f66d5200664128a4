// SPDX-License-Identifier: Apache-2.0

//! File descriptors: all listeners share the limit of the system, so that none takes the last descriptors.

use std::sync::{Arc, LazyLock};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Semaphore;

/// Descriptors that connections never take: files, logs, clients, and the first connections of each listener. A
/// low limit reserves a quarter instead.
const RESERVED: u64 = 4096;

/// The connections that each listener takes from the reserve, so that it always answers.
pub(super) const OWN: usize = 8;

/// Raises the limit of open files to the most that the system allows, and returns it.
pub fn raise() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // After a refusal the limit stays unchanged.
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Permits for the connections of all listeners together.
pub(super) fn shared() -> Arc<Semaphore> {
    static SHARED: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
        let permits = for_connections(raise());
        Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)))
    });
    SHARED.clone()
}

fn for_connections(limit: u64) -> usize {
    let permits = limit - RESERVED.min(limit / 4);
    usize::try_from(permits).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_everything_else() {
        assert_eq!(for_connections(1024), 768);
        assert_eq!(for_connections(524_288), 520_192);
        assert_eq!(for_connections(u64::MAX), usize::MAX - 4096);
    }

    #[test]
    fn the_limit_is_raised_to_what_the_system_allows() {
        let limit = raise();
        assert_eq!(getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX), limit);
    }
}
