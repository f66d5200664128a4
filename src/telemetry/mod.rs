// SPDX-License-Identifier: Apache-2.0

//! tidegate's own telemetry: logs, metrics with the Collector's names where possible, spans of slow batches.

mod catalogue;
mod component_gauges;
mod component_levels;
pub mod config;
mod graph_metrics;
mod instruments;
mod logs;
mod old_names;
mod otlp;
mod owners;
mod process;
mod push;
mod recorder;
mod resource;
mod server;
mod spans;
#[cfg(test)]
pub(crate) mod testing;
mod views;

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use tokio::task::JoinHandle;

use crate::component::graph_metrics::GraphMetrics;
use crate::component::shared::OwnMetrics;
use crate::component::{ComponentError, Shared};
use crate::net::Endpoint;
use component_gauges::{ComponentGauges, Noting};
pub use component_levels::named_component;
pub use config::TelemetryConfig;
pub use logs::refuses_colours;
pub use owners::{OwnMetric, own_metrics};
pub use process::{measure_heap, note_live_memory};

/// The instrumentation scope of tidegate's own telemetry.
const SCOPE: &str = "tidegate";

/// The interval at which recorded values of histograms are sorted into buckets.
const TIDY: Duration = Duration::from_secs(5);

/// The telemetry before the components are built: it logs and counts, but exports nothing yet.
pub struct Prepared {
    resource: Resource,
    pages: Vec<(Endpoint, server::MetricsPage)>,
    pushes: Vec<push::Push>,
    logs: logs::RunningLogs,
    gauges: Arc<ComponentGauges>,
}

/// The running telemetry.
#[derive(Default)]
pub struct Telemetry {
    servers: Vec<server::MetricsServer>,
    pushers: Vec<push::Pusher>,
    spans: Option<spans::Spans>,
    logs: logs::RunningLogs,
    tidier: Option<JoinHandle<()>>,
    publisher: Option<Arc<graph_metrics::MetricsPublisher>>,
    gauges: Arc<ComponentGauges>,
}

impl Telemetry {
    /// Publishes the counters of this graph from now on.
    pub fn set_graph(&self, graph: GraphMetrics) {
        if let Some(publisher) = &self.publisher {
            publisher.set_graph(graph);
        }
    }

    /// Logs by the levels of this configuration from now on, unless `TIDEGATE_LOG` has set them.
    pub fn set_log_levels(&self, config: &config::Logs) {
        self.logs.set_levels(config);
    }

    /// Shows the gauges of components again that a reload has added. `added` has their paths.
    pub fn begin_gauges(&self, added: &[Arc<str>]) {
        if let Some(publisher) = &self.publisher {
            publisher.begin(added);
        }
    }

    /// Ends the gauges of removed components, which have stopped. Their counts stay. `removed` and `running` are paths.
    pub fn end_gauges(&self, removed: &[Arc<str>], running: &[Arc<str>]) {
        if let Some(publisher) = &self.publisher {
            publisher.end(removed, || self.gauges.end(removed, running));
        }
    }

    /// Starts logging, and installs the recorder for the counts of components. Call it once a process, within a
    /// runtime, before any component is built: earlier counts are lost.
    ///
    /// # Errors
    /// An exporter of own telemetry can't be built, an address is not an endpoint,
    /// or a recorder exists already.
    pub fn prepare(config: &TelemetryConfig) -> Result<Prepared, ComponentError> {
        let attributes = attributes(config);
        let resource = resource(config, &attributes);
        let logs = logs::start(&config.logs, &resource).map_err(failed)?;
        let mut prepared = Prepared {
            resource,
            pages: Vec::new(),
            pushes: Vec::new(),
            logs,
            gauges: Arc::default(),
        };
        let (mut shown, mut pushed) = (Vec::new(), Vec::new());
        for (endpoint, listen) in config.metrics.pages().map_err(failed)? {
            let (recorder, rendering) = recorder::Renaming::new(&listen, &attributes);
            prepared
                .pages
                .push((endpoint, server::MetricsPage::new(rendering, &attributes)));
            shown.push(recorder);
        }
        for reader in config.metrics.pushers() {
            let (push, instruments) = push::Push::new(reader, prepared.resource.clone()).map_err(failed)?;
            prepared.pushes.push(push);
            pushed.push(instruments);
        }
        if !shown.is_empty() || !pushed.is_empty() {
            let views = views::Views::new(&config.metrics.views);
            let recorder = Noting {
                gauges: prepared.gauges.clone(),
                inner: recorder::fan_out(config.metrics.level, views, shown, pushed),
            };
            metrics::set_global_recorder(recorder).map_err(|error| failed(error.to_string()))?;
        }
        Ok(prepared)
    }
}

