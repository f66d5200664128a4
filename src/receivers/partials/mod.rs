// SPDX-License-Identifier: Apache-2.0

//! `partials`: shows the totals of all gateways of a cluster.
//!
//! Each replica reads the pages of all producers and merges them. So all replicas show the same values, and each answers
//! all readers. The merged series are a table, which pages and queries read. At each interval they are pushed to exporters
//! that can't read tables. While the replica does not know the newest values, readers get 503.

mod claims;
mod config;
mod confirm;
mod driver;
mod nodes;
mod push;
mod replica;
mod report;
mod shown;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use parking_lot::Mutex;
use tidegate_engine::{Composite, Rule, Table};
use tokio::task::JoinHandle;

use self::config::PartialsReceiverConfig;
use self::confirm::StoreReads;
use self::driver::ReplicaDriver;
use self::nodes::NodeFollower;
use self::push::Pusher;
use self::replica::{Replica, ReplicaSources};
use crate::batch::Signal;
use crate::component::shared::Phase;
use crate::component::{
    Cluster, ComponentError, ConfigType, Context, DeltaTurn, Entry, ErrorDoc, Factory, Lifecycle, Receiver,
    ReceiverContext, ReceiverFactory, Stability,
};
use crate::watch::Watched;

/// Why nobody may read a replica that stops with its gateway.
const STOPPING: &str = "stopping";

