// SPDX-License-Identifier: Apache-2.0

//! The current endpoints. Each has a destination, which follows the changes of host names.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::config::{Dns, LoadBalancingConfig};
use super::k8s;
use super::route::Ring;
use crate::batch::Batch;
use crate::component::{
    Account, ComponentError, Consumer, Context, Exporter, ExporterContext, Flow, Lifecycle, Reason, Refused,
};
use crate::delivery::Destination;
use crate::exporters::otlp;

pub(super) type Peer = Destination<otlp::OtlpClient>;

/// Pieces of a batch and their endpoints.
pub(super) type Shares = SmallVec<[(Arc<Peer>, Batch); 2]>;

/// The time for a removed endpoint to finish its requests in progress.
const LEAVE: Duration = Duration::from_secs(5);

/// The most addresses of a name that are used. Each has a queue, connections, and series of the gateway's own
/// metrics. A foreign name server could return thousands.
pub(super) const MAX_ADDRESSES: usize = 1024;

/// The retry delay for a sender while there is no endpoint.
const NOBODY_RETRY_AFTER: Duration = Duration::from_secs(1);

pub(super) struct Peers {
    config: Arc<LoadBalancingConfig>,
    cx: ExporterContext,
    current: RwLock<Arc<Current>>,
    /// The new endpoints of a change that has not ended, or was dropped.
    starting: Mutex<Vec<Arc<Peer>>>,
    /// Whether the queues of the endpoints are on disk.
    open_logs: bool,
    /// Whether the name had more than [`MAX_ADDRESSES`] at the last lookup.
    has_too_many: AtomicBool,
}

/// In the order of their names.
pub(super) struct Current {
    peers: Vec<(String, Arc<Peer>)>,
    ring: Ring,
}

impl Current {
    fn new(peers: Vec<(String, Arc<Peer>)>) -> Arc<Self> {
        let ring = Ring::new(peers.iter().map(|(name, _)| name.as_str()));
        Arc::new(Self { peers, ring })
    }
}

impl Peers {
    pub(super) fn new(config: Arc<LoadBalancingConfig>, cx: ExporterContext) -> Result<Self, ComponentError> {
        let mut peers = Self {
            config,
            cx,
            current: RwLock::new(Current::new(Vec::new())),
            starting: Mutex::default(),
            open_logs: false,
            has_too_many: AtomicBool::new(false),
        };
        // Reports wrong options before anything starts.
        peers.open_logs = peers.make("localhost:4317")?.opens_log();
        peers.set_trouble(None);
        Ok(peers)
    }

    /// The current endpoints. A change makes a new value.
    pub(super) fn current(&self) -> Arc<Current> {
        self.current.read().clone()
    }

    fn make(&self, endpoint: &str) -> Result<Peer, ComponentError> {
        let target = endpoint.parse();
        let target = target.map_err(|error| self.cx.base.error(format!("`{endpoint}`: {error}")))?;
        let config = self.config.at(target);
        let base = &self.cx.base;
        let cx = ExporterContext {
            replaced: Vec::new(),
            base: Context {
                path: format!("{}@{endpoint}", base.path).into(),
                id: format!("{}@{endpoint}", base.id).into(),
                shared: base.shared.clone(),
            },
            ledgers: self.cx.ledgers.clone(),
        };
        otlp::destination(&config, cx)
    }

    pub(super) async fn start(self: &Arc<Self>) -> Result<(), ComponentError> {
        let endpoints = match (&self.config.resolver.r#static, &self.config.resolver.dns) {
            (Some(list), _) => list.endpoints(),
            // A name that can't be resolved now may be resolved later.
            (None, Some(dns)) => self.look_up(dns).await.unwrap_or_default(),
            // The task makes the endpoints of a service.
            (None, None) => return Ok(()),
        };
        self.change(endpoints).await
    }

