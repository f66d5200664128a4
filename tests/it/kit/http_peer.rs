// SPDX-License-Identifier: Apache-2.0

//! An HTTP/1.1 server without comforts, which notes what clients do with their connections.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The number of its connection, from 1.
    pub(crate) connection: usize,
    /// Method, target, version.
    pub(crate) line: String,
    /// In lower case.
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
    pub(crate) at: Instant,
}

/// The answer to every request.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: &'static str,
    /// Lines, each with `\r\n`.
    pub(crate) headers: &'static str,
    pub(crate) body: String,
    /// After this time.
    pub(crate) delay: Duration,
}

impl Default for Reply {
    fn default() -> Self {
        Self {
            status: "200 OK",
            headers: "",
            body: String::new(),
            delay: Duration::ZERO,
        }
    }
}

struct Shared {
    reply: Mutex<Reply>,
    connections: AtomicUsize,
    /// Requests that wait for their answers, and the most of them at a time.
    busy: AtomicUsize,
    busiest: AtomicUsize,
    seen: Mutex<Vec<Seen>>,
    ended: AtomicBool,
}

/// The running server; it ends when dropped.
pub(crate) struct HttpPeer {
    shared: Arc<Shared>,
    port: u16,
}

impl HttpPeer {
    /// Answers 200 at once.
    pub(crate) fn start() -> Self {
        Self::answering(Reply::default())
    }

    /// Answers so.
    pub(crate) fn answering(reply: Reply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            reply: Mutex::new(reply),
            connections: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            busiest: AtomicUsize::new(0),
            seen: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let serving = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if serving.ended.load(SeqCst) {
                    return;
                }
                let (serving, number) = (serving.clone(), serving.connections.fetch_add(1, SeqCst) + 1);
                thread::spawn(move || while serving.exchange(&stream, number).is_some() {});
            }
        });
        Self { shared, port }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Answers so from now on.
    pub(crate) fn answer(&self, reply: Reply) {
        *self.shared.reply.lock().expect("no panic inside") = reply;
    }

    /// All requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().expect("no panic inside").clone()
    }

    /// The most requests that waited for their answers at a time.
    pub(crate) fn busiest(&self) -> usize {
        self.shared.busiest.load(SeqCst)
    }
}

impl Drop for HttpPeer {
    fn drop(&mut self) {
        self.shared.ended.store(true, SeqCst);
        // Wakes the listener, so that it sees the end.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    /// One request and its answer; `None`: the connection is over.
    fn exchange(&self, stream: &TcpStream, connection: usize) -> Option<()> {
        let mut from = BufReader::new(stream);
        let mut line = String::new();
        from.read_line(&mut line).ok().filter(|length| *length > 0)?;
        let mut headers = String::new();
        loop {
            let mut header = String::new();
            from.read_line(&mut header).ok().filter(|length| *length > 0)?;
            if header == "\r\n" {
                break;
            }
            headers += &header.to_lowercase();
        }
        let length = headers
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or_default()];
        from.read_exact(&mut body).ok()?;
        let busy = self.busy.fetch_add(1, SeqCst) + 1;
        self.busiest.fetch_max(busy, SeqCst);
        let seen = Seen {
            connection,
            line: line.trim_end().to_owned(),
            headers,
            body,
            at: Instant::now(),
        };
        self.seen.lock().expect("no panic inside").push(seen);
        let reply = self.reply.lock().expect("no panic inside").clone();
        thread::sleep(reply.delay);
        self.busy.fetch_sub(1, SeqCst);
        let (mut to, length) = (stream, reply.body.len());
        let Reply {
            status,
            headers,
            body,
            ..
        } = reply;
        write!(
            to,
            "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}"
        )
        .ok()
    }
}
