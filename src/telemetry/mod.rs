//! tidegate's own telemetry: logs, and metrics under the Collector's names where it has the thing.

mod books;
pub mod config;
mod logs;
mod process;
mod server;

use std::sync::Arc;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::component::ComponentError;
use crate::component::books::Books;
pub use config::Config;
pub use logs::{Every, start_logs};

/// tidegate's own telemetry in operation.
pub struct Telemetry {
    server: Option<server::Server>,
}

impl Telemetry {
    /// Installs the recorder that components count into. Once a process, before any component is built;
    /// what is counted earlier is lost.
    pub fn recorder() -> Result<PrometheusHandle, ComponentError> {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).map_err(|error| failed(error.to_string()))?;
        Ok(handle)
    }

    /// Serves the metrics of `handle` and `books`, if the configuration wants them served.
    pub async fn start(
        config: &Config,
        handle: PrometheusHandle,
        books: Books,
    ) -> Result<Self, ComponentError> {
        let Some(endpoint) = config.metrics.endpoint() else {
            return Ok(Self { server: None });
        };
        let page = Arc::new(books::Page::new(handle, books));
        let server = server::Server::start(&endpoint, page).await;
        server
            .map(|server| Self { server: Some(server) })
            .map_err(|error| {
                failed(format!(
                    "can't serve tidegate's own metrics on {endpoint}: {error}; \
                 set service::telemetry::metrics::address, or level: none"
                ))
            })
    }

    /// Stops serving.
    pub async fn stop(self) {
        if let Some(server) = self.server {
            server.stop().await;
        }
    }
}

fn failed(message: impl Into<String>) -> ComponentError {
    ComponentError {
        component: "service::telemetry".to_owned(),
        message: message.into(),
    }
}
