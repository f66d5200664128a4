// SPDX-License-Identifier: Apache-2.0

//! `prometheus`: answers scrapes from live tables of earlier processors, or from its own table.
//!
//! The graph builder attaches the tables of earlier processors, unless a processor in between edits. A scrape reads
//! these tables themselves. So a value is visible as soon as it is absorbed there, and no series is held twice. All
//! other data goes to the exporter's own table, which keeps the newest state of each series until it expires.
//! Acknowledgement ends here: absorbed data is lost when the process ends.

pub mod config;
mod debug;
mod negotiate;
mod page;
mod server;
mod singleflight;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::batch::{Batch, Signal};
use crate::component::worker::{Pause, Worker, lower_priority};
use crate::component::{
    ComponentError, ConfigType, Consumer, Context, ErrorDoc, Exporter, ExporterFactory, Factory, Flow,
    Ledger, Lifecycle, Refused, Stability, TableHandle, anomalies, collisions, unix_now,
};
use crate::exporters::tables::{ExporterTables, TableSink};
use crate::net::auth::AuthGate;
use crate::net::errors::{AUTH_ERRORS, LISTENER_ERRORS, PAGE_ERRORS, SOCKET_ERRORS};
use crate::net::pages::PageServer;
use crate::net::tls;
use crate::prom::Escaping;
use crate::prom::catalog::{Senders, View};
use async_trait::async_trait;
use config::PrometheusExporterConfig;
use page::Pages;
use server::Scrapes;
use tidegate_engine::{Overflow, Stats, Table};

/// The errors of `prometheus`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::answered(
        "The page can't be rendered because of a bug.",
        "500",
        "Report the bug, with the log.",
    ),
    ErrorDoc::answered(
        "The gateway is a replica of a cluster, and does not know all totals.",
        "503 with `Retry-After`",
        "Wait until the replica is ready. Prometheus scrapes the other replicas.",
    ),
    ErrorDoc::answered(
        "A reload starts the page, and fails before the page has all series.",
        "503 with `Retry-After`",
        "Correct what the log of the gateway names, and reload.",
    ),
    ErrorDoc::logged(
        "Two metrics would have the same name or the same series. The exporter omits one.",
        "omitted from the exposition: ",
        "Rename one of the metrics. The path `/debug` lists what the page omits.",
    ),
    ErrorDoc::logged(
        "A metric has another type, unit or help than an earlier one of its name.",
        "shown under another's ",
        "Give the metric the same type, unit and help in all senders.",
    ),
    ErrorDoc::answered(
        "A sum of deltas may fall, so it has no total.",
        "OTLP senders get the number of rejected points in `partial_success`",
        "Put an `aggregate` processor before the exporter.",
    )
    .logged_as("a sum of deltas that may fall has no total"),
];

/// The factory of `prometheus`.
pub static FACTORY: ExporterFactory = Factory {
    kind: "prometheus",
    aliases: &[],
    stability: &[(Signal::Metrics, Stability::Beta)],
    help: "serves metrics to Prometheus scrapes (text 0.0.4, OpenMetrics 1.0.0)",
    errors: &[ERRORS, PAGE_ERRORS, AUTH_ERRORS, LISTENER_ERRORS, SOCKET_ERRORS],
    config: ConfigType::of::<PrometheusExporterConfig>(),
    build: |settings, cx| {
        let ledger = cx.ledger(Signal::Metrics).cloned();
        let ledger = ledger.ok_or_else(|| cx.base.error("only metrics pipelines can use it"))?;
        let config: Arc<PrometheusExporterConfig> = settings.get();
        // Reports a missing authenticator before anything is opened.
        AuthGate::of(config.auth.as_ref(), &cx.base)?;
        Ok(Arc::new(Prometheus::new(config, cx.base, ledger, cx.replaced)))
    },
};

/// The interval at which expired series are removed and new ones registered.
const TICK: Duration = Duration::from_secs(1);

