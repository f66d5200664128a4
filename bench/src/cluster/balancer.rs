// SPDX-License-Identifier: Apache-2.0

//! A load balancer over HTTP for a scraper: it asks the replicas in turn, and another one if a replica does not answer.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::BenchError;
use crate::http::Scraper;

/// A replica that takes longer does not answer. Two of them take less than the timeout of a scrape.
const TIMEOUT: Duration = Duration::from_millis(450);

/// The longest time of a request.
const REQUEST: Duration = Duration::from_secs(5);

/// The balancer.
pub(super) struct Balancer {
    pub(super) port: u16,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Balancer {
    /// Serves the pages of these ports.
    pub(super) fn start(replicas: Vec<u16>) -> Result<Self, BenchError> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let is_over = Arc::<AtomicBool>::default();
        let over = is_over.clone();
        let thread = std::thread::spawn(move || {
            let (replicas, turn) = (Arc::new(replicas), Arc::<AtomicUsize>::default());
            for client in listener.incoming().flatten() {
                if over.load(Relaxed) {
                    break;
                }
                let (replicas, turn) = (replicas.clone(), turn.clone());
                // A scraper that has gone gets no answer.
                std::thread::spawn(move || answer(client, &replicas, turn.fetch_add(1, Relaxed)).ok());
            }
        });
        Ok(Self {
            port,
            is_over,
            thread: Some(thread),
        })
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        // The thread waits for a connection.
        let woken = TcpStream::connect(("127.0.0.1", self.port));
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            // A panic of it is printed.
            let _ = thread.join();
        }
    }
}

/// Answers one request, and closes the connection.
fn answer(client: TcpStream, replicas: &[u16], turn: usize) -> Result<(), BenchError> {
    client.set_read_timeout(Some(REQUEST))?;
    let mut client = BufReader::new(client);
    let mut line = String::new();
    while client.read_line(&mut line)? > 2 {
        line.clear();
    }
    let page = (0..replicas.len()).find_map(|attempt| {
        let port = replicas[(turn + attempt) % replicas.len()];
        let mut scraper = Scraper::connect_within(port, "/metrics", TIMEOUT).ok()?;
        scraper.get().ok().map(str::to_owned)
    });
    let (status, page) = match page {
        Some(page) => ("200 OK", page),
        None => ("503 Service Unavailable", String::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        page.len()
    );
    client.get_mut().write_all(head.as_bytes())?;
    client.get_mut().write_all(page.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::free_port;

    #[test]
    fn a_replica_that_does_not_answer_is_skipped() {
        let replica = TcpListener::bind("127.0.0.1:0").unwrap();
        let live = replica.local_addr().unwrap().port();
        let thread = std::thread::spawn(move || {
            for _ in 0..2 {
                let (stream, _) = replica.accept().unwrap();
                let mut stream = BufReader::new(stream);
                while stream.read_line(&mut String::new()).unwrap() > 2 {}
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\na 1\n";
                stream.get_mut().write_all(answer).unwrap();
            }
        });
        let balancer = Balancer::start(vec![free_port().unwrap(), live]).unwrap();
        for _ in 0..2 {
            let mut scraper = Scraper::connect(balancer.port, "/metrics").unwrap();
            assert_eq!(scraper.get().unwrap(), "a 1\n");
        }
        thread.join().unwrap();
        let mut scraper = Scraper::connect(balancer.port, "/metrics").unwrap();
        assert!(scraper.get().unwrap_err().to_string().contains("503"));
    }
}