    /// Follows the endpoints that change: resolves the name regularly, or watches the service. Waits for the endpoints of a
    /// service for a short time. The task is in `lookups` before: a start that is broken off must not leave it behind.
    pub(super) async fn watch(self: Arc<Self>, lookups: &Mutex<Option<JoinHandle<()>>>) {
        if let Some(service) = self.config.resolver.k8s.clone() {
            let (sender, known) = oneshot::channel();
            let timeout = service.timeout;
            *lookups.lock() = Some(tokio::spawn(k8s::follow(self, service, sender)));
            // Without an answer in time, the endpoints come later.
            let _ = tokio::time::timeout(timeout, known).await;
            return;
        }
        let Some(dns) = self.config.resolver.dns.clone() else {
            return;
        };
        *lookups.lock() = Some(tokio::spawn(async move {
            loop {
                tokio::time::sleep(dns.interval).await;
                let Some(endpoints) = self.look_up(&dns).await else {
                    continue;
                };
                if let Err(error) = self.change(endpoints).await {
                    warn!(component = &*self.cx.base.path, %error, "an endpoint is not used");
                }
            }
        }));
    }

    /// The addresses of the name. Without an answer it logs a warning and returns `None`; the known ones stay.
    async fn look_up(&self, dns: &Dns) -> Option<Vec<String>> {
        let lookup = tokio::net::lookup_host((dns.hostname.as_str(), dns.port.0));
        let (component, hostname) = (&*self.cx.base.path, &*dns.hostname);
        match tokio::time::timeout(dns.timeout, lookup).await {
            Ok(Ok(addresses)) => {
                self.set_trouble(None);
                let endpoints = addresses.map(|address| address.to_string()).collect();
                Some(self.bounded(hostname, endpoints))
            }
            Ok(Err(error)) => {
                warn!(component, hostname, %error, "the name can't be looked up");
                self.set_trouble(Some(format!("`{hostname}` can't be looked up: {error}")));
                None
            }
            Err(_) => {
                warn!(component, hostname, timeout = ?dns.timeout, "the lookup of the name timed out");
                self.set_trouble(Some(format!("the lookup of `{hostname}` timed out")));
                None
            }
        }
    }

    /// The first addresses of a name in sorted order, so that every lookup selects the same ones. Warns once while
    /// there are more.
    pub(super) fn bounded(&self, hostname: &str, mut endpoints: Vec<String>) -> Vec<String> {
        endpoints.sort_unstable();
        endpoints.dedup();
        let has_too_many = endpoints.len() > MAX_ADDRESSES;
        let had_too_many = self.has_too_many.swap(has_too_many, Relaxed);
        if has_too_many && !had_too_many {
            warn!(
                component = &*self.cx.base.path,
                hostname,
                addresses = endpoints.len(),
                used = MAX_ADDRESSES,
                "the name has more addresses than the exporter uses: send to several names, by an exporter each"
            );
        }
        endpoints.truncate(MAX_ADDRESSES);
        endpoints
    }

    async fn started(self: &Arc<Self>, endpoint: &str) -> Result<Arc<Peer>, ComponentError> {
        let peer = Arc::new(self.make(endpoint)?);
        self.starting.lock().push(peer.clone());
        peer.start().await?;
        Ok(peer)
    }

    /// Switches to these endpoints. The remaining data of removed endpoints goes to the others.
    pub(super) async fn change(self: &Arc<Self>, endpoints: Vec<String>) -> Result<(), ComponentError> {
        let before = self.current();
        let mut peers = Vec::new();
        for endpoint in endpoints {
            let known = before.peers.iter().find(|(name, _)| *name == endpoint);
            let peer = match known {
                Some((_, peer)) => peer.clone(),
                None => match self.started(&endpoint).await {
                    Ok(peer) => peer,
                    Err(error) => {
                        for peer in self.take_starting() {
                            peer.stop(Instant::now()).await;
                        }
                        return Err(error);
                    }
                },
            };
            peers.push((endpoint, peer));
        }
        // From here on, nothing can drop the change before it has ended.
        self.starting.lock().clear();
        let stays = |name: &String| peers.iter().any(|(other, _)| other == name);
        let gone: Vec<_> = before
            .peers
            .iter()
            .filter(|(name, _)| !stays(name))
            .cloned()
            .collect();
        if gone.is_empty() && peers.len() == before.peers.len() {
            return Ok(());
        }
        let component = &*self.cx.base.path;
        info!(
            component,
            endpoints = peers.len(),
            gone = gone.len(),
            "endpoints have changed"
        );
        self.count_endpoints(peers.len());
        *self.current.write() = Current::new(peers);
        for (_, peer) in gone {
            let remaining = Arc::downgrade(self);
            peer.retire(Box::new(move |batch| reroute(&remaining, batch)));
            tokio::spawn(async move { peer.stop(Instant::now() + LEAVE).await });
        }
        Ok(())
    }

