// SPDX-License-Identifier: Apache-2.0

//! The accept loop: one task a connection, a limit of connections, and a stop with a deadline.

mod handshake;
mod limits;
mod slots;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_runtime::Every;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::handshake::secure;
pub use self::limits::ConnectionLimits;
use self::slots::{ConnectionSlot, Slots};
use super::endpoint::Endpoint;
use super::listener::Listener;
use super::peers::{self, Peers, PerPeer};
use super::stream::{Peer, Stream};
use super::tls::TlsServer;
use crate::component::{Account, Ceiling};

/// The pause after a failed accept. The usual cause, too many open files, does not go away at once.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The interval between log lines about one repeated problem.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The number of unused connections that are closed while memory is over its limit...
const CLOSED_AT_ONCE: usize = 16;

/// ...at intervals of this.
const CLOSE_AGAIN: Duration = Duration::from_millis(100);

/// The interval of checks. Memory is measured about as often.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// An accepted connection.
#[derive(Debug)]
pub struct Connection {
    /// The bytes.
    pub stream: Stream,
    /// The peer.
    pub peer: Peer,
    /// Fires when the server stops: finish running requests, and accept no new ones.
    pub stopping: CancellationToken,
    /// Wakes one idle connection when others wait for its slot.
    pub crowd: Arc<Notify>,
    /// Wakes a connection when memory is over its limit. It must close if it has no request.
    pub over_memory: Arc<Notify>,
    /// Whether one address may have all connections of the server, for example a proxy.
    pub is_proxied: bool,
    /// The endpoint of the listener, as a label.
    pub endpoint: Arc<str>,
    /// The path of the component that listens, for log lines.
    pub component: Arc<str>,
}

/// The reason of the early end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The accept failed.
    Accept,
    /// The TLS handshake failed.
    Handshake,
    /// The TLS handshake took too long.
    SlowHandshake,
    /// The peer took nothing of an answer.
    Stalled,
    /// Memory for a frame of the peer is short.
    Memory,
    /// The peer declared nothing that it could send.
    Undeclared,
    /// The connection was idle, and others waited for its slot.
    Crowded,
}

/// Counts the early end of a connection.
pub fn count_ended(endpoint: &Arc<str>, why: Ended) {
    let reason = match why {
        Ended::Accept => "accept",
        Ended::Handshake => "tls",
        Ended::SlowHandshake => "tls_timeout",
        Ended::Stalled => "stalled",
        Ended::Memory => "memory",
        Ended::Undeclared => "undeclared",
        Ended::Crowded => "crowded",
    };
    metrics::counter!("tidegate_connections_ended_total", "endpoint" => endpoint.clone(), "reason" => reason)
        .increment(1);
}

/// A running accept loop. Its drop ends its tasks at once.
#[derive(Debug)]
pub struct Server {
    local: Endpoint,
    stopping: CancellationToken,
    abandon: CancellationToken,
    tasks: TaskTracker,
    over_memory: Arc<Notify>,
}

impl Server {
    /// Accepts from `listener` and runs `handler` for each connection in a separate task.
    pub fn start<H, F>(listener: Listener, limits: ConnectionLimits, handler: H) -> Self
    where
        H: Fn(Connection) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let server = Self {
            local: listener.local().clone(),
            stopping: CancellationToken::new(),
            abandon: CancellationToken::new(),
            tasks: TaskTracker::new(),
            over_memory: Arc::default(),
        };
        let accept = AcceptLoop {
            endpoint: listener.local().to_string().into(),
            listener,
            slots: Slots::new(limits.max_connections),
            over_memory: server.over_memory.clone(),
            peers: Arc::default(),
            max_per_peer: limits.max_per_peer,
            is_proxied: limits.max_per_peer.connections >= limits.max_connections,
            log_limits: AcceptLogLimits::default(),
            tls: limits.tls,
            component: limits.component,
            stopping: server.stopping.clone(),
            abandon: server.abandon.clone(),
            tasks: server.tasks.clone(),
        };
        server.tasks.spawn(accept.run(handler));
        server
    }

    /// Closes some connections without a request at a time, while `memory` is over its hard limit. The buffers and
    /// header tables that libraries keep for a connection have no reservation.
    pub fn close_unused_while_over(&self, memory: Arc<Account>) {
        let over_memory = self.over_memory.clone();
        let watch = async move {
            loop {
                if memory.is_over(Ceiling::Hard) {
                    (0..CLOSED_AT_ONCE).for_each(|_| over_memory.notify_one());
                    sleep(CLOSE_AGAIN).await;
                } else {
                    sleep(LOOK_AGAIN).await;
                }
            }
        };
        let stopping = self.stopping.clone();
        self.tasks
            .spawn(async move { stopping.run_until_cancelled(watch).await });
    }

    /// The address that it listens on.
    pub fn local(&self) -> &Endpoint {
        &self.local
    }

    /// Stops accepting, lets connections finish until `deadline`, and ends the rest.
    pub async fn stop(&self, deadline: Instant) {
        self.stopping.cancel();
        self.tasks.close();
        let in_time = tokio::time::timeout_at(deadline.into(), self.tasks.wait()).await;
        if in_time.is_err() {
            self.abandon.cancel();
            self.tasks.wait().await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.cancel();
        self.abandon.cancel();
    }
}

