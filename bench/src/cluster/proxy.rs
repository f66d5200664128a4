// SPDX-License-Identifier: Apache-2.0

//! The network between a replica and the store: a proxy that can stop to forward. In [namespaces](super::namespaces), the kernel
//! loses the packets between the replica and the proxy instead.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use super::namespaces::LossyNetwork;
use crate::BenchError;

/// The bytes that a direction holds while the network is cut.
const BUFFER: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkState {
    Open,
    /// Nothing goes through, not even the end of a connection.
    Cut,
    Ended,
}

/// The state of the network, and those that wait for another one.
#[derive(Debug)]
struct Link {
    state: Mutex<LinkState>,
    changed: Condvar,
}

impl Link {
    fn set(&self, state: LinkState) {
        *self.state.lock() = state;
        self.changed.notify_all();
    }

    /// Waits while the network is cut. `false`: the proxy has ended.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while *state == LinkState::Cut {
            self.changed.wait(&mut state);
        }
        *state == LinkState::Open
    }
}

/// A proxy. Each connection keeps its order and loses nothing over a cut.
pub(super) struct Proxy {
    port: u16,
    link: Arc<Link>,
    /// What loses its packets in a cut. `None`: the proxy holds the bytes back.
    network: Option<Arc<LossyNetwork>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Forwards the connections of a listener to another port of this machine.
    pub(super) fn start(
        listener: TcpListener,
        upstream: u16,
        network: Option<Arc<LossyNetwork>>,
    ) -> Result<Self, BenchError> {
        let port = listener.local_addr()?.port();
        let link = Arc::new(Link {
            state: Mutex::new(LinkState::Open),
            changed: Condvar::new(),
        });
        let shared = link.clone();
        let thread = std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if *shared.state.lock() == LinkState::Ended {
                    break;
                }
                let link = shared.clone();
                std::thread::spawn(move || connect(&client, upstream, &link));
            }
        });
        Ok(Self {
            port,
            link,
            network,
            thread: Some(thread),
        })
    }

    /// Cuts the network, or restores it.
    pub(super) fn cut(&self, is_cut: bool) -> Result<(), BenchError> {
        if let Some(network) = &self.network {
            return network.cut(self.port, is_cut);
        }
        self.link
            .set(if is_cut { LinkState::Cut } else { LinkState::Open });
        Ok(())
    }

    pub(super) fn is_cut(&self) -> bool {
        let is_lossy = self
            .network
            .as_ref()
            .is_some_and(|network| network.is_cut(self.port));
        is_lossy || *self.link.state.lock() == LinkState::Cut
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.link.set(LinkState::Ended);
        if let Some(network) = &self.network
            && network.cut(self.port, false).is_err()
        {
            return;
        }
        // The thread waits for a connection.
        let woken = TcpStream::connect(("127.0.0.1", self.port));
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            // A panic of it is printed.
            let _ = thread.join();
        }
    }
}

/// Forwards both directions of a connection until both have ended.
fn connect(client: &TcpStream, upstream: u16, link: &Link) {
    if !link.wait() {
        return;
    }
    // A server that is down refuses the connection, and so the client loses it.
    let Ok(server) = TcpStream::connect(("127.0.0.1", upstream)) else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    std::thread::scope(|scope| {
        scope.spawn(|| forward(client, &server, link));
        forward(&server, client, link);
    });
}

/// Forwards one direction, and its end.
fn forward(mut from: &TcpStream, mut to: &TcpStream, link: &Link) {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = from.read(&mut buffer);
        let is_open = link.wait();
        match read {
            Ok(length) if length > 0 && is_open && to.write_all(&buffer[..length]).is_ok() => {}
            Ok(0) if is_open => {
                // The other direction may go on.
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            // A connection that failed fails at both ends.
            _ => {
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A client of a proxy, and the server behind it.
    fn pair() -> (Proxy, TcpStream, TcpStream) {
        let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::start(listener, upstream.local_addr().unwrap().port(), None).unwrap();
        let client = TcpStream::connect(("127.0.0.1", proxy.port)).unwrap();
        let (server, _) = upstream.accept().unwrap();
        (proxy, client, server)
    }

    #[test]
    fn bytes_wait_for_the_end_of_a_cut_and_stay_in_order() {
        let (proxy, mut client, mut server) = pair();
        client.write_all(b"a").unwrap();
        let mut byte = [0];
        server.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"a");
        proxy.cut(true).unwrap();
        assert!(proxy.is_cut());
        client.write_all(b"bc").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        server.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert!(server.read(&mut byte).is_err());
        proxy.cut(false).unwrap();
        server.set_read_timeout(None).unwrap();
        let mut rest = String::new();
        server.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "bc");
    }

    #[test]
    fn the_end_of_a_proxy_ends_its_connections() {
        let (proxy, mut client, server) = pair();
        drop(proxy);
        drop(server);
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }
}
