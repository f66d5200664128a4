// SPDX-License-Identifier: Apache-2.0

//! The engine: it finds the replicas and has a task for each of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_cluster::local::open_session;
use tidegate_cluster::{ClusterEngine, EngineStatus, MessageStoreLimits, StoreSession};
use tidegate_runtime::Every;
use tokio::net::lookup_host;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::client::{PeerClient, host};
use crate::config::{DirectConfig, DirectError, ReplicaAddresses};
use crate::engine_state::EngineState;
use crate::link::Link;
use crate::replica::Replica;
use crate::server;

/// The most replicas of a cluster. A foreign name server could return thousands of addresses.
const MAX_REPLICAS: usize = 16;

/// The time between two log lines about the same error.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// A process of a cluster without a broker. It ends when it is dropped.
#[derive(Debug)]
pub struct DirectEngine {
    state: Arc<EngineState>,
    /// Sessions and the server end when this is dropped.
    lifetime: watch::Sender<()>,
    _links: AbortOnDropHandle<()>,
    _sync: Option<AbortOnDropHandle<()>>,
}

impl DirectEngine {
    /// Starts the engine. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// An option is not valid, a file can't be read, or the address can't be listened on.
    pub fn start(config: DirectConfig, cluster: &str) -> Result<Self, DirectError> {
        let replica = config.serve.as_ref().map(|serve| {
            let limits = MessageStoreLimits {
                max_bytes: serve.max_bytes,
                max_body_bytes: config.max_body_bytes,
            };
            Replica::new(cluster, &serve.name, limits)
        });
        // Options that are wrong are reported before anything starts.
        let (addresses, name) = check(&config)?;
        PeerClient::new(addresses.first().unwrap_or(&name), host(&name)?, &config, cluster)?;

        let state = Arc::new(EngineState::new(cluster, config, replica));
        let lifetime = watch::Sender::new(());
        let mut sync = None;
        if let Some(serve) = &state.config.serve {
            server::start(state.clone(), serve, lifetime.subscribe())?;
            let task = tokio::spawn(note_sync(state.clone(), serve.sync_timeout));
            sync = Some(AbortOnDropHandle::new(task));
        }
        let links = tokio::spawn(keep_links(state.clone()));
        Ok(Self {
            state,
            lifetime,
            _links: AbortOnDropHandle::new(links),
            _sync: sync,
        })
    }

    /// Whether this replica has read all that its peers have; `false`: it has not, or it has no store.
    pub fn is_synced(&self) -> bool {
        self.state.replica.as_ref().is_some_and(Replica::is_synced)
    }
}

impl ClusterEngine for DirectEngine {
    /// Must be called within a tokio runtime.
    fn open(&self) -> StoreSession {
        open_session(self.state.clone(), self.lifetime.subscribe())
    }

    fn status(&self) -> EngineStatus {
        self.state.status()
    }
}

/// Checks the addresses, and gives the fixed ones and one for a check of the options.
fn check(config: &DirectConfig) -> Result<(Vec<String>, String), DirectError> {
    let addresses = match &config.replicas {
        ReplicaAddresses::Endpoints(endpoints) => endpoints.clone(),
        ReplicaAddresses::Dns { name, .. } => {
            host(name)?;
            return Ok((Vec::new(), name.clone()));
        }
    };
    for address in &addresses {
        host(address)?;
    }
    let first = addresses.first().cloned().ok_or(DirectError::NoReplicas)?;
    Ok((addresses, first))
}

/// Notes when this replica has read its peers.
async fn note_sync(state: Arc<EngineState>, sync_timeout: Duration) {
    let mut changes = state.changed.subscribe();
    while !state.has_read_peers(sync_timeout) {
        // Time passes too.
        let _ = timeout(state.config.sync_interval, changes.changed()).await;
    }
    if let Some(replica) = &state.replica {
        replica.set_synced();
        tracing::info!(replica = replica.name, "the replica has read its peers");
    }
}

/// Keeps a link to each replica.
async fn keep_links(state: Arc<EngineState>) {
    let mut links = BTreeMap::new();
    let log_limit = Every::new(LOG_INTERVAL);
    loop {
        let interval = match &state.config.replicas {
            ReplicaAddresses::Endpoints(endpoints) => {
                follow(&state, &mut links, endpoints, None);
                return std::future::pending().await;
            }
            ReplicaAddresses::Dns { name, interval } => {
                match lookup_host(name.as_str()).await {
                    Ok(found) => {
                        let found = found.take(MAX_REPLICAS).map(|address| address.to_string());
                        follow(&state, &mut links, &found.collect::<Vec<_>>(), host(name).ok());
                    }
                    // The known ones stay.
                    Err(error) if log_limit.ready().is_some() => {
                        tracing::warn!(name, %error, "the addresses of the replicas are not found");
                    }
                    Err(_) => {}
                }
                *interval
            }
        };
        sleep(interval).await;
    }
}

/// A link and its task.
type LinkTask = (Arc<Link>, AbortOnDropHandle<()>);

/// Begins links to new addresses, and ends those to others.
fn follow(
    state: &Arc<EngineState>,
    links: &mut BTreeMap<String, LinkTask>,
    addresses: &[String],
    name: Option<&str>,
) {
    links.retain(|address, _| addresses.contains(address));
    for address in addresses {
        if links.contains_key(address) {
            continue;
        }
        let certified = name.or_else(|| host(address).ok()).unwrap_or_default();
        match PeerClient::new(address, certified, &state.config, &state.cluster) {
            Ok(client) => {
                let link = Arc::new(Link::new(address.clone(), client));
                let task = tokio::spawn(link.clone().run(state.clone()));
                links.insert(address.clone(), (link, AbortOnDropHandle::new(task)));
            }
            Err(error) => tracing::warn!(address, %error, "a replica is not used"),
        }
    }
    let known = links.values().map(|(link, _)| link.clone()).collect();
    *state.links.lock() = Some(known);
    state.changed.send_replace(());
}
