//! The accept loop: one task a connection, a cap on connections, and a stop that waits only so long.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::endpoint::Endpoint;
use super::listener::Listener;
use super::stream::{Peer, Stream};
use super::tls::TlsServer;

/// A TLS handshake that takes longer is given up: it holds a connection slot.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after a failed accept. The usual cause, too many open files, does not go away at once.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// What a server demands of its connections.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// Connections at a time. Further ones wait in the kernel's backlog.
    pub max_connections: usize,
    /// TLS, where the server speaks it.
    pub tls: Option<Arc<TlsServer>>,
}

impl ConnectionLimits {
    /// Plain connections, so many at a time.
    pub fn plain(max_connections: usize) -> Self {
        Self {
            max_connections,
            tls: None,
        }
    }
}

/// An accepted connection.
#[derive(Debug)]
pub struct Connection {
    /// Its bytes.
    pub stream: Stream,
    /// Who is on the other side.
    pub peer: Peer,
    /// Fires when the server stops: finish what has begun, take nothing new.
    pub stopping: CancellationToken,
}

/// A running accept loop. Dropping it ends its tasks at once.
#[derive(Debug)]
pub struct Server {
    local: Endpoint,
    stopping: CancellationToken,
    abandon: CancellationToken,
    tasks: TaskTracker,
}

impl Server {
    /// Accepts from `listener` and runs `handler` on each connection in a task of its own.
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
        };
        let accept = AcceptLoop {
            listener,
            slots: Arc::new(Semaphore::new(limits.max_connections.min(Semaphore::MAX_PERMITS))),
            tls: limits.tls,
            stopping: server.stopping.clone(),
            abandon: server.abandon.clone(),
            tasks: server.tasks.clone(),
        };
        server.tasks.spawn(accept.run(handler));
        server
    }

    /// Where it listens.
    pub fn local(&self) -> &Endpoint {
        &self.local
    }

    /// Stops accepting, lets connections finish until `deadline`, then ends those that are left.
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

struct AcceptLoop {
    listener: Listener,
    slots: Arc<Semaphore>,
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
            loop {
                let Ok(slot) = self.slots.clone().acquire_owned().await else {
                    return;
                };
                match self.listener.accept().await {
                    Ok(stream) => self.spawn(stream, handler.clone(), slot),
                    Err(error) => {
                        tracing::warn!(endpoint = %self.listener.local(), %error, "can't accept a connection");
                        tokio::time::sleep(ACCEPT_RETRY).await;
                    }
                }
            }
        };
        stopping.run_until_cancelled(accept_all).await;
    }

    fn spawn<H, F>(&self, stream: Stream, handler: H, slot: tokio::sync::OwnedSemaphorePermit)
    where
        H: Fn(Connection) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (tls, stopping, abandon) = (self.tls.clone(), self.stopping.clone(), self.abandon.clone());
        let serve = async move {
            let Some(connection) = stopping.run_until_cancelled(secure(stream, tls)).await.flatten() else {
                return;
            };
            let (stream, peer) = connection;
            handler(Connection {
                stream,
                peer,
                stopping: stopping.clone(),
            })
            .await;
        };
        self.tasks.spawn(async move {
            abandon.run_until_cancelled(serve).await;
            drop(slot);
        });
    }
}

async fn secure(stream: Stream, tls: Option<Arc<TlsServer>>) -> Option<(Stream, Peer)> {
    // A peer that is gone already is nobody to serve.
    let peer = stream.peer().ok()?;
    let Some(tls) = tls else {
        return Some((stream, peer));
    };
    // It was read once: from then on there always is one.
    let acceptor = tokio_rustls::TlsAcceptor::from(tls.current().ok()?);
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Some((Stream::Tls(Box::new(stream.into())), peer)),
        Ok(Err(error)) => {
            tracing::debug!(?peer, %error, "TLS handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!(?peer, "TLS handshake took too long");
            None
        }
    }
}