struct AcceptLogLimits {
    accept_errors: Every,
    refused_peers: Every,
}

impl Default for AcceptLogLimits {
    fn default() -> Self {
        Self {
            accept_errors: Every::new(LOG_INTERVAL),
            refused_peers: Every::new(LOG_INTERVAL),
        }
    }
}

struct AcceptLoop {
    listener: Listener,
    /// The address that it listens on.
    endpoint: Arc<str>,
    slots: Slots,
    over_memory: Arc<Notify>,
    peers: Arc<Peers>,
    max_per_peer: PerPeer,
    is_proxied: bool,
    log_limits: AcceptLogLimits,
    tls: Option<Arc<TlsServer>>,
    /// The path of the component that listens.
    component: Arc<str>,
    stopping: CancellationToken,
    abandon: CancellationToken,
    tasks: TaskTracker,
}

impl AcceptLoop {
    async fn run<H, F>(self, handler: H)
    where
        H: Fn(Connection) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let stopping = self.stopping.clone();
        let accept_all = async {
            while let Some(slot) = self.slots.take().await {
                match self.listener.accept().await {
                    Ok(stream) => self.spawn(stream, handler.clone(), slot),
                    Err(error) => {
                        if let Some(repeated) = self.log_limits.accept_errors.ready() {
                            let (component, endpoint) = (&*self.component, &self.endpoint);
                            tracing::warn!(component, %endpoint, %error, repeated, "can't accept a connection");
                        }
                        count_ended(&self.endpoint, Ended::Accept);
                        tokio::time::sleep(ACCEPT_RETRY).await;
                    }
                }
            }
        };
        stopping.run_until_cancelled(accept_all).await;
    }

    fn spawn<H, F>(&self, stream: Stream, handler: H, slot: ConnectionSlot)
    where
        H: Fn(Connection) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        // The peer has closed already.
        let Ok(peer) = stream.peer() else { return };
        let Some(counted) = peers::enter(&self.peers, peer, self.max_per_peer) else {
            return self.refuse(peer);
        };
        let (tls, stopping, abandon) = (self.tls.clone(), self.stopping.clone(), self.abandon.clone());
        let (crowd, is_proxied) = (self.slots.crowd.clone(), self.is_proxied);
        let over_memory = self.over_memory.clone();
        let (endpoint, component) = (self.endpoint.clone(), self.component.clone());
        let serve = async move {
            let secured = stopping
                .run_until_cancelled(secure(stream, peer, tls, &crowd, &component))
                .await;
            let stream = match secured {
                Some(Ok(stream)) => stream,
                Some(Err(why)) => return count_ended(&endpoint, why),
                // The server stops.
                None => return,
            };
            handler(Connection {
                stream,
                peer,
                stopping: stopping.clone(),
                crowd,
                over_memory,
                is_proxied,
                endpoint,
                component,
            })
            .await;
        };
        self.tasks.spawn(async move {
            abandon.run_until_cancelled(serve).await;
            drop((slot, counted));
        });
    }

    /// Logs a refused peer. The connection closes before a byte of it is read.
    fn refuse(&self, peer: Peer) {
        let endpoint = &self.endpoint;
        if let Some(repeated) = self.log_limits.refused_peers.ready() {
            let most = self.max_per_peer.connections;
            tracing::warn!(
                component = &*self.component,
                %endpoint,
                ?peer,
                most,
                repeated,
                "the address has too many connections: closed"
            );
        }
        metrics::counter!("tidegate_connections_refused_total", "endpoint" => endpoint.clone()).increment(1);
    }
}
