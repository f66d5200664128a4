// SPDX-License-Identifier: Apache-2.0

//! The accept loop: one task a connection, a limit of connections, and a stop with a deadline.

use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_runtime::Every;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::descriptors;
use super::endpoint::Endpoint;
use super::listener::Listener;
use super::peers::{self, Peers, PerPeer};
use super::stream::{Peer, Stream};
use super::tls::TlsServer;
use crate::component::{Account, Ceiling};

/// The timeout of a TLS handshake, which holds a connection slot.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The same while other connections wait for the slot.
const CROWDED_HANDSHAKE: Duration = Duration::from_secs(2);

/// The pause after a failed accept. The usual cause, too many open files, does not go away at once.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The interval at which one more idle connection is asked to close while a new connection finds no slot.
const CROWD_AGAIN: Duration = Duration::from_millis(50);

/// The interval between log lines about one repeated problem.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The default part of a listener's connections for one address.
const SHARE_OF_A_PEER: usize = 4;

/// The memory of a connection before any reservation, in bytes: half a head, or half a frame.
const BYTES_OF_A_CONNECTION: usize = 64 << 10;

/// The part of the memory limit that unreserved memory of all connections may take.
const SHARE_OF_CONNECTIONS: usize = 4;

/// The least number of connections of a listener, however low the memory limit.
const FEW_CONNECTIONS: usize = 64;

/// The number of unused connections that are closed while memory is over its limit...
const CLOSED_AT_ONCE: usize = 16;

/// ...at intervals of this.
const CLOSE_AGAIN: Duration = Duration::from_millis(100);

/// The interval of checks. Memory is measured about as often.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The limits of a server's connections.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// The limit of concurrent connections. Further ones wait in the kernel's backlog.
    pub max_connections: usize,
    /// The limit for one address; further connections are closed. Local addresses count only if it is configured.
    pub max_per_peer: PerPeer,
    /// The TLS of the server, if it uses TLS.
    pub tls: Option<Arc<TlsServer>>,
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
}

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

/// The slots for connections.
struct Slots {
    /// The slots of this listener.
    all: Arc<Semaphore>,
    /// File descriptors reserved for this listener.
    own: Arc<Semaphore>,
    /// File descriptors that all listeners share.
    shared: Arc<Semaphore>,
    /// Wakes an idle connection.
    crowd: Arc<Notify>,
}

/// A slot, and its file descriptor.
struct ConnectionSlot {
    _place: OwnedSemaphorePermit,
    _descriptor: OwnedSemaphorePermit,
}

impl Slots {
    fn new(max_connections: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS))),
            own: Arc::new(Semaphore::new(descriptors::OWN)),
            shared: descriptors::shared(),
            crowd: Arc::default(),
        }
    }

    /// Waits for a slot. While none is free, idle connections are asked to close.
    async fn take(&self) -> Option<ConnectionSlot> {
        let mut place = pin!(self.all.clone().acquire_owned());
        let place = loop {
            if self.all.available_permits() == 0 {
                self.crowd.notify_one();
            }
            tokio::select! {
                biased;
                place = &mut place => break place.ok()?,
                () = sleep(CROWD_AGAIN) => {}
            }
        };
        let free = [&self.own, &self.shared].into_iter();
        let mut free = free.filter_map(|descriptors| descriptors.clone().try_acquire_owned().ok());
        let descriptor = match free.next() {
            Some(descriptor) => descriptor,
            None => {
                let mut own = pin!(self.own.clone().acquire_owned());
                let mut shared = pin!(self.shared.clone().acquire_owned());
                // Another listener may take the descriptor that a connection of this listener releases.
                loop {
                    self.crowd.notify_one();
                    tokio::select! {
                        own = &mut own => break own.ok()?,
                        shared = &mut shared => break shared.ok()?,
                        () = sleep(CROWD_AGAIN) => {}
                    }
                }
            }
        };
        Some(ConnectionSlot {
            _place: place,
            _descriptor: descriptor,
        })
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
                            let endpoint = &self.endpoint;
                            tracing::warn!(%endpoint, %error, repeated, "can't accept a connection");
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
            return self.turn_away(peer);
        };
        let (tls, stopping, abandon) = (self.tls.clone(), self.stopping.clone(), self.abandon.clone());
        let (crowd, is_proxied) = (self.slots.crowd.clone(), self.is_proxied);
        let over_memory = self.over_memory.clone();
        let endpoint = self.endpoint.clone();
        let serve = async move {
            let secured = stopping
                .run_until_cancelled(secure(stream, peer, tls, &crowd))
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
            })
            .await;
        };
        self.tasks.spawn(async move {
            abandon.run_until_cancelled(serve).await;
            drop((slot, counted));
        });
    }

    /// Logs a refused peer. The connection closes before a byte of it is read.
    fn turn_away(&self, peer: Peer) {
        let endpoint = &self.endpoint;
        if let Some(repeated) = self.log_limits.refused_peers.ready() {
            let most = self.max_per_peer.connections;
            tracing::warn!(
                %endpoint,
                ?peer,
                most,
                repeated,
                "the address has too many connections: closed"
            );
        }
        metrics::counter!("tidegate_connections_turned_away_total", "endpoint" => endpoint.clone())
            .increment(1);
    }
}

async fn secure(
    stream: Stream,
    peer: Peer,
    tls: Option<Arc<TlsServer>>,
    crowd: &Notify,
) -> Result<Stream, Ended> {
    let Some(tls) = tls else {
        return Ok(stream);
    };
    // The files were read once, so a value always exists.
    let tls = tls.current().map_err(|_| Ended::Handshake)?;
    let acceptor = tokio_rustls::TlsAcceptor::from(tls);
    match in_time(acceptor.accept(stream), crowd).await {
        Some(Ok(stream)) => Ok(Stream::Tls(Box::new(stream.into()))),
        Some(Err(error)) => {
            tracing::debug!(?peer, %error, "TLS handshake failed");
            Err(Ended::Handshake)
        }
        None => {
            tracing::debug!(?peer, "TLS handshake took too long");
            Err(Ended::SlowHandshake)
        }
    }
}

/// Waits for a handshake until its timeout, which is shorter while others wait for the slot.
async fn in_time<T>(handshake: impl Future<Output = T>, crowd: &Notify) -> Option<T> {
    let crowded = async {
        sleep(CROWDED_HANDSHAKE).await;
        crowd.notified().await;
    };
    tokio::select! {
        biased;
        done = handshake => Some(done),
        () = crowded => None,
        () = sleep(HANDSHAKE_TIMEOUT) => None,
    }
}

#[cfg(test)]
mod tests;
