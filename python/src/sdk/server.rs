// SPDX-License-Identifier: Apache-2.0

//! `/metrics`, `/health` and `/live` of a registry over HTTP.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use tidegate_metrics::{HttpServer, MetricsRegistry, serve_http};

/// Serves a registry on a thread of its own until it is closed.
#[pyclass(frozen, module = "tidegate._tidegate")]
pub(crate) struct Server {
    running: Mutex<Option<HttpServer>>,
    health: tidegate_metrics::Health,
    address: SocketAddr,
    /// The process that the thread is in: a fork takes none along.
    process: u32,
}

/// Whether the program is ready, as a whole and by endpoint: what `/health` answers.
#[pyclass(frozen, module = "tidegate._tidegate")]
pub(crate) struct Health(tidegate_metrics::Health);

impl Server {
    pub(super) fn start(
        py: Python<'_>,
        registry: Arc<dyn MetricsRegistry>,
        host: &str,
        port: u16,
    ) -> PyResult<Self> {
        let server = py
            .detach(|| serve_http(registry, (host, port)))
            .map_err(|error| PyOSError::new_err(format!("{host}:{port}: {error}")))?;
        Ok(Self {
            health: server.health().clone(),
            address: server.address(),
            running: Mutex::new(Some(server)),
            process: std::process::id(),
        })
    }
}

#[pymethods]
impl Server {
    /// Where it listens: the host and the port.
    #[getter]
    fn address(&self) -> (String, u16) {
        (self.address.ip().to_string(), self.address.port())
    }

    /// Where it listens, as a URL without a path.
    #[getter]
    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The state that `/health` answers with.
    #[getter]
    fn health(&self) -> Health {
        Health(self.health.clone())
    }

    /// Stops. A second call does nothing.
    fn close(&self, py: Python<'_>) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if self.process == std::process::id() {
            py.detach(|| drop(running));
        } else {
            // Its thread is in another process: a wait for it here would not end.
            std::mem::forget(running);
        }
    }

    fn __repr__(&self) -> String {
        format!("<tidegate.Server http://{}>", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(running.take());
        }
    }
}

#[pymethods]
impl Health {
    /// Sets whether the program as a whole is ready.
    fn set_ready(&self, ready: bool) {
        self.0.set_ready(ready);
    }

    /// Sets whether an endpoint is ready.
    fn set_endpoint(&self, name: &str, ready: bool) {
        self.0.set_endpoint(name, ready);
    }

    /// Removes an endpoint.
    fn remove_endpoint(&self, name: &str) {
        self.0.remove_endpoint(name);
    }

    /// Whether the program and all its endpoints are ready.
    #[getter]
    fn is_ready(&self) -> bool {
        self.0.is_ready()
    }

    fn __repr__(&self) -> String {
        let word = if self.0.is_ready() { "ready" } else { "not ready" };
        format!("<tidegate.Health {word}>")
    }
}
