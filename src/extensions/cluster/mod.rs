// SPDX-License-Identifier: Apache-2.0

//! `cluster`: connects this gateway with the store of a cluster.
//!
//! The extension has one engine, which the `partials` exporter and receiver use. The engine starts with the extension,
//! before all other components, and stops with it, after them. A Lease of Kubernetes may elect the replica that exports.

mod config;
mod election;
mod engines;

use std::sync::Arc;
use std::time::Instant;

use self::config::ClusterConfig;
use self::election::LeaseElection;
use crate::component::services::Services;
use crate::component::{
    Cluster, ComponentError, ConfigType, Context, ErrorDoc, Extension, ExtensionFactory, Factory, Lifecycle,
    Stability,
};
use async_trait::async_trait;
use parking_lot::Mutex;

/// The errors of `cluster`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "NATS can't be reached.",
        "can't connect to NATS",
        "Check the servers and the credentials. The engine connects again by itself.",
    ),
    ErrorDoc::logged(
        "Kafka can't be reached.",
        "can't connect to Kafka: the engine tries again",
        "Check the brokers and the credentials.",
    ),
    ErrorDoc::logged(
        "With the engine `direct`, a replica can't be reached.",
        "no connection to a replica",
        "Check the address, the network policy and the other replica.",
    ),
    ErrorDoc::logged(
        "With the engine `direct`, two replicas have one name.",
        "two replicas have one name: give each its own name",
        "Give each replica its own name.",
    ),
];

/// The factory of `cluster`.
pub static FACTORY: ExtensionFactory = Factory {
    kind: "cluster",
    aliases: &[],
    stability: Stability::Alpha,
    help: "connects this gateway with others that show the same totals, through a store",
    errors: &[ERRORS],
    config: ConfigType::of::<ClusterConfig>(),
    build: |settings, cx| Ok(Arc::new(ClusterExtension::new(settings.get(), cx))),
};

struct ClusterExtension {
    config: Arc<ClusterConfig>,
    base: Context,
    cluster: Arc<Cluster>,
    election: Mutex<Option<Arc<LeaseElection>>>,
}

impl ClusterExtension {
    fn new(config: Arc<ClusterConfig>, base: Context) -> Self {
        let cluster = Cluster::new(&config.name, config.partitions);
        let cluster = match config.engine.direct {
            Some(_) => cluster.without_store(),
            None => cluster,
        };
        Self {
            config,
            base,
            cluster: Arc::new(cluster),
            election: Mutex::default(),
        }
    }
}

impl Extension for ClusterExtension {
    fn services(&self) -> Services {
        Services {
            cluster: Some(self.cluster.clone()),
            ..Services::default()
        }
    }
}

#[async_trait]
impl Lifecycle for ClusterExtension {
    async fn start(&self) -> Result<(), ComponentError> {
        // Gateways in one process may share an engine.
        if self.cluster.engine().is_none() {
            let config = &self.config;
            let engine = engines::start(&config.engine, &config.name, config.partitions);
            let engine = engine.map_err(|error| self.base.error(error))?;
            self.cluster.set_engine(Some(engine));
        }
        if let Some(leader) = &self.config.leader {
            let election = LeaseElection::start(leader, &self.base);
            self.cluster.set_election(Some(election.clone()));
            *self.election.lock() = Some(election);
        }
        Ok(())
    }

    async fn stop(&self, _deadline: Instant) {
        self.cluster.set_election(None);
        let election = self.election.lock().take();
        if let Some(election) = election {
            election.stop().await;
        }
        self.cluster.set_engine(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::testing::{context, options, settings};

    #[tokio::test]
    async fn the_engine_runs_from_the_start_to_the_stop() {
        let settings = settings::<ClusterConfig>("{name: test, engine: {local: {}}}");
        let extension = ClusterExtension::new(settings.get(), context("extensions", "cluster"));
        let cluster = extension.services().cluster.unwrap();
        assert!(cluster.engine().is_none());
        extension.start().await.unwrap();
        assert!(cluster.engine().is_some());
        extension.stop(Instant::now()).await;
        assert!(cluster.engine().is_none());
    }

    #[test]
    fn a_cluster_needs_a_plain_name_partitions_and_one_engine() {
        for (yaml, expected) in [
            ("{name: a.b, engine: {local: {}}}", "letters, digits"),
            (
                "{name: a, partitions: 0, engine: {local: {}}}",
                "between 1 and 99",
            ),
            ("{name: a, engine: {}}", "exactly one engine"),
            (
                "{name: a, engine: {local: {}}, leader: {lease: a}}",
                "`a` is not a Lease",
            ),
            ("{name: a, engine: {local: {}, nats: {}}}", "exactly one engine"),
            ("{name: a, engine: {nats: {servers: []}}}", "at least one server"),
            ("{name: a, engine: {nats: {username: u}}}", "set together"),
            ("{name: a, engine: {direct: {}}}", "either `replicas` or `dns`"),
            ("{name: a, engine: {kafka: {brokers: []}}}", "at least one broker"),
            (
                "{name: a, engine: {kafka: {brokers: [kafka]}}}",
                "a host and a port",
            ),
            (
                "{name: a, engine: {kafka: {sasl: {mechanism: PLAIN, username: u}}}}",
                "`username` and `password`",
            ),
            (
                "{name: a, engine: {kafka: {sasl: {mechanism: OAUTHBEARER}}}}",
                "needs `token_file`",
            ),
            (
                "{name: a, engine: {kafka: {tls: {cert_file: c}}}}",
                "must be set together",
            ),
        ] {
            let error = options::<ClusterConfig>(yaml).unwrap_err();
            assert!(error.contains(expected), "{yaml}: {error}");
        }
    }
}
