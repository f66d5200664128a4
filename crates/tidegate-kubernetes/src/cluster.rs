// SPDX-License-Identifier: Apache-2.0

//! The watches of API servers, each shared by all its users.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tidegate_runtime::Account;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::client::ApiClient;
use crate::kind::{ObjectKind, Scope};
use crate::store::{ObjectStore, StoredObject, WatchLimits, WatchStatus};
use crate::watcher::Watcher;

/// The API servers in use, of all gateways of the process.
static CLUSTERS: Mutex<Vec<Weak<Cluster>>> = Mutex::new(Vec::new());

/// An API server and its watches.
pub struct Cluster {
    pub(crate) client: Arc<ApiClient>,
    pub(crate) account: Arc<Account>,
    limits: WatchLimits,
    /// One list of each kind at a time, however many watches begin together.
    lists: [Arc<Semaphore>; ObjectKind::ALL.len()],
    watches: Mutex<HashMap<Scope, Weak<SharedWatch>>>,
}

/// A watch. It ends with its last user.
pub struct SharedWatch {
    store: Arc<ObjectStore>,
    /// The watch is found while the cluster is there.
    _cluster: Arc<Cluster>,
    _stop: DropGuard,
}

impl Cluster {
    /// The cluster of a client's server. Users of the same server share it, if its objects are on the same account.
    pub fn shared(client: ApiClient, account: &Arc<Account>) -> Arc<Self> {
        let mut clusters = CLUSTERS.lock();
        clusters.retain(|cluster| cluster.strong_count() > 0);
        let is_same = |cluster: &Arc<Self>| {
            cluster.client.server() == client.server() && Arc::ptr_eq(&cluster.account, account)
        };
        if let Some(known) = clusters.iter().filter_map(Weak::upgrade).find(is_same) {
            return known;
        }
        let cluster = Self::with_limits(client, account, WatchLimits::default());
        clusters.push(Arc::downgrade(&cluster));
        cluster
    }

    /// A cluster that nobody else shares.
    pub fn with_limits(client: ApiClient, account: &Arc<Account>, limits: WatchLimits) -> Arc<Self> {
        Arc::new(Self {
            client: Arc::new(client),
            account: account.clone(),
            limits,
            lists: std::array::from_fn(|_| Arc::new(Semaphore::new(1))),
            watches: Mutex::default(),
        })
    }

    /// The watch of a scope, which its first user starts. It runs as a task of the current runtime.
    pub fn watch(self: &Arc<Self>, scope: Scope) -> Arc<SharedWatch> {
        let mut watches = self.watches.lock();
        if let Some(running) = watches.get(&scope).and_then(Weak::upgrade) {
            return running;
        }
        watches.retain(|_, watch| watch.strong_count() > 0);
        let watch = Arc::new(self.start(scope.clone()));
        watches.insert(scope, Arc::downgrade(&watch));
        watch
    }

    fn start(self: &Arc<Self>, scope: Scope) -> SharedWatch {
        let store = Arc::new(ObjectStore::new(scope.kind, self.limits, self.account.clone()));
        let lists = self.lists[scope.kind as usize].clone();
        let watcher = Watcher::new(self.client.clone(), scope, store.clone(), lists);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move { stopped.run_until_cancelled(watcher.run()).await });
        SharedWatch {
            store,
            _cluster: self.clone(),
            _stop: stop.drop_guard(),
        }
    }
}

impl SharedWatch {
    /// The state of the watch, and its changes.
    pub fn status(&self) -> watch::Receiver<WatchStatus> {
        self.store.status()
    }

    /// Why the objects may be old, and its changes. `None`: the server answers.
    pub fn trouble(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.store.trouble()
    }

    /// All objects, in the order of namespaces and names.
    pub fn snapshot(&self) -> Vec<Arc<StoredObject>> {
        self.store.snapshot()
    }
}

#[cfg(test)]
mod tests;