impl Prepared {
    /// Serves and pushes the counts of components and of `metrics`, and records slow batches, as configured.
    ///
    /// # Errors
    /// A page of own metrics can't be served, or an exporter of spans can't be built.
    pub async fn start(
        self,
        config: &TelemetryConfig,
        metrics: GraphMetrics,
        shared: &Shared,
    ) -> Result<Telemetry, ComponentError> {
        let publisher = Arc::new(graph_metrics::MetricsPublisher::new(metrics));
        let mut telemetry = Telemetry {
            logs: self.logs,
            publisher: Some(publisher.clone()),
            gauges: self.gauges,
            ..Telemetry::default()
        };
        let renderings: Vec<_> = self.pages.iter().map(|(_, page)| page.rendering()).collect();
        if let Some(rendering) = renderings.first().cloned() {
            let render = move || rendering.live_text();
            shared.own_metrics.set(OwnMetrics(Box::new(render)));
        }
        for (endpoint, page) in self.pages {
            let memory = shared.memory.clone();
            let server =
                server::MetricsServer::start(&endpoint, &config.metrics, page, publisher.clone(), memory)
                    .await;
            let server = server.map_err(|error| {
                failed(format!(
                    "can't serve tidegate's own metrics: {error}; \
                     set {}, or level: none",
                    config.metrics.option_of(&endpoint)
                ))
            })?;
            telemetry.servers.push(server);
        }
        let pushers = self.pushes.into_iter().map(|push| push.start(publisher.clone()));
        telemetry.pushers = pushers.collect();
        telemetry.tidier = Some(tokio::spawn(tidy(renderings)));
        telemetry.spans =
            spans::Spans::start(&config.traces, self.resource, &shared.slowness).map_err(failed)?;
        Ok(telemetry)
    }
}

impl Telemetry {
    /// Pushes the rest within one or two seconds, and stops serving.
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
        for server in self.servers {
            server.stop().await;
        }
        if let Some(tidier) = self.tidier {
            tidier.abort();
        }
        self.logs.stop().await;
    }
}

/// Limits the memory of recorded values while there are no scrapes.
async fn tidy(renderings: Vec<recorder::Rendering>) {
    let mut ticks = tokio::time::interval(TIDY);
    loop {
        ticks.tick().await;
        renderings.iter().for_each(recorder::Rendering::tidy);
    }
}

/// The gateway's own attributes: those from the configuration, then default identifiers.
fn attributes(config: &TelemetryConfig) -> Vec<(String, String)> {
    let configured = config.resource.attributes.iter();
    let mut attributes: Vec<_> = configured
        .filter_map(|(key, value)| Some((key.clone(), value.clone()?)))
        .collect();
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

fn resource(config: &TelemetryConfig, attributes: &[(String, String)]) -> Resource {
    let pairs = attributes
        .iter()
        .map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    match &config.resource.schema_url {
        Some(url) => Resource::builder_empty()
            .with_schema_url(pairs, url.clone())
            .build(),
        None => Resource::builder_empty().with_attributes(pairs).build(),
    }
}

/// A random UUID (RFC 9562, version 4), new at each start, as in the Collector.
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

#[cfg(test)]
mod tests;