/// The errors of `partials`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::answered(
        "The replica does not know all totals, for example after its start.",
        "503 to readers of metrics, composites and queries",
        "Wait until it has read the store. If this state lasts, check the connection to the store.",
    )
    .logged_as("the replica is not ready: readers of metrics get 503 until it has read the store"),
    ErrorDoc::answered(
        "With `linearizable_reads`: within `max_lag`, the store did not name its newest messages, or the replica did not show them.",
        "503 with `the store does not confirm the values`",
        "Check the connection to the store. `tidegate_cluster_linearizable_reads_total` counts such readers.",
    ),
    ErrorDoc::logged(
        "The nodes of Kubernetes that should report can't be listed.",
        "the nodes that should report are not known",
        "Check the service account and its role. The line has the cause.",
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
pub static FACTORY: ReceiverFactory = Factory {
    kind: "partials",
    aliases: &[],
    stability: &[(Signal::Metrics, Stability::Alpha)],
    help: "shows the totals of all gateways of a cluster",
    errors: &[ERRORS],
    config: ConfigType::of::<PartialsReceiverConfig>(),
    build: |settings, cx| Ok(Arc::new(Partials::new(settings.get(), cx)?)),
};

struct Partials {
    config: Arc<PartialsReceiverConfig>,
    base: Context,
    cluster: Arc<Cluster>,
    entry: Entry,
    table: Arc<Table>,
    composites: Vec<Arc<Watched>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Tells the replica that the receiver has stopped.
    has_stopped: Mutex<Option<Arc<Mutex<bool>>>>,
}

impl Partials {
    fn new(config: Arc<PartialsReceiverConfig>, cx: ReceiverContext) -> Result<Self, ComponentError> {
        let entry = cx.entry(Signal::Metrics).cloned();
        let base = cx.base;
        let entry = entry.ok_or_else(|| base.error("only metrics pipelines can use it"))?;
        let table = Table::new(base.path.clone(), vec![Rule::newest()], config.limits());
        let table = Arc::new(table.bounded_by(base.shared.memory.bounds_of_tables()));
        let composites = config.composites.iter().map(|declared| {
            let declaration = declared.declaration(&base.shared);
            let declaration = declaration.map_err(|error| base.error(error.to_string()))?;
            let composite = Arc::new(Composite::new(declaration));
            table.attach(composite.clone());
            Ok(Arc::new(Watched::new(composite, declared.thresholds())))
        });
        let composites = composites.collect::<Result<_, ComponentError>>()?;
        let cluster = base.cluster("cluster", &config.cluster)?;
        if config.linearizable_reads && !cluster.has_store() {
            return Err(base.error(
                "linearizable_reads: the engine `direct` has no store to ask. Use `nats` or `kafka`, or omit the option",
            ));
        }
        cluster.note_merged(&table, config.max_lag);
        Ok(Self {
            composites,
            cluster,
            config,
            base,
            entry,
            table,
            tasks: Mutex::default(),
            has_stopped: Mutex::default(),
        })
    }

    /// Whether a reader must be told to wait.
    fn hold(&self, why: Option<&'static str>) {
        self.base.shared.health.hold(&self.base.path, why);
    }
}

impl Receiver for Partials {
    fn table(&self) -> Option<&Arc<Table>> {
        Some(&self.table)
    }
}

#[async_trait]
impl Lifecycle for Partials {
    async fn start(&self) -> Result<(), ComponentError> {
        let engine = self.cluster.engine();
        let engine = engine.ok_or_else(|| self.base.error("cluster: the extension does not run"))?;
        let composites = self.composites.iter().map(|watched| watched.composite().clone());
        let mut replica = Replica::new(
            self.base.clone(),
            &self.config,
            self.cluster.clone(),
            composites.collect(),
            self.table.clone(),
        )?;
        let claims = replica.claims().clone();
        *self.has_stopped.lock() = Some(replica.has_stopped().clone());
        let nodes = self.config.expect_from.clone().map(|options| {
            let limit = self.config.max_producers;
            NodeFollower::new(options, limit, self.base.clone(), self.cluster.clone())
        });
        if let Some(nodes) = &nodes {
            replica.expect_nodes(nodes.nodes());
        }
        if self.config.linearizable_reads {
            let reads = StoreReads {
                receiver: self.base.id.to_string(),
                engine: engine.clone(),
                shown: replica.confirmed(),
                patience: self.config.max_lag,
            };
            self.base
                .shared
                .health
                .confirm_by(&self.base.path, Some(Arc::new(reads)));
        }
        let replica = Arc::new(Mutex::new(replica));
        self.table
            .list_sources_by(Arc::new(ReplicaSources(Arc::downgrade(&replica))));
        self.hold(Some("catching up"));
        let driver = ReplicaDriver {
            replica: replica.clone(),
            reader: engine.open(),
            leader: engine.open(),
        };
        let pusher = Pusher {
            claims,
            replica,
            cluster: self.cluster.clone(),
            table: self.table.clone(),
            entry: self.entry.clone(),
            every: self.config.interval,
        };
        let mut tasks = vec![tokio::spawn(driver.run()), tokio::spawn(pusher.run())];
        tasks.extend(nodes.map(|nodes| tokio::spawn(nodes.run())));
        for watched in &self.composites {
            let watched = watched.clone();
            tasks.push(tokio::spawn(async move { watched.keep_looking().await }));
        }
        *self.tasks.lock() = tasks;
        Ok(())
    }

    fn composites(&self) -> &[Arc<Watched>] {
        &self.composites
    }

    /// Other replicas have the same state: nothing is handed on.
    async fn stop(&self, _deadline: Instant) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            task.abort();
            // It has ended, or it panicked before.
            let _ = task.await;
        }
        // A step may go on in the background. From now on, it tells nobody of the replica.
        let has_stopped = self.has_stopped.lock().take();
        if let Some(has_stopped) = has_stopped {
            *has_stopped.lock() = true;
        }
        self.cluster.note_leading(false);
        self.cluster.set_turn(DeltaTurn::Hold);
        self.cluster.report(&self.base.path, None);
        self.cluster.warn(&self.base.path, None);
        self.base.shared.health.trouble(&self.base.path, None);
        nodes::clear(&self.base, &self.cluster);
        // Exporters may drain for long. Until they end, they and the admin API have the values of this moment, which become
        // old.
        let is_last = self.base.shared.health.phase() == Phase::Stopping;
        self.hold(is_last.then_some(STOPPING));
        self.base.shared.health.confirm_by(&self.base.path, None);
    }
}

#[cfg(test)]
mod tests;
