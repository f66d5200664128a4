// SPDX-License-Identifier: Apache-2.0

//! `/metrics`, `/health` and `/live` over HTTP, on a thread of their own.

mod health;
mod response;

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Semaphore, oneshot};

use crate::MetricsRegistry;
pub use health::Health;

/// Connections at a time; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 64;

/// So long a peer may take to say what it wants, and an idle connection stays.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// After an error of `accept` (no file descriptors, say) the next attempt comes after this time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves a registry until it is dropped.
#[derive(Debug)]
#[must_use = "it serves until it is dropped"]
pub struct HttpServer {
    address: SocketAddr,
    health: Health,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Serves `/metrics`, `/health` and `/live` at `address` (`0.0.0.0:9090`; port 0: any that is free).
///
/// `/metrics` is text 0.0.4 or OpenMetrics, as the reader wants. `/health` says 200 when everything in
/// [`Health`] is ready and 503 when it is not; `/live` says 200 as long as there is an answer. Other threads and runtimes
/// of the program have no part in it: it answers when they are stuck, too.
///
/// # Errors
/// The address can't be listened on, or there are no threads left.
pub fn serve_http(registry: Arc<dyn MetricsRegistry>, address: impl ToSocketAddrs) -> io::Result<HttpServer> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let health = Health::default();
    let site = Arc::new(response::Site {
        registry,
        health: health.clone(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("metrics-http".to_owned())
        .spawn(move || {
            runtime.spawn(async {
                let Err(error) = serve(listener, site).await;
                crate::report::error(&format!("/metrics is not served: {error}"));
            });
            // It ends when the other end is dropped, and everything within the runtime with it.
            let _ = runtime.block_on(stopped);
        })?;
    Ok(HttpServer {
        address,
        health,
        stop: Some(stop),
        thread: Some(thread),
    })
}

impl HttpServer {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The state that `/health` shows.
    pub fn health(&self) -> &Health {
        &self.health
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It only panics where it has reported that.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, site: Arc<response::Site>) -> io::Result<Infallible> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let permit = room.clone().acquire_owned().await.map_err(io::Error::other)?;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let site = site.clone();
        tokio::spawn(async move {
            let _permit = permit;
            let service = service_fn(|request| {
                let answer = site.answer(&request);
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut connection = http1::Builder::new();
            connection
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT);
            // A peer that goes away or sends an invalid request harms only itself.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

#[cfg(test)]
mod tests;
