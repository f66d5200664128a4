// SPDX-License-Identifier: Apache-2.0

//! A gRPC channel: one HTTP/2 connection to a peer that all requests share. The channel reconnects when the
//! connection ends or answers stop.
//!
//! When the other end disappears silently (a lost node, a firewall that lost the connection), requests time out
//! until the kernel gives up, which takes many minutes. Frequent pings would detect it, but servers close
//! connections of clients that ping so often.

use std::io;
use std::sync::Arc;

use h2::client::SendRequest;
use h2::{Ping, PingPong};
use http::Uri;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::call::Message;
use super::config::Keepalive;
use crate::net::client::{Connector, MAX_HEAD_BYTES};
use crate::net::write_coalescing::CoalescedWriter;
use crate::net::yield_first::YieldFirst;

/// The number of consecutive requests without an answer after which another connection is tried.
const MAX_UNANSWERED: u32 = 2;

/// Sends requests on a connection.
pub(super) type Sender = SendRequest<Message>;

/// The channel to one peer. The lock of `current` is never held across an await.
pub(super) struct Channel {
    connector: Connector,
    peer: Uri,
    keepalive: Option<Keepalive>,
    current: Arc<Mutex<Current>>,
}

/// The current connection of a channel.
#[derive(Default)]
struct Current {
    /// The first request that needs the connection makes it, while others wait.
    connection: Arc<OnceCell<Sender>>,
    /// Counts connections. A call of an older number does not change the current one.
    number: u64,
    /// Requests in a row that ended without an answer.
    unanswered: u32,
    /// Requests in flight.
    under_way: usize,
}

/// A request in flight on the channel. A drop without [`Call::answered`] or [`Call::ended`] counts
/// as unanswered.
pub(super) struct Call {
    current: Arc<Mutex<Current>>,
    number: u64,
    is_answered: bool,
}

impl Channel {
    /// A channel that connects on first use.
    pub(super) fn new(connector: Connector, peer: Uri, keepalive: Option<Keepalive>) -> Self {
        Self {
            connector,
            peer,
            keepalive,
            current: Arc::default(),
        }
    }

    /// Returns a sender, and the call that tracks the request sent with it.
    pub(super) async fn call(&self) -> io::Result<(Sender, Call)> {
        // A connection that has ended since it was used last is not a failure of this request.
        if let Some(ready) = self.connected().await? {
            return Ok(ready);
        }
        let closed = || io::Error::new(io::ErrorKind::ConnectionReset, "the peer closes its connections");
        self.connected().await?.ok_or_else(closed)
    }

    /// Calls on the current or a new connection; `None`: the connection takes no more requests.
    async fn connected(&self) -> io::Result<Option<(Sender, Call)>> {
        let (connection, call) = self.current();
        let number = call.number;
        let sender = connection.get_or_try_init(|| self.connect(number)).await?.clone();
        match sender.ready().await {
            Ok(sender) => Ok(Some((sender, call))),
            Err(_) => {
                call.ended();
                Ok(None)
            }
        }
    }

    fn current(&self) -> (Arc<OnceCell<Sender>>, Call) {
        let mut current = self.current.lock();
        current.under_way += 1;
        let call = Call {
            current: self.current.clone(),
            number: current.number,
            is_answered: false,
        };
        (current.connection.clone(), call)
    }

    async fn connect(&self, number: u64) -> io::Result<Sender> {
        let stream = self.connector.connect(self.peer.clone()).await?;
        let (ours, driven) = CoalescedWriter::pair(stream);
        let handshake = h2::client::Builder::new()
            .enable_push(false)
            .max_header_list_size(MAX_HEAD_BYTES)
            .handshake(ours);
        let (sender, mut connection) = handshake.await.map_err(io::Error::other)?;
        let pings = connection.ping_pong().zip(self.keepalive.clone());
        let driven = YieldFirst::new(driven.drive(connection));
        match pings {
            None => drop(tokio::spawn(driven)),
            Some((pings, keepalive)) => {
                let watched = watch(pings, keepalive, self.current.clone(), number);
                tokio::spawn(async move {
                    tokio::select! {
                        _ = driven => {}
                        // Dropping the connection fails the requests on it, which are sent again.
                        () = watched => {}
                    }
                });
            }
        }
        Ok(sender)
    }
}