struct Prometheus {
    config: Arc<PrometheusExporterConfig>,
    base: Context,
    view: Arc<View>,
    views: Arc<ExporterTables>,
    sink: TableSink,
    /// The thread for long work without waiters. The runtime's threads are for waiters.
    worker: Worker,
    server: PageServer,
}

impl Prometheus {
    fn new(
        config: Arc<PrometheusExporterConfig>,
        base: Context,
        ledger: Arc<Ledger>,
        replaced: Vec<Arc<Table>>,
    ) -> Self {
        let views = Arc::new(ExporterTables::replacing(&base, config.limits(), replaced));
        let style = config.style(Escaping::default());
        let view = View::of(&base.shared);
        view.expose(base.id.clone(), style, views.clone());
        Self {
            config,
            sink: TableSink::new(views.clone(), ledger, base.id.clone()),
            base,
            view,
            views,
            worker: Worker::new("tidegate-pages"),
            server: PageServer::default(),
        }
    }
}

/// Expires old series and registers new ones until the stop.
fn keep(own: &Table, pages: &Pages, exporter: &Arc<str>, pause: &Pause) {
    lower_priority();
    let reporter = anomalies::AnomalyReporter::default();
    while pause.wait(TICK) {
        own.expire(unix_now());
        // A panic has been printed; series must expire all the same.
        let _ = catch_unwind(AssertUnwindSafe(|| pages.register_series()));
        record_metrics(&own.stats(), exporter);
        let label = ("exporter", exporter.to_string());
        collisions::report(own, &label);
        reporter.report(&[own.timestamp_anomalies()], &label);
    }
    pages.close();
}

/// Records the size of the exporter's own table in the gateway's own metrics.
fn record_metrics(stats: &Stats, exporter: &Arc<str>) {
    let label = || ("exporter", exporter.to_string());
    let labels = [label()];
    metrics::gauge!("tidegate_prometheus_series", &labels).set(stats.series as f64);
    metrics::gauge!("tidegate_prometheus_bytes", &labels).set(stats.bytes as f64);
    metrics::counter!("tidegate_prometheus_expired_series_total", &labels).absolute(stats.expired_series);
    for (overflow, streams) in Overflow::ALL.iter().zip(stats.overflowed_streams) {
        let labels = [label(), ("reason", overflow.name().to_owned())];
        metrics::counter!("tidegate_prometheus_overflowed_streams_total", &labels).absolute(streams);
    }
}

impl Exporter for Prometheus {
    fn table(&self) -> Option<&Arc<Table>> {
        Some(&self.views.own)
    }

    fn show_tables(&self, tables: Vec<TableHandle>) {
        self.views.show(tables);
    }

    fn set_exposed(&self, is_exposed: bool) {
        self.view.set_hidden(&*self.views, !is_exposed);
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.view.conceal(&*self.views);
    }
}

#[async_trait]
impl Lifecycle for Prometheus {
    fn check_files(&self) -> Result<(), ComponentError> {
        tls::check_files(self.config.tls.as_ref(), &self.base)
    }

    async fn start(&self) -> Result<(), ComponentError> {
        self.views.take_over(&self.base).await?;
        let pages = Pages::new(
            self.config.clone(),
            self.views.clone(),
            self.base.id.clone(),
            Senders::of(&self.base.shared),
        );
        let pages = Arc::new(pages);
        let scrapes = Arc::new(Scrapes::of(
            &self.config,
            self.base.id.clone(),
            pages.clone(),
            self.base.shared.clone(),
        ));
        self.server
            .start(&self.base, server::config(&self.config), scrapes)
            .await?;
        let (own, exporter) = (self.views.own.clone(), self.base.id.clone());
        let keeping = self
            .worker
            .start(move |pause| keep(&own, &pages, &exporter, pause));
        keeping.map_err(|error| self.base.error(error.to_string()))
    }

    async fn stop(&self, deadline: Instant) {
        self.views.note_stop();
        self.server.stop(deadline).await;
        self.worker.stop(deadline).await;
    }
}

impl Consumer for Prometheus {
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
