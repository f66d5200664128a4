// SPDX-License-Identifier: Apache-2.0

//! Engines that keep messages in the memory of their process: one for tests and single gateways, and what others share.

mod session;
#[cfg(test)]
mod tests;

use std::future::ready;
use std::sync::Arc;

use parking_lot::Mutex;
pub use session::{SessionBackend, open_session};
use tidegate_engine::clock;
use tokio::sync::watch;

use crate::{
    ClusterEngine, EngineStatus, MessageStore, MessageStoreLimits, StoreCall, StoreError, StoreQuestions,
    StoreReply, StoreSession,
};

/// A store that sessions of one process share.
#[derive(Debug)]
pub struct SharedStore {
    store: Mutex<MessageStore>,
    /// Changes with each change of the store.
    changed: watch::Sender<()>,
}

impl SharedStore {
    /// An empty store.
    pub fn new(limits: MessageStoreLimits) -> Self {
        Self {
            store: Mutex::new(MessageStore::new(limits)),
            changed: watch::Sender::new(()),
        }
    }

    /// Reads the store. Leases that have ended are gone.
    pub fn read<T>(&self, read: impl FnOnce(&MessageStore) -> T) -> T {
        let mut store = self.store.lock();
        store.expire(clock::now());
        read(&store)
    }

    /// Changes the store. Leases that have ended are gone.
    pub fn change<T>(&self, change: impl FnOnce(&mut MessageStore) -> T) -> T {
        let result = {
            let mut store = self.store.lock();
            store.expire(clock::now());
            change(&mut store)
        };
        self.changed.send_replace(());
        result
    }

    /// Reports changes from now on.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

/// A cluster in one process: all sessions of the engine share one store.
#[derive(Debug)]
pub struct LocalEngine {
    backend: Arc<LocalBackend>,
    /// Sessions end when this is dropped.
    lifetime: watch::Sender<()>,
}

#[derive(Debug)]
struct LocalBackend {
    store: SharedStore,
    questions: StoreQuestions,
}

impl LocalEngine {
    /// An engine with an empty store and its default limits.
    pub fn new() -> Self {
        Self::with_limits(MessageStoreLimits::default())
    }

    /// An engine with an empty store.
    pub fn with_limits(limits: MessageStoreLimits) -> Self {
        Self {
            backend: Arc::new(LocalBackend {
                store: SharedStore::new(limits),
                questions: StoreQuestions::default(),
            }),
            lifetime: watch::Sender::new(()),
        }
    }

    /// The store.
    pub fn store(&self) -> &SharedStore {
        &self.backend.store
    }
}

impl Default for LocalEngine {
    fn default() -> Self {
        Self::new()
    }
}

impl ClusterEngine for LocalEngine {
    /// Must be called within a tokio runtime.
    fn open(&self) -> StoreSession {
        open_session(self.backend.clone(), self.lifetime.subscribe())
    }

    fn status(&self) -> EngineStatus {
        EngineStatus {
            is_connected: true,
            connections: 1,
            ..EngineStatus::default()
        }
    }

    fn questions(&self) -> Option<&StoreQuestions> {
        Some(&self.backend.questions)
    }
}

impl SessionBackend for LocalBackend {
    fn store(&self) -> Option<&SharedStore> {
        Some(&self.store)
    }

    fn questions(&self) -> Option<&StoreQuestions> {
        Some(&self.questions)
    }

    fn call(self: Arc<Self>, call: StoreCall) -> impl Future<Output = Result<StoreReply, StoreError>> + Send {
        let now = clock::now();
        ready(self.store.change(|store| {
            match call {
                StoreCall::Publish(message) => store.put(message, now).map(StoreReply::Stored),
                StoreCall::CompareAndSet(message, expected) => store
                    .compare_and_put(message, expected, now)
                    .map(StoreReply::Stored),
                StoreCall::Lease(request) => store.lease(request, now).map(StoreReply::Stored),
                StoreCall::Purge(run, through) => {
                    store.purge(&run, through);
                    Ok(StoreReply::Purged)
                }
                // The session reads.
                StoreCall::ReadAll(_) => Ok(StoreReply::ReadEnd),
            }
        }))
    }
}