/// Pings the peer; returns when an answer has not come in time.
async fn watch(mut pings: PingPong, keepalive: Keepalive, current: Arc<Mutex<Current>>, number: u64) {
    loop {
        tokio::time::sleep(keepalive.time).await;
        if !keepalive.permit_without_stream && current.lock().under_way == 0 {
            continue;
        }
        match tokio::time::timeout(keepalive.timeout, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            // The connection has ended, which its driver sees too.
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => {
                tracing::debug!("a ping got no answer: the connection ends");
                return current.lock().disconnect(number);
            }
        }
    }
}

impl Call {
    /// Records that the peer has answered.
    pub(super) fn answered(mut self) {
        self.is_answered = true;
    }

    /// Records that the connection has ended.
    pub(super) fn ended(mut self) {
        self.is_answered = true;
        self.current.lock().disconnect(self.number);
    }
}

impl Current {
    /// Makes the next request reconnect. Requests in flight keep their connection.
    fn disconnect(&mut self, number: u64) {
        if self.number == number {
            *self = Self {
                number: number + 1,
                under_way: self.under_way,
                ..Self::default()
            };
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut current = self.current.lock();
        current.under_way = current.under_way.saturating_sub(1);
        if current.number != self.number {
            return;
        }
        current.unanswered = if self.is_answered {
            0
        } else {
            current.unanswered + 1
        };
        if current.unanswered >= MAX_UNANSWERED {
            current.disconnect(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::net::TlsClientConfig;
    use crate::net::client::UseTls;

    const SOON: Duration = Duration::from_secs(60);

    async fn accept(listener: &TcpListener) -> h2::server::Connection<TcpStream, Bytes> {
        let (stream, _) = listener.accept().await.unwrap();
        h2::server::handshake(stream).await.unwrap()
    }

    async fn channel() -> (TcpListener, Channel) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = format!("http://{}", listener.local_addr().unwrap());
        let connector = Connector::new(None, UseTls::Never, &TlsClientConfig::default(), &[]);
        (
            listener,
            Channel::new(connector.unwrap(), peer.parse().unwrap(), None),
        )
    }

    /// The number of the connection of a call. A connection is made if there is none.
    async fn number(channel: &Channel) -> u64 {
        let (_, call) = channel.call().await.unwrap();
        let number = call.number;
        call.answered();
        number
    }

    #[tokio::test]
    async fn a_connection_that_ended_unused_does_not_fail_the_next_call() {
        let (listener, channel) = channel().await;
        let (first, peer) = tokio::join!(channel.call(), accept(&listener));
        let (sender, call) = first.unwrap();
        call.answered();
        assert_eq!(number(&channel).await, 0, "one connection for all");
        drop(peer);
        let ended = async {
            while sender.clone().ready().await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, ended).await.expect("its end is seen");
        let dialled = async { tokio::join!(number(&channel), accept(&listener)).0 };
        assert_eq!(tokio::time::timeout(SOON, dialled).await.expect("it dials"), 1);
    }

    #[tokio::test]
    async fn two_requests_without_an_answer_cause_a_new_connection() {
        let (listener, channel) = channel().await;
        let (first, _peer) = tokio::join!(channel.call(), accept(&listener));
        drop(first.unwrap());
        assert_eq!(number(&channel).await, 0, "an answer in between");
        drop(channel.call().await.unwrap());
        assert_eq!(channel.current().1.number, 0, "one without an answer");
        let dialled = async { tokio::join!(number(&channel), accept(&listener)).0 };
        assert_eq!(tokio::time::timeout(SOON, dialled).await.expect("it dials"), 1);
    }

    #[tokio::test]
    async fn a_peer_that_answers_no_ping_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = format!("http://{}", listener.local_addr().unwrap());
        let connector = Connector::new(None, UseTls::Never, &TlsClientConfig::default(), &[]);
        let keepalive = Keepalive {
            time: Duration::from_millis(10),
            timeout: Duration::from_secs(2),
            permit_without_stream: true,
        };
        let channel = Channel::new(connector.unwrap(), peer.parse().unwrap(), Some(keepalive));
        // A connection without a driver answers nothing; one with a driver answers pings.
        let (first, silent) = tokio::join!(channel.call(), accept(&listener));
        let (sender, call) = first.unwrap();
        call.answered();
        let ended = async {
            while sender.clone().ready().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(SOON, ended).await.expect("it is given up");
        let dialled = async { tokio::join!(number(&channel), accept(&listener)) };
        let (second, mut driven) = tokio::time::timeout(SOON, dialled).await.expect("it dials");
        assert_eq!(second, 1);
        let driver = tokio::spawn(async move { while driven.accept().await.is_some() {} });
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(number(&channel).await, 1, "it answers, so it is kept");
        driver.abort();
        drop(silent);
    }
}
