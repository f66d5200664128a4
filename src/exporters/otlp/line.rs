//! The connection to a gRPC peer, dialled anew when it has ended or nothing comes back on it.
//!
//! All requests share one HTTP/2 connection. When its other end is gone without a word (a lost node, a firewall that
//! forgot it), requests time out on it until the kernel gives up, which takes many minutes. Pings would tell, but
//! servers close connections of clients that ping as often as would help.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use h2::client::SendRequest;
use h2::{Ping, PingPong};
use http::Uri;
use tokio::sync::OnceCell;

use super::call::Message;
use super::config::Keepalive;
use crate::net::client::{Connector, MAX_HEAD_BYTES};
use crate::net::write_coalescing::CoalescedWriter;
use crate::net::yield_first::YieldFirst;

/// After so many requests in a row without an answer another connection is tried.
const MAX_UNANSWERED: u32 = 2;

/// Where requests go.
pub(super) type Sender = SendRequest<Message>;

/// The connection, and how it is made.
pub(super) struct Line {
    connector: Connector,
    peer: Uri,
    keepalive: Option<Keepalive>,
    current: Arc<Mutex<Current>>,
}

#[derive(Default)]
struct Current {
    /// Made by the first request that needs it, while others wait.
    connection: Arc<OnceCell<Sender>>,
    number: u64,
    unanswered: u32,
    /// Requests without an answer yet.
    under_way: usize,
}

/// A request on the line; when it ends without an answer that is noted.
pub(super) struct Call {
    current: Arc<Mutex<Current>>,
    number: u64,
    is_answered: bool,
}

impl Line {
    /// Connects when it is used.
    pub(super) fn new(connector: Connector, peer: Uri, keepalive: Option<Keepalive>) -> Self {
        Self {
            connector,
            peer,
            keepalive,
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
        let number = call.number;
        let sender = connection.get_or_try_init(|| self.dial(number)).await?.clone();
        match sender.ready().await {
            Ok(sender) => Ok(Some((sender, call))),
            Err(_) => {
                call.ended();
                Ok(None)
            }
        }
    }

    fn current(&self) -> (Arc<OnceCell<Sender>>, Call) {
        let mut current = lock(&self.current);
        current.under_way += 1;
        let call = Call {
            current: self.current.clone(),
            number: current.number,
            is_answered: false,
        };
        (current.connection.clone(), call)
    }

    async fn dial(&self, number: u64) -> io::Result<Sender> {
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

/// Pings the other end; returns when an answer has not come in time.
async fn watch(mut pings: PingPong, keepalive: Keepalive, current: Arc<Mutex<Current>>, number: u64) {
    loop {
        tokio::time::sleep(keepalive.time).await;
        if !keepalive.permit_without_stream && lock(&current).under_way == 0 {
            continue;
        }
        match tokio::time::timeout(keepalive.timeout, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            // The connection has ended, which its driver sees too.
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => {
                tracing::debug!("a ping got no answer: the connection is given up");
                return lock(&current).hang_up(number);
            }
        }
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
                under_way: self.under_way,
                ..Self::default()
            };
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut current = lock(&self.current);
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
            current.hang_up(self.number);
        }
    }
}

fn lock(current: &Mutex<Current>) -> MutexGuard<'_, Current> {
    current.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::net::TlsClientConfig;
    use crate::net::client::UseTls;

    const SOON: Duration = Duration::from_secs(30);

    async fn accept(listener: &TcpListener) -> h2::server::Connection<TcpStream, Bytes> {
        let (stream, _) = listener.accept().await.unwrap();
        h2::server::handshake(stream).await.unwrap()
    }

    async fn line() -> (TcpListener, Line) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = format!("http://{}", listener.local_addr().unwrap());
        let connector = Connector::new(None, UseTls::Never, &TlsClientConfig::default(), &[]);
        (
            listener,
            Line::new(connector.unwrap(), peer.parse().unwrap(), None),
        )
    }

    /// The number of the connection that a call is on, which is made where there is none.
    async fn number(line: &Line) -> u64 {
        let (_, call) = line.call().await.unwrap();
        let number = call.number;
        call.answered();
        number
    }

    #[tokio::test]
    async fn a_connection_that_ended_while_nobody_used_it_is_no_failure_of_the_next_call() {
        let (listener, line) = line().await;
        let (first, peer) = tokio::join!(line.call(), accept(&listener));
        let (sender, call) = first.unwrap();
        call.answered();
        assert_eq!(number(&line).await, 0, "one connection for all");
        drop(peer);
        let ended = async {
            while sender.clone().ready().await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, ended).await.expect("its end is seen");
        let dialled = async { tokio::join!(number(&line), accept(&listener)).0 };
        assert_eq!(tokio::time::timeout(SOON, dialled).await.expect("it dials"), 1);
    }

    #[tokio::test]
    async fn who_gets_no_answer_twice_in_a_row_dials_anew() {
        let (listener, line) = line().await;
        let (first, _peer) = tokio::join!(line.call(), accept(&listener));
        drop(first.unwrap());
        assert_eq!(number(&line).await, 0, "an answer in between");
        drop(line.call().await.unwrap());
        assert_eq!(line.current().1.number, 0, "one without an answer");
        let dialled = async { tokio::join!(number(&line), accept(&listener)).0 };
        assert_eq!(tokio::time::timeout(SOON, dialled).await.expect("it dials"), 1);
    }

    #[tokio::test]
    async fn a_peer_that_answers_no_ping_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = format!("http://{}", listener.local_addr().unwrap());
        let connector = Connector::new(None, UseTls::Never, &TlsClientConfig::default(), &[]);
        let keepalive = Keepalive {
            time: Duration::from_millis(10),
            timeout: Duration::from_millis(100),
            permit_without_stream: true,
        };
        let line = Line::new(connector.unwrap(), peer.parse().unwrap(), Some(keepalive));
        // A connection that nobody drives answers nothing; one that is driven answers pings.
        let (first, silent) = tokio::join!(line.call(), accept(&listener));
        let (sender, call) = first.unwrap();
        call.answered();
        let ended = async {
            while sender.clone().ready().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(SOON, ended).await.expect("it is given up");
        let dialled = async { tokio::join!(number(&line), accept(&listener)) };
        let (second, mut driven) = tokio::time::timeout(SOON, dialled).await.expect("it dials");
        assert_eq!(second, 1);
        let driver = tokio::spawn(async move { while driven.accept().await.is_some() {} });
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert_eq!(number(&line).await, 1, "it answers, so it is kept");
        driver.abort();
        drop(silent);
    }
}
