// SPDX-License-Identifier: Apache-2.0

//! `partials`: publishes the totals of this gateway, so that the replicas of a cluster show those of all gateways.
//!
//! The exporter reads the tables of earlier components, as `prometheus` does. Data from no table goes to a table of its
//! own. With `streams`, cumulative totals from no table are published as streams, which any gateway may report. At each
//! interval it sends the pages that have changed. Acknowledgement ends here: the next page has everything
//! that an earlier one had, so a failure of the store costs freshness only.

mod config;
mod driver;
mod items;
mod streams;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use parking_lot::Mutex;
use tidegate_cluster::{PageSender, ProducerName};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::config::PartialsExporterConfig;
use self::driver::PageDriver;
use self::streams::StreamBuffer;
use crate::batch::{Batch, Signal};
use crate::component::{
    Cluster, ComponentError, ConfigType, Consumer, Context, ErrorDoc, Exporter, ExporterFactory, Factory,
    Flow, Ledger, Lifecycle, Refused, Stability, TableHandle,
};
use crate::exporters::tables::{ExporterTables, TableSink, TakesPoints};

/// The errors of `partials`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "The gateway stops before the store has the last totals.",
        "stopped before the store had the last pages",
        "Check the store, or raise `service::drain_timeout`.",
    ),
    ErrorDoc::logged(
        "The extension `cluster` does not run. The gateway does not start.",
        "cluster: the extension does not run",
        "Add the extension to `service::extensions`.",
    ),
    ErrorDoc::logged(
        "The engine of the cluster has ended.",
        "the engine of the cluster has ended",
        "Restart the gateway, and report the bug with the log.",
    ),
];

/// The factory of `partials`.
pub static FACTORY: ExporterFactory = Factory {
    kind: "partials",
    aliases: &[],
    stability: &[(Signal::Metrics, Stability::Alpha)],
    help: "publishes the totals of this gateway to the replicas of a cluster",
    errors: &[ERRORS],
    config: ConfigType::of::<PartialsExporterConfig>(),
    build: |settings, cx| {
        let ledger = cx.ledger(Signal::Metrics).cloned();
        let ledger = ledger.ok_or_else(|| cx.base.error("only metrics pipelines can use it"))?;
        Ok(Arc::new(Partials::new(settings.get(), cx.base, ledger)?))
    },
};

/// The task that sends, and how it is stopped.
type SendingTask = (watch::Sender<Option<Instant>>, JoinHandle<()>);

struct Partials {
    config: Arc<PartialsExporterConfig>,
    base: Context,
    cluster: Arc<Cluster>,
    producer: ProducerName,
    tables: Arc<ExporterTables>,
    streams: Option<Arc<StreamBuffer>>,
    sink: TableSink,
    task: Mutex<Option<SendingTask>>,
}

impl Partials {
    fn new(
        config: Arc<PartialsExporterConfig>,
        base: Context,
        ledger: Arc<Ledger>,
    ) -> Result<Self, ComponentError> {
        let cluster = base.cluster("cluster", &config.cluster)?;
        let producer = config.producer.clone().unwrap_or_else(host_name);
        let producer = ProducerName::of_gateway(&producer);
        let producer = producer.map_err(|error| base.error(format!("producer: {error}")))?;
        let bounds = base.shared.memory.bounds_of_tables();
        let tables = ExporterTables::replacing(&base, config.limits(), Vec::new());
        let tables = Arc::new(tables);
        let streams = config.streams.then(|| {
            let most = config.sender(&cluster, producer.clone()).max_body_bytes;
            Arc::new(StreamBuffer::new(config.max_series, most, bounds))
        });
        let first = streams.clone().map(|streams| streams as Arc<dyn TakesPoints>);
        Ok(Self {
            sink: TableSink::new(tables.clone(), ledger, base.id.clone()).offering_first(first),
            streams,
            config,
            base,
            cluster,
            producer,
            tables,
            task: Mutex::default(),
        })
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl Exporter for Partials {
    fn show_tables(&self, tables: Vec<TableHandle>) {
        self.tables.show(tables);
    }
}

#[async_trait]
impl Lifecycle for Partials {
    async fn start(&self) -> Result<(), ComponentError> {
        let engine = self.cluster.engine();
        let engine = engine.ok_or_else(|| self.base.error("cluster: the extension does not run"))?;
        let sender = PageSender::new(self.config.sender(&self.cluster, self.producer.clone()));
        let driver = PageDriver::new(
            self.base.clone(),
            self.config.clone(),
            self.cluster.clone(),
            (self.tables.clone(), self.streams.clone()),
            sender,
            engine.open(),
        );
        let (stop, stopped) = watch::channel(None);
        let task = tokio::spawn(driver.run(stopped));
        *self.task.lock() = Some((stop, task));
        Ok(())
    }

    async fn stop(&self, deadline: Instant) {
        let running = self.task.lock().take();
        let Some((stop, mut task)) = running else {
            return;
        };
        stop.send_replace(Some(deadline));
        if tokio::time::timeout_at(deadline.into(), &mut task).await.is_err() {
            task.abort();
        }
    }
}

impl Consumer for Partials {
    fn admit(&self, _: &Batch, _: &mut Flow) -> Result<(), Refused> {
        Ok(())
    }

    fn consume(&self, batch: Batch, flow: &mut Flow) {
        self.sink.consume(batch, flow);
    }

    fn absorbs(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
