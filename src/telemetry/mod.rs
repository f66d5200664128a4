//! tidegate's own telemetry: logs, metrics under the Collector's names where it has the thing, spans of slow batches.

mod books;
pub mod config;
mod family;
mod logs;
mod otlp;
mod process;
mod push;
mod server;
mod spans;

use std::sync::Arc;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;

use crate::component::books::Books;
use crate::component::{ComponentError, Shared};
pub use config::Config;
pub use logs::{Every, start_logs};

/// tidegate's own telemetry in operation.
#[derive(Default)]
pub struct Telemetry {
    server: Option<server::Server>,
    pushers: Vec<push::Pusher>,
    spans: Option<spans::Spans>,
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

    /// Serves and pushes the metrics of `handle` and `books`, and records slow batches, as far as the configuration
    /// wants it.
    pub async fn start(
        config: &Config,
        handle: PrometheusHandle,
        books: Books,
        shared: &Shared,
    ) -> Result<Self, ComponentError> {
        let mut telemetry = Self::default();
        let attributes = attributes(config);
        let page = Arc::new(books::Page::new(handle, books, &attributes));
        if let Some(endpoint) = config.metrics.endpoint() {
            let server = server::Server::start(&endpoint, page.clone()).await;
            let server = server.map_err(|error| {
                failed(format!(
                    "can't serve tidegate's own metrics on {endpoint}: {error}; \
                     set service::telemetry::metrics::address, or level: none"
                ))
            })?;
            telemetry.server = Some(server);
        }
        let pairs = attributes
            .into_iter()
            .map(|(key, value)| KeyValue::new(key, value));
        let resource = Resource::builder_empty().with_attributes(pairs).build();
        for reader in config.metrics.pushers() {
            let pusher = push::Pusher::start(reader, page.clone(), resource.clone()).map_err(failed)?;
            telemetry.pushers.push(pusher);
        }
        telemetry.spans = spans::Spans::start(&config.traces, resource, &shared.slowness).map_err(failed)?;
        Ok(telemetry)
    }

    /// Pushes what is left, within a second or two, and stops serving.
    pub async fn stop(self) {
        let pushers = async {
            for pusher in self.pushers {
                pusher.stop().await;
            }
        };
        let spans = async {
            if let Some(spans) = self.spans {
                spans.stop().await;
            }
        };
        tokio::join!(pushers, spans);
        if let Some(server) = self.server {
            server.stop().await;
        }
    }
}

/// The gateway's own resource: what the configuration says, and who it is where that says nothing.
fn attributes(config: &Config) -> Vec<(String, String)> {
    let mut attributes = config.resource.0.clone();
    let defaults = [
        ("service.name", "tidegate".to_owned()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id", instance_id()),
    ];
    for (key, value) in defaults {
        if config.resource.get(key).is_none() {
            attributes.push((key.to_owned(), value));
        }
    }
    attributes
}

/// A random UUID (RFC 9562, version 4), new at each start, as the Collector has it.
fn instance_id() -> String {
    let random = rand::random::<u128>() & !(0xf << 76) & !(0x3 << 62) | 4 << 76 | 2 << 62;
    let hex = format!("{random:032x}");
    let groups = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    groups.join("-")
}

fn failed(message: impl Into<String>) -> ComponentError {
    ComponentError {
        component: "service::telemetry".to_owned(),
        message: message.into(),
    }
}
