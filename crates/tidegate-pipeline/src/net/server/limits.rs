// SPDX-License-Identifier: Apache-2.0

//! The limits of a server's connections.

use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::net::peers::PerPeer;
use crate::net::tls::TlsServer;

/// The default part of a listener's connections for one address.
const SHARE_OF_A_PEER: usize = 4;

/// The memory of a connection before any reservation, in bytes: half a head, or half a frame.
const BYTES_OF_A_CONNECTION: usize = 64 << 10;

/// The part of the memory limit that unreserved memory of all connections may take.
const SHARE_OF_CONNECTIONS: usize = 4;

/// The least number of connections of a listener, however low the memory limit.
const FEW_CONNECTIONS: usize = 64;

/// The limits of a server's connections.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// The limit of concurrent connections. Further ones wait in the kernel's backlog.
    pub max_connections: usize,
    /// The limit for one address; further connections are closed. Local addresses count only if it is configured.
    pub max_per_peer: PerPeer,
    /// The TLS of the server, if it uses TLS.
    pub tls: Option<Arc<TlsServer>>,
    /// The path of the component that listens, for log lines.
    pub component: Arc<str>,
}

impl ConnectionLimits {
    /// Limits with a maximum, and a maximum for one address, by default a quarter.
    pub fn new(max_connections: usize, max_per_peer: Option<NonZeroUsize>) -> Self {
        let share = max_connections / SHARE_OF_A_PEER;
        Self {
            max_connections,
            max_per_peer: PerPeer {
                connections: max_per_peer.map_or(share.max(1), NonZeroUsize::get),
                is_configured: max_per_peer.is_some(),
            },
            tls: None,
            component: "".into(),
        }
    }

    /// Limits for connections without TLS.
    pub fn plain(max_connections: usize) -> Self {
        Self::new(max_connections, None)
    }

    /// Reduces the limit, so that unfinished heads of all connections fit into a part of `memory` bytes.
    pub fn within(mut self, memory: usize) -> Self {
        let most = (memory / SHARE_OF_CONNECTIONS / BYTES_OF_A_CONNECTION).max(FEW_CONNECTIONS);
        if most < self.max_connections {
            let per_peer = &mut self.max_per_peer;
            per_peer.connections = if per_peer.is_configured {
                per_peer.connections.min(most)
            } else {
                most / SHARE_OF_A_PEER
            };
            self.max_connections = most;
        }
        self
    }

    /// Adds TLS.
    pub fn over(self, tls: Option<Arc<TlsServer>>) -> Self {
        Self { tls, ..self }
    }

    /// Adds the component that listens.
    pub fn of(self, component: &Arc<str>) -> Self {
        let component = component.clone();
        Self { component, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_has_connections_for_the_memory_that_there_is() {
        let within = |limits: ConnectionLimits, memory| {
            let limits = limits.within(memory);
            (limits.max_connections, limits.max_per_peer.connections)
        };
        let usual = ConnectionLimits::plain(8192);
        assert_eq!(within(usual.clone(), usize::MAX), (8192, 2048));
        assert_eq!(within(usual.clone(), 256 << 20), (1024, 256));
        assert_eq!(within(usual, 1 << 20), (64, 16));
        let few = ConnectionLimits::new(8192, NonZeroUsize::new(10));
        assert_eq!(within(few, 256 << 20), (1024, 10));
        let proxied = ConnectionLimits::new(8192, NonZeroUsize::new(8192));
        assert_eq!(within(proxied, 256 << 20), (1024, 1024));
    }
}