    fn count_endpoints(&self, endpoints: usize) {
        metrics::gauge!("tidegate_loadbalancing_endpoints", "exporter" => self.id()).set(endpoints as f64);
    }

    /// Shows why the endpoints may be old. `None`: they are those of now. A fixed list is never old.
    pub(super) fn set_trouble(&self, trouble: Option<String>) {
        if self.config.resolver.changing().is_none() {
            return;
        }
        let is_failing = f64::from(u8::from(trouble.is_some()));
        metrics::gauge!("tidegate_loadbalancing_resolver_failing", "exporter" => self.id()).set(is_failing);
        let base = &self.cx.base;
        base.shared.health.trouble(&base.path, trouble);
    }

    fn id(&self) -> Arc<str> {
        self.cx.base.id.clone()
    }

    /// The name of the exporter in the log.
    pub(super) fn path(&self) -> &str {
        &self.cx.base.path
    }

    pub(super) fn account(&self) -> &Arc<Account> {
        &self.cx.base.shared.memory
    }

    /// Splits a batch by the current endpoints.
    pub(super) fn split(&self, batch: &Batch) -> Result<Shares, Refused> {
        self.split_by(&self.current(), batch)
    }

    /// Splits a batch by these endpoints.
    pub(super) fn split_by(&self, current: &Current, batch: &Batch) -> Result<Shares, Refused> {
        if current.peers.is_empty() {
            let why = format!("{} has no endpoints", self.cx.base.path);
            return Err(Refused::busy(why, NOBODY_RETRY_AFTER));
        }
        let split = current.ring.split(self.config.key(batch.signal()), batch);
        let split = split.map_err(|error| Refused::permanent(error.to_string()))?;
        let shares = split.into_iter();
        Ok(shares
            .map(|(at, share)| (current.peers[at].1.clone(), share))
            .collect())
    }

    /// Counts a batch without an endpoint.
    pub(super) fn lose(&self, batch: &Batch, reason: Reason) {
        if let Some(ledger) = self.cx.ledger(batch.signal()) {
            ledger.drop_items(reason, batch.items());
        }
    }

    /// Whether no endpoint has a queue that another instance may want.
    pub(super) fn may_overlap(&self) -> bool {
        let current = self.current();
        current
            .peers
            .iter()
            .all(|(_, peer)| Exporter::may_overlap(&**peer))
    }

    /// Whether the start opens logs on disk.
    pub(super) fn open_logs(&self) -> bool {
        self.open_logs
    }

    fn take_starting(&self) -> Vec<Arc<Peer>> {
        std::mem::take(&mut *self.starting.lock())
    }

    /// Lets the exporter that replaces this one have what the endpoints can't deliver.
    pub(super) fn retire(&self, heir: &Arc<dyn Consumer>) {
        for (_, peer) in &self.current().peers {
            Exporter::retire(&**peer, heir.clone());
        }
    }

    pub(super) async fn stop(&self, deadline: Instant) {
        self.set_trouble(None);
        let current = self.current();
        let peers = current.peers.iter().map(|(_, peer)| peer.clone());
        let stops = peers.chain(self.take_starting()).map(|peer| {
            // Side by side: one that hangs must not take the others' time.
            tokio::spawn(async move { peer.stop(deadline).await })
        });
        for stop in stops.collect::<Vec<_>>() {
            // An error is a panic, which the log has.
            let _ = stop.await;
        }
    }
}

/// Sends a batch that a removed endpoint held to the remaining endpoints.
fn reroute(peers: &Weak<Peers>, batch: Batch) {
    let Some(peers) = peers.upgrade() else { return };
    match peers.split(&batch) {
        Ok(shares) => {
            for (peer, share) in shares {
                peer.consume(share, &mut Flow::default());
            }
        }
        Err(_) => peers.lose(&batch, Reason::Shutdown),
    }
}
