// SPDX-License-Identifier: Apache-2.0

//! The log of the state of a processor, in a storage extension.

use std::sync::{Arc, OnceLock, Weak};

use tidegate_wal::store::ReserveError;
use tidegate_wal::{NotKept, Share, State, Store};
use tracing::warn;

use crate::component::reloads::ReloadGuard;
use crate::component::{ComponentError, Context, Opening, Shared};

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

/// The newest reload at the opening of a log. Its new options may drop what a snapshot has, and a return to the old options
/// needs it again.
#[derive(Default)]
pub(super) struct OpenedIn(OnceLock<Weak<ReloadGuard>>);

impl OpenedIn {
    /// Notes the newest reload, before the log is open.
    pub(super) fn note(&self, context: &Context) {
        // A component starts only once.
        let _ = self.0.set(context.shared.reloads.newest());
    }

    /// Whether the reload is over, so that a snapshot may replace the one before.
    pub(super) fn is_over(&self) -> bool {
        let reload = self.0.get();
        reload.is_none_or(|reload| reload.strong_count() == 0)
    }
}

/// The log of one processor.
pub(super) struct StateLog {
    /// The id of the storage extension.
    storage: String,
    /// The processor in its pipeline, which names the directory and appears in messages.
    owner: Arc<str>,
    open: Arc<OnceLock<OpenLog>>,
    /// Sets `open`.
    opening: Opening,
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
            open: Arc::default(),
            opening: Opening::default(),
        }
    }

    pub(super) fn owner(&self) -> &Arc<str> {
        &self.owner
    }

    /// Gives what a previous run left to `state`, and takes records from now on.
    pub(super) async fn open(&self, context: &Context, state: Arc<dyn State>) -> Result<(), ComponentError> {
        let storage = context.storage("storage", &self.storage)?;
        let (owner, directory) = (self.owner.clone(), storage.directory_of(&self.owner));
        let (base, log) = (context.clone(), self.open.clone());
        let open = move || {
            let (rules, quota) = (&storage.rules, storage.quota.clone());
            let opened = Store::open(
                owner.clone(),
                &directory,
                rules,
                quota,
                Arc::default(),
                Some(state),
            );
            let (store, recovered) =
                opened.map_err(|error| base.error(format!("storage: `{}`: {error}", directory.display())))?;
            let shared = base.shared;
            shared.watch_log(&owner, &store);
            let store = Arc::new(store);
            // A component starts only once.
            let _ = log.set(OpenLog { store, shared });
            Ok(recovered)
        };
        let recovered = self.opening.run(context, open).await?;
        recovered.report_damage(&self.owner);
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
        // The successor can't open the log before this instance closes it.
        self.opening.ended().await;
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use parking_lot::Mutex;
    use tidegate_wal::{Joins, Saving};

    use super::*;
    use crate::component::testing::{add_storage, context, is_pending, storage};

    /// A state whose restore lasts until the sender is dropped.
    struct Slow(Mutex<mpsc::Receiver<()>>);

    impl State for Slow {
        fn joins(&self) -> Joins {
            Joins::WhenKept
        }

        fn restore(&self, _: &[u8]) {
            let _ = self.0.lock().recv();
        }

        fn replay(&self, _: &[u8]) {}

        fn save(&self, _: &mut dyn FnMut()) -> Saving {
            Box::new(|to| to.write_all(b"state"))
        }
    }

    fn slow() -> (mpsc::SyncSender<()>, Arc<Slow>) {
        let (restored, waits) = mpsc::sync_channel(1);
        (restored, Arc::new(Slow(Mutex::new(waits))))
    }

    /// The same, without a wait.
    fn quick() -> Arc<Slow> {
        let (restored, state) = slow();
        drop(restored);
        state
    }

    #[tokio::test]
    async fn a_close_waits_for_the_open_of_a_start_that_was_dropped() {
        let (directory, base) = (tempfile::tempdir().unwrap(), context("processors", "slow"));
        add_storage(&base.shared, storage(directory.path(), 1 << 20));
        let log = || StateLog::new("file_storage".to_owned(), base.path.clone());
        // The first one leaves a snapshot.
        let first = log();
        first.open(&base, quick()).await.unwrap();
        first.close().await;
        let second = log();
        let (restored, state) = slow();
        assert!(
            is_pending(second.open(&base, state)).await,
            "the restore has no end"
        );
        let mut close = Box::pin(second.close());
        assert!(is_pending(&mut close).await, "the open goes on");
        drop(restored);
        close.await;
        let third = log();
        third.open(&base, quick()).await.unwrap();
        third.close().await;
    }
}
