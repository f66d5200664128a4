//! The connection to a gRPC peer, dialled anew when it has ended or nothing comes back on it.
//!
//! All requests share one HTTP/2 connection. When its other end is gone without a word (a lost node, a firewall that
//! forgot it), requests time out on it until the kernel gives up, which takes many minutes. Pings would tell, but
//! servers close connections of clients that ping as often as would help.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use h2::client::SendRequest;
use http::Uri;
use tokio::sync::OnceCell;

use super::call::Message;
use crate::net::client::Connector;
use crate::net::corked::Corked;

/// After so many requests in a row without an answer another connection is tried.
const MAX_UNANSWERED: u32 = 2;

/// Where requests go.
pub(super) type Sender = SendRequest<Message>;

/// The connection, and how it is made.
pub(super) struct Line {
    connector: Connector,
    peer: Uri,
    current: Arc<Mutex<Current>>,
}

#[derive(Default)]
struct Current {
    /// Made by the first request that needs it, while others wait.
    connection: Arc<OnceCell<Sender>>,
    number: u64,
    unanswered: u32,
}

/// A request on the line; when it ends without an answer that is noted.
pub(super) struct Call {
    current: Arc<Mutex<Current>>,
    number: u64,
    is_answered: bool,
}

impl Line {
    /// Connects when it is used.
    pub(super) fn new(connector: Connector, peer: Uri) -> Self {
        Self {
            connector,
            peer,
            current: Arc::default(),
        }
    }

    /// A way to send a request, and the call to be made with it.
    pub(super) async fn call(&self) -> io::Result<(Sender, Call)> {
        // A connection that has ended since it was used last is no failure of this request.
        if let Some(ready) = self.connected().await? {
            return Ok(ready);
        }
        let closed = || io::Error::new(io::ErrorKind::ConnectionReset, "the peer closes its connections");
        self.connected().await?.ok_or_else(closed)
    }

    /// The same on the connection that there is, or a new one; `None`: that one takes no more requests.
    async fn connected(&self) -> io::Result<Option<(Sender, Call)>> {
        let (connection, call) = self.current();
        let sender = connection.get_or_try_init(|| self.dial()).await?.clone();
        match sender.ready().await {
            Ok(sender) => Ok(Some((sender, call))),
            Err(_) => {
                call.ended();
                Ok(None)
            }
        }
    }

    fn current(&self) -> (Arc<OnceCell<Sender>>, Call) {
        let current = lock(&self.current);
        let call = Call {
            current: self.current.clone(),
            number: current.number,
            is_answered: false,
        };
        (current.connection.clone(), call)
    }

    async fn dial(&self) -> io::Result<Sender> {
        let stream = self.connector.connect(self.peer.clone()).await?;
        let (ours, driven) = Corked::pair(stream);
        let handshake = h2::client::Builder::new().enable_push(false).handshake(ours);
        let (sender, connection) = handshake.await.map_err(io::Error::other)?;
        tokio::spawn(driven.drive(connection));
        Ok(sender)
    }
}

impl Call {
    /// The other end is there.
    pub(super) fn answered(mut self) {
        self.is_answered = true;
    }

    /// The connection is over.
    pub(super) fn ended(mut self) {
        self.is_answered = true;
        lock(&self.current).hang_up(self.number);
    }
}

impl Current {
    /// The next request dials; those under way keep the connection that they have.
    fn hang_up(&mut self, number: u64) {
        if self.number == number {
            *self = Self {
                number: number + 1,
                ..Self::default()
            };
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut current = lock(&self.current);
        if current.number != self.number {
            return;
        }
        current.unanswered = if self.is_answered {
            0
        } else {
            current.unanswered + 1
        };
        if current.unanswered >= MAX_UNANSWERED {
            current.hang_up(self.number);
        }
    }
}

fn lock(current: &Mutex<Current>) -> MutexGuard<'_, Current> {
    current.lock().unwrap_or_else(PoisonError::into_inner)
}
