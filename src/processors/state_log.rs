// SPDX-License-Identifier: Apache-2.0

//! The log of the state of a processor, in a storage extension.

use std::sync::{Arc, OnceLock};

use tidegate_wal::store::ReserveError;
use tidegate_wal::{NotKept, Share, State, Store};
use tracing::warn;

use crate::component::{ComponentError, Context, Shared};

/// The overhead of a record and of the head of its payload, in bytes.
const RECORD_BYTES: u64 = 256;

/// The reason why a record finds no space on the disk.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoSpace {
    #[error("it is not open: send the data again later")]
    Closed,
    #[error("it is full, or a write failed: raise `max_size`, or check the disk")]
    Full,
    #[error("the data needs {0} bytes, more than `max_size`: send smaller requests, or raise `max_size`")]
    TooLarge(u64),
    #[error("{0}")]
    Ended(NotKept),
}

/// The log of one processor.
pub(super) struct StateLog {
    /// The id of the storage extension.
    storage: String,
    /// The processor in its pipeline, which names the directory and appears in messages.
    owner: Arc<str>,
    open: OnceLock<OpenLog>,
}

struct OpenLog {
    store: Arc<Store>,
    shared: Arc<Shared>,
}

impl StateLog {
    pub(super) fn new(storage: String, owner: Arc<str>) -> Self {
        Self {
            storage,
            owner,
            open: OnceLock::new(),
        }
    }

    pub(super) fn owner(&self) -> &Arc<str> {
        &self.owner
    }

    /// Gives what a previous run left to `state`, and takes records from now on.
    pub(super) async fn open(&self, context: &Context, state: Arc<dyn State>) -> Result<(), ComponentError> {
        let storage = context.storage("storage", &self.storage)?;
        let (owner, directory) = (self.owner.clone(), storage.directory_of(&self.owner));
        let shown = directory.display().to_string();
        let opening = tokio::task::spawn_blocking(move || {
            let (rules, quota) = (&storage.rules, storage.quota.clone());
            Store::open(owner, &directory, rules, quota, Arc::default(), Some(state))
        });
        let opened = opening.await.map_err(|error| context.error(error.to_string()))?;
        let (store, recovered) =
            opened.map_err(|error| context.error(format!("storage: `{shown}`: {error}")))?;
        recovered.report_damage(&self.owner);
        let shared = context.shared.clone();
        shared.watch_log(&self.owner, &store);
        let store = Arc::new(store);
        // A component starts only once.
        let _ = self.open.set(OpenLog { store, shared });
        Ok(())
    }

    /// Reserves disk space for a record with a payload of this length.
    pub(super) fn reserve(&self, bytes: u64) -> Result<Share, NoSpace> {
        let bytes = bytes + RECORD_BYTES;
        let store = self.store().ok_or(NoSpace::Closed)?;
        let share = store.reserve(bytes).map_err(|error| match error {
            ReserveError::NeverFits => NoSpace::TooLarge(bytes),
            ReserveError::Ended(why) => NoSpace::Ended(why),
        })?;
        share.ok_or(NoSpace::Full)
    }

    /// What takes records; `None`: the log is not open.
    pub(super) fn store(&self) -> Option<&Store> {
        self.open.get().map(|open| &*open.store)
    }

    /// Writes pending records and a snapshot, and closes the log.
    pub(super) async fn close(&self) {
        let Some(open) = self.open.get() else { return };
        let store = open.store.clone();
        if tokio::task::spawn_blocking(move || store.close()).await.is_err() {
            warn!(
                component = &*self.owner,
                "closing the log of a state panicked (a bug)"
            );
        }
        open.shared.leave_log(&self.owner);
    }
}
