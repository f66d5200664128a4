// SPDX-License-Identifier: Apache-2.0

//! A TCP proxy in front of an endpoint that breaks connections in the ways networks and peers do.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The fault that connections get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// They pass.
    None,
    /// They are closed at once.
    Refuse,
    /// They are accepted, and nothing is ever read or answered.
    Silence,
    /// The proxy resets them after this number of bytes of a request.
    ResetAfter(usize),
    /// Requests pass, and the answer never comes: the sender can't know.
    LoseAnswer,
}

struct Shared {
    to: u16,
    fault: Mutex<Fault>,
    broken: AtomicUsize,
    /// Connections so far, and how many of them, from the first, get no answers any more.
    connections: AtomicUsize,
    frozen: AtomicUsize,
    ended: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

/// The running proxy; it ends when dropped.
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    port: u16,
}

impl Proxy {
    /// In front of a port of this machine.
    pub(crate) fn start(to: u16, fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            to,
            fault: Mutex::new(fault),
            broken: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            frozen: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let serving = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if serving.ended.load(SeqCst) {
                    return;
                }
                let serving = serving.clone();
                thread::spawn(move || serving.serve(stream));
            }
        });
        Self { shared, port }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How many connections have met a fault.
    pub(crate) fn broken(&self) -> usize {
        self.shared.broken.load(SeqCst)
    }

    /// How many connections there were.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(SeqCst)
    }

    /// Nothing comes back on connections that are open now, as behind a firewall that has forgotten them.
    pub(crate) fn freeze(&self) {
        self.shared.frozen.store(self.connections(), SeqCst);
    }

    /// From now on; connections that are open now are cut.
    pub(crate) fn set(&self, fault: Fault) {
        *self.shared.fault.lock().expect("no panic inside") = fault;
        for stream in self.shared.open.lock().expect("no panic inside").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, SeqCst);
        self.set(Fault::Refuse);
        // Wakes the listener, so that it sees the end.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn serve(self: &Arc<Self>, mut client: TcpStream) {
        let fault = *self.fault.lock().expect("no panic inside");
        let number = self.connections.fetch_add(1, SeqCst);
        let keep = client.try_clone().expect("a socket");
        self.open.lock().expect("no panic inside").push(keep);
        if fault != Fault::None {
            self.broken.fetch_add(1, SeqCst);
        }
        match fault {
            Fault::Refuse => {}
            // Until `set` cuts it.
            Fault::Silence => {
                while !self.ended.load(SeqCst) && client.peer_addr().is_ok() {
                    thread::sleep(Duration::from_millis(5));
                }
            }
            Fault::ResetAfter(bytes) => {
                let mut taken = vec![0; bytes];
                let _ = client.read_exact(&mut taken);
                let linger = rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO));
                linger.expect("a socket option");
            }
            Fault::None | Fault::LoseAnswer => self.forward(client, fault, number),
        }
    }

    fn forward(self: &Arc<Self>, mut client: TcpStream, fault: Fault, number: usize) {
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", self.to)) else {
            return;
        };
        let (mut back, mut answers) = (
            client.try_clone().expect("a socket"),
            server.try_clone().expect("a socket"),
        );
        let shared = self.clone();
        let answering = thread::spawn(move || {
            let mut bytes = [0; 16 << 10];
            while let Ok(length @ 1..) = answers.read(&mut bytes) {
                if fault == Fault::LoseAnswer {
                    break;
                }
                if number < shared.frozen.load(SeqCst) {
                    continue;
                }
                if back.write_all(&bytes[..length]).is_err() {
                    break;
                }
            }
            let _ = back.shutdown(Shutdown::Both);
        });
        let _ = std::io::copy(&mut client, &mut server);
        let _ = server.shutdown(Shutdown::Both);
        let _ = answering.join();
    }
}
